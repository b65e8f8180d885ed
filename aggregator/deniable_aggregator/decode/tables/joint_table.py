"""The most likely table: the shares of combinations of values that give the reports of several variables the largest probability.

`deniable_aggregator.decode.tables.joint.joint` describes the method.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from math import prod
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64] | NDArray[np.float32]

_CHUNK = 1 << 21  # numbers that an intermediate array holds at a time
_EXPECTATIONS = 10  # rounds of expectation and maximization before Newton's steps
_CURVED = 5  # fewest reports for each cell to estimate a step's curvature from
_AFFORDED = 5e10  # operations that may be spent to estimate it from more reports
_INFORMED = 100  # reports for each cell to estimate the covariance from: at most 1% too large
_TIE = 1e-9  # of a cell's curvature: a cost on moving away from the start, which makes the step unique


@dataclass(frozen=True, slots=True, eq=False)
class Data:
    """The likelihoods of different reports, how often each occurs, and its stratum."""

    parts: tuple[Floats, ...]
    weights: NDArray[np.float64]
    strata: NDArray[np.int64]

    @classmethod
    def of(cls, likelihoods: Sequence[Floats], strata: NDArray[np.int64] | None = None) -> Data:
        """Merge equal reports, if that saves half of the work or more."""
        parts: tuple[Floats, ...] = tuple(map(np.ascontiguousarray, likelihoods))
        if strata is None:
            strata = np.zeros(len(parts[0]), np.int64)
        keys, random = strata.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15), np.random.default_rng(0)
        for part in parts:
            words = part.view(np.uint32)
            factors = random.integers(0, 1 << 64, words.shape[1], np.uint64)
            for begin in range(0, len(words), step := max(1, _CHUNK // words.shape[1])):
                keys[begin : begin + step] += (words[begin : begin + step] * factors).sum(axis=1)
        _, first, place, number = np.unique(keys, return_index=True, return_inverse=True, return_counts=True)
        same = 2 * len(first) <= len(keys) and all(
            # The key is a digest, so the reports themselves are compared.
            np.array_equal(part[begin : begin + _CHUNK // 64], part[first[place[begin : begin + _CHUNK // 64]]])
            for part in (*parts, strata)
            for begin in range(0, len(keys), _CHUNK // 64)
        )
        if not same:
            return cls(parts, np.ones(len(keys)), strata)
        return cls(tuple(part[first] for part in parts), number.astype(np.float64), strata[first])

    @property
    def n(self) -> float:
        """Number of reports, with equal ones counted each."""
        return float(self.weights.sum())

    def sample(self, size: int) -> Data:
        """Take some reports at even distances, weighted to stand for all."""
        total = len(self.weights)
        if size >= total:
            return self
        step = round(total * 0.6180339887498949)
        while np.gcd(step, total) > 1:
            step += 1
        chosen = np.sort(np.arange(size) * step % total)
        weights = self.weights[chosen]
        return Data(tuple(part[chosen] for part in self.parts), weights * (self.n / weights.sum()), self.strata[chosen])

    def chunks(self, cells: int) -> Iterator[tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]]:
        """Yield the likelihoods of the first variable and of combinations of the others, and weights, some reports at a time."""
        step = max(1, _CHUNK // cells)
        for begin in range(0, len(self.weights), step):
            first, *others = (np.asarray(part[begin : begin + step], np.float64) for part in self.parts)
            right = reduce(pairs, others, np.ones((len(first), 1)))
            yield first, right, self.weights[begin : begin + step]


@dataclass(frozen=True, slots=True, eq=False)
class Point:
    """A table (first variable, all others), and its log-likelihood with the gradient."""

    table: NDArray[np.float64]
    gradient: NDArray[np.float64]
    log_likelihood: float
    n: float
    passes: int

    @property
    def slack(self) -> float:
        """Upper bound on the distance of the log-likelihood from its maximum, in nats."""
        return float(self.gradient.max() - self.n)


def maximum(data: Data, start: NDArray[np.float64] | None, gap: float, limit: int) -> Point:
    """Maximise from a table, by default the uniform one, until the slack is at most the gap or all passes are used."""
    shape = (data.parts[0].shape[1], prod(part.shape[1] for part in data.parts[1:]))
    at = _look(data, np.full(shape, 1 / prod(shape)) if start is None else start, 0)
    while start is None and at.passes <= _EXPECTATIONS and at.slack > gap:
        at = _look(data, at.table * at.gradient / at.n, at.passes)
    model: tuple[NDArray[np.intp], NDArray[np.float64]] | None = None
    while at.slack > gap and at.passes < limit:
        if model is None:
            # Most shares that are 0 with a gradient towards less stay 0. Of those that may leave 0, at most as many as are above
            # 0 are tried.
            held = int((at.table > 0).sum())
            cells = np.sort(np.argsort(-np.where(at.table > 0, np.inf, at.gradient), axis=None, kind="stable")[: 2 * held])
            few = data.sample(max(_CURVED * len(cells), int(_AFFORDED / len(cells) ** 2)))
            model = cells, _information(few, at.table, cells)
        before = at
        at, full_step = _step(data, at, *model)
        if not full_step or at.slack > before.slack / 2:
            model = None
    return at


def unconstrained(data: Data, at: Point) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Take a Newton step that may leave the non-negative tables, and compute the covariance at its end."""
    possible = np.flatnonzero(at.gradient.ravel() > 0)
    information = _information(data.sample(_INFORMED * at.table.size), at.table, possible)
    scale = 1 / np.sqrt(np.diag(information))
    values, vectors = np.linalg.eigh(information * scale * scale[:, None])
    identified = values > 1e-9 * len(values)
    inverse = (vectors[:, identified] / values[identified]) @ vectors[:, identified].T * scale * scale[:, None]
    sums = inverse.sum(axis=1)
    inverse -= np.outer(sums, sums) / sums.sum()  # the sum of all shares is known
    raw = at.table.ravel().copy()
    raw[possible] += inverse @ (at.gradient.ravel()[possible] - at.n)
    alike = np.square(vectors[:, ~identified]).sum(axis=1) > 1e-6  # noqa: PLR2004 - more than rounding
    inverse[alike], inverse[:, alike] = np.nan, np.nan
    covariance = np.zeros((raw.size, raw.size))
    covariance[np.ix_(possible, possible)] = inverse
    return raw, covariance


def pairs(left: NDArray[np.float64], right: NDArray[np.float64]) -> NDArray[np.float64]:
    """Multiply each entry of a row with each entry of the other row."""
    return (left[:, :, None] * right[:, None, :]).reshape(len(left), -1)


def _look(data: Data, table: NDArray[np.float64], passes: int) -> Point:
    gradient, total = np.zeros_like(table), 0.0
    with np.errstate(divide="ignore", invalid="ignore"):  # a trial table may make a report impossible
        for left, right, weights in data.chunks(sum(table.shape)):
            mass = np.einsum("ij,ij->i", left @ table, right)
            total += float(weights @ np.log(mass))
            gradient += left.T @ (right * (weights / mass)[:, None])
    return Point(table, gradient, total, data.n, passes + 1)


def _information(data: Data, table: NDArray[np.float64], cells: NDArray[np.intp]) -> NDArray[np.float64]:
    """Sum over the reports the outer products of their likelihoods divided by their probability: (cells, cells)."""
    total = np.zeros((len(cells), len(cells)))
    for left, right, weights in data.chunks(table.size):
        scale = np.sqrt(weights) / np.einsum("ij,ij->i", left @ table, right)
        rows = pairs(left * scale[:, None], right)
        if len(cells) < table.size:
            rows = rows[:, cells]
        total += rows.T @ rows
    return total


def _step(data: Data, at: Point, cells: NDArray[np.intp], curvature: NDArray[np.float64]) -> tuple[Point, bool]:
    """Go to the best non-negative table of the quadratic model, or as far towards it as the log-likelihood grows."""
    near = at.table.ravel()[cells]
    target = np.zeros_like(at.table)
    # The sum of the table needs no constraint: `log_likelihood - n sum` has its maximum at sum 1. Scaling a table to sum 1 makes
    # this larger.
    target.ravel()[cells] = _nonnegative(curvature, curvature @ near + at.gradient.ravel()[cells] - at.n, near)
    size, passes = 1.0, at.passes
    while size > 1e-3:  # noqa: PLR2004 - below this size the model is not reliable
        table = (1 - size) * at.table + size * target
        trial = _look(data, table / table.sum(), passes)
        growth, rounding = trial.log_likelihood - at.log_likelihood, 1e-12 * abs(at.log_likelihood)
        if growth > 0 or (growth > -rounding and trial.slack < at.slack):
            return trial, size == 1
        size, passes = size / 4, trial.passes
    return _look(data, at.table * at.gradient / at.n, passes), False  # this step never lowers the log-likelihood


def _nonnegative(matrix: NDArray[np.float64], vector: NDArray[np.float64], near: NDArray[np.float64]) -> NDArray[np.float64]:
    """Minimise ``x' matrix x / 2 - vector' x`` over x >= 0 by block principal pivoting; if several are minimal, the nearest."""
    # L. F. Portugal and others: A comparison of block pivoting and interior-point algorithms. Math. Comp. 63, 1994.
    scale = 1 / np.sqrt(np.maximum(np.diag(matrix), np.finfo(np.float64).tiny))
    scaled = matrix * scale * scale[:, None]
    scaled[np.diag_indices_from(scaled)] += _TIE
    target = vector * scale + _TIE * near / scale
    free = (target > 0) & (near > 0)
    fewest, patience = len(target) + 1, 5
    solution = np.zeros_like(target)
    for _ in range(100):
        solution[:] = 0
        solution[free] = np.linalg.solve(scaled[np.ix_(free, free)], target[free])
        slope = scaled[:, free] @ solution[free] - target
        wrong = np.where(free, solution < 0, slope < -1e-9 * abs(target))
        count = int(wrong.sum())
        if not count:
            break
        if count < fewest:
            fewest, patience = count, 5
        elif patience:
            patience -= 1
        else:  # one exchange at a time cannot cycle
            wrong[: np.flatnonzero(wrong)[-1]] = False
        free ^= wrong
    return np.asarray(np.maximum(solution, 0) * scale)
