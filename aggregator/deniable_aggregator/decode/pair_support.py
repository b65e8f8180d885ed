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
    mechanism: Mechanism, f: NDArray[np.float64], n: float, *, repeats: float = 0.0, permanent: bool = False
) -> NDArray[np.float64]:
    """Compute the covariance of the estimates of all values, in the population that the respondents were drawn from.

    Parameters
    ----------
    mechanism
        What the devices ran; pure.
    f
        (values,), plausible shares.
    n
        Reports.
    repeats
        How many other reports the device of a report has made, on average, at most: see `deniable_aggregator.decode.panel`.
    permanent
        Whether the devices keep their permanent responses.

    Returns
    -------
    ndarray of float
        (values, values).

    Raises
    ------
    ParameterError
        If no rule holds for all pairs, as with a pool of hash functions.
    """
    independent = pair_support(mechanism).covariance(f, n)
    if not repeats:
        return independent
    # A person's reports share who the person is and, where it is kept, the permanent response.
    if permanent and (response := mechanism.in_two_steps):
        return independent + pair_support(mechanism, response.permanent_support).covariance(f, n / repeats)
    return np.asarray(independent + (np.diag(f) - np.outer(f, f)) * repeats / n, np.float64)


@lru_cache(maxsize=4)
def pair_support(mechanism: Mechanism, support: tuple[Fraction, Fraction] | None = None) -> PairSupport:
    """Compute the probabilities of pairs.

    Parameters
    ----------
    mechanism
        What the devices ran; pure, so if it sends bits, each value has one.
    support
        The p and q of what is asked about, such as a permanent response; by default those of a report.

    Raises
    ------
    ParameterError
        If no rule holds for all pairs, as with a pool of hash functions.
    """
    probabilities = support or mechanism.odds
    if probabilities is None:
        raise ParameterError("pairs of values are counted in reports of a pure mechanism", mechanism.name)
    p, q = probabilities
    return family_of(mechanism).pairs(float(p), float(q))
