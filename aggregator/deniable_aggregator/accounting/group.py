"""Group privacy: several devices of one person, or a household.

Devices randomise independently, so for several devices use `Spend.times` and any composition. The bound here is for a result of
which only its (epsilon, delta) is known.
"""

from __future__ import annotations

from math import expm1

from deniable_aggregator.accounting import checks

_UP = 1 + 1e-12
_LARGEST = 700.0  # e to its power still is a float


def private(
    epsilon: float,  # in nats, at least 0
    delta: float,  # in [0, 1); if 0, that of the group is 0, too
    size: int,  # members, at least 1
) -> tuple[float, float]:
    """Return the epsilon and delta for a group, of a result that is (epsilon, delta)-private for each member.

    Returns
    -------
    tuple of float
        ``size * epsilon``, and ``delta (e^(size epsilon) - 1) / (e^epsilon - 1)``, at most 1.

    References
    ----------
    S. Vadhan: The complexity of differential privacy. In: Tutorials on the foundations of cryptography, 2017, lemma 2.2.
    """
    checks.nonnegative("epsilon", epsilon)
    checks.count("size", size)
    total = size * epsilon
    if not delta:
        return total, 0.0
    checks.delta(delta)
    if not epsilon:
        return 0.0, min(1.0, size * delta)
    return total, 1.0 if total > _LARGEST else min(1.0, delta * expm1(total) / expm1(epsilon) * _UP)
