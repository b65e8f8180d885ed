"""Shares for people to look at: none is negative, and together they are a whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


_ROUNDING = 1e-12  # what sums of shares may be off by, because of how numbers are stored


def consistent(
    frequency: NDArray[np.float64],  # (values,), unbiased estimates. They may be negative, above 1, or nan where unknown.
    *,
    complete: bool,  # Whether these are all possible answers. If not, the sum may also be below 1: the rest gave other answers.
) -> NDArray[np.float64]:
    """Find the possible shares, (values,), that are nearest to unbiased estimates (norm-sub); nan where unknown."""
    # Each estimate is lowered or raised by the same amount, and what falls below 0 becomes 0, so that the sum is right. This is
    # the Euclidean projection on the possible shares, so the squared error over all values never grows. The price is a bias: rare
    # values are shown too high on average, and frequent ones a little too low. So sums, comparisons and intervals use the
    # unbiased estimates.
    # T. Wang and others: Locally differentially private frequency estimation with consistency. NDSS 2020, section 4.
    lowered = np.maximum(frequency - lowered_by(frequency, complete=complete), 0.0)
    return np.asarray(lowered, np.float64)


def lowered_by(
    # frequency, complete: as for `consistent`
    frequency: NDArray[np.float64],
    *,
    complete: bool,
) -> float:
    """Return the amount that `consistent` takes off each share that stays above 0; negative if it adds it, nan without shares."""
    known = frequency[~np.isnan(frequency)]
    if not len(known):
        return float("nan")
    if not complete and np.maximum(known, 0.0).sum() <= 1:
        return 0.0
    falling = np.sort(known)[::-1]
    over = (np.cumsum(falling) - 1) / np.arange(1, len(falling) + 1)
    # To first order this is the bias of the largest values, with the opposite sign.
    amount = float(over[np.flatnonzero(falling > over)[-1]])
    return 0.0 if abs(amount) < _ROUNDING else amount  # shares that already sum to 1 are left as they are
