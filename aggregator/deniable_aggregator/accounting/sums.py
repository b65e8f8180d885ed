"""Totals by formula: the plain sum, advanced composition, and the closed form of optimal composition."""

from __future__ import annotations

from math import e, expm1, fsum, log, sqrt, tanh
from typing import TYPE_CHECKING

from deniable.limits.allowance import MICRO
from deniable_aggregator.accounting import checks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deniable_aggregator.accounting.spend import Spend

_UP = 1 + 1e-12


def basic(spends: Sequence[Spend]) -> float:
    """Return the plain sum, in nats. It holds with a delta of 0, for any reports.

    References
    ----------
    C. Dwork and others: Our data, ourselves. EUROCRYPT 2006, theorem 1.
    """
    return sum(spend.total for spend in spends) / MICRO


def advanced(spends: Sequence[Spend], delta: float) -> float:
    """Return the total of the advanced composition theorem, in nats. It can exceed the plain sum.

    ``sqrt(2 ln(1 / delta) sum(eps^2)) + sum(eps (e^eps - 1))``; for equal epsilons this is the formula of the paper.

    References
    ----------
    C. Dwork, G. N. Rothblum, S. Vadhan: Boosting and differential privacy. FOCS 2010, theorem III.3.
    """
    squares = fsum(spend.count * spend.epsilon**2 for spend in spends)
    drift = fsum(spend.count * spend.epsilon * expm1(spend.epsilon) for spend in spends)
    return (sqrt(-2 * log(checks.delta(delta)) * squares) + drift) * _UP


def closed(spends: Sequence[Spend], delta: float) -> float:
    """Return the closed form of the optimal composition theorem, in nats: the least of three bounds.

    References
    ----------
    P. Kairouz, S. Oh, P. Viswanath: The composition theorem for differential privacy. IEEE Transactions on Information Theory
    63(6), 2017, theorem 3.5 (different epsilons; theorem 3.4 for equal ones).
    """
    checks.delta(delta)
    squares = fsum(spend.count * spend.epsilon**2 for spend in spends)
    drift = fsum(spend.count * spend.epsilon * tanh(spend.epsilon / 2) for spend in spends)
    spread = min(log(e + sqrt(squares) / delta), -log(delta))
    return min(basic(spends), (drift + sqrt(2 * squares * spread)) * _UP)
