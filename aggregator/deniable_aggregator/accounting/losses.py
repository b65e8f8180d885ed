"""The exact total: the distribution of the privacy loss of all reports together (PLD).

The worst epsilon-private mechanism is a coin with odds e^epsilon (Kairouz, Oh and Viswanath). So the loss of a report is +epsilon
or -epsilon, and the loss of all is a sum of these. We compute the distribution of the sum. Losses are whole millionths of a nat,
so that equal ones coincide. If there are too many different ones, they are rounded up to a grid.

All numbers are sums and products of positive ones, so rounding errors cannot grow by cancellation. A bound on them is carried
along and added at the end. Mass that is cut off above counts as an infinite loss. Mass that is cut off below is moved up.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, exp, gcd
from typing import TYPE_CHECKING, Self

import numpy as np

from deniable.limits.allowance import MICRO
from deniable_aggregator import checks
from deniable_aggregator.accounting.spend import merged

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from deniable_aggregator.accounting.spend import Spend

POINTS = 1 << 15
"""About so many points has a grid at most."""

_ROUNDING = 2.0**-53
_TAIL = 1e-24  # probability cut off at each end in one step: far below the least delta
_PAIRS = 1 << 18  # of losses that are added exactly
_DENSE = 8  # if more than one in so many points of a grid has a probability, `numpy.convolve` is as fast
_GAPS = 8  # a grid with up to this many times as many points as there are pairs is as fast as adding the pairs


@dataclass(frozen=True, slots=True, eq=False)
class Losses:
    """A distribution of privacy losses that is an upper bound of the true one."""

    values: NDArray[np.int64]  # whole numbers, ascending: losses in millionths of a nat
    mass: NDArray[np.float64]  # probability of each loss, under the answer that positive losses speak for
    beyond: float = 0.0  # probability of an infinite loss
    slack: float = 0.0  # bound on the relative error of `mass`

    @classmethod
    def of(cls, spend: Spend) -> Self:
        """Return the loss of a single report."""
        true = spend.favoured
        values, mass = [-spend.cost, 0, spend.cost], [true * exp(-spend.epsilon), 1 - spend.share, true]
        if spend.share == 1:
            del values[1], mass[1]
        return cls(np.array(values), np.array(mass), slack=8 * _ROUNDING)

    def after(
        self,
        other: Losses,  # of other reports
        unit: int,  # step of the grid in millionths of a nat, used if there are many losses
    ) -> Losses:
        """Return the loss of both together. They are independent."""
        pairs = len(self.values) * len(other.values)
        places = (self.span // unit + 1) * (other.span // unit + 1)
        if pairs <= _PAIRS and places > _GAPS * pairs:
            sums = np.add.outer(self.values, other.values).ravel()
            values, which = np.unique(sums, return_inverse=True)
            mass = np.bincount(which, np.multiply.outer(self.mass, other.mass).ravel()).astype(np.float64)
        else:
            # On a grid losses are rounded up, so the total is still an upper bound.
            (low, one), (start, two) = _lattice(self, unit), _lattice(other, unit)
            mass = _convolved(one, two)
            values = (low + start + np.arange(len(mass))) * unit
        terms = len(self.values) + len(other.values)  # an upper bound on the terms of a sum, in each step
        slack = (1 + self.slack) * (1 + other.slack) * (1 + terms * _ROUNDING) - 1
        return _trimmed(Losses(values, mass, self.beyond + other.beyond, slack))

    def power(self, count: int, unit: int) -> Losses:
        """Return the loss of `count` independent reports together, at least 1."""
        result, square = None, self
        while True:
            if count & 1:
                result = square if result is None else result.after(square, unit)
            count >>= 1
            if not count:
                assert result is not None  # noqa: S101 - the highest bit of a count is 1
                return result
            square = square.after(square, unit)

    @property
    def span(self) -> int:
        """Distance from the least to the greatest loss, in millionths of a nat."""
        return int(self.values[-1] - self.values[0])

    def delta(
        self,
        epsilon: float,  # in nats, at least 0
    ) -> float:
        """Return the least delta at which all is (epsilon, delta)-private, rounded up."""
        # The expectation of 1 - e^(epsilon - loss) over the losses above epsilon.
        losses = self.values / MICRO
        # The rounding of both ends of a gap adds to its error.
        gaps = losses - checks.nonnegative("epsilon", epsilon) + 4 * _ROUNDING * (abs(losses[-1]) + epsilon)
        above = gaps > 0
        expectation = float(self.mass[above] @ -np.expm1(-gaps[above])) if above.any() else 0.0
        return min(1.0, expectation * (1 + self.slack) * (1 + (len(self.mass) + 8) * _ROUNDING) + self.beyond)

    def epsilon(self, delta: float) -> float:
        """Return the least epsilon at which all is (epsilon, delta)-private, in nats, rounded up to a millionth."""
        checks.delta(delta)
        low, high = -1, max(int(self.values[-1]) + 1, 0)  # the delta is exceeded at `low`, and not at `high`
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self.delta(middle / MICRO) <= delta else (middle, high)
        return high / MICRO


def _lattice(losses: Losses, unit: int) -> tuple[int, NDArray[np.float64]]:
    """Put losses on a grid, rounding up; return the first grid point, and the probabilities from there on."""
    places = -(-losses.values // unit)
    low = int(places[0])
    return low, np.bincount(places - low, losses.mass).astype(np.float64)


def _convolved(one: NDArray[np.float64], two: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the probabilities of a sum on a grid, from those of both parts."""
    # Losses that are multiples of one cost are on few points of a grid that has others, too. Only these points are gone through.
    few, many = sorted((one, two), key=np.count_nonzero)
    places = np.flatnonzero(few)
    if len(places) * _DENSE > len(few):
        return np.convolve(few, many)
    mass = np.zeros(len(few) + len(many) - 1)
    for place in places:
        mass[place : place + len(many)] += few[place] * many
    return mass


def _trimmed(losses: Losses) -> Losses:
    """Cut off ends of negligible probability, and add an upper bound of what was cut off."""
    mass = losses.mass
    cut = _TAIL / (1 + losses.slack)
    end = len(mass) - int(np.searchsorted(np.cumsum(mass[::-1]), cut))
    beyond = losses.beyond + (_TAIL if end < len(mass) else 0.0)
    first = min(int(np.searchsorted(np.cumsum(mass[:end]), cut)), end - 1)
    mass = mass[first:end].copy()
    mass[0] += _TAIL if first else 0.0
    return Losses(losses.values[first:end], mass, beyond, losses.slack)


def together(spends: Iterable[Spend]) -> Losses:
    """Return the loss of all spends together."""
    # If losses are rounded up, each kind of spend adds at most 1 / 32,768 of the distance from the least to the greatest loss.
    # P. Kairouz and others: The composition theorem for differential privacy. IEEE Trans. Inf. Theory 63(6), 2017, 3.3.
    # J. Murtagh, S. Vadhan: The complexity of computing the optimal composition. TCC 2016-A, theorem 1.5 (different epsilons).
    # D. Sommer and others: Privacy loss classes. PoPETs 2019(2), section 3 (losses as distributions).
    listed = merged(spends)
    powers = [Losses.of(spend).power(spend.count, spend.cost) for spend in listed]
    if not powers:
        return joined(powers, 1)
    common = gcd(*(spend.cost for spend in listed))
    # With a multiple of the greatest common divisor, most losses stay exact.
    unit = common * max(1, ceil(sum(power.span for power in powers) / (common * POINTS)))
    return joined(powers, unit)


def joined(
    parts: Sequence[Losses],  # independent ones
    unit: int,  # as in `Losses.after`
) -> Losses:
    """Return the loss of all parts together."""
    if not parts:
        return Losses(np.zeros(1, np.int64), np.ones(1))
    total, *others = sorted(parts, key=lambda part: len(part.values))
    for other in others:
        total = total.after(other, unit)
    return total
