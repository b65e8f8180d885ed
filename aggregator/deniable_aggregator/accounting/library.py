"""A second opinion on the exact total, by Google's dp-accounting.

Its `PLDAccountant` (0.6.0) counts a `RandomizedResponseDpEvent` once, whatever its count, so compositions of randomized response
come out wrong. Its loss distributions compose correctly; these are used.
"""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Any

from deniable.errors import ConfigurationError
from deniable.limits.allowance import MICRO
from deniable_aggregator import checks
from deniable_aggregator.accounting import sums
from deniable_aggregator.accounting.central.noise import Gaussian
from deniable_aggregator.accounting.spend import merged

if TYPE_CHECKING:
    from collections.abc import Iterable

    from deniable_aggregator.accounting.central.noise import Noise
    from deniable_aggregator.accounting.spend import Spend

_FINEST = 1e-4  # nats, of its grid
_POINTS = 1 << 23
_STEPS, _COARSEST = 1000, 2e-3  # of the grid of noise: steps in the ratio of sensitivity and scale, and nats


def epsilon(
    spends: Iterable[Spend],  # of any epsilons; their shares are ignored
    delta: float,  # a probability
) -> float:
    """Return the epsilon that dp-accounting, which must be installed, computes from the epsilons of reports alone, in nats."""
    checks.delta(delta)
    library = _library()
    listed = merged(spends)
    if not listed:
        return 0.0
    total = sums.basic(listed)
    step = _FINEST * max(1, ceil(2 * total / (_POINTS * _FINEST)))
    parts = [
        library.from_privacy_parameters(
            library.common.DifferentialPrivacyParameters(spend.cost / MICRO, 0), value_discretization_interval=step
        ).self_compose(spend.count)
        for spend in listed
    ]
    total_loss, *others = parts
    for part in others:
        total_loss = total_loss.compose(part)
    return min(float(total_loss.get_epsilon_for_delta(delta)), total)


def of_noise(
    noise: Noise,
    delta: float,  # a probability
) -> float:
    """Return the epsilon that dp-accounting, which must be installed, computes of all queries with this noise, in nats."""
    library = _library()
    make = library.from_gaussian_mechanism if isinstance(noise, Gaussian) else library.from_laplace_mechanism
    step = min(_COARSEST, noise.ratio / _STEPS)
    loss = make(noise.scale, sensitivity=noise.sensitivity, value_discretization_interval=step).self_compose(noise.queries)
    return float(loss.get_epsilon_for_delta(checks.delta(delta)))


def _library() -> Any:
    try:
        from dp_accounting.pld import privacy_loss_distribution  # noqa: PLC0415 - an extra, and slow to import
    except ModuleNotFoundError as error:
        rule = f"the second opinion needs {error.name}, which is not installed: pip install 'deniable[accounting]'"
        raise ConfigurationError(rule) from None
    return privacy_loss_distribution
