"""Several devices of one person, or a household: what all of their reports tell together.

Devices randomise on their own, so theirs are simply more reports: `Spend.times` the number of devices, and any composition.
What is here is for an answer that is already given as one (epsilon, delta), of which nothing else is known.
"""

from __future__ import annotations

from math import expm1

from deniable_aggregator.accounting import checks

__all__ = ["private"]

_UP = 1 + 1e-12
_LARGEST = 700.0  # e to its power is a float


def private(epsilon: float, delta: float, size: int) -> tuple[float, float]:
    """Return the epsilon and delta of a group, of what is (epsilon, delta)-private for each of its members.

    Parameters
    ----------
    epsilon
        In nats, at least 0.
    delta
        In [0, 1); with 0 that of the group is 0, too.
    size
        Members, at least 1.

    Returns
    -------
    tuple of float
        ``size * epsilon``, and ``delta (e^(size epsilon) - 1) / (e^epsilon - 1)``, or 1 where that is more.

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
