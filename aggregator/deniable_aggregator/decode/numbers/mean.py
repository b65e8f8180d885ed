"""Means of numbers, from a sum of randomised reports, with their errors."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import exp, expm1, log, sqrt
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import ndtri

from deniable.errors import ParameterError
from deniable.mechanisms.permanent.l_grr import LGrr
from deniable.mechanisms.window import Window
from deniable_aggregator import decode
from deniable_aggregator.decode.multiple_testing import tail
from deniable_aggregator.decode.numbers.profile import cell_chances

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from deniable.mechanisms import Mechanism
    from deniable.registry.answers.axis import Axis
    from deniable_aggregator.decode.estimate import Estimate, Target
    from deniable_aggregator.tally import Tally

PARTS = 1 << 20
"""Scores that are added up as whole numbers are numbers of such parts of the range."""
_SURE = 1.645  # standard errors: the spread of the answers is hardly ever larger than its estimate by more


@dataclass(frozen=True, eq=False)
class Mean:
    """The mean place of the answers on their axis, 0 to 1 from low to high end; unbiased, so it may lie outside."""

    n: int  # reports
    place: float  # the mean; nan without reports
    stderr: float  # its standard error in the population that the respondents were drawn from
    respondents_stderr: float  # the same for the mean of the answers that came: only the randomness of the devices
    spread: float  # greatest plausible variance of the answers, in [0, 1/4]
    people: float  # the fewest people whose reports these may be

    def interval(
        self,
        level: float = 0.95,  # confidence, in (0, 1)
        *,
        # whose mean: of the population that the respondents were drawn from; or of the answers that came, which is narrower
        target: Target = "population",
    ) -> tuple[float, float]:
        """Compute a confidence interval of the mean place."""
        # Few people may all have given one answer by chance. So their answers are taken to vary by z^2 / (people + z^2) more
        # of the most that they can, with z the normal quantile, beside what is seen: as Wilson's interval of a share allows.
        z = -float(ndtri(tail(level)))
        error = self.respondents_stderr
        if target == "population":
            unseen = z * z / (self.people + z * z) / 4 / self.people if self.n else 0.0
            error = sqrt(max(self.stderr, error) ** 2 + unseen)
        return self.place - z * error, self.place + z * error


@dataclass(frozen=True, eq=False)
class _Rounded(Mean):
    """The mean of answers that were each rounded to one end: the share of those at the high end."""

    shares: Estimate

    def interval(self, level: float = 0.95, *, target: Target = "population") -> tuple[float, float]:
        """Compute the confidence interval of the share at the high end, the same for both targets."""
        # What was rounded is not known. Rounding alone may vary as much as drawing people whose answers are the ends does.
        del target
        low, high = self.shares.interval(level)
        return float(low[0]), float(high[0])


def mean(
    mechanism: Mechanism,  # `Window`, or `LGrr` of two values to which answers were rounded
    tally: Tally,
    *,
    repeats: float = 0.0,  # other reports of a report's device, at most: see `panel`
    permanent: bool = False,  # whether devices keep their permanent responses
    scores: Sequence[float] = (),  # of a window: what its points count as, from 0 to 1, in place of their places
) -> Mean:
    """Estimate the mean place of answers, or the mean of other scores of the points that they were rounded to."""
    # The mean is that of the scores of all reports. Its variance is that of the scores, over n. It includes the spread of the
    # answers. It is never taken to be below the least that the mechanism has. The answers' mean square is estimated by scores of
    # its own: `c[i + w] - c[i] = G (2 i + 1)` makes their mean i^2 for every point i. So the spread is known, which all reports
    # of a person share.
    if isinstance(mechanism, LGrr) and mechanism.domain_size == 2:  # noqa: PLR2004
        shares = decode.estimate(mechanism, tally, [1], repeats=repeats, permanent=permanent)
        place = float(shares.frequency[0])
        stderr, spread = float(shares.stderr[0]), float(shares.plausible[0] * (1 - shares.plausible[0]))
        return _Rounded(tally.n, place, stderr, stderr, spread, tally.n / (1 + repeats), shares)
    if not isinstance(mechanism, Window):
        raise ParameterError("mechanism: choose a window, or two ends, whose reports show means", mechanism.name)
    tally.check_decoder(mechanism)
    n = tally.n
    if not n:
        return Mean(0, float("nan"), float("nan"), float("nan"), 0.25, 0.0)
    cells, squares, least, worst = _scored(mechanism, tuple(scores)) if scores else _tables(mechanism)
    seen = tally.counts[0] / n
    place = float(seen @ cells)
    total = max((float(seen @ cells**2) - place**2) * n / max(n - 1, 1), least)
    centred = squares - 2 * place * cells
    spread = float(seen @ centred) + place**2
    error = sqrt(max(float(seen @ centred**2) - float(seen @ centred) ** 2, 0.0) / n)
    if n == 1:  # which shows no variance
        return Mean(1, place, sqrt(worst + 0.25), sqrt(worst), 0.25, 1.0)
    # If all answers are at the ends, the spread is largest.
    inside = min(max(place, 0.0), 1.0)
    widest = min(max(spread + _SURE * error, 0.0), inside * (1 - inside))
    noise = min(max(total - spread + _SURE * error, least), worst)
    return Mean(n, place, sqrt((total + repeats * widest) / n), sqrt(noise / n), widest, n / (1 + repeats))


@lru_cache(maxsize=256)
def _tables(mechanism: Window) -> tuple[NDArray[np.float64], NDArray[np.float64], float, float]:
    """Return the score of each cell for the place, and for its square, and the least and the largest variance of the former."""
    w, steps = mechanism.length, mechanism.points - 1
    scores = np.array([float(score) for score in mechanism.cell_scores])
    inside, outside = float(mechanism.inside), float(mechanism.outside)
    squares = np.zeros(mechanism.layout.width)
    for cell in range(w, len(squares)):
        squares[cell] = squares[cell - w] + (2 * (cell - w) + 1) / (inside - outside)
    squares -= outside * squares.sum() + (inside - outside) * squares[:w].sum()
    least = min(mechanism.score_variance(point / steps) for point in range(mechanism.points))
    return scores, squares / steps**2, least, float(mechanism.worst_noise)


@lru_cache(maxsize=256)
def _scored(mechanism: Window, points: tuple[float, ...]) -> tuple[NDArray[np.float64], NDArray[np.float64], float, float]:
    """Return the same for other scores of the points."""
    scores = np.array(points)
    (cells, variances), squares = point_scores(mechanism, points), _cells(mechanism, scores**2)
    # An answer between two points a and b has the variance (1 - u) a + u b + u (1 - u) d^2, with d the distance of their scores.
    a, b, d = variances[:-1], variances[1:], np.diff(scores) ** 2
    u = np.clip((1 + np.divide(b - a, d, out=np.zeros_like(d), where=d > 0)) / 2, 0.0, 1.0)
    return cells, squares, float(variances.min()), float(max(variances.max(), ((1 - u) * a + u * b + u * (1 - u) * d).max()))


def point_scores(
    mechanism: Window,
    points: tuple[float, ...],  # the score of each point
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the score of each cell, and the variance of a report's score for an answer at each point."""
    scores = np.array(points)
    cells, w = _cells(mechanism, scores), mechanism.length
    inside, outside = float(mechanism.inside), float(mechanism.outside)
    within = np.convolve(cells**2, np.ones(w), "valid")
    return cells, outside * float(cells @ cells) + (inside - outside) * within - scores**2


def _cells(mechanism: Window, scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return scores of cells whose mean over the reports of each point is the score of that point."""
    # They are determined but for the first one of each row of cells that are a window apart, which is free if the mean over all
    # points is right. These have the least variance on average over the points: the mean of each row is that of all.
    w, inside, outside = mechanism.length, float(mechanism.inside), float(mechanism.outside)
    cells = np.zeros(mechanism.layout.width)
    for cell in range(w, len(cells)):
        cells[cell] = cells[cell - w] + (scores[cell - w + 1] - scores[cell - w]) / (inside - outside)
    likely = outside + (inside - outside) * np.convolve(np.ones(mechanism.points), np.ones(w)) / mechanism.points
    for row in range(w):
        cells[row::w] -= np.average(cells[row::w], weights=likely[row::w])
    return cells + float(scores.mean())


@dataclass(frozen=True, eq=False)
class ArithmeticMean:
    """The arithmetic mean of answers on a logarithmic axis, in the unit of the axis."""

    mean: Mean  # of what the points stand for, as a part of the way from the least to the greatest number
    low: float  # the least number
    length: float  # how far the greatest is from it
    # Devices round an answer to one of two points, so that the mean of its logarithm stays. The mean of what the points stand for
    # is then greater than the answer, at most by this factor.
    rounding: float

    @property
    def value(self) -> float:
        """The middle between no rounding and the most."""
        return self._number(self.mean.place) * (1 + 1 / self.rounding) / 2

    @property
    def stderr(self) -> float:
        """Its standard error."""
        return self.mean.stderr * self.length * (1 + 1 / self.rounding) / 2

    def interval(self, level: float = 0.95, *, target: Target = "population") -> tuple[float, float]:
        """Compute a confidence interval, whatever the rounding was."""
        low, high = (self._number(end) for end in self.mean.interval(level, target=target))
        return (low / self.rounding if low > 0 else low), high

    def _number(self, place: float) -> float:
        return self.low + place * self.length


def arithmetic_mean(
    mechanism: Mechanism,
    tally: Tally,
    axis: Axis,  # a logarithmic one
    *,
    repeats: float = 0.0,  # as `mean` takes it
) -> ArithmeticMean | None:
    """Estimate the arithmetic mean of answers; None unless the reports are of a window, which tell where answers are."""
    # Who rounds to one of two ends tells the mean of the logarithm and nothing else: answers of 1 and 100, and answers of 10
    # alone, give the same reports.
    if not isinstance(mechanism, Window):
        return None
    steps = mechanism.points - 1
    low, high = float(axis.low), float(axis.high)
    numbers = [axis.number(point / steps) for point in range(steps + 1)]
    # Both ends are exact: what is read of one tally does not depend on how a logarithm is rounded.
    scores = [0.0, *((number - low) / (high - low) for number in numbers[1:-1]), 1.0]
    step = log(high / low) / steps
    at = 1 / step - 1 / expm1(step)  # where the mean of two points is the largest multiple of the number between them
    rounding = (1 + at * expm1(step)) * exp(-at * step)
    return ArithmeticMean(mean(mechanism, tally, repeats=repeats, scores=scores), low, high - low, rounding)


@dataclass(frozen=True, eq=False)
class Scores:
    """The score of each report: on average its answer's place in the range, from 0 to 1, less 1/2."""

    cells: NDArray[np.int64]  # (cells,), the score of each cell in parts of the range
    chances: NDArray[np.float64]  # (points, cells), the probability of each cell for answers at points from 0 to 1

    @property
    def sensitivity(self) -> int:
        """The largest score of a payload, whatever its sign, in parts of the range."""
        return int(np.abs(self.cells).max())

    def log_moment(self, t: float) -> float:
        """Bound the log of the mean of e^(t X), where X is a score less what it is on average, over all answers."""
        steps = len(self.chances) - 1
        places = np.linspace(-0.5, 0.5, steps + 1)
        # Divided by the largest, so that nothing overflows.
        exponents = t * self.cells / PARTS
        largest = float(exponents.max())
        moments = self.chances @ np.exp(exponents - largest)
        # Between points a and b an answer has a mixture of their reports. The log of its moment, less t times its place, is
        # concave in the part u of b. So its largest value is at an end, or where the slope is 0.
        a, b, slope = moments[:-1], moments[1:], t / steps
        u = np.zeros(steps) if slope == 0 else (1 / slope - np.divide(a, b - a, out=np.full(steps, np.inf), where=b != a))
        mixed = [np.log(a + part * (b - a)) - t * (places[:-1] + part / steps) for part in (0.0, 1.0, np.clip(u, 0.0, 1.0))]
        return largest + float(np.max(mixed))


def scores_of(mechanism: Mechanism) -> Scores:
    """Return the scores of a mechanism whose reports show a mean."""
    if isinstance(mechanism, Window):
        chances = cell_chances(mechanism, np.linspace(0, 1, mechanism.points))
        return Scores(_in_parts(mechanism.cell_scores), chances)
    if mechanism.odds and mechanism.layout.rows * mechanism.layout.width == 2:  # noqa: PLR2004 - rounded to one end of the range
        p, q = mechanism.odds
        return Scores(_in_parts([-q / (p - q), (1 - q) / (p - q)]), np.array([[p, q], [q, p]], np.float64))
    raise ParameterError("mechanism: choose a window, or two ends, whose reports show means", mechanism.name)


def _in_parts(scores: Sequence[Fraction]) -> NDArray[np.int64]:
    return np.array([round((score - Fraction(1, 2)) * PARTS) for score in scores], np.int64)
