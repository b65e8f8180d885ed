"""Independence of several variables: tests from the likelihoods of reports, and from an estimated table.

`deniable_aggregator.decode.tables.joint.Joint.independence` explains the choice of these tests.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import reduce
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import chdtrc

from deniable_aggregator.decode.tables.joint_table import pairs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from deniable_aggregator.decode.tables.joint_table import Data, Floats

_CHUNK = 1 << 21  # numbers that an intermediate array holds at a time


@dataclass(frozen=True, slots=True)
class Chi2:
    """A test whose statistic is chi-square distributed under the hypothesis."""

    statistic: float  # at least 0; nan where there are no reports
    degrees: int  # degrees of freedom
    # Chance of a statistic at least as large if the hypothesis holds; 1 with no degrees of freedom.
    p_value: float = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "p_value", float(chdtrc(self.degrees, self.statistic)) if self.degrees else 1.0)


def score_test(data: Data, table: NDArray[np.float64]) -> Chi2:
    """Test that scores at a table's margins are uncorrelated between the variables. Each stratum has its own variances."""
    axes, step = range(table.ndim), max(1, _CHUNK // max(table.size, 64))
    margins = [table.sum(axis=tuple(other for other in axes if other != axis)) for axis in axes]
    whiten = [_whiten(data, axis, margins[axis], step) for axis in axes]
    sets = [chosen for size in range(2, table.ndim + 1) for chosen in combinations(axes, size)]
    sums: list[Any] = [0.0] * len(sets)
    variances: list[Any] = [0.0] * len(sets)
    order = np.argsort(data.strata, kind="stable")
    for stratum in np.split(order, np.flatnonzero(np.diff(data.strata[order])) + 1):
        squares: list[Any] = [0.0] * table.ndim
        for begin in range(0, len(stratum), step):
            rows = stratum[begin : begin + step]
            scores = [(_scores(data.parts[axis][rows], margins[axis]) - whiten[axis][0]) @ whiten[axis][1] for axis in axes]
            weighted = [score * data.weights[rows, None] for score in scores]
            for axis in axes:
                squares[axis] += weighted[axis].T @ scores[axis]
            for number, (first, *others) in enumerate(sets):
                sums[number] += (weighted[first].T @ reduce(pairs, (scores[axis] for axis in others))).ravel()
        n = data.weights[stratum].sum()
        for number, chosen in enumerate(sets):
            variances[number] += reduce(np.kron, (squares[axis] / n for axis in chosen)) * n
    statistic = sum(float(total @ np.linalg.solve(variance, total)) for total, variance in zip(sums, variances, strict=True))
    return Chi2(statistic, sum(len(total) for total in sums))


def _scores(rows: Floats, margin: NDArray[np.float64]) -> NDArray[np.float64]:
    rows = np.asarray(rows, np.float64)
    return rows / (rows @ margin)[:, None]


def _whiten(data: Data, axis: int, margin: NDArray[np.float64], step: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Compute the mean of a variable's scores, and a basis in which they are uncorrelated with variance 1."""
    mean, square = np.zeros(len(margin)), np.zeros((len(margin), len(margin)))
    for begin in range(0, len(data.weights), step):
        scores, weights = _scores(data.parts[axis][begin : begin + step], margin), data.weights[begin : begin + step]
        mean += weights @ scores / data.n
        square += scores.T @ (scores * weights[:, None]) / data.n
    scatter = square - np.outer(mean, mean)
    scale = 1 / np.sqrt(np.maximum(np.diag(scatter), 1e-12 * mean**2 + np.finfo(np.float64).tiny))
    values, vectors = np.linalg.eigh(scatter * scale * scale[:, None])
    spread = values > 1e-6 * len(values)  # the mean of a score over the values is 1, so one direction has no variance
    return mean, scale[:, None] * vectors[:, spread] / np.sqrt(values[spread])


def distance(raw: NDArray[np.float64], covariance: Callable[[NDArray[np.float64]], NDArray[np.float64]]) -> float:
    """Compute the squared distance of a table from the independent tables, linearised at a product close to it."""
    axes = range(raw.ndim)
    margins = [_shares(raw.sum(axis=tuple(other for other in axes if other != axis))) for axis in axes]
    statistic = 0.0
    # The product of the table's own margins ignores how the errors of cells go together. With few reports it is not close enough,
    # and too many tables are called dependent. So the distance is linearised once more, at the product nearest by the first.
    for _ in range(2):
        product = _outer(margins)
        tangents = [_outer([*margins[:axis], value, *margins[axis + 1 :]]) for axis in axes for value in np.eye(raw.shape[axis])]
        residual, basis = raw.ravel() - product, np.array(tangents).T
        # The variance along a tangent does not matter. Adding the product's makes the covariance regular if the shares sum to 1.
        metric = covariance(product)
        metric += np.outer(product, product) * (metric.max() * product.size)
        weighted = np.linalg.solve(metric, np.column_stack([residual, basis]))
        step = np.linalg.lstsq(basis.T @ weighted[:, 1:], basis.T @ weighted[:, 0])[0]
        statistic = float((residual - basis @ step) @ (weighted[:, 0] - weighted[:, 1:] @ step))
        steps = np.split(step, np.cumsum(raw.shape)[:-1])
        margins = [_shares(margin + change) for margin, change in zip(margins, steps, strict=True)]
    return statistic


def _shares(numbers: NDArray[np.float64]) -> NDArray[np.float64]:
    """Make shares of numbers that may be negative: above 0, with sum 1."""
    positive = np.maximum(numbers, 1e-6)
    return np.asarray(positive / positive.sum(), np.float64)


def _outer(vectors: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    return reduce(lambda left, right: np.multiply.outer(left, right).ravel(), vectors)
