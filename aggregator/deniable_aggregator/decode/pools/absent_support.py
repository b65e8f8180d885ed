"""The support of a value that nobody holds, in the tally of a pool of hash functions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from deniable_aggregator.decode.pools.pieces import pieces

if TYPE_CHECKING:
    from typing import Any

    from numpy.typing import NDArray

_STEP = 0.7  # between scores, within which the relation of sums and scores is nearly linear
_SMOOTH = 2.5  # standard deviations of noise that smooth a step
_FAR = 8.0  # a score that nothing needs to exceed


@dataclass(frozen=True, eq=False)
class Absent:
    """The distribution of the support of a value that nobody holds: the sum of one random cell of each row."""

    # The tails are saddlepoint approximations: Barndorff-Nielsen's r* from the exact cumulants of the sum, with a correction for
    # continuity. They are kept as a table of supports and scores. A score is the standard normal number that is exceeded with the
    # same probability.
    # J. Robinson: Saddlepoint approximations for permutation tests and confidence intervals. JRSS B 44(1), 1982.
    # O. E. Barndorff-Nielsen: Modified signed log likelihood ratio. Biometrika 78(3), 1991.

    cells: NDArray[Any]  # (rows, width): reports that support each place

    @cached_property
    def mean(self) -> float:
        """Mean of the support."""
        return float(self.cells.mean(axis=1).sum())

    @cached_property
    def variance(self) -> float:
        """Variance of the support."""
        return _variance(self.cells)

    def score(self, support: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the standard normal number that is exceeded as rarely as a support."""
        supports, scores = np.concatenate([self._below, self._above], axis=1)
        return np.asarray(np.interp(support, supports, scores))

    def support(self, score: float) -> float:
        """Return the support that is exceeded as rarely as a standard normal number, which is far from 0."""
        supports, scores = self._above if score > 0 else self._below
        return float(np.interp(score, scores, supports))

    def least(self, score: float) -> float:
        """Return the same support for a score far above 0, from no more of the tail than that needs."""
        supports, scores = _upper_tail(self.cells, score)
        return float(np.interp(score, scores, supports))

    @cached_property
    def _above(self) -> NDArray[np.float64]:
        """Supports above the mean, and their scores; (2, points)."""
        return _upper_tail(self.cells)

    @cached_property
    def _below(self) -> NDArray[np.float64]:
        return -_upper_tail(-self.cells)[:, ::-1]


def _upper_tail(cells: NDArray[Any], far: float = _FAR) -> NDArray[np.float64]:
    """Return points of the upper tail of the sum of one random cell of each row: sums and their scores; (2, points)."""
    middle, spread = cells.mean(axis=1), np.sqrt(_variance(cells))
    if not spread:
        return np.array([[middle.sum()], [0.0]])
    scaled = ((cells - middle[:, None]) / spread).astype(np.float32)
    most = scaled.max(axis=1)[:, None]
    below, squares = scaled - most, np.square(scaled)
    points: list[tuple[float, float]] = [(0.0, 0.0)]
    tilt = _STEP
    while points[-1][1] < far:
        weights = np.exp(np.float32(tilt) * below)  # in the tilted sum each cell is so many times as likely
        total = weights.sum(axis=1)
        means = np.einsum("rj,rj->r", weights, scaled) / total
        variances = np.einsum("rj,rj->r", weights, squares) / total - np.square(means)
        cumulants = np.log(total / scaled.shape[1]) + np.float32(tilt) * most[:, 0]
        mean, variance, cumulant = (float(each.sum(dtype=np.float64)) for each in (means, variances, cumulants))
        root = np.sqrt(max(2 * (tilt * mean - cumulant), 0.0))
        score = root + np.log(tilt * np.sqrt(variance) / root) / root if root and variance > 0 else 0.0
        if score <= points[-1][1]:  # hardly any sum is greater, and none than that of the greatest cells
            last = float(most.sum(dtype=np.float64))
            points += [(last, points[-1][1]), (np.nextafter(last, np.inf), _FAR)]
            break
        points.append((mean, score))
        tilt += _STEP / np.sqrt(variance)
    sums, scores = np.array(points[1:] or points).T
    return np.array([middle.sum() + spread * (sums + _half_step(most[:, 0], scaled.shape[1])), scores])


def _variance(cells: NDArray[Any]) -> float:
    """Compute the variance of the sum of one random cell of each row."""
    total = 0.0
    for piece in pieces(*cells.shape):
        centred = cells[piece] - cells[piece].mean(axis=1, keepdims=True)
        total += float(np.vdot(centred, centred))
    return float(total / cells.shape[1])


def _half_step(most: NDArray[np.float32], width: int) -> float:
    """Compute by how much a sum exceeds a smooth one at most, if its rows are alike and one cell of each stands out."""
    # The sum then moves in steps of the size of these cells, which the rest of its variance smooths. The sum has variance 1.
    remainder = 1 - float(np.square(most, dtype=np.float64).sum()) / (width - 1)
    step = float(most.mean()) * width / (width - 1)
    return max(step - _SMOOTH * float(np.sqrt(max(remainder, 0.0))), 0.0) / 2
