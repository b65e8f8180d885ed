"""Estimates from a pool of hash functions: the plainly present is cleared, and what is left has a known distribution.

Two values collide in some rows of a pool. The functions are public, so it is known in which. What a common value adds to the
support of others can be subtracted: the shares of plainly present values are solved for jointly, and the cells are cleared of
them.

The cells then contain the noise of the devices, and people whose value is rare or is not a candidate. A value that nobody holds
hashes to a random cell of each row. So its support is the sum of one random cell of each row, whatever the cells contain. The
tally tells the distribution of this sum. Its tail is long if an unlisted value is common.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse import csc_array
from scipy.sparse.linalg import LinearOperator, cg
from scipy.special import bdtrik, ndtr, ndtri

from deniable.exact.hashing import PoolFamily
from deniable_aggregator.decode import hash_lookup
from deniable_aggregator.decode.estimate import Estimate, clopper_pearson, plausible, stderr_of_mean

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from numpy.typing import NDArray

    from deniable.mechanisms.sketch import Sketch
    from deniable_aggregator.decode.estimate import Target

__all__ = ["Absent", "Cells", "Pooled", "estimate"]

_PLAIN = 0.05  # a value is plainly present if noise alone would show any in this share of tallies
_TRIED = 1024  # candidates with the most support, among which the plainly present are looked for
_MOST = 128  # values cleared at most: those after them confuse little
_CELLS = 64  # for each value cleared, so that clearing takes little of the others away
_ROUNDS = 4  # of clearing, each of which may show more of what is plainly present
_WORTH = 0.01  # confusion below this share of the variance is not worth another look-up of all candidates
_GLANCE = 8  # one of this many rows is enough to show the most common values
_FEW = 128  # rows that are always looked at
_PRECISE = 1e-6  # relative error of the shares that are cleared
_STEP = 0.7  # between scores, within which the relation of sums and scores is nearly linear
_SMOOTH = 2.5  # standard deviations of noise that smooth a step
_FAR = 8.0  # a score that nothing needs to exceed


@dataclass(frozen=True, eq=False)
class Absent:
    """The distribution of the support of a value that nobody holds: the sum of one random cell of each row.

    Parameters
    ----------
    cells
        (rows, width): reports that support each place.

    Notes
    -----
    The tails are saddlepoint approximations: Barndorff-Nielsen's r* from the exact cumulants of the sum, with a correction for
    continuity. They are kept as a table of supports and scores. A score is the standard normal number that is exceeded with the
    same probability.

    References
    ----------
    J. Robinson: Saddlepoint approximations for permutation tests and confidence intervals. JRSS B 44(1), 1982.
    O. E. Barndorff-Nielsen: Modified signed log likelihood ratio. Biometrika 78(3), 1991.
    """

    cells: NDArray[Any]

    @cached_property
    def mean(self) -> float:
        """Mean of the support."""
        return float(self.cells.mean(axis=1).sum())

    @cached_property
    def variance(self) -> float:
        """Variance of the support."""
        return float(self.cells.var(axis=1).sum())

    def score(self, support: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the standard normal number that is exceeded as rarely as a support."""
        supports, scores = np.concatenate([self._below, self._above], axis=1)
        return np.asarray(np.interp(support, supports, scores))

    def support(self, score: float) -> float:
        """Return the support that is exceeded as rarely as a standard normal number, which is far from 0."""
        supports, scores = self._above if score > 0 else self._below
        return float(np.interp(score, scores, supports))

    @cached_property
    def _above(self) -> NDArray[np.float64]:
        """Supports above the mean, and their scores; (2, points)."""
        return _upper_tail(self.cells)

    @cached_property
    def _below(self) -> NDArray[np.float64]:
        return -_upper_tail(-self.cells)[:, ::-1]


def _upper_tail(cells: NDArray[Any]) -> NDArray[np.float64]:
    """Return points of the upper tail of the sum of one random cell of each row: sums and their scores; (2, points)."""
    middle, spread = cells.mean(axis=1), np.sqrt(cells.var(axis=1).sum())
    if not spread:
        return np.array([[middle.sum()], [0.0]])
    scaled = ((cells - middle[:, None]) / spread).astype(np.float32)
    most = scaled.max(axis=1)[:, None]
    points: list[tuple[float, float]] = [(0.0, 0.0)]
    tilt = _STEP
    while points[-1][1] < _FAR:
        weights = np.exp(np.float32(tilt) * (scaled - most))  # in the tilted sum each cell is so many times as likely
        total = weights.sum(axis=1)
        means = np.einsum("rj,rj->r", weights, scaled) / total
        variances = np.einsum("rj,rj,rj->r", weights, scaled, scaled) / total - np.square(means)
        cumulants = np.log(total / scaled.shape[1]) + np.float32(tilt) * most[:, 0]
        mean, variance, cumulant = (float(each.sum(dtype=np.float64)) for each in (means, variances, cumulants))
        root = np.sqrt(max(2 * (tilt * mean - cumulant), 0.0))
        score = root + np.log(tilt * np.sqrt(variance) / root) / root if root and variance > 0 else 0.0
        if score <= points[-1][1]:  # hardly any sum is greater, and none than that of the greatest cells
            last = float(most.sum(dtype=np.float64))
            points += [(last, points[-1][1]), (np.nextafter(last, np.inf), _FAR)]
            break
        points.append((mean, score))
        tilt += _STEP / np.sqrt(variance)
    sums, scores = np.array(points[1:] or points).T
    return np.array([middle.sum() + spread * (sums + _half_step(most[:, 0], scaled.shape[1])), scores])


def _half_step(most: NDArray[np.float32], width: int) -> float:
    """Compute by how much a sum exceeds a smooth one at most, if its rows are alike and one cell of each stands out.

    The sum then moves in steps of the size of these cells, which the rest of its variance smooths. The sum has variance 1.
    """
    rest = 1 - float(np.square(most, dtype=np.float64).sum()) / (width - 1)
    step = float(most.mean()) * width / (width - 1)
    return max(step - _SMOOTH * float(np.sqrt(max(rest, 0.0))), 0.0) / 2


@dataclass(frozen=True, eq=False)
class Pooled(Estimate):
    """Frequencies from the support that each value has in cells cleared of the plainly present ones.

    Parameters
    ----------
    mechanism
        What the devices ran.
    n
        Reports.
    support
        float array (values,): reports that support each value, less what other values add that were cleared.
    cleared
        float array (values,): the share of people whose value is another one that was cleared.
    absent
        The distribution of the support of a value that nobody holds.
    rest
        The share that none of the values accounts for, and its standard error; from the cells before any value was cleared.
    """

    mechanism: Sketch
    n: int
    support: NDArray[np.float64]
    cleared: NDArray[np.float64]
    absent: Absent
    rest: tuple[float, float]

    @cached_property
    def frequency(self) -> NDArray[np.float64]:
        """Unbiased share of each value, ``(support / n - q) / (p - q)``."""
        return (self.support / self.n - self._q) / self._gain

    @cached_property
    def plausible(self) -> NDArray[np.float64]:
        """Shares from which errors can be computed."""
        return plausible(self.frequency, self.absent_stderr)

    @property
    def unallocated(self) -> tuple[float, float]:
        """The share of the population that none of these values accounts for, and its standard error; nan where not known."""
        return self.rest

    @property
    def stderr(self) -> NDArray[np.float64]:
        """Standard error of the frequency in the population that the respondents were drawn from."""
        return np.sqrt(self._noise("population") + self._confusion) / self.n / self._gain

    @property
    def respondents_stderr(self) -> NDArray[np.float64]:
        """Standard error of the frequency among the respondents: only the randomness of the devices."""
        return np.sqrt(self._noise("respondents") + self._confusion) / self.n / self._gain

    @property
    def absent_stderr(self) -> NDArray[np.float64]:
        """Standard error of the frequency of each value if nobody held it."""
        return np.full(len(self.support), np.sqrt(self._absent_noise + self._confusion) / self.n / self._gain)

    @property
    def p_value(self) -> NDArray[np.float64]:
        """Chance of as much support if nobody held the value."""
        return np.asarray(ndtr(-self.absent.score(self.support)), np.float64)

    def _half_detected(self, chance: float) -> NDArray[np.float64]:
        """Compute the share of each value at which half of all p-values are below `chance`; nan if there is none."""
        rows, width = self.absent.cells.shape
        if width**-rows > chance:  # as often does a value that nobody holds share all its places with one that everybody holds
            return np.full(len(self.support), np.nan)
        least = self.absent.support(-ndtri(chance)) - self.absent.mean
        return np.full(len(self.support), least / self.n / self._gain)

    def _interval(self, chance: float, target: Target) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Compute intervals.

        Noise alone gives Clopper and Pearson's interval, or for respondents a normal one. Confusion adds what makes the tails of
        `absent` longer than those of the noise. Their squares are added, as if both were normal; if not, this is the safe side.
        """
        support, noise = np.clip(self.support, 0, self.n), self._noise(target)
        if target == "population":
            low, high = (self.n * end for end in clopper_pearson(support, self.n, chance))
            known = np.sqrt(noise / self._binomial(self.plausible))
            below, above = known * (support - low), known * (high - support)
        else:
            below = above = -ndtri(chance) * np.sqrt(noise)
        fewer, more = self._excess(chance)
        scale = self.n * self._gain
        return self.frequency - np.hypot(below, more) / scale, self.frequency + np.hypot(above, fewer) / scale

    def _excess(self, chance: float) -> tuple[float, float]:
        """Return what confusion adds to the lower and the upper tail of the support of an absent value, in squares."""
        n, q, score = self.n, self._q, float(ndtri(chance))
        tails = self.absent.support(score) - self.absent.mean, self.absent.support(-score) - self.absent.mean
        noise = bdtrik(chance, n, q) + 0.5 - n * q, bdtrik(1 - chance, n, q) + 0.5 - n * q
        known = self._absent_noise / (n * q * (1 - q))
        fewer, more = (np.sqrt(max(tail**2 - known * part**2, 0.0)) for tail, part in zip(tails, noise, strict=True))
        return fewer, more

    def _noise(self, target: Target) -> NDArray[np.float64]:
        """Compute the variance of each support without confusion."""
        f, p, q = self.plausible, float(self.mechanism.p), self._q
        whole = self._binomial(f) if target == "population" else self.n * (f * p * (1 - p) + (1 - f) * q * (1 - q))
        return whole - self._allocation * self.cleared

    def _binomial(self, frequency: NDArray[np.float64]) -> NDArray[np.float64]:
        s = self._q + frequency * self._gain
        return self.n * s * (1 - s)

    @property
    def _absent_noise(self) -> float:
        return self.n * self._q * (1 - self._q) - self._allocation * float(self.cleared.max(initial=0.0))

    @property
    def _allocation(self) -> float:
        """Variance of a support if all others hold one value, because the number of reports in the rows of collisions varies.

        For a cleared value these numbers are known.
        """
        width = self.mechanism.width
        return self.n * float(self.mechanism.p - self.mechanism.other) ** 2 * (width - 1) / width**2

    @property
    def _confusion(self) -> float:
        """Variance that values that were not cleared add to each support."""
        return max(self.absent.variance - self._absent_noise, 0.0)

    @property
    def _q(self) -> float:
        return float(self.mechanism.q)

    @cached_property
    def _gain(self) -> float:
        return float(self.mechanism.p) - float(self.mechanism.q)


@dataclass(frozen=True, eq=False)
class Cells:
    """The cells of a tally.

    Parameters
    ----------
    mechanism
        What the devices ran, with a pool.
    counts
        (rows, width): reports that support each place, perhaps cleared of what some values add.
    reports
        int64 array (rows,), not all 0.
    """

    mechanism: Sketch
    counts: NDArray[Any]
    reports: NDArray[np.int64]

    @cached_property
    def absent(self) -> Absent:
        """The distribution of the support of a value that nobody holds."""
        return Absent(self.counts[self.reports > 0])

    @property
    def n(self) -> int:
        """Number of reports."""
        return int(self.reports.sum())

    @property
    def scale(self) -> float:
        """Support that a value has more if everybody holds it."""
        return self.n * float(self.mechanism.p - self.mechanism.q)

    @property
    def confused(self) -> bool:
        """Whether there is more confusion than is worth a look-up."""
        q = float(self.mechanism.q)
        return self.absent.variance > (1 + _WORTH) * self.n * q * (1 - q)

    def lookup(self, keys: NDArray[np.uint64]) -> NDArray[np.float64]:
        """Sum the cells that each key hashes to."""
        return hash_lookup.lookup(self.family, self.counts, keys)

    def plain(self, support: NDArray[np.float64], candidates: int) -> NDArray[np.intp]:
        """Return the places of supports that noise alone would hardly show among all candidates, in ascending order."""
        least = self.absent.support(-ndtri(_PLAIN / max(candidates, 1)))
        most = min(_MOST, min(self.n, self.absent.cells.size) // _CELLS)
        first = np.argsort(-support, kind="stable")[:most]
        return np.sort(first[support[first] > least])

    def some(self, share: int) -> Cells:
        """Take one in `share` rows, unless these are few."""
        rows = max(len(self.reports) // share, _FEW)
        return Cells(self.mechanism, self.counts[:rows], self.reports[:rows])

    def clear(self, keys: NDArray[np.uint64]) -> tuple[NDArray[np.float64], Cells]:
        """Estimate the shares of values jointly, by least squares, and subtract from the cells what they add."""
        rows, width = self.counts.shape
        numbers = np.arange(rows)[:, None]
        places = (numbers * width + hash_lookup.hashes(self.family, numbers, keys)).T.ravel()
        held = csc_array((np.ones(len(places)), places, np.arange(0, len(places) + 1, rows)), (rows * width, len(keys)))
        odds = float(self.mechanism.p - self.mechanism.other) * self.reports[:, None]

        def added(shares: NDArray[np.float64]) -> NDArray[np.float64]:
            return np.asarray(odds * ((held @ shares).reshape(rows, width) - shares.sum() / width))

        together = LinearOperator((len(keys), len(keys)), matvec=lambda shares: held.T @ added(shares).ravel())
        shares, _ = cg(together, held.T @ self.counts.ravel() - self.n * float(self.mechanism.q), rtol=_PRECISE)
        return shares, Cells(self.mechanism, self.counts - added(shares), self.reports)

    @property
    def family(self) -> PoolFamily:
        """The hash functions."""
        assert isinstance(self.mechanism.family, PoolFamily)  # noqa: S101 - complete families confuse nothing
        return self.mechanism.family


def estimate(cells: Cells, values: Sequence[int]) -> Pooled:
    """Estimate the frequencies of candidates."""
    keys = hash_lookup.keys(values, cells.mechanism.domain_size)
    plain, shares, left = _clear(cells, keys)
    # How the rows differ says how far the sum is off, unless some of it was taken from all of them.
    support, by_row = hash_lookup.lookup_by_row(cells.family, left.counts, cells.counts, keys)
    noise = len(keys) * cells.n * float(cells.mechanism.q)
    rest = 1 - float(by_row.sum() - noise) / cells.scale, stderr_of_mean(by_row, cells.reports) * cells.n / cells.scale
    cleared = np.full(len(keys), shares.sum())
    support[plain] += cells.scale * shares
    cleared[plain] -= shares
    return Pooled(cells.mechanism, cells.n, support, np.clip(cleared, 0, 1), left.absent, rest)


def _clear(cells: Cells, keys: NDArray[np.uint64]) -> tuple[NDArray[np.intp], NDArray[np.float64], Cells]:
    """Clear the cells of what is plainly present. The less it confuses, the more there is.

    Returns
    -------
    plain : ndarray of int
        The places of these candidates.
    shares : ndarray of float
        Share of people who hold each.
    left : Cells
        The cells without them.
    """
    plain, shares, left = np.arange(0), np.zeros(0), cells
    if not cells.confused:
        return plain, shares, left
    likely = np.arange(len(keys))
    if len(keys) > _TRIED:
        likely = np.argsort(-cells.some(_GLANCE).lookup(keys), kind="stable")[:_TRIED]
    support = cells.lookup(keys[likely])
    for _ in range(_ROUNDS):
        more = left.plain(support, len(keys))
        if not len(more) or np.array_equal(plain, more):
            break
        plain = more
        shares, left = cells.clear(keys[likely[plain]])
        if not left.confused:
            break
        support = left.lookup(keys[likely])
        support[plain] += cells.scale * shares
    return likely[plain], shares, left
