"""Pair support: how likely a report supports both of two values. This gives the covariance of a mechanism's estimates."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from deniable.errors import ParameterError
from deniable_aggregator.decode.families import family_of

if TYPE_CHECKING:
    from fractions import Fraction

    from numpy.typing import NDArray

    from deniable.mechanisms import Mechanism
    from deniable_aggregator.decode.families.pairs import PairSupport


def estimates_covariance(
    mechanism: Mechanism,  # pure; `ParameterError` if no rule holds for all pairs, as with a pool of hash functions
    f: NDArray[np.float64],  # (values,), plausible shares
    n: float,  # reports
    *,
    repeats: float = 0.0,  # other reports of a report's device, at most: see `panel`
    permanent: bool = False,  # whether devices keep their permanent responses
) -> NDArray[np.float64]:
    """Compute the covariance of the estimates of all values, (values, values), in the population."""
    independent = pair_support(mechanism).covariance(f, n)
    if not repeats:
        return independent
    # A person's reports share who the person is and, where it is kept, the permanent response.
    if permanent and (response := mechanism.in_two_steps):
        return independent + pair_support(mechanism, response.permanent_support).covariance(f, n / repeats)
    return np.asarray(independent + (np.diag(f) - np.outer(f, f)) * repeats / n, np.float64)


@lru_cache(maxsize=4)
def pair_support(
    mechanism: Mechanism,  # pure, so if it sends bits, each value has one
    # p and q of what is asked about, such as a permanent response; by default of a report
    support: tuple[Fraction, Fraction] | None = None,
) -> PairSupport:
    """Compute the probabilities of pairs; raise `ParameterError` if no rule holds for all, as with a pool of hash functions."""
    probabilities = support or mechanism.odds
    if probabilities is None:
        raise ParameterError("mechanism: choose a pure one, of which pairs of values are counted", mechanism.name)
    p, q = probabilities
    return family_of(mechanism).pairs(float(p), float(q))
