"""Totals by formula: the plain sum, advanced composition, the closed form of optimal composition, and groups of people."""

from __future__ import annotations

from math import e, expm1, fsum, log, sqrt, tanh
from typing import TYPE_CHECKING

from deniable.limits.allowance import MICRO
from deniable_aggregator import checks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deniable_aggregator.accounting.spend import Spend

_UP = 1 + 1e-12  # more than the rounding of a formula
_LARGEST = 700.0  # e to its power still is a float


def basic(spends: Sequence[Spend]) -> float:
    """Return the plain sum, in nats. It holds with a delta of 0, for any reports."""
    # C. Dwork and others: Our data, ourselves. EUROCRYPT 2006, theorem 1.
    return sum(spend.total for spend in spends) / MICRO


def advanced(spends: Sequence[Spend], delta: float) -> float:
    """Return the total of the advanced composition theorem, in nats. It can exceed the plain sum."""
    # `sqrt(2 ln(1 / delta) sum(eps^2)) + sum(eps (e^eps - 1))`; for equal epsilons this is the formula of the paper.
    # C. Dwork and others: Boosting and differential privacy. FOCS 2010, theorem III.3.
    squares = fsum(spend.count * spend.epsilon**2 for spend in spends)
    drift = fsum(spend.count * spend.epsilon * expm1(spend.epsilon) for spend in spends)
    return (sqrt(-2 * log(checks.delta(delta)) * squares) + drift) * _UP


def closed(spends: Sequence[Spend], delta: float) -> float:
    """Return the closed form of the optimal composition theorem, in nats: the least of three bounds."""
    # P. Kairouz and others: The composition theorem for differential privacy. IEEE Trans. Inf. Theory 63(6), 2017, 3.5.
    checks.delta(delta)
    squares = fsum(spend.count * spend.epsilon**2 for spend in spends)
    drift = fsum(spend.count * spend.epsilon * tanh(spend.epsilon / 2) for spend in spends)
    spread = min(log(e + sqrt(squares) / delta), -log(delta))
    return min(basic(spends), (drift + sqrt(2 * squares * spread)) * _UP)


def group(
    epsilon: float,  # in nats, at least 0
    delta: float,  # in [0, 1); if 0, that of the group is 0, too
    size: int,  # members, at least 1
) -> tuple[float, float]:
    """Return the epsilon and delta for a group, of a result that is (epsilon, delta)-private for each member."""
    # S. Vadhan: The complexity of differential privacy. In: Tutorials on the foundations of cryptography, 2017, lemma 2.2.
    checks.nonnegative("epsilon", epsilon)
    checks.count("size", size)
    total = size * epsilon
    if not delta:
        return total, 0.0
    checks.delta(delta)
    if not epsilon:
        return 0.0, min(1.0, size * delta)
    return total, 1.0 if total > _LARGEST else min(1.0, delta * expm1(total) / expm1(epsilon) * _UP)
