"""One report among others: what somebody learns of it who sees only the sum of all of them.

Take two answers, and the reports of each. Let p = e^epsilon, let b be their total variation, a = b / (p - 1), and
s = 1 - a (p + 1). There are three distributions of reports so that a report of the first answer is

* of the *first kind* with probability p a, of the *second* with a, and of the *third*, which both answers share, with s.

A report of the second answer is its mirror image. Any report is at least 1/p times as likely under any other answer as under
either of these two. So a report of any answer is of the first kind with probability a at least, of the second with a, and of the
third with s / p. Otherwise we let it be seen. The observer of a sum learns at most how many reports are of each kind: i, j and k.
Then

    P(i, j, k) / Q(i, j, k) = (p i + j + p k) / (i + p j + p k)

is how much likelier these are under the first answer. The delta at an epsilon of ln y is the mean of max(0, V_1 + ... + V_n) / n.
Here the V are independent: p - y with probability a, 1 - y p with a, p (1 - y) with s / p, else 0. This delta rises with b: a
larger b spreads V without a change of its mean. So the largest b of all pairs of answers gives a bound for all of them. It is a
bound at every epsilon, so the distributions P and Q may be composed (Zhu, Dong and Wang).

Others who are not honest, or whose reports the observer knows, do not count as others. A crowd of one is a report alone.

Notes
-----
The bound by two kinds alone leaves out that a report of the third kind differs from the reports of others that are not of the
first two. It is then below the exact delta in places, by up to some percent: `test_two_kinds_are_not_enough` has a case.

References
----------
V. Feldman, A. McMillan, K. Talwar: Hiding among the clones. FOCS 2021 (clones).
B. Balle and others: The privacy blanket of the shuffle model. CRYPTO 2019, lemma 5.3 (the mean of a sum).
S. Wang and others: Privacy amplification via shuffling: unified, simplified, and tightened. VLDB 17(8), 2024 (total variation).
V. Doroshenko and others: Connect the dots: tighter discrete approximations of privacy loss distributions. PoPETs 2022(4).
Y. Zhu, J. Dong, Y. Wang: Optimal accounting of differential privacy via characteristic function. AISTATS 2022, theorem 10.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil, exp, floor, log, sqrt
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np

from deniable.errors import ParameterError
from deniable.limits.allowance import MICRO, cost
from deniable_aggregator import checks
from deniable_aggregator.accounting.losses import POINTS, Losses, joined
from deniable_aggregator.accounting.spend import up

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from fractions import Fraction

    from numpy.typing import NDArray

    from deniable.mechanisms import Mechanism

MOST = 100_000
"""A larger crowd counts as one of this size where several are added up: the bound stays one, and the sum stays fast."""

_LOG_TAIL = 41.5  # numbers of reports that are less likely than e^-41.5 count as an infinite loss: 1e-18
_BEYOND = 8 * exp(-_LOG_TAIL)  # all of these together
_THIRDS, _BLOCKS = 32, 64  # how finely the number of the third kind is looked at
_ROUNDING = 1e-9  # a bound on the relative error of all floats here: below 1e-11 in the sums, below 1e-12 in scipy's tail
_CLOSE = 1e-9  # nats
_SPAN = 20  # standard deviations that a grid covers
_FINE = 25  # steps of the grid in a standard deviation of the loss
_BLOCK = 1 << 21  # pairs of numbers that are held at once


@dataclass(frozen=True, slots=True)
class Crowd:
    """Reports of one device, each of which is added to those of others, independently of its other ones."""

    cost: int  # epsilon of a report in millionths of a nat, rounded up, as the ledger counts it
    telling: float  # probability that a report says anything about two answers, at most, in (0, 1]
    reports: int  # honest reports of a sum, that of the device included, at least 1
    count: int = 1  # sums, at least 0, each with one occasion to report
    sample: float = 1.0  # share of the occasions with a report; everybody can see whether there was one

    def __post_init__(self) -> None:
        checks.count("cost", self.cost)
        checks.count("crowd", self.reports)
        checks.count("count", self.count, 0)
        for name in ("telling", "sample"):
            if not 0 < getattr(self, name) <= 1:
                raise ParameterError(f"{name}: write a probability above 0", getattr(self, name))

    @classmethod
    def of(cls, mechanism: Mechanism, reports: int, count: int = 1, sample: Fraction | int = 1) -> Self:
        """Make the crowd of a mechanism's reports from its exact parameters."""
        return cls(cost(mechanism.ratio), up(mechanism.telling), reports, count, float(sample))

    @property
    def local(self) -> float:
        """Epsilon of a report alone, in nats."""
        return self.cost / MICRO

    @property
    def half(self) -> Self:
        """The same, if only half of the reports are honest."""
        return replace(self, reports=max(1, self.reports // 2))

    def times(self, devices: int) -> Self:
        """Return the crowd of several devices with the same reports. In each sum, the others are divided among them."""
        # Whoever sees the parts separately learns more than from the sum.
        return replace(self, reports=max(1, self.reports // devices), count=self.count * devices)

    def delta(
        self,
        epsilon: float,  # in nats, at least 0
    ) -> float:
        """Return a delta at which one report is (epsilon, delta)-private for an observer of the sum, rounded up."""
        from scipy.special import betainc  # noqa: PLC0415 - slow to import, and most accounts name no crowd
        from scipy.stats import binom

        odds, n = exp(checks.nonnegative("epsilon", epsilon)), self.reports
        p, kinds = exp(self.local), self._kinds()
        # With i of t reports of the first kind, the sum of V is `slope (i - t/2) - drift`. It is above 0 from `least` on.
        slope = (p - 1) * (1 + odds)
        drift = (odds - 1) * ((p + 1) / 2 * kinds.either + p * kinds.third)
        least = np.floor(kinds.either / 2 + drift / slope) + 1
        inside = (kinds.either > 0) & (least <= kinds.either)
        t, least, drift, chances = (part[inside] for part in (kinds.either, least, drift, kinds.chances))
        # The mean over i, which is binomial. Both parts are rounded so that their difference is an upper bound.
        gain = slope * t / 4 * binom.pmf(least - 1, t - 1, 0.5) * (1 + _ROUNDING)
        loss = drift * betainc(least, t - least + 1, 0.5) * (1 - _ROUNDING)
        bound = float(chances @ np.maximum(gain - loss, 0.0)) / n
        return min(1.0, bound * (1 + _ROUNDING) + _BEYOND)

    def epsilon(
        self,
        delta: float,  # a probability
    ) -> float:
        """Return an epsilon at which one report is (epsilon, delta)-private for an observer of the sum, in nats, rounded up."""
        from scipy.optimize import brentq  # noqa: PLC0415 - as above

        checks.delta(delta)
        if self.reports == 1 or self.delta(self.local) > delta:
            return self.local
        if self.delta(0.0) <= delta:
            return 0.0
        root = float(brentq(lambda epsilon: log(max(self.delta(epsilon), 1e-300) / delta), 0.0, self.local, xtol=_CLOSE))
        return min(self.local, root + 2 * _CLOSE)

    @property
    def variance(self) -> float:
        """Variance of the loss of one occasion, about."""
        p, kinds = exp(self.local), self._kinds()
        half = kinds.either * (p + 1) / 2 + p * kinds.third
        spread = kinds.either * (p - 1) ** 2 / np.maximum(half, 1.0)
        return self.sample * float(kinds.chances @ spread) / self.reports

    def _kinds(self) -> _Kinds:
        """Return how many reports may be of the first two kinds and of the third."""
        return _kinds(self.local, self.telling, self.reports)

    def losses(
        self,
        unit: int,  # step of the grid in millionths of a nat
    ) -> Losses:
        """Return the loss of one occasion on a grid; it is an upper bound."""
        # An atom between two points of the grid is divided between them, so that both its probabilities stay what they are. This
        # raises the delta at every epsilon (Doroshenko and others 2022, lemma 3.1). The error is quadratic in the step.
        masses = np.zeros(self.cost // unit + 3)
        step = unit / MICRO
        capped = replace(self, reports=min(self.reports, MOST))
        for mass, loss in capped._atoms():  # noqa: SLF001 - of the same class
            # A loss is rounded up by more than the error of its computation.
            places = np.minimum(loss * (1 + 1e-13), self.local) / step
            below = np.floor(places)
            upper = mass * (np.expm1((below - places) * step) / np.expm1(-step))
            at = below.astype(np.intp)
            masses += np.bincount(at, mass - upper, len(masses)) + np.bincount(at + 1, upper, len(masses))
        # Swapping the two answers swaps the kinds. So a loss of -x is e^-x times as likely as one of x.
        negative = (masses * np.exp(-step * np.arange(len(masses))))[:0:-1]
        masses = np.concatenate((negative, [2 * masses[0]], masses[1:]))
        middle = len(negative)
        # What was rounded down of the third kind has no loss. So has an occasion without a report.
        masses[middle] += max(0.0, 1 - float(masses.sum()))
        masses *= self.sample
        masses[middle] += 1 - self.sample
        likely = np.flatnonzero(masses)
        first, last = int(likely[0]), int(likely[-1]) + 1
        values = (np.arange(first, last) - middle) * unit
        return Losses(values, masses[first:last], 0.0 if self.reports == 1 else _BEYOND, _ROUNDING)

    def _atoms(self) -> Iterator[tuple[NDArray[np.float64], NDArray[np.float64]]]:
        """Yield the probabilities of all losses above 0, with these losses. Of those of a loss of 0, half is there."""
        p, n, kinds = exp(self.local), self.reports, self._kinds()
        reach = int(sqrt((_LOG_TAIL + self.local) * float(kinds.either.max()) / 2)) + 2  # Hoeffding: beyond it is a tail
        rows = max(1, _BLOCK // reach)
        for start in range(0, len(kinds.either), rows):
            t, third, chances = (part[start : start + rows, np.newaxis] for part in kinds)
            first = np.ceil(t / 2)  # of the first kind: at least half
            number = first + np.arange(min(reach, int(t.max()) // 2 + 1))
            rise = np.maximum(t - number, 0) / (number + 1)
            binomial = np.cumprod(np.concatenate((np.ones_like(first), rise[:, :-1]), axis=1), axis=1)
            even = t == 2 * first
            binomial /= 2 * binomial.sum(axis=1, keepdims=True) - even * binomial[:, :1]
            binomial[:, :1] *= np.where(even, 0.5, 1.0)
            second = np.maximum(t - number, 0)
            mass = chances * binomial * (p * number + second + p * third) / n
            loss = np.log1p((p - 1) * np.maximum(2 * number - t, 0) / np.maximum(number + p * (second + third), 1.0))
            possible = mass > 0
            yield mass[possible], loss[possible]


class _Kinds(NamedTuple):
    """Numbers of reports of the first two kinds, with numbers of the third, and how likely both are."""

    either: NDArray[np.float64]
    third: NDArray[np.float64]
    chances: NDArray[np.float64]

    @property
    def likely(self) -> _Kinds:
        """Those that are possible at all."""
        possible = self.chances > 0
        return _Kinds(self.either[possible], self.third[possible], self.chances[possible])


@lru_cache(maxsize=8)  # an epsilon is found by asking for many deltas, each of which needs them
def _kinds(local: float, telling: float, n: int) -> _Kinds:
    """Return how many of n reports may be of the first two kinds and of the third."""
    p = exp(local)
    a = telling / (p + 1)
    tail = _LOG_TAIL + local  # the distribution P is at most p times as likely as these numbers
    either, chances = _binomial(n, 2 * a, tail)
    third = (1 - telling) / p / (1 - 2 * a)
    # What others have of the third kind helps. So their number may be rounded down. It is drawn from fewer reports than there
    # are, the same for a block of numbers of the first two kinds. It may also be spread to two numbers around it that have
    # the same mean, because the delta is convex in it.
    step = max(1, int(n / (_THIRDS * p)))
    parts = []
    for block in np.array_split(np.arange(len(either)), min(_BLOCKS, len(either))):
        number, chance = _binomial(n - int(either[block[-1]]), third, tail)
        place = (number - number[0]) / step
        below = place.astype(np.intp)
        size = int(below[-1]) + 2
        weights = np.bincount(below, chance * (below + 1 - place), size)
        weights += np.bincount(below + 1, chance * (place - below), size)
        parts.append((block, number[0] + step * np.arange(size), weights))
    return _Kinds(
        np.concatenate([np.repeat(either[block], len(numbers)) for block, numbers, _ in parts]),
        np.concatenate([np.tile(numbers, len(block)) for block, numbers, _ in parts]),
        np.concatenate([np.outer(chances[block], weights).ravel() for block, _, weights in parts]),
    ).likely


def epsilon(crowds: Sequence[Crowd], delta: float) -> float:
    """Return an epsilon at which all occasions together are (epsilon, delta)-private for an observer of all sums, rounded up."""
    listed = [crowd for crowd in crowds if crowd.count]
    if [crowd.count for crowd in listed] == [1]:
        return listed[0].epsilon(delta)
    return min(together(listed).epsilon(delta), sum(crowd.count * crowd.local for crowd in listed))


def together(crowds: Sequence[Crowd]) -> Losses:
    """Return the loss of all occasions together, for an observer of all sums. The sums are of different reports."""
    listed = [crowd for crowd in crowds if crowd.count]
    if not listed:
        return joined([], 1)
    # The step is a part of the standard deviation of a loss, on average over all occasions.
    occasions = sum(crowd.count for crowd in listed)
    variance = sum(crowd.count * crowd.variance for crowd in listed)
    step = max(sqrt(variance / occasions) / _FINE, (_SPAN * sqrt(variance) + variance) / POINTS)
    unit = max(1, int(step * MICRO))
    return joined([crowd.losses(unit).power(crowd.count, unit) for crowd in listed], unit)


def _binomial(trials: int, chance: float, tail: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return binomial numbers and their probabilities, but for e^-tail at each end."""
    # S. Boucheron and others: Concentration inequalities. Oxford, 2013, corollary 2.11 (Bernstein).
    mean = trials * chance
    away = tail / 3 + sqrt((tail / 3) ** 2 + 2 * tail * mean * (1 - chance))
    low, high = max(0, floor(mean - away)), min(trials, ceil(mean + away))
    numbers = np.arange(low, high + 1, dtype=np.float64)
    # The logarithms are of ratios to the most likely number, so that none of them overflows.
    rise = np.log((trials - numbers[:-1]) / (numbers[:-1] + 1)) + log(chance / (1 - chance)) if 0 < chance < 1 else np.zeros(0)
    if len(rise) + 1 < len(numbers):
        return numbers[:1], np.ones(1)
    logs = np.concatenate(([0.0], np.cumsum(rise)))
    chances = np.exp(logs - logs.max())
    return numbers, chances / chances.sum()
