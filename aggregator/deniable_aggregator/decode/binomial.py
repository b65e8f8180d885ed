"""Binomial numbers: intervals of their probability, and which are significant."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.special import bdtrik, betaincinv

if TYPE_CHECKING:
    from numpy.typing import NDArray

_ROUNDING = 1e-6  # of a report: by so much a quantile may miss the whole number that it is


def clopper_pearson(
    hits: NDArray[np.int64] | NDArray[np.float64],  # Array, in [0, of]. Between whole numbers the limits are interpolated.
    of: NDArray[np.int64] | NDArray[np.float64] | int,  # trials, of all or of each; without trials the interval is [0, 1]
    chance: float,  # in (0, 1/2)
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Compute intervals of binomial probabilities with an error of at most `chance` on each side."""
    # C. J. Clopper, E. S. Pearson: The use of confidence or fiducial limits. Biometrika 26(4), 1934.
    c = hits.astype(np.float64)
    with np.errstate(invalid="ignore"):  # at both ends the quantile is undefined, and the bound is 0 or 1
        low = np.where(c > 0, betaincinv(c, of - c + 1, chance), 0.0)
        high = np.where(c < of, betaincinv(c + 1, of - c, 1 - chance), 1.0)
    return low, high


def half_significant(
    of: NDArray[np.float64] | float,  # reports that may support a value, in all or for each; nan where there are none
    q: float,  # probability that a report supports a value that nobody holds, in (0, 1)
    chance: float,  # largest p-value that is significant, in (0, 1)
) -> NDArray[np.float64]:
    """Compute the support's probability at which an exact test of a value is significant half of the time; inf where none is."""
    least = np.ceil(bdtrik(1 - chance, of, q) + 1 - _ROUNDING)
    return np.where(least > of, np.inf, betaincinv(least, np.maximum(of - least + 1, 1), 0.5))
