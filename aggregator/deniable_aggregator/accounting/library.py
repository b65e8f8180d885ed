"""A second opinion on the exact total: Google's dp-accounting, where it is right.

Its `PLDAccountant` (0.6.0) is not where randomized response is composed with itself: it counts a `RandomizedResponseDpEvent`
once, whatever its count. We compose loss distributions themselves, which it does rightly.
"""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

from deniable.errors import ConfigurationError
from deniable.limits.allowance import MICRO
from deniable_aggregator.accounting import checks, sums
from deniable_aggregator.accounting.spend import merged

if TYPE_CHECKING:
    from collections.abc import Iterable

    from deniable_aggregator.accounting.spend import Spend

__all__ = ["epsilon"]

_FINEST = 1e-4  # nats, of its lattice
_POINTS = 1 << 23


def epsilon(spends: Iterable[Spend], delta: float) -> float:
    """Return the epsilon that dp-accounting gives reports of which nothing but their epsilon is known, in nats.

    Parameters
    ----------
    spends
        Of any epsilons; their shares are not looked at.
    delta
        A probability.

    Raises
    ------
    ConfigurationError
        If it is not installed.
    """
    checks.delta(delta)
    try:
        from dp_accounting.pld import common, privacy_loss_distribution  # noqa: PLC0415 - an extra, and slow to import
    except ModuleNotFoundError as error:
        rule = f"a second opinion needs {error.name}, which is not installed: pip install 'deniable[accounting]'"
        raise ConfigurationError(rule) from None
    listed = merged(spends)
    if not listed:
        return 0.0
    total = sums.basic(listed)
    step = _FINEST * max(1, ceil(2 * total / (_POINTS * _FINEST)))
    parts = [
        privacy_loss_distribution.from_privacy_parameters(
            common.DifferentialPrivacyParameters(spend.cost / MICRO, 0), value_discretization_interval=step
        ).self_compose(spend.count)
        for spend in listed
    ]
    whole, *rest = parts
    for part in rest:
        whole = whole.compose(part)
    return min(float(whole.get_epsilon_for_delta(delta)), total)
