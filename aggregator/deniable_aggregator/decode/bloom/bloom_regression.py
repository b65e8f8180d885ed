"""Regression: the frequencies of candidate strings from counts of noisy Bloom filter bits.

A report of cohort j shows each bit of its string's filter with noise: a 0 as 1 with probability p, a 1 with probability q. So the
debiased share of bit b, ``y = (count / reports - p) / (q - p)``, has the mean

    X f + d u,

X are the filters of the candidates, f their shares, u the mass of all other strings and d the density of their filters. Cohorts
are independent. The bits of one report belong to one string, so they are correlated. Within a cohort the covariance is

    (noise + E[B B'] - E[B] E[B]') / reports + t C,

The noise is diagonal, and B is the filter of a random respondent under the fitted shares. t C is lack of fit: strings outside the
model do not raise all bits evenly. C is the covariance of one random filter, and t is the sum of their squared shares. Each fit
is generalised least squares with this covariance. Its shares and t are updated until they settle.

Several reports of one permanent response count as one person's: only the fresh part of their noise averages out.

If there are few candidates for the number of cells, all of them are in the model. Then no selection biases it. Otherwise a
non-negative LASSO selects candidates at the level of the noise, and significant ones are added. Each other candidate is tested by
adding it alone. If both models are possible, the one with smaller errors is used.

The tests assume that the overlap of an absent candidate with strings outside of the model is normal. With few filters it is not.
This matters if cohorts * ones of a filter * density is below about 10, and unlisted strings outweigh the noise. Then a candidate
that shares several bits with one of them may be detected by mistake.

References
----------
U. Erlingsson, V. Pihur, A. Korolova: RAPPOR: Randomized aggregatable privacy-preserving ordinal response. CCS 2014, section 4.
R. Tibshirani: Regression shrinkage and selection via the lasso. JRSS B 58(1), 1996.
T. Sun, C.-H. Zhang: Scaled sparse linear regression. Biometrika 99(4), 2012.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse import csc_array, csr_array
from scipy.special import ndtri

from deniable.errors import ParameterError
from deniable_aggregator.decode.bloom.bloom_fit import BloomCells, Model, bit_noise, solve
from deniable_aggregator.decode.pools.clusters import stderr_of_mean

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from numpy.typing import NDArray

    from deniable_aggregator.decode.bloom.bloom_fit import Floats, Integers

_ALL = 1024
"""Number of candidates up to which the model of all is tried: its cost grows with their square."""

_REPORTS = 16  # for each candidate in that model: its covariance depends on the shares of all

_ENTER = 0.05  # a candidate enters the model beside the LASSO's where its p-value, times the candidates, is below
_ROUNDS = 12  # of selection, which settles after 2 to 6
_ROUGH = 1e-4  # of the penalty, within which the LASSO's slopes are right
_SETTLE = 2  # updates of the covariance, each by a fit: another moves estimates by less than a thousandth of their errors


@dataclass(frozen=True, slots=True, eq=False)
class Fit:
    """What the counts say of each candidate.

    A value is nan if nothing is known of it. There are four cases: no reports, no filter with a 1, the same filters as another
    candidate, or filters that are a combination of the others'. Then its p-value is 1.
    """

    frequency: Floats  # (candidates,): share of the population; unbiased, so it may be negative
    stderr: Floats  # (candidates,): standard error of the frequency in the population that the respondents were drawn from
    absent_stderr: Floats  # (candidates,): what the standard error would be if nobody held the candidate
    # (candidates,): chance of a frequency at least as large if the candidate were absent, given the others; one-sided, normal.
    p_value: Floats
    # (candidates,): True if the candidate was in the regression with the others, False if it was added alone.
    selected: NDArray[np.bool_]
    # unallocated, unallocated_stderr: share of the population that holds other strings; nan if nothing is known of it
    unallocated: float
    unallocated_stderr: float
    # Chi-square of the residuals per degree of freedom, without lack of fit: 1 if the model explains all but the noise. nan if no
    # degree of freedom is left.
    dispersion: float


def fit(
    # (cohorts * width, candidates): 1 in row cohort * width + bit if the candidate's filter has that bit
    design: csr_array[Any] | csc_array[Any],
    counts: NDArray[np.int64],  # (cohorts, width): reports with that bit
    reports: NDArray[np.int64],  # (cohorts,)
    # p, q: probabilities that a bit that is 0, and one that is 1, in the filter is reported as 1; 0 <= p < q <= 1
    p: float,
    q: float,
    *,
    # share of 1s in the filters of strings that are no candidates, in (0, 1); None if all strings are candidates
    density: float | None,
    repeats: float = 0.0,  # other reports of its permanent response that a report has beside it, on average
    flip: float = 0.0,  # probability that a permanent response flips a bit; only needed with repeats
) -> Fit:
    """Estimate the share of every candidate, and test whether it is present."""
    # Cohorts without reports are left out.
    design = csc_array(design, dtype=np.float64, copy=True)
    design.sum_duplicates()
    design.eliminate_zeros()
    # Indices of 32 bits suffice, since a tally has few cells, and are read faster.
    design = csc_array((design.data, design.indices.astype(np.int32), design.indptr.astype(np.int32)), design.shape)
    _check(design, counts, reports, p, q, density)
    used = reports > 0
    width = counts.shape[1]
    rows = csc_array(design.tocsr()[np.repeat(used, width)])
    column, first, held = _patterns(rows)
    number = len(first)
    if not used.any() or not (number or density):
        nothing = np.full(design.shape[1], np.nan)
        return Fit(nothing, nothing, nothing, np.ones_like(nothing), np.zeros(nothing.shape, np.bool_), np.nan, np.nan, np.nan)
    columns = csr_array(rows[:, first])
    # A selection leaves out candidates. They raise bits as other strings do, so a density is needed in any case.
    cells = BloomCells(columns, held > 1, counts[used], reports[used], p, q, density or columns.mean(), repeats, flip)
    model = _search(cells)
    # Lack of fit is estimated from degrees of freedom that are left. If all strings are candidates, there is no lack of fit.
    room = columns.shape[0] // (2 if density else 1)
    if len(model.columns) < number <= min(_ALL, room, cells.people.sum() // _REPORTS):
        complete = _settle(cells if density else replace(cells, density=None), np.arange(number), None)
        # The choice depends on the errors alone, not on the frequencies, so it biases no test.
        if len(complete.columns) == number and np.median(complete.variance) < np.median(
            np.nan_to_num(model.variance, nan=np.inf)
        ):
            model = complete
    return _answer(model, column)


def detection_frequency(
    reports: int,  # number of reports, at least 1
    width: int,  # bits of the Bloom filter, at least 2
    # p, q: probabilities that a bit that is 0, and one that is 1, in the filter is reported as 1; `0 <= p < q <= 1`
    p: float,
    q: float,
    *,
    density: float,  # share of 1s in a filter, in (0, 1)
    candidates: int,  # number of strings looked for, at least 1
    alpha: float = 0.05,  # probability of detecting any absent string, in (0, 1)
) -> float:
    """Compute the share of the population that a string needs to be detected half of the time."""
    _check_probabilities(p, q, density)
    if reports < 1 or candidates < 1 or width < 2:  # noqa: PLR2004
        rule = "write at least 1 report, 1 candidate and 2 bits"
        raise ParameterError(f"reports = {reports}, candidates = {candidates}, width = {width}: {rule}")
    if not 0 < alpha < 1:
        raise ParameterError("alpha: write a number between 0 and 1", alpha)
    # The difference of a filter and its mean is a contrast. Its variance depends on differences of covariances only: the diagonal
    # of noise and filters, less the covariance of two bits. Its information per report is width * density * (1 - density).
    ones = width * density
    together = max(0.0, ones * (ones - 1) / (width * (width - 1)))
    quiet, loud = bit_noise(p, q)
    variance = quiet + density * (loud - quiet) + density - together
    return float(-ndtri(alpha / candidates) * np.sqrt(variance / (width * density * (1 - density) * reports)))


def _search(cells: BloomCells) -> Model:
    """Select columns, starting with none: the noise is overestimated first, and falls as columns enter."""
    level = _ENTER / max(cells.design.shape[1], 1)
    blank = _settle(cells, np.arange(0), None, others=False)
    model = _settle(cells, _lasso(cells, blank), blank)
    for _ in range(_ROUNDS):
        chosen = np.union1d(_lasso(cells, model), np.flatnonzero(model.p_value < level))
        if np.array_equal(chosen, model.columns):
            break
        model = _settle(cells, chosen, model)
    return model


def _lasso(cells: BloomCells, model: Model) -> Integers:
    """Select by a non-negative LASSO at the universal penalty for the noise that a model found."""
    columns = cells.design.shape[1]
    if columns < 2:  # noqa: PLR2004 - nothing to select, and no universal penalty
        return np.arange(columns)
    precision = 1 / model.noise.ravel()
    # For an absent column, the correlation of the scaled column with the residuals has variance 1.
    scale = 1 / np.sqrt(cells.transposed @ precision)
    penalty = np.sqrt(2 * np.log(columns))
    of_columns = cells.transposed
    scaled = csr_array((np.repeat(scale, np.diff(of_columns.indptr)), of_columns.indices, of_columns.indptr), of_columns.shape)
    y, weight, means = cells.y.ravel(), precision / precision.sum(), np.zeros(columns)
    if cells.density is not None:  # the intercept that fits best is taken out of columns and cells alike
        means, y = scaled @ weight, y - weight @ y
    shares, entered = np.zeros(columns), np.arange(0)
    of_all = _penalised(scaled, means, y, precision, penalty)
    while True:
        more = np.setdiff1d(np.flatnonzero(of_all(shares)[1] < -_ROUGH), entered)
        if not len(more):
            return np.flatnonzero(shares > 0)
        entered = np.union1d(entered, more)  # of thousands of columns some hundred ever enter, and the rest costs no time
        loss = _penalised(scaled[entered], means[entered], y, precision, penalty)
        shares[entered] = _least(loss, shares[entered])


def _penalised(
    transposed: csr_array[Any], means: Floats, y: Floats, precision: Floats, penalty: float
) -> Callable[[Floats], tuple[float, Floats]]:
    """Return half the weighted squared residuals plus the sum of the shares, in penalties, with its gradient by the shares."""
    design = transposed.T

    def loss(shares: Floats) -> tuple[float, Floats]:
        residual = design @ shares - means @ shares - y
        weighted = precision * residual / penalty
        return weighted @ residual / 2 + shares.sum(), transposed @ weighted - means * weighted.sum() + 1

    return loss


def _least(loss: Callable[[Floats], tuple[float, Floats]], start: Floats) -> Floats:
    """Minimise over what is not negative. A rough solution selects as well: what it misses enters by its test."""
    from scipy.optimize import minimize  # noqa: PLC0415 - slow to import

    options = {"maxiter": 500, "maxcor": 20, "ftol": 1e-13, "gtol": _ROUGH / 10}
    bounds = [(0, None)] * len(start)
    shares: Floats = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options).x
    return shares


def _settle(cells: BloomCells, columns: Integers, start: Model | None, *, others: bool = True) -> Model:
    """Fit some columns, and perhaps the others, and update the covariance by the shares and lack of fit found."""
    shares = np.zeros(len(columns))
    excess = 0.0
    if start is not None:
        shares, excess = np.nan_to_num(start.frequency[columns]), start.excess
    for _ in range(_SETTLE):
        model = solve(cells, columns, shares, excess, others=False)
        columns, shares = model.columns, model.frequency[model.columns]
        if model.freedom > 0 and model.slope > 0:
            excess = max(0.0, excess + (model.chi2 - model.freedom) / model.slope)
    return solve(cells, columns, shares, excess, others=others)


def _patterns(design: csc_array[Any]) -> tuple[Integers, Integers, Integers]:
    """Group candidates by their filters: the column of each; the first candidate and their number of each column."""
    # Columns are numbered among the different non-zero ones; a candidate without any bit has -1.
    design.sort_indices()
    seen: dict[bytes, int] = {}
    column = np.full(design.shape[1], -1)
    first: list[int] = []
    for candidate, (begin, end) in enumerate(zip(design.indptr[:-1], design.indptr[1:], strict=True)):
        if begin == end:
            continue
        pattern = design.indices[begin:end].tobytes()
        if pattern not in seen:
            seen[pattern] = len(first)
            first.append(candidate)
        column[candidate] = seen[pattern]
    held = np.bincount(column[column >= 0], minlength=len(first))
    return column, np.array(first, np.intp), held


def _answer(model: Model, column: Integers) -> Fit:
    """Assign each candidate the results of its column, unless other candidates share the column."""
    known = column >= 0
    known[known] = ~model.cells.shared[column[known]]
    frequency, stderr, absent_stderr = np.full((3, len(column)), np.nan)
    selected = np.zeros(len(column), np.bool_)
    p_value = np.ones(len(column))
    own = column[known]
    frequency[known] = model.frequency[own]
    stderr[known] = np.sqrt(model.variance + model.own)[own]
    absent_stderr[known] = np.sqrt(model.variance)[own]
    p_value[known] = model.p_value[own]
    selected[known] = np.isin(own, model.columns)
    unallocated, unallocated_stderr = _unallocated(model)
    noise_only = solve(model.cells, model.columns, model.frequency[model.columns], 0.0, others=False)
    return Fit(
        frequency=frequency,
        stderr=stderr,
        absent_stderr=absent_stderr,
        p_value=p_value,
        selected=selected,
        unallocated=unallocated,
        unallocated_stderr=unallocated_stderr,
        dispersion=noise_only.chi2 / noise_only.freedom if noise_only.freedom > 0 else np.nan,
    )


def _unallocated(model: Model) -> tuple[float, float]:
    """Estimate the share of strings that are not candidates, and its standard error."""
    # The model knows what is outside of it. Candidates that it left out are a part of that. Each of these is estimated on its
    # own, by how much more often the bits of its filter are 1 than the average bit, beyond what the model explains. Over random
    # filters that is unbiased. Residuals are uncorrelated with what a generalised least squares fit estimates, so the two
    # variances add.
    cells = model.cells
    cohorts, width = cells.counts.shape
    columns = cells.design.shape[1]
    left = np.setdiff1d(np.arange(columns), model.columns)
    residuals = cells.y - (cells.design[:, model.columns] @ model.frequency[model.columns]).reshape(cohorts, width)
    of_bits = residuals[cells.filters // columns, cells.bits]
    ones, sums = (
        np.bincount(cells.filters, weights, cohorts * columns).reshape(cohorts, columns)[:, left] for weights in (None, of_bits)
    )
    own = ones * (1 - ones / width)
    if not own.all():  # a filter without any 0 or any 1
        return float("nan"), float("nan")
    sums = ((sums - ones * residuals.mean(axis=1, keepdims=True)) / own).sum(axis=1) * cells.reports
    more = stderr_of_mean(sums, cells.reports) if len(left) else 0.0
    return float(model.outside - sums.sum() / cells.reports.sum()), float(np.hypot(np.sqrt(model.outside_variance), more))


def _check_probabilities(p: float, q: float, density: float | None) -> None:
    if not 0 <= p < q <= 1:
        raise ParameterError(
            "p and q: write probabilities with p below q; a bit is 1 more often if it is 1 in the filter", (p, q)
        )
    if density is not None and not 0 < density < 1:
        raise ParameterError("density: write a number between 0 and 1, or None if all strings are candidates", density)


def _check(
    design: csc_array[Any],
    counts: NDArray[np.int64],
    reports: NDArray[np.int64],
    p: float,
    q: float,
    density: float | None,
) -> None:
    _check_probabilities(p, q, density)
    if counts.ndim != 2 or reports.shape != counts.shape[:1]:  # noqa: PLR2004
        raise ParameterError(
            f"counts have the shape {counts.shape} and reports {reports.shape}: give (cohorts, width) and (cohorts,)"
        )
    if not (np.issubdtype(counts.dtype, np.integer) and np.issubdtype(reports.dtype, np.integer)):
        raise ParameterError(f"counts are {counts.dtype} and reports {reports.dtype}: give whole numbers")
    if (reports < 0).any() or (counts < 0).any() or (counts > reports[:, None]).any():
        raise ParameterError("a count is below 0, or above the reports of its cohort: give counts from 0 to those reports")
    if design.shape[0] != counts.size:
        raise ParameterError(f"the design has {design.shape[0]} rows: give one for each of the {counts.size} cells")
    if not (design.data == 1).all():
        raise ParameterError("design: write 0 and 1 only", design.data[design.data != 1][0])
