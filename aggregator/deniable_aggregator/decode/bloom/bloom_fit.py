"""The fit: generalised least squares of Bloom filter bits on the filters of candidates.

The model and its covariance are described at `deniable_aggregator.decode.bloom.bloom_regression`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from scipy.linalg import solve_triangular
from scipy.linalg.lapack import dpotri, dpstrf
from scipy.sparse import csr_array
from scipy.special import ndtr

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Integers = NDArray[np.intp]

_DEPENDENT = 1e-8  # a column is dependent if less than this part of its variance is left beside the others
_LEAST_NOISE = 1e-6  # least variance of a bit of one report: without noise a bit that nobody has would have variance 0
_CHUNK = 1 << 18  # elements of the dense arrays that are used at a time: they fit into the cache
_LOW_RANK = 0.4  # of the width: up to this rank the Woodbury identity is the faster way to the precision


@dataclass(frozen=True, slots=True, eq=False)
class Covariance:
    """Covariances of the bits of some cohorts, each ``diag(diagonal) + basis @ diag(weights) @ basis'``."""

    diagonal: Floats  # (cohorts, width), above 0
    basis: Floats  # (cohorts, width, rank)
    weights: Floats  # (cohorts, rank), of either sign

    def dense(self) -> Floats:
        """Return the matrices, (cohorts, width, width)."""
        return _raised((self.basis * self.weights[:, None, :]) @ self.basis.transpose(0, 2, 1), self.diagonal)

    def variances(self) -> Floats:
        """Return their diagonals, (cohorts, width)."""
        return np.asarray(self.diagonal + np.einsum("jbr,jbr,jr->jb", self.basis, self.basis, self.weights))

    def precision(self) -> Floats:
        """Return their inverses, (cohorts, width, width), the faster way."""
        width, rank = self.basis.shape[1:]
        return self.by_woodbury() if rank <= _LOW_RANK * width else self.by_cholesky()

    def by_woodbury(self) -> Floats:
        """Invert by the Woodbury identity, in as many dimensions as the rank."""
        scaled = self.basis / self.diagonal[:, :, None]
        weighted = self.weights[:, :, None] * scaled.transpose(0, 2, 1)
        inner = np.eye(weighted.shape[1]) + weighted @ self.basis
        return _raised(-scaled @ np.linalg.solve(inner, weighted), 1 / self.diagonal)

    def by_cholesky(self) -> Floats:
        """Invert the matrices themselves, which are positive definite."""
        lower: Floats = np.asarray(np.linalg.cholesky(self.dense()), np.float64)
        for matrix in lower:
            matrix[:] = dpotri(matrix.T, overwrite_c=True)[0].T  # LAPACK is column-major, and leaves the upper triangle
        return np.asarray(lower + np.tril(lower, -1).transpose(0, 2, 1))


def _raised(matrices: Floats, by: Floats) -> Floats:
    """Add a number to each diagonal, in place."""
    bits = np.arange(by.shape[1])
    matrices[:, bits, bits] += by
    return matrices


@dataclass(frozen=True, slots=True, eq=False)
class BloomCells:
    """The data: debiased shares of all bits, and the filters of distinguishable candidates ("columns")."""

    design: csr_array[Any]  # (cohorts * width, columns)
    shared: NDArray[np.bool_]  # (columns,): True where several candidates have these filters
    counts: NDArray[np.int64]  # (cohorts, width)
    reports: NDArray[np.int64]  # (cohorts,), all above 0
    p: float
    q: float
    density: float | None
    repeats: float = 0.0  # other reports of its permanent response that a report has beside it
    flip: float = 0.0  # probability that a permanent response flips a bit
    people: Floats = field(init=False)  # (cohorts,): whose permanent responses the reports are worth
    noise: tuple[float, float] = field(init=False)  # variance of a debiased bit of a person's reports, of a 0 and of a 1
    transposed: csr_array[Any] = field(init=False)
    dense: Floats | None = field(init=False)  # (cohorts, width, columns), the design if that is small: it is read faster
    filters: NDArray[np.int64] = field(init=False)  # (ones of the design,): cohort * columns + column, ascending
    bits: NDArray[np.int64] = field(init=False)  # (ones of the design,): their bits
    y: Floats = field(init=False)  # (cohorts, width)
    ones: Floats = field(init=False)  # (columns,): bits that are 1, on average over the cohorts
    alone: float = field(init=False)  # variance of a bit of a random filter, less its covariance with another bit
    together: float = field(init=False)  # that covariance

    def __post_init__(self) -> None:
        cohorts, width = self.counts.shape
        columns = self.design.shape[1]
        entries = self.design.tocoo()
        filters = entries.row.astype(np.int64) // width * columns + entries.col
        order = np.argsort(filters, kind="stable")
        object.__setattr__(self, "filters", filters[order])
        object.__setattr__(self, "bits", entries.row[order] % width)
        weights = np.unique(filters, return_counts=True)[1]
        size = max(1, cohorts * columns)
        single = weights.sum() / size / width
        # From the candidates' filters, so that hashes may coincide, instead of from an assumption on the hashes.
        double = (weights * (weights - 1)).sum() / size / max(1, width * (width - 1))
        permanent = bit_noise(self.flip, 1 - self.flip)
        once = bit_noise(self.p, self.q)
        fresh = ((all_ - part) / (1 + self.repeats) for all_, part in zip(once, permanent, strict=True))
        object.__setattr__(self, "people", self.reports / (1 + self.repeats))
        object.__setattr__(self, "noise", tuple(part + more for part, more in zip(permanent, fresh, strict=True)))
        object.__setattr__(self, "transposed", csr_array(self.design.T))
        small = cohorts * width * columns <= _CHUNK
        object.__setattr__(self, "dense", self.design.toarray().reshape(cohorts, width, columns) if small else None)
        object.__setattr__(self, "y", (self.counts / self.reports[:, None] - self.p) / (self.q - self.p))
        object.__setattr__(self, "ones", np.asarray(self.design.sum(axis=0)).ravel() / cohorts)
        object.__setattr__(self, "alone", float(single - double))
        object.__setattr__(self, "together", float(double - single**2))

    def filters_of(self, columns: Integers) -> Callable[[int, int], Floats]:
        """Return what gives the filters of some columns in the cohorts from one to another, (cohorts, width, columns)."""
        if self.dense is not None:
            taken = self.dense[:, :, columns]
            return lambda begin, end: taken[begin:end]
        width, chosen = self.y.shape[1], csr_array(self.transposed[columns].T)
        return lambda begin, end: chosen[begin * width : end * width].toarray().reshape(end - begin, width, len(columns))

    def covariance(
        self,
        # begin, end: the cohorts
        begin: int,
        end: int,
        filters: Floats,  # (cohorts, width, columns in the model)
        shares: Floats,  # (columns in the model,)
        excess: float,  # sum of squares of the shares outside of the model
    ) -> Covariance:
        """Model the covariance of the bits of some cohorts."""
        held = shares > 0
        mass = shares[held] / max(1.0, shares[held].sum())
        density, unlisted = (0.0, 0.0) if self.density is None else (self.density, 1 - mass.sum())
        # In E[B B'] - E[B] E[B]', all but the diagonal lies in the span of ones (other strings), the mean and the filters.
        basis = np.empty((*filters.shape[:2], 2 + len(mass)))
        basis[:, :, 2:] = filters[:, :, held]
        basis[:, :, 1] = mean = basis[:, :, 2:] @ mass + unlisted * density
        basis[:, :, 0] = 1
        people = self.people[begin:end, None]
        spread = unlisted / people + excess
        weights = np.concatenate([[unlisted * density**2], [-1], mass]) / people
        weights[:, :1] += spread * self.together
        quiet, loud = self.noise
        diagonal = (quiet + mean * (loud - quiet) + _LEAST_NOISE) / people + spread * self.alone
        return Covariance(diagonal, basis, weights)

    def information(self, begin: int, end: int, precision: Floats) -> Floats:
        """Sum x' P x over some cohorts, x the filter of each column and P the precision of the cohort; (columns,)."""
        columns = self.design.shape[1]
        low, high = np.searchsorted(self.filters, [begin * columns, end * columns])
        filters, bits = self.filters[low:high], self.bits[low:high]
        total: Floats = np.zeros(columns)
        first = np.arange(len(filters))
        distance = 0
        while len(first):  # pairs of ones of a filter at a growing distance
            cohort, column = np.divmod(filters[first], columns)
            entries = precision[cohort - begin, bits[first], bits[first + distance]]
            total += (2 if distance else 1) * np.bincount(column, entries, columns)
            distance += 1
            first = first[first + distance < len(filters)]
            first = first[filters[first] == filters[first + distance]]
        return total

    def chunks(self, columns: int) -> Iterator[tuple[int, int]]:
        """Cut the cohorts into pieces for which dense arrays with this many columns are small."""
        cohorts, width = self.y.shape
        step = max(1, _CHUNK // (width * max(width, columns)))
        for begin in range(0, cohorts, step):
            yield begin, min(begin + step, cohorts)


@dataclass(frozen=True, slots=True, eq=False)
class Model:
    """A generalised least squares fit of some columns, with estimates for each other column as if it were added alone."""

    cells: BloomCells  # the data
    columns: Integers  # those in the model
    frequency: Floats  # (columns of the data,); nan if a column outside of the model depends on those in it
    variance: Floats  # (columns of the data,), of the frequency if the column is absent
    own: Floats  # (columns of the data,), what the variance grows by if the column is present
    # outside, outside_variance: share of people outside of the model, and its variance
    outside: float
    outside_variance: float
    noise: Floats  # (cohorts, width), variances of the cells
    excess: float  # sum of squares of the shares outside of the model, as used for the covariance
    # chi2, freedom, slope: chi-square of the residuals, its degrees of freedom, and the derivative of its mean by the excess
    chi2: float
    freedom: int
    slope: float

    @property
    def p_value(self) -> Floats:
        """One-sided p-values; 1 if nothing is known."""
        with np.errstate(invalid="ignore"):
            p_value = ndtr(-self.frequency / np.sqrt(self.variance))
        return np.where(np.isnan(p_value), 1.0, p_value)


def solve(cells: BloomCells, columns: Integers, shares: Floats, excess: float, *, others: bool = True) -> Model:
    """Fit some columns by generalised least squares, and optionally each other column added alone."""
    number = cells.design.shape[1]
    others &= len(columns) < number  # if there are any
    cohorts, width = cells.y.shape
    lead = 0 if cells.density is None else 1  # the first coefficient, if there is a density, is the mass of other strings
    size = lead + len(columns)
    filters_of = cells.filters_of(columns)
    gram, slope = np.zeros((size + 1, size + 1)), 0.0  # inner products of the coefficients' columns and y
    cross, diagonal = np.zeros((number if others else 0, size + 1)), np.zeros(number)
    noise = np.empty((cohorts, width))
    for begin, end in cells.chunks(size):
        filters = filters_of(begin, end)
        covariance = cells.covariance(begin, end, filters, shares, excess)
        noise[begin:end] = covariance.variances()
        precision = covariance.precision()
        y = cells.y[begin:end, :, None]
        left = np.concatenate([np.full_like(y, cells.density)] * lead + [filters, y], axis=2)
        weighted = (precision @ left).reshape(-1, size + 1)
        gram += left.reshape(weighted.shape).T @ weighted
        slope += float(cells.alone * precision.trace(axis1=1, axis2=2).sum() + cells.together * precision.sum())
        if others:
            part = cells.transposed if end - begin == cohorts else cells.design[begin * width : end * width].T
            cross += part @ weighted
            diagonal += cells.information(begin, end, precision)
    # Of dependent columns some are left out. The shares and the excess are used for the covariance.
    independent = _independent(gram[:size, :size])
    factor = np.linalg.cholesky(gram[np.ix_(independent, independent)])
    half = solve_triangular(factor, gram[independent, size], lower=True)
    coefficients = solve_triangular(factor, half, lower=True, trans=1)
    inverse = solve_triangular(factor, np.eye(len(independent)), lower=True)
    variances = np.square(inverse).sum(axis=0)
    chi2, freedom = float(gram[size, size] - half @ half), cohorts * width - len(independent)
    frequency, variance = np.full((2, number), np.nan)
    if others:  # for each column: what the model leaves of it, and of its correlation with y
        explained = solve_triangular(factor, cross[:, independent].T, lower=True)
        information = diagonal - np.square(explained).sum(axis=0)
        information[information <= _DEPENDENT * diagonal] = np.nan
        frequency = (cross[:, size] - explained.T @ half) / information
        variance = 1 / information
    inside = columns[independent[independent >= lead] - lead]
    frequency[inside] = coefficients[len(independent) - len(inside) :]
    variance[inside] = variances[len(independent) - len(inside) :]
    inflation = max(1.0, chi2 / freedom) if freedom > 0 else 1.0
    plausible = np.clip(frequency, 0.0, 1.0)
    quiet, loud = cells.noise
    total = cells.people.sum()
    own = plausible * (1 - plausible + (loud - quiet) / cells.ones) / total
    # The covariance assumed that a column is present inside of the model, and absent outside.
    variance[inside] = np.maximum(variance[inside] - own[inside], 1 / total**2)
    # With other strings it is their share; without, what the candidates leave.
    mass = np.repeat([1.0, 1.0 - lead], [lead, len(inside)])
    outside = float(mass @ coefficients)
    return Model(
        cells=cells,
        columns=inside,
        frequency=frequency,
        variance=variance * inflation,
        own=own,
        outside=outside if lead else 1 - outside,
        outside_variance=float(np.square(inverse @ mass).sum()) * inflation,
        noise=noise,
        excess=excess,
        chi2=chi2,
        freedom=freedom,
        slope=slope,
    )


def _independent(gram: Floats) -> Integers:
    """Return the places of linearly independent columns: the first column, and most of the others."""
    if not len(gram):
        return np.arange(0)
    scale = 1 / np.sqrt(np.maximum(np.diagonal(gram), np.finfo(float).tiny))
    scale[0] *= 2  # the pivot is the largest, so the mass of other strings comes first
    _, order, rank, _ = dpstrf(gram * scale[:, None] * scale, tol=_DEPENDENT)
    return np.sort(order[:rank] - 1)


def bit_noise(p: float, q: float) -> tuple[float, float]:
    """Return the variance of a debiased bit of one report, for a filter's bit that is 0 and for one that is 1."""
    return p * (1 - p) / (q - p) ** 2, q * (1 - q) / (q - p) ** 2
