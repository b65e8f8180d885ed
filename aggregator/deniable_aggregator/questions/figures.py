"""What may be asked of a withheld cell beside its number of reports: the sum or the mean of a number, the most frequent value.

Each is answered together with the number of reports, with central noise for both. Half of the cost pays for either.

A report in the cell, or not, changes a sum of scores by the largest score that any payload can have. It follows from the
mechanism, and with the declared range also the unit of the sum. The reports have no part in it.

What is asked for is what the people in the cell answered. Their devices and the server add noise. The intervals hold for any
number of reports, also for one. They rest on the exact law of the server's noise, and on the exact moments of the devices' noise
for the least favourable answers. No normal distribution is assumed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import exp, log
from typing import TYPE_CHECKING, Any

import numpy as np

from deniable.errors import ParameterError
from deniable.limits.allowance import MICRO
from deniable.mechanisms.base import FrequencyOracle
from deniable_aggregator import decode
from deniable_aggregator import tally as tallies
from deniable_aggregator.decode.numbers.mean import PARTS, scores_of
from deniable_aggregator.questions import central_noise

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from deniable.declared import Declared
    from deniable.mechanisms import Mechanism
    from deniable_aggregator.decode.numbers.mean import Scores
    from deniable_aggregator.tally import Tally

COUNT = "count"
"""The figure that is asked for by default: the number of reports."""
NAMES = (COUNT, "sum", "mean", "value")
"""All figures."""
_TINY = 1e-9
_AT = np.geomspace(1e-4, 1e3, 120)
"""Where moments are computed. Each of them gives a bound, and between two that stand side by side little is lost."""
_MOST = 10.0  # of these, for a difference of supports
_NEAR = 45  # the place of 0.04 there
_STEPS = 64  # of the grid in the largest scale of the noise
_FAR = 25  # scales; Laplace noise is beyond with a chance of 1e-11
_OF_COUNT = 0.1  # the part of the error's probability that is left to the number of reports


def figure_of(
    name: str,  # one of `NAMES`, but `COUNT`
    declared: Declared,
    periods: int,  # how many periods the release covers
) -> Figure:
    """Return a figure of a metric; raise `ParameterError` if its reports do not have it."""
    metric, mechanism = declared.metric, declared.mechanism
    # A device that keeps its response draws part of its noise once for all periods.
    alike = periods if metric.permanent else 1
    if name == "value":
        if metric.open or metric.estimate or metric.kind.options or not _pure(mechanism):
            raise ParameterError(f"figure: value is for a metric of listed answers; of {metric.id} ask for count", name)
        return Frequent(declared, alike)
    if metric.axis is None or not metric.estimate:
        raise ParameterError(f"figure: {name} is for a number; of {metric.id} ask for count or value", name)
    if metric.scale != "linear" or metric.binned:
        rule = "its scale is logarithmic" if metric.scale != "linear" else "its reports name one of a few parts of the range"
        raise ParameterError(f"figure: {name} cannot be had of {metric.id}, as {rule}; ask for count", name)
    return (Sum if name == "sum" else Average)(declared, alike)


def _pure(mechanism: Mechanism) -> bool:
    """Return whether reports support the value of their answer with one probability, and each other value with another one."""
    if getattr(type(mechanism), "support", None) is not FrequencyOracle.support:
        return False
    try:
        decode.supports(mechanism, tallies.empty(mechanism.layout))
    except ParameterError:
        return False
    return True


def halves(cost: int) -> tuple[int, int]:
    """Divide a cost: for the number of reports, and for the figure. Together they are the cost exactly."""
    return cost // 2, cost - cost // 2


@dataclass(frozen=True, eq=False)
class Figure(ABC):
    """A figure of a withheld cell."""

    declared: Declared
    alike: int  # reports of one device at most whose noise is not independent

    @abstractmethod
    def draw(self, tally: Tally, cost: int) -> int:
        """Return the figure of some reports with noise, as a whole number; it loses no more than the cost."""

    @abstractmethod
    def fields(
        self,
        noisy: int,  # from `draw`
        n: int,  # the number of reports with noise
        cost: int,  # of both
        level: float,
        most: int,  # reports that the cell has at most: those of all cells together
    ) -> dict[str, Any]:
        """Return the members of the answer."""


@dataclass(frozen=True, eq=False)
class _Scored(Figure):
    """A sum of scores: of a report's place in the range, less the middle."""

    @cached_property
    def scores(self) -> Scores:
        """The score of each report."""
        return scores_of(self.declared.mechanism)

    def draw(self, tally: Tally, cost: int) -> int:
        """Add up the scores of the reports."""
        counts = tally.counts[0].tolist()
        total = sum(count * score for count, score in zip(counts, self.scores.cells.tolist(), strict=True))
        return central_noise.total(total, self.scores.sensitivity, cost)

    @property
    def range(self) -> tuple[float, float]:
        """The least number and the greatest."""
        axis = self.declared.metric.axis
        assert axis is not None  # noqa: S101 - `figure_of` has looked
        return float(axis.low), float(axis.high)

    def _reaches(self, n: int, cost: int, level: float, most: int, weight: float) -> tuple[float, float]:
        """Bound the sum of places less what it is of the answers, less `weight` times the noise of the number of reports.

        Returns how far it may be below, and above; in parts of the range.
        """
        # With probability 1 - rare the cell has at most `highest` reports. Its devices' noise has at most as much spread.
        of_count, of_scores = halves(cost)
        rare = _OF_COUNT * (1 - level)
        highest = min(max(n + central_noise.reach(of_count, 1 - 2 * rare), 0), most)
        side = (1 - level - rare) / 2
        noises = [(1 / PARTS, of_scores / MICRO / self.scores.sensitivity)]
        noises += [(weight, of_count / MICRO)] if weight else []
        moments = _moments(self.declared.mechanism, self.alike)
        below, above = (reach(noises, highest * moments[sign], side) for sign in (-1, 1))
        return below, above


class Sum(_Scored):
    """The sum of the numbers in the range that were answered."""

    def fields(self, noisy: int, n: int, cost: int, level: float, most: int) -> dict[str, Any]:
        """Return the middle of the range times the number of reports, and their places beside it."""
        low, high = self.range
        length, middle = high - low, (low + high) / 2
        below, above = self._reaches(n, cost, level, most, abs(middle) / length)
        estimate = n * middle + length * noisy / PARTS
        interval = [estimate - length * above, estimate + length * below]
        return {"unit": self.declared.metric.unit, "estimate": estimate, "interval": interval}


class Average(_Scored):
    """The mean of the numbers in the range that were answered."""

    def fields(self, noisy: int, n: int, cost: int, level: float, most: int) -> dict[str, Any]:
        """Return the means for which neither noise is far out: Fieller's interval, within the range."""
        # For the mean x, less 1/2, of N answers: the sum of scores less x times the number, both with noise, has the mean 0. Its
        # noise is that of the devices and of the sum, less x times that of the number; and |x| is at most 1/2.
        low, high = self.range
        length, places = high - low, noisy / PARTS
        below, above = self._reaches(n, cost, level, most, 0.5)
        least, greatest = _quotients(places - above, places + below, n)
        estimate = low + length * min(max(0.5 + places / n, 0.0), 1.0) if n > 0 else None
        return {
            "unit": self.declared.metric.unit,
            "estimate": estimate,
            "interval": [low + length * (0.5 + least), low + length * (0.5 + greatest)],
        }


class Frequent(Figure):
    """The value that most reports support, or nearly; it has the largest estimated share."""

    def draw(self, tally: Tally, cost: int) -> int:
        """Choose among the values by the reports that support them."""
        # A report in the cell raises the support of each value by 1 or 0, so all numbers change in one direction.
        return central_noise.leading(decode.supports(self.declared.mechanism, tally).tolist(), cost)

    def fields(self, noisy: int, n: int, cost: int, level: float, most: int) -> dict[str, Any]:  # noqa: ARG002
        """Name the value, and bound how far its share is behind the largest."""
        metric = self.declared.metric
        return {"value": metric.label(noisy), "behind": self._behind(n, cost, level)}

    def _behind(self, n: int, cost: int, level: float) -> float:
        """Bound the share of the most frequent value less that of the one that is named, among the answers of the cell."""
        mechanism = self.declared.mechanism
        assert mechanism.odds  # noqa: S101 - `figure_of` has looked
        of_count, of_value = halves(cost)
        rare = _OF_COUNT * (1 - level)
        least = n - central_noise.reach(of_count, 1 - 2 * rare)
        if least < 1:
            return 1.0
        # Beside the most frequent value there are d - 1 others. The noise of the choice lifts none of them by more than `chosen`,
        # and the devices' noise none by more than `devices` (Chernoff). With more reports both weigh less.
        others, side = mechanism.domain_size - 1, (1 - level - rare) / 2
        rarely = log(others / side)
        chosen = rarely * MICRO / of_value
        p, q = map(float, mechanism.odds)
        devices = float(((least * _pair_moments(p, q, self.alike) + rarely) / _AT[_AT < _MOST]).min())
        return min(1.0, (chosen + devices) / least / (p - q))


def _pair_moments(p: float, q: float, alike: int) -> NDArray[np.float64]:
    """Bound the log moments, for each report, of the support of one value less that of another, less its mean, at `_AT`."""
    # A report supports the first value with probability a, and the second with b. If it may support both, the moment is smaller.
    # Its answer is the first value, the second, or another one.
    t = _AT[_AT < _MOST] * alike
    cases = ((p, q), (q, p), (q, q))
    with np.errstate(over="ignore"):  # there is no bound from such a moment
        moments = [np.log1p(a * np.expm1(t) + b * np.expm1(-t)) - t * (a - b) for a, b in cases]
    return np.asarray(np.max(moments, axis=0) / alike)


@lru_cache(maxsize=64)
def _moments(mechanism: Mechanism, alike: int) -> dict[int, NDArray[np.float64]]:
    """Return the log moments, for each report, of the devices' noise at `_AT`; by the sign of the noise."""
    # Hoelder: the reports of a device have at most the moment of one report as many times as far out, whatever they share.
    scores = scores_of(mechanism)
    return {sign: np.array([scores.log_moment(sign * at * alike) / alike for at in _AT.tolist()]) for sign in (-1, 1)}


def reach(
    noises: Sequence[tuple[float, float]],  # a factor, and the epsilon of the discrete Laplace noise that it multiplies
    log_moments: NDArray[np.float64],  # of the other noise, at `_AT`
    chance: float,
) -> float:
    """Bound the sum of noises, but with a chance."""
    # The law of Laplace noise Z is known. Of the other noise Y it is known that P(Y > y) <= e^(log_moment(t) - t y) for each t
    # (Chernoff). So P(Z + Y > x) <= E g(x - Z), with g the least of these bounds. Z is rounded up to a grid, which only adds.
    scales = [factor / epsilon for factor, epsilon in noises]
    deviation = float(np.sqrt(2 * max(log_moments[_NEAR], 0.0)) / _AT[_NEAR])  # roughly; it only chooses the grid
    step = max(*scales, deviation) / _STEPS
    law, last = np.ones(1), 0  # of Z: (2 last + 1,), from -last to last steps
    for (factor, epsilon), scale in zip(noises, scales, strict=True):
        end = int(_FAR * scale / step) + 1
        places = np.floor(np.arange(-end - 1, end + 1) * (step / factor) + _TINY)
        law, last = np.convolve(law, np.diff(_laplace_cdf(places, epsilon))), last + end
    # An upper bound of what is beyond both ends is taken to be above.
    places = np.arange(-last, last + 1)
    distances = step * np.arange(2 * last + _FAR * _STEPS)
    others = np.exp(np.minimum((log_moments - np.multiply.outer(distances, _AT)).min(axis=1), 0.0)) if deviation else None

    def beyond(at: int) -> float:
        left = at - places
        if others is None:
            return float(law[left < 0].sum() + max(1 - law.sum(), 0.0))
        bounds = np.where(left < 0, 1.0, others[np.clip(left, 0, len(others) - 1)])
        return float(law @ bounds + max(1 - law.sum(), 0.0))

    low, high = 0, len(distances)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if beyond(middle) <= chance else (middle + 1, high)
    return step * low


def _laplace_cdf(places: NDArray[np.float64], epsilon: float) -> NDArray[np.float64]:
    """Return the probabilities that discrete Laplace noise is at most some whole numbers."""
    above = np.exp(-epsilon * (np.abs(places) + (places >= 0))) / (1 + exp(-epsilon))
    return np.where(places >= 0, 1 - above, above)


def _quotients(low: float, high: float, n: int) -> tuple[float, float]:
    """Return the least and the greatest x in [-1/2, 1/2] with x n in [low, high]; the ends if there is none."""
    if n == 0:
        return -0.5, 0.5
    one, other = sorted((low / n, high / n))
    if one > 0.5 or other < -0.5:  # noqa: PLR2004 - the ends of the range
        return -0.5, 0.5
    return max(one, -0.5), min(other, 0.5)
