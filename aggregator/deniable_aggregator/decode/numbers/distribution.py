"""Distributions of numbers, from a sum of randomised reports: density, cumulative shares and quantiles, with bands."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from math import sqrt
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from deniable.mechanisms.window import Window
from deniable_aggregator import decode
from deniable_aggregator.decode.consistent import consistent
from deniable_aggregator.decode.multiple_testing import tail
from deniable_aggregator.decode.numbers.profile import Profile, around, band_of_points, cell_chances

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from deniable.mechanisms import Mechanism
    from deniable_aggregator.tally import Tally

RESAMPLES = 200
_GAIN = 1e-3  # the fit ends when a step gains less log-likelihood than e^epsilon times this; stopping early is what smooths it
_MOST_STEPS = 10_000
_LOOK = 4  # steps from one look at the likelihood to the next
_SMOOTHINGS = 0.0, 0.25, 1.0  # how strongly a step may smooth
# _TRIALS, _HELD_OUT: how often a share of the reports is held out, to choose between them
_TRIALS = 4
_HELD_OUT = 0.2
_ENOUGH = 100  # reports, from which on there is a choice
_BLURRED = 0.5
_FEWEST = 8  # parts of a grouped distribution
# Standard errors that a share must be away from 0 and 1: of those of resampled fits, and of those of the profile, which allow
# for all distributions. See `benchmarks/atoms.py`.
_RESOLVED, _TOLD = 4, 2


class Quantile(NamedTuple):
    """A quantile."""

    share: float  # the share of the answers below it
    place: float  # its place on the axis, in [0, 1]
    # low, high: its band
    low: float
    high: float


class Near(NamedTuple):
    """The places that can hold a quantile."""

    place: float  # of the quantile in the best fit
    # low, high: (places,), between which each lies
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    worse: NDArray[np.float64]  # (places,), by how much the reports fit worse if it is there, as a chi-square distance


@dataclass(frozen=True, eq=False)
class Distribution:
    """A distribution of places on an axis. Within each part of the axis it is even."""

    n: int  # reports
    edges: NDArray[np.float64]  # (parts + 1,), from 0 to 1: where the parts end
    mass: NDArray[np.float64]  # (parts,), the share of the answers in each; not negative, with sum 1
    # (`RESAMPLES`, parts), what it is estimated to be, without smoothing, from as many other samples of devices and of their
    # noise. It says how fine a picture may be. It takes most of the time, so only a picture asks for it.
    resample: Callable[[], NDArray[np.float64]]
    rough: NDArray[np.float64]  # (points,), the mass without smoothing, which keeps peaks: bands are of this
    profile: Profile | None = None  # what bands of quantiles come from; None of permanent responses, where they are resampled
    # (values,), the places of the only values that answers can have; None if they may lie anywhere.
    values: NDArray[np.float64] | None = None

    @cached_property
    def resampled(self) -> NDArray[np.float64]:
        """What it is estimated to be from other samples, (`RESAMPLES`, parts)."""
        return self.resample()

    @cached_property
    def cumulative(self) -> NDArray[np.float64]:
        """(parts + 1,), the share of the answers below each edge."""
        return _below(self.mass)

    @cached_property
    def cumulative_stderr(self) -> NDArray[np.float64]:
        """(parts + 1,), its standard error."""
        return np.asarray(_below(self.resampled).std(axis=0), np.float64)

    def grouped(self) -> Distribution:
        """Return the distribution over parts that are as fine as these reports can show."""
        size, edges, mass, others = 1, self.edges, self.mass, self.resampled
        # Two, four, eight or more neighbours are joined, until the standard errors of all parts add up to at most a half.
        while others.std(axis=0).sum() > _BLURRED and len(mass) > _FEWEST:
            size *= 2
            starts = np.arange(0, len(self.mass) - size // 2, size)  # the last part has what is left, too
            edges = np.append(self.edges[starts], 1.0)
            mass, others = np.add.reduceat(self.mass, starts), np.add.reduceat(self.resampled, starts, axis=1)
        return replace(self, edges=edges, mass=mass, resample=lambda: others)

    def quantile(
        self,
        share: float,  # the share of the answers below it, in (0, 1)
        level: float = 0.95,  # confidence of the band, in (0, 1)
    ) -> Quantile:
        """Estimate a quantile."""
        # The band has all places that the reports allow, whatever the rest of the distribution is: see `Profile`.
        if self.profile is not None and self.values is not None:
            best, first, last = self.profile.quantile(share, level)
            # The best fit is spiky, since nothing smooths it. So where the reports fit the smooth fit's quantile as well, within
            # one standard error, it is taken.
            smooth = int(np.abs(self.values - _invert(self.cumulative, self.edges, share)).argmin())
            best = smooth if self.profile.allows(smooth, share, 1.0) else best
            place, low, high = (float(self.values[at]) for at in (best, first, last))
        else:
            place = _invert(self.cumulative, self.edges, share)
            low, high = self._resampled_band(share, level) if self.profile is None else self._profiled_band(share, level)
        return Quantile(share, place, min(low, place), max(high, place))

    def near(
        self,
        share: float,  # the share of the answers below the quantile, in (0, 1)
        most: float,  # the places are those at which the reports fit worse by so much at most
    ) -> Near | None:
        """Return the places that can hold a quantile; None of permanent responses, of which they are not known."""
        if self.profile is None:
            return None
        first, worse = self.profile.near(share, most)
        places = range(first, first + len(worse))
        if self.values is not None:
            ends = np.repeat(self.values[places.start : places.stop, None], 2, axis=1)
        else:
            ends = np.array([around(self.rough, place) for place in places])
        return Near(self.quantile(share).place, ends[:, 0], ends[:, 1], worse)

    def resolves(self, quantile: Quantile) -> bool:
        """Return whether there are enough reports to tell its share from 0 and from 1."""
        share = quantile.share
        if self.profile is not None:
            error, away = self.profile.error(share), _TOLD
        else:
            error, away = float(np.interp(quantile.place, self.edges, self.cumulative_stderr)), _RESOLVED
        # Reports that all name one cell show no error.
        return min(share, 1 - share) >= away * max(error, sqrt(share * (1 - share) / self.n))

    def _profiled_band(self, share: float, level: float) -> tuple[float, float]:
        assert self.profile is not None  # noqa: S101 - the caller has looked
        return band_of_points(self.profile, self.rough, share, level)

    def _resampled_band(self, share: float, level: float) -> tuple[float, float]:
        """Return the percentiles of the resampled quantiles, and half a part more to both sides."""
        others = np.array([_invert(each, self.edges, share) for each in _below(self.resampled)])
        low, high = np.quantile(others, [tail(level), 1 - tail(level)])
        half = float(np.max(np.diff(self.edges))) / 2
        return max(float(low) - half, 0.0), min(float(high) + half, 1.0)


def distribution(
    mechanism: Mechanism,  # `Window`, or a frequency oracle over equal parts of the axis
    tally: Tally,
    *,
    repeats: float = 0.0,  # other reports of a report's device, at most: see `panel`
    permanent: bool = False,  # whether devices keep their permanent responses
    # places of the only values that answers can have, in order; none if anywhere. Only a window uses them.
    values: Sequence[float] = (),
) -> Distribution | None:
    """Estimate the distribution of the places of answers; None without reports."""
    # Reports of a window are a known mixture over the points. Its maximum likelihood is approached by expectation maximisation
    # from the uniform distribution. It stops when a step gains less log-likelihood than `e^epsilon / 1000`, which smooths. Where
    # that foresees reports better, each step smooths as well. Bands come from the fit without that, and are widened to hold the
    # quantile that is shown. The resampled distributions come from multinomial samples of the tally. All that is drawn is the
    # same whenever the tally is the same.
    # Z. Li and others: Estimating numerical distributions under local differential privacy. SIGMOD 2020, section 5.5.
    tally.check_decoder(mechanism)
    n = tally.n
    if not n:
        return None
    seed = int.from_bytes(sha256(tally.cells.tobytes()).digest()[:8], "little")
    if not isinstance(mechanism, Window):
        estimate = decode.estimate(mechanism, tally, repeats=repeats, permanent=permanent)
        errors = np.random.default_rng(seed).standard_normal((RESAMPLES, mechanism.domain_size))
        samples = estimate.frequency + estimate.stderr * errors
        parts = np.array([consistent(each, complete=True) for each in (estimate.frequency, *samples)])
        edges = np.linspace(0, 1, mechanism.domain_size + 1)
        return Distribution(n, edges, parts[0], lambda: parts[1:], parts[0])
    counts = tally.counts[0].astype(np.float64)
    smoothing = choose_smoothing(mechanism, counts, np.random.default_rng(seed))
    rough, smooth = fit(mechanism, np.tile(counts, (2, 1)), [0.0, smoothing])

    def resample() -> NDArray[np.float64]:
        chance = np.random.default_rng(seed)
        others = fit(mechanism, chance.multinomial(n, counts / n, RESAMPLES).astype(np.float64))
        return _of_same_people(rough, others, n, repeats, chance)

    # Half of the room of the two points at the ends lies outside of the axis.
    edges = np.concatenate([[0.0], (np.arange(1, mechanism.points) - 0.5) / (mechanism.points - 1), [1.0]])
    if not len(values):
        points = cell_chances(mechanism, np.linspace(0, 1, mechanism.points))
        return Distribution(n, edges, smooth, resample, rough, Profile(points, counts, rough, repeats))
    places = np.asarray(values, np.float64)
    chances = cell_chances(mechanism, places)
    nearest = np.searchsorted((places[1:] + places[:-1]) / 2, np.linspace(0, 1, mechanism.points))
    start = np.bincount(nearest, rough, len(places)).astype(np.float64)
    return Distribution(n, edges, smooth, resample, rough, Profile(chances, counts, start, repeats), places)


def choose_smoothing(
    mechanism: Window,  # what the devices ran
    counts: NDArray[np.float64],  # (cells,)
    chance: np.random.Generator,
) -> float:
    """Choose the smoothing whose fits to most of the reports make the others, which are held out, the most likely."""
    if counts.sum() < _ENOUGH:
        return _SMOOTHINGS[0]
    held_out = chance.binomial(counts.astype(np.int64), _HELD_OUT, (_TRIALS, len(counts)))
    fits = fit(mechanism, np.tile(counts - held_out, (len(_SMOOTHINGS), 1)), np.repeat(_SMOOTHINGS, _TRIALS))
    cells = _cells(fits, mechanism.length, float(mechanism.inside), float(mechanism.outside))
    likely = np.log(cells).reshape(len(_SMOOTHINGS), _TRIALS, -1)
    return _SMOOTHINGS[int(np.einsum("stc,tc->s", likely, held_out).argmax())]


def fit(
    mechanism: Window,  # what the devices ran
    counts: NDArray[np.float64],  # (tallies, cells)
    smoothing: Sequence[float] | NDArray[np.float64] | None = None,  # (tallies,), how strongly each step smooths, in [0, 1]
) -> NDArray[np.float64]:
    """Fit distributions over the points to several tallies at once, (tallies, points), each with sum 1."""
    # With probability `d = w (inside - outside)` a report names a cell of the window, each as likely, else any cell. A step takes
    # the points of the former reports as missing only. So it goes 1/d times as far as one that takes those of all as missing, on
    # nearly the same path. Where it ends is measured in steps of the latter. The likelihood takes as long as the rest of a step,
    # so it is looked at after every few of them.
    w, inside, outside = mechanism.length, float(mechanism.inside), float(mechanism.outside)
    least = _LOOK * _GAIN * float(mechanism.ratio) / (w * (inside - outside))
    distributions = np.empty((len(counts), mechanism.points))
    left, seen, before = np.arange(len(counts)), counts, np.full(len(counts), -np.inf)
    mass = np.full(distributions.shape, 1 / mechanism.points)
    moved = np.zeros((len(counts), 1)) if smoothing is None else np.asarray(smoothing, np.float64)[:, None] / 4
    smooths = bool(moved.any())
    for step in range(_MOST_STEPS):
        likely = _cells(mass, w, inside, outside)
        if step % _LOOK == 0:
            gained = np.einsum("ij,ij->i", seen, np.log(likely))
            going = gained - before >= least
            before = gained
            if not going.all():
                distributions[left[~going]] = mass[~going]
                left, seen, mass, likely, before, moved = (each[going] for each in (left, seen, mass, likely, before, moved))
                if not len(left):
                    return distributions
        mass *= _sums(np.divide(seen, likely, out=likely), w)
        if smooths:
            _smooth(mass, moved)
        mass /= np.add.reduce(mass, axis=1, keepdims=True)
    distributions[left] = mass
    return distributions


def _cells(
    mass: NDArray[np.float64],  # (distributions, points)
    w: int,  # the length of the window
    # inside, outside: the probability of each cell in it, and of each other one
    inside: float,
    outside: float,
) -> NDArray[np.float64]:
    """Return the probability of each cell for distributions over the points, (distributions, cells)."""
    cells = _sums(mass, w, w - 1)
    cells *= inside - outside
    cells += outside
    return cells


def _smooth(mass: NDArray[np.float64], moved: NDArray[np.float64]) -> None:
    """Move a part of each point's mass to either neighbour, in place."""
    # The points at the ends have half the room of others, so they have half the mass where answers are even. All of what leaves
    # them goes inwards.
    flow = moved * np.diff(mass * np.where(np.arange(mass.shape[1]) % (mass.shape[1] - 1), 1, 2), axis=1)
    mass[:, :-1] += flow
    mass[:, 1:] -= flow


def _sums(numbers: NDArray[np.float64], length: int, beyond: int = 0) -> NDArray[np.float64]:
    """Sum each `length` neighbours of a row, where so many zeros lie beyond both of its ends."""
    last = 1 + beyond + numbers.shape[1]
    sums = np.empty((len(numbers), last + beyond))
    sums[:, : 1 + beyond] = 0.0
    np.add.accumulate(numbers, axis=1, out=sums[:, 1 + beyond : last])
    sums[:, last:] = sums[:, last - 1, None]
    return np.asarray(sums[:, length:] - sums[:, :-length])


def _of_same_people(
    fitted: NDArray[np.float64], resampled: NDArray[np.float64], n: int, repeats: float, chance: np.random.Generator
) -> NDArray[np.float64]:
    """Add to resampled distributions how people differ who each made several reports."""
    # Resampling counts each report as of another person. Shares of the same people vary by `f (1 - f) repeats / n` more, as those
    # of a drawing of n / repeats people do. Sums of mass that then fall are sorted.
    # V. Chernozhukov and others: Improving point and interval estimators of monotone functions. Biometrika 96(3), 2009.
    if not repeats:
        return resampled
    people = max(round(n / repeats), 1)
    draws = chance.multinomial(people, fitted / fitted.sum(), len(resampled)) / people
    return np.diff(np.sort(np.clip(_below(resampled + draws - fitted), 0.0, 1.0), axis=1), axis=1)


def _below(mass: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the cumulative sums along the last axis, from 0 on."""
    sums = np.cumsum(mass, axis=-1)
    return np.concatenate([np.zeros((*sums.shape[:-1], 1)), sums], axis=-1)


def _invert(cumulative: NDArray[np.float64], edges: NDArray[np.float64], share: float) -> float:
    """Return the place below which a share lies; the middle of all such places."""
    target = share * cumulative[-1]
    at = int(np.searchsorted(cumulative, target, side="right"))
    at = min(max(at, 1), len(edges) - 1)
    low, high = cumulative[at - 1], cumulative[at]
    part = (target - low) / (high - low) if high > low else 0.5
    return float(edges[at - 1] + part * (edges[at] - edges[at - 1]))
