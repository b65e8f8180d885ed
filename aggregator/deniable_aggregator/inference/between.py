"""Between-period variance: by how much periods differ beyond chance, although nothing lasting happened.

Days differ by weather, news and mailings. A test that knows of chance alone calls every such day a change.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import chdtr, chdtri

if TYPE_CHECKING:
    from numpy.typing import NDArray

CORRELATIONS = (0.0, 0.25, 0.5)
"""Correlations of one period's difference with the next one's for which errors are computed; the largest counts."""
FEWEST_PAIRS = 8
"""With fewer pairs of periods, nothing is known of how much they differ."""

_LAG = 4  # periods between two that are compared, where there is no cycle
_KEPT = 0.8  # of the smallest differences; a lasting step makes the others large
_SHRINK = float(chdtr(3, chdtri(1, 1 - _KEPT))) / _KEPT  # mean of these, in units of the variance
_DEGREES = 0.7  # of freedom of a pair
_HALVINGS = 40


@dataclass(frozen=True, eq=False)
class Between:
    """How much periods differ beyond chance."""

    variance: NDArray[np.float64]  # (values,), of one period's difference from the usual
    pairs: int  # how many pairs of periods it is estimated from

    @property
    def degrees(self) -> float:
        """Degrees of freedom of the variance."""
        return _DEGREES * self.pairs


def between(
    times: NDArray[np.int64],  # (periods,), rising whole numbers
    estimates: NDArray[np.float64],  # (periods, values)
    # (periods, values), the variance of each estimate by chance alone. It must not depend on the estimate itself.
    noise: NDArray[np.float64],
    cycle: int = 1,  # only periods so many apart are alike: 7 for days
) -> Between:
    """Estimate how much periods differ beyond chance, from differences of periods a cycle apart."""
    # A season cancels out of differences a cycle apart. A lasting step is in few of them, and these are left out with the largest
    # fifth. The variance is the one with which the mean of the others is what it would be of normal differences.
    lag = cycle if cycle > 1 else _LAG
    place = {int(time): at for at, time in enumerate(times)}
    pairs = [(place[time - lag], at) for time, at in place.items() if time - lag in place]
    values = estimates.shape[1]
    if not pairs:
        return Between(np.zeros(values), 0)
    before, after = np.array(pairs).T
    squares = np.square(estimates[after] - estimates[before])
    chance = noise[after] + noise[before]
    most = max(1, round(_KEPT * len(pairs)))

    def trimmed(variance: NDArray[np.float64]) -> NDArray[np.float64]:
        ratios = squares / (2 * variance + chance)
        return np.asarray(np.partition(ratios, most - 1, axis=0)[:most].mean(axis=0), np.float64)

    low, high = np.zeros(values), squares.max(axis=0) / (2 * _SHRINK) + 1e-300
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        more = trimmed(middle) > _SHRINK
        low, high = np.where(more, middle, low), np.where(more, high, middle)
    return Between(np.where(trimmed(np.zeros(values)) > _SHRINK, (low + high) / 2, 0.0), len(pairs))


def correlations(times: NDArray[np.int64] | NDArray[np.float64]) -> list[NDArray[np.float64]]:
    """Return the correlation matrices of the differences of these periods, (periods, periods), one for each of `CORRELATIONS`."""
    gaps = np.abs(times[:, None] - times).astype(np.float64)
    return [np.asarray(each**gaps, np.float64) for each in CORRELATIONS]
