"""Overall: whether two groups differ in any of the values, and how large a rise this shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.special import chdtri, chndtrinc

from deniable.errors import ParameterError
from deniable_aggregator.decode.pair_support import estimates_covariance, pair_support
from deniable_aggregator.decode.tables.independence import Chi2

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from deniable.mechanisms import Mechanism
    from deniable_aggregator.decode.estimate import Estimate

_MOST = 1024  # values; with more, their covariance takes too long
_FEWEST = 5.0  # reports that support a value nobody holds, below which sums of squares are not chi-square
_ROUNDS = 5  # each brings a rise about ten times nearer to what its own variance allows


def chi_square(
    mechanism: Mechanism,  # what the devices ran
    sides: Sequence[Estimate],  # the estimates of all values of each side
    together: Estimate,  # those of the reports of both
    # Of each side, how many other reports the device of a report has made, on average, at most.
    repeats: Sequence[float] = (0.0, 0.0),
    *,
    permanent: bool = False,  # whether the devices keep their permanent responses
) -> Chi2 | None:
    """Test whether two sides differ in the share of any value; None if the statistic would not be chi-square."""
    # Let D be the differences, and M their covariance if both sides have the shares of both together. Shares sum to 1 on both
    # sides, but estimates need not. So the part of D that goes with its sum is noise, and is taken away. With d values, `D' M^-1
    # D - (1' D)^2 / (1' M 1)` is chi-square with d - 1 degrees. If estimates do sum to 1, the second term is 0.
    #
    # The test that values have one by one (Holm) finds a large change of few values; this one also small changes of many.
    values = mechanism.domain_size
    if len(together.frequency) != values or not _is_chi_square(mechanism, min(each.n for each in sides)):
        return None
    first, second = (
        estimates_covariance(mechanism, together.plausible, side.n, repeats=more, permanent=permanent)
        for side, more in zip(sides, repeats, strict=True)
    )
    return Chi2(_distance(sides[1].frequency - sides[0].frequency, first + second), values - 1)


def rise_seen(
    mechanism: Mechanism,  # what the devices run
    n: int,  # reports of each side
    at: float,  # The share that rises. All other values have equal shares, on both sides.
    level: float,  # confidence of the test
    power: float,  # probability that it finds a difference
) -> float | None:
    """Compute the smallest rise of one value for which `chi_square` finds a difference with some power; None if there is none."""
    # If D is the true difference, the statistic is noncentral chi-square. Its noncentrality is that of `chi_square` at D itself.
    if not _is_chi_square(mechanism, n):
        return None
    degrees = mechanism.domain_size - 1
    direction = np.r_[1.0, np.full(degrees, -1 / degrees)]
    needed, rise = float(chndtrinc(chdtri(degrees, 1 - level), degrees, 1 - power)), 0.0
    before = np.r_[at, np.full(degrees, (1 - at) / degrees)]
    for _ in range(_ROUNDS):
        spread = 2 * estimates_covariance(mechanism, before + direction * rise / 2, n)
        rise = (needed / _distance(direction, spread)) ** 0.5
        if rise > 1 - at:
            return None
    return rise


def _is_chi_square(mechanism: Mechanism, n: int) -> bool:
    """Return whether the statistic of two sides is chi-square, of which the smaller one has n reports."""
    # With a large epsilon, few reports do not support what their devices hold.
    if mechanism.odds is None:
        return False
    p, q = mechanism.odds
    enough = n * float(q) >= _FEWEST and n * float(1 - p) >= mechanism.domain_size
    if mechanism.domain_size > _MOST or not enough:
        return False
    try:
        pair_support(mechanism)
    except ParameterError:  # the covariance is not known
        return False
    return True


def _distance(difference: NDArray[np.float64], covariance: NDArray[np.float64]) -> float:
    scale, along = np.trace(covariance), covariance.sum(axis=0)
    if along.sum() > 1e-9 * scale:
        difference = difference - along * (difference.sum() / along.sum())
        covariance = covariance - np.outer(along, along) / along.sum()
    regular = covariance + scale / len(difference)  # differences sum to 0 now, so a variance of their sum does not matter
    return float(difference @ np.linalg.solve(regular, difference))
