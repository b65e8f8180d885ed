"""Renyi differential privacy: the curve of a report, sums of curves, and the epsilon for a delta."""

from __future__ import annotations

from math import log
from typing import TYPE_CHECKING

import numpy as np

from deniable.errors import ParameterError
from deniable_aggregator import checks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

    from deniable_aggregator.accounting.spend import Spend

    Orders = NDArray[np.float64]
    Curve = Callable[[Orders], Orders]

_LEAST, _MOST = -7.0, 14.0  # of ln(order - 1): below, rounding hides the differences; above, a curve is the sum of its epsilons
_POINTS = 2001
_ZOOMS = 3
_UP = 1 + 1e-11  # a bound on the rounding of a sum of logarithms


def randomized_response(
    orders: Orders,  # each above 1
    epsilon: float,  # of a report, in nats, above 0
    share: float = 1.0,  # of the reports that tell the two answers apart, in (0, 1]; 1 for the worst case
) -> Orders:
    """Compute the largest Renyi divergence, in nats, between the reports of two answers, for any mechanism of this epsilon."""
    # Binary randomized response attains it: with u = order - 1/2 the sum of p^order q^(1 - order) is cosh(u epsilon) /
    # cosh(epsilon / 2). If a report says nothing with probability 1 - share, the excess of the sum over 1 is multiplied by the
    # share.
    # I. Mironov: Renyi differential privacy. CSF 2017, proposition 5.
    # M. Bun, T. Steinke: Concentrated differential privacy. TCC 2016, proposition 3.3.
    far = (orders - 0.5) * epsilon
    ratio = np.logaddexp(far, -far) - np.logaddexp(epsilon / 2, -epsilon / 2)
    if share < 1:
        ratio = np.logaddexp(np.log1p(-share), log(share) + ratio)
    return np.asarray(ratio / (orders - 1))


def curve(spends: Iterable[Spend]) -> Curve:
    """Add up the curves of spends. A curve maps orders to nats."""
    # I. Mironov: Renyi differential privacy. CSF 2017, proposition 1 (adaptive composition).
    listed = tuple(spends)

    def total(orders: Orders) -> Orders:
        parts = [spend.count * randomized_response(orders, spend.epsilon, spend.share) for spend in listed]
        return np.sum(parts, axis=0) if parts else np.zeros_like(orders)

    return total


def epsilon(
    loss: Curve,  # maps orders above 1 to nats
    delta: float,  # a probability
) -> float:
    """Return an epsilon at which a mechanism with this curve is (epsilon, delta)-private, in nats."""
    return search(loss, delta)[0]


def search(
    loss: Curve,  # maps orders above 1 to nats
    delta: float,  # a probability
    *,
    textbook: bool = False,  # whether to convert as textbooks do
) -> tuple[float, float]:
    """Return the least epsilon that was found, in nats, and its order."""
    # Every order is valid, so one that is not tried only makes the bound less tight.
    low, high = _LEAST, _MOST
    least, order = np.inf, 2.0
    for _ in range(_ZOOMS):
        places = np.linspace(low, high, _POINTS)
        orders = 1 + np.exp(places)
        values = _converted(loss, orders, delta, textbook=textbook)
        best = int(np.argmin(values))
        if values[best] < least:
            least, order = float(values[best]), float(orders[best])
        low, high = places[max(best - 1, 0)], places[min(best + 1, _POINTS - 1)]
    return max(0.0, least * _UP), order


def epsilon_at(
    loss: Curve,  # maps orders above 1 to nats
    order: float,  # above 1
    delta: float,  # a probability
    *,
    textbook: bool = False,  # whether to convert as textbooks do
) -> float:
    """Return the epsilon of one order, in nats."""
    return max(0.0, float(_converted(loss, _single(order), delta, textbook=textbook)[0]) * _UP)


def divergence_at(
    loss: Curve,  # maps orders above 1 to nats
    order: float,  # above 1
) -> float:
    """Return the divergence of one order, in nats, rounded up."""
    return float(loss(_single(order))[0]) * _UP


def _single(order: float) -> Orders:
    if not 1 < order < np.inf:
        raise ParameterError("alpha: write an order above 1", order)
    return np.array([order], np.float64)


def _converted(loss: Curve, orders: Orders, delta: float, *, textbook: bool) -> Orders:
    # I. Mironov: Renyi differential privacy. CSF 2017, proposition 3 (the conversion of textbooks).
    # C. L. Canonne and others: The discrete Gaussian for differential privacy. NeurIPS 2020, proposition 12.
    # B. Balle and others: Hypothesis testing interpretations and Renyi differential privacy. AISTATS 2020, theorem 21.
    simple = loss(orders) - log(checks.delta(delta)) / (orders - 1)
    return simple if textbook else simple + np.log1p(-1 / orders) - np.log(orders) / (orders - 1)
