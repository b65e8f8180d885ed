"""Association: the joint distribution of several questions' true values, from randomised reports of each.

Every device reports each of its values separately. Given the values, the reports are independent. `likelihood` gives the
likelihood of a report under every value of its question. Then finding the table of shares that makes all reports most likely is a
concave problem, which `joint` solves. A question about the pair itself, with one randomised answer, is more exact: see
`from_product`.

References
----------
G. Fanti, V. Pihur, U. Erlingsson: Building a RAPPOR with the unknown. PoPETs 2016(3), section 3. `joint` says what differs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import ndtri

from deniable.errors import ParameterError
from deniable_aggregator import decode
from deniable_aggregator.decode.multiple_testing import tail
from deniable_aggregator.decode.pair_support import estimates_covariance, pair_support
from deniable_aggregator.decode.support_estimate import Supported
from deniable_aggregator.decode.tables.independence import Chi2, distance, score_test
from deniable_aggregator.decode.tables.joint_table import Data, maximum, unconstrained

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from deniable.mechanisms import Mechanism
    from deniable_aggregator.decode.tables.joint_table import Floats
    from deniable_aggregator.tally import Tally

MAX_CELLS = 4096
"""Cells of the largest table. Their covariance takes 128 MiB."""


@dataclass(frozen=True, slots=True, eq=False)
class Joint:
    """Estimated shares of all combinations of several variables' values."""

    # (r, c, ...), one axis for each variable. From `joint` the most likely shares, which are not negative and sum to 1: for
    # display, biased near 0. From `from_product` the same as `raw`.
    frequency: NDArray[np.float64]
    # (r, c, ...), shares that may be negative, unbiased (from `joint` as n grows): for sums, comparisons and intervals. The same
    # as `frequency` if no errors were computed.
    raw: NDArray[np.float64]
    # (cells, cells) of `raw` in the population that the respondents were drawn from, cells in the order of `raw.ravel()`. nan if
    # the reports do not distinguish a cell from others, or no errors were computed.
    covariance: NDArray[np.float64]
    n: int  # reports
    converged: bool  # whether the log-likelihood is known to be within the given gap of its maximum
    iterations: int  # passes over the reports
    log_likelihood: float  # of all reports, in nats, for the likelihoods as given; nan if none was maximised
    _independence: Chi2 = field(repr=False)

    @property
    def stderr(self) -> NDArray[np.float64]:
        """Standard error of `raw`, in its shape."""
        return np.sqrt(np.maximum(np.diag(self.covariance), 0)).reshape(self.raw.shape)

    def interval(
        self,
        level: float = 0.95,  # confidence, in (0, 1)
        *,
        # Whether all intervals hold together with this confidence (Bonferroni), instead of each alone.
        simultaneous: bool = False,
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Compute confidence intervals by the normal approximation around `raw`, in its shape, not clipped to [0, 1]."""
        reach = -ndtri(tail(level, self.raw.size if simultaneous else 1)) * self.stderr
        return self.raw - reach, self.raw + reach

    def margin(
        self,
        axis: int,  # the variable
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Sum `raw` to the shares of one variable's values, with standard errors."""
        places = np.indices(self.raw.shape)[axis].ravel()
        chosen = (places == np.arange(self.raw.shape[axis])[:, None]).astype(np.float64)
        variance = np.einsum("ij,jk,ik->i", chosen, self.covariance, chosen, optimize=True)
        return chosen @ self.raw.ravel(), np.sqrt(np.maximum(variance, 0))

    def independence(self) -> Chi2:
        """Test whether the variables are independent of each other in the population."""
        # From `joint` this is Rao's score test. A report's score is its likelihoods divided by their mean over the variable's
        # values. Under independence it is uncorrelated with the other variable's. n times the sum of their squared canonical
        # correlations is chi-square with (r - 1)(c - 1) degrees. With more variables, it is summed over all sets of two or more.
        # Without noise it is Pearson's statistic. It needs neither the table nor its errors.
        #
        # A likelihood ratio, or the distance of the most likely table from the product of its margins, is not chi-square: noise
        # pushes shares to the bound 0. In simulations a nominal 5% was 0 to 1%. A distance in the metric of the observed
        # information behaves like Neyman's statistic if there are few reports in a cell: 5% was up to 65%.
        #
        # From `from_product` it is the distance of `raw` from the nearest product, in the metric of the product's covariance
        # (minimum chi-square). The metric is computed at that product.
        # C. R. Rao: Large sample tests of statistical hypotheses. Math. Proc. Cambridge Phil. Soc. 44(1), 1948.
        return self._independence


def joint(
    # For each variable (n, values): how likely report i is under each value, each row up to a factor. Row i of all arrays belongs
    # to one device. Given its values, its reports are independent.
    likelihoods: Sequence[Floats],
    *,
    # (n,): what a device's reports have in common, such as one cohort for all variables. Only the test of independence needs it:
    # two strings that look alike in one variable of a cohort do so in the others, too.
    strata: NDArray[np.int64] | None = None,
    # Largest accepted distance of the log-likelihood from its maximum, in nats, above 0. With a distance g an estimate is within
    # sqrt(2 g) standard errors of the best one, in any direction. The default gives less than 5% of a standard error.
    gap: float = 1e-3,
    limit: int = 500,  # most passes over the reports
    errors: bool = True,  # whether to compute the covariance, at up to 100 cells^3 operations, or n cells^2 if that is less
) -> Joint:
    """Estimate the shares of all combinations of values from reports of each variable; nan without reports."""
    # The log-likelihood is concave. Ten rounds of expectation and maximization from the uniform table are followed by Newton's
    # steps, each a quadratic problem over non-negative tables. For a table with gradient G, no log-likelihood is more than max(G)
    # - n higher. The search stops by this bound, not by the change in the last step. Equal reports are treated as one.
    #
    # The covariance is the inverse of the observed information, on tables of sum 1. One more Newton step with it, which may leave
    # the non-negative tables, gives `Joint.raw`. A combination that no report could come from has share and error 0.
    # A. P. Dempster and others: Maximum likelihood from incomplete data via the EM algorithm. JRSS B 39(1), 1977.
    # Y. Kim and others: A fast algorithm for maximum likelihood estimation of mixture proportions. JCGS 29(2), 2020.
    if not gap > 0:
        raise ParameterError("gap: write a number of nats above 0", gap)
    shape, n = _checked(likelihoods)
    if not n:
        return _unknown(shape, log_likelihood=0.0)
    if strata is not None and strata.shape != (n,):
        raise ParameterError(f"strata have the shape {strata.shape}: give one for each of {n} reports")
    data = Data.of(likelihoods, strata)
    optimum = maximum(data, None, gap, limit)
    cells = prod(shape)
    raw, covariance = unconstrained(data, optimum) if errors else (optimum.table, np.full((cells, cells), np.nan))
    return Joint(
        frequency=optimum.table.reshape(shape),
        raw=raw.reshape(shape),
        covariance=covariance,
        n=n,
        converged=optimum.slack <= gap,
        iterations=optimum.passes,
        log_likelihood=optimum.log_likelihood,
        _independence=score_test(data, optimum.table.reshape(shape)),
    )


def from_product(
    mechanism: Mechanism,  # pure, with a domain of prod(shape) values; the last variable changes fastest
    counted: Tally,
    shape: Sequence[int],  # values of each variable
    *,
    repeats: float = 0.0,  # other reports of a report's device, at most: see `panel`
    permanent: bool = False,  # whether devices keep their permanent responses
) -> Joint:
    """Estimate a table from reports of one question whose values are all combinations; unbiased, nan without reports."""
    # Let s = q + f (p - q) be the probability that a report supports a value, and b the probability that it supports both of two
    # values. Their estimates have the covariance `(b - s s') / (n (p - q)^2)`. `pair_support` computes b exactly from the shares.
    if prod(shape) != mechanism.domain_size or min(shape, default=0) < 1 or mechanism.domain_size > MAX_CELLS:
        raise ParameterError(
            f"shape: write one of the {mechanism.domain_size} cells of the domain, {MAX_CELLS} at most", tuple(shape)
        )
    pair_support(mechanism)  # raises if there is none
    estimate = decode.estimate(mechanism, counted)
    if not isinstance(estimate, Supported) or estimate.touched is not None:
        raise ParameterError("mechanism: choose a pure one, whose reports show a table", mechanism.name)
    raw, n = estimate.frequency, estimate.n
    if not n:
        return _unknown(tuple(shape), log_likelihood=float("nan"))
    table = raw.reshape(shape)

    def spread(f: NDArray[np.float64]) -> NDArray[np.float64]:
        return estimates_covariance(mechanism, f, n, repeats=repeats, permanent=permanent)

    return Joint(
        frequency=table,
        raw=table,
        covariance=spread(np.clip(raw, 0, 1)),
        n=n,
        converged=True,
        iterations=0,
        log_likelihood=float("nan"),
        _independence=Chi2(distance(table, spread), _degrees(shape)),
    )


def _unknown(shape: tuple[int, ...], log_likelihood: float) -> Joint:
    """Make the table for no reports."""
    table, cells = np.full(shape, np.nan), prod(shape)
    return Joint(
        frequency=table,
        raw=table,
        covariance=np.full((cells, cells), np.nan),
        n=0,
        converged=True,
        iterations=0,
        log_likelihood=log_likelihood,
        _independence=Chi2(float("nan"), _degrees(shape)),
    )


def _degrees(shape: Sequence[int]) -> int:
    return prod(shape) - 1 - sum(size - 1 for size in shape)


def _checked(likelihoods: Sequence[Floats]) -> tuple[tuple[int, ...], int]:
    if not likelihoods or any(part.ndim != 2 or not part.shape[1] for part in likelihoods):  # noqa: PLR2004
        raise ParameterError(
            f"likelihoods have the shapes {[part.shape for part in likelihoods]}: give (n, values) for each variable"
        )
    if len({len(part) for part in likelihoods}) > 1:
        raise ParameterError(f"variables have {[len(part) for part in likelihoods]} reports: give the same reports for all")
    if any(part.dtype not in (np.float32, np.float64) for part in likelihoods):
        raise ParameterError(f"likelihoods are {[str(part.dtype) for part in likelihoods]}: give float32 or float64")
    shape = tuple(part.shape[1] for part in likelihoods)
    if prod(shape) > MAX_CELLS:
        raise ParameterError(f"shape: write one of {MAX_CELLS} cells at most", shape)
    for axis, part in enumerate(likelihoods):
        if not (np.isfinite(part.sum(dtype=np.float64)) and part.min(initial=0) >= 0):
            raise ParameterError(f"variable {axis} has a likelihood below 0, or infinite: give finite numbers of at least 0")
        top = part.max(axis=1, initial=0)
        if not top.all():
            raise ParameterError(f"report {int(np.argmin(top))} of variable {axis} is impossible under every value: leave it out")
    return shape, len(likelihoods[0])
