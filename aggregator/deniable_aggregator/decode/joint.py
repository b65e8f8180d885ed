"""Association: how the true values of several questions go together, from randomised reports of each.

Every device reports each of its values on its own; given the values, the reports are independent. So with the likelihood of a
report under every value of its question (`likelihood`), the table of shares that makes all reports most
likely is a concave problem: `joint`. A question about the pair, declared beforehand with one randomised answer, is more exact
and needs no more than `from_product`.

References
----------
G. Fanti, V. Pihur, U. Erlingsson: Building a RAPPOR with the unknown: privacy-preserving learning of associations and data
dictionaries. PoPETs 2016(3), section 3. What is done otherwise here: see `joint` and `Joint.independence`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import ndtri

from deniable.errors import ParameterError
from deniable.exact.hashing import PoolFamily
from deniable.mechanisms.coin import Coin
from deniable.mechanisms.direct import Grr
from deniable.mechanisms.subset import Subset
from deniable_aggregator import decode
from deniable_aggregator.decode.estimate import Supported, tail
from deniable_aggregator.decode.independence import Chi2, distance, score_test
from deniable_aggregator.decode.joint_table import Data, maximum, unconstrained

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from deniable.mechanisms import Mechanism
    from deniable_aggregator.decode.joint_table import Floats
    from deniable_aggregator.tally import Tally

__all__ = ["MAX_CELLS", "Chi2", "Joint", "from_product", "joint"]

MAX_CELLS = 4096
"""Cells of the largest table: their covariance has its square, 128 MiB."""


@dataclass(frozen=True, slots=True, eq=False)
class Joint:
    """Estimated shares of all combinations of several variables' values.

    Parameters
    ----------
    frequency
        (r, c, ...), one axis a variable. From `joint` the most likely shares, none negative, sum 1: to be shown, biased near 0.
        From `from_product` the same as `raw`.
    raw
        (r, c, ...), shares that may be negative, unbiased (from `joint` as n grows): for sums, comparisons and intervals. The
        same as `frequency` where errors were not wanted.
    covariance
        (cells, cells) of `raw` in the population that the respondents were drawn from, cells in the order of ``raw.ravel()``.
        nan where the reports do not tell a cell from others, or errors were not wanted.
    n
        Reports.
    converged
        Whether the log-likelihood is known to be within the gap asked for of its maximum.
    iterations
        Passes over the reports.
    log_likelihood
        Of all reports, in nats, with the rows of the likelihoods as they were given; nan where none was maximised.
    """

    frequency: NDArray[np.float64]
    raw: NDArray[np.float64]
    covariance: NDArray[np.float64]
    n: int
    converged: bool
    iterations: int
    log_likelihood: float
    _independence: Chi2 = field(repr=False)

    @property
    def stderr(self) -> NDArray[np.float64]:
        """Standard error of `raw`, in its shape."""
        return np.sqrt(np.maximum(np.diag(self.covariance), 0)).reshape(self.raw.shape)

    def interval(self, level: float = 0.95, *, simultaneous: bool = False) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Compute confidence intervals by the normal approximation, around `raw`: also where the likeliest share is 0.

        Parameters
        ----------
        level
            Confidence, in (0, 1).
        simultaneous
            Whether all intervals together hold with this confidence (Bonferroni), instead of each on its own.

        Returns
        -------
        low, high : ndarray of float
            In the shape of `raw`; neither is cut at 0 or 1.

        Raises
        ------
        ParameterError
            If the level is not in (0, 1).
        """
        reach = -ndtri(tail(level, self.raw.size if simultaneous else 1)) * self.stderr
        return self.raw - reach, self.raw + reach

    def independence(self) -> Chi2:
        """Test whether the variables are independent of each other in the population.

        Notes
        -----
        From `joint` this is Rao's score test. Under independence a report's score, its likelihoods divided by their mean over the
        variable's values, is uncorrelated with the other variable's. n times the sum of their squared canonical correlations is
        chi-square with (r - 1)(c - 1) degrees; with more variables, it is summed over all sets of two or more. Without noise it
        is Pearson's statistic. It needs neither the table nor its errors. A likelihood ratio, or a distance of the likeliest
        table from the product of its margins, is no chi-square: shares that the noise drives below 0 stay at 0, and in simulation
        a nominal 5% came out as 0 to 1%. A distance in the metric of the observed information does with few reports a cell as
        Neyman's statistic does without noise: 5% came out as up to 65%.

        From `from_product` it is the distance of `raw` from the nearest product, in the metric of the covariance that a product
        gives it (minimum chi-square).

        References
        ----------
        C. R. Rao: Large sample tests of statistical hypotheses concerning several parameters with applications to problems of
        estimation. Mathematical Proceedings of the Cambridge Philosophical Society 44(1), 1948.
        """
        return self._independence


def joint(
    likelihoods: Sequence[Floats],
    *,
    strata: NDArray[np.int64] | None = None,
    gap: float = 1e-3,
    limit: int = 500,
    errors: bool = True,
) -> Joint:
    """Estimate the shares of all combinations of values from reports of each variable.

    Parameters
    ----------
    likelihoods
        For each variable an array (n, values): how likely report i is under each value, each row up to a factor. Row i of all
        arrays belongs to one device; given its values, its reports are independent.
    strata
        int array (n,), or None: what a device's reports have in common, such as one cohort for all variables. Only the test of
        independence needs it: where two strings look alike in one variable, they then do in the other, too.
    gap
        Log-likelihood, in nats, that may be missing to the maximum; above 0. An estimate that lacks g nats is within sqrt(2 g) of
        its standard errors of the best one, in whatever direction: the default is less than 5% of a standard error.
    limit
        Passes over the reports, at most.
    errors
        Whether to compute the covariance; it costs up to ``100 cells^3`` operations, or ``n cells^2`` if that is less.

    Returns
    -------
    Joint
        nan where there are no reports.

    Raises
    ------
    ParameterError
        If the arrays do not agree, something is not a likelihood, a report is impossible under all values, or there are more than
        `MAX_CELLS` cells.

    Notes
    -----
    The log-likelihood is concave. Ten rounds of expectation and maximization from the uniform table are followed by Newton's
    steps, each a quadratic problem over non-negative tables. For a table with gradient G no table has a log-likelihood more than
    max(G) - n higher; that bound, not the change of the last step, is what stops the search. Equal reports are handled as one.

    The covariance is the inverse of the observed information, on tables of sum 1. One step of Newton's with it, free to leave the
    non-negative tables, gives `Joint.raw`. A combination that no report could come from has share and error 0.

    References
    ----------
    A. P. Dempster, N. M. Laird, D. B. Rubin: Maximum likelihood from incomplete data via the EM algorithm. JRSS B 39(1), 1977.
    Y. Kim, P. Carbonetto, M. Stephens, M. Anitescu: A fast algorithm for maximum likelihood estimation of mixture proportions
    using sequential quadratic programming. Journal of Computational and Graphical Statistics 29(2), 2020.
    """
    if not gap > 0:
        raise ParameterError("the gap is a number of nats above 0", gap)
    shape, n = _checked(likelihoods)
    if not n:
        return _unknown(shape, log_likelihood=0.0)
    if strata is not None and strata.shape != (n,):
        raise ParameterError(f"each of {n} reports has a stratum", strata.shape)
    data = Data.of(likelihoods, strata)
    found = maximum(data, None, gap, limit)
    cells = prod(shape)
    raw, covariance = unconstrained(data, found) if errors else (found.table, np.full((cells, cells), np.nan))
    return Joint(
        frequency=found.table.reshape(shape),
        raw=raw.reshape(shape),
        covariance=covariance,
        n=n,
        converged=found.slack <= gap,
        iterations=found.passes,
        log_likelihood=found.log_likelihood,
        _independence=score_test(data, found.table.reshape(shape)),
    )


def from_product(mechanism: Mechanism, counted: Tally, shape: Sequence[int]) -> Joint:
    """Estimate a table from reports of the combination itself: one question whose values are all combinations.

    Parameters
    ----------
    mechanism
        What the devices ran; pure, its domain of ``prod(shape)`` values, the last variable's changing fastest.
    counted
        The sum of their reports.
    shape
        Values of each variable.

    Returns
    -------
    Joint
        With `frequency` the unbiased estimates; nan where there are no reports.

    Raises
    ------
    ParameterError
        If the shape does not fit the domain, the tally is not the mechanism's, or the mechanism is not pure.

    Notes
    -----
    Let s = q + f (p - q) be the probability that a report supports a value. Of most mechanisms a report of somebody supports two
    other values independently, and that makes the covariance of two estimates ``-f g / n`` and the variance
    ``s (1 - s) / (n (p - q)^2)``. Hash functions and Hadamard's matrix have it so for all pairs but, of a value and two that lie
    on a line with it, a little different. Direct answers and subsets always support k = p + (d - 1) q values, and that tells how
    often a pair is.
    """
    if prod(shape) != mechanism.domain_size or min(shape, default=0) < 1 or mechanism.domain_size > MAX_CELLS:
        raise ParameterError(f"a shape of the domain has {mechanism.domain_size} cells, at most {MAX_CELLS}", tuple(shape))
    estimate = decode.estimate(mechanism, counted)
    pooled = isinstance(getattr(mechanism, "family", None), PoolFamily)
    if not isinstance(estimate, Supported) or estimate.touched is not None or pooled:
        raise ParameterError("a table is estimated from reports of a pure mechanism", mechanism.name)
    raw, n = estimate.frequency, estimate.n
    if not n:
        return _unknown(tuple(shape), log_likelihood=float("nan"))
    table = raw.reshape(shape)
    return Joint(
        frequency=table,
        raw=table,
        covariance=_pure_covariance(mechanism, np.clip(raw, 0, 1), n),
        n=n,
        converged=True,
        iterations=0,
        log_likelihood=float("nan"),
        _independence=Chi2(distance(table, lambda f: _pure_covariance(mechanism, f, n)), _degrees(shape)),
    )


def _unknown(shape: tuple[int, ...], log_likelihood: float) -> Joint:
    """Make the table of no reports."""
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


def _pure_covariance(mechanism: Mechanism, f: NDArray[np.float64], n: int) -> NDArray[np.float64]:
    p, q, d = float(mechanism.p), float(mechanism.q), len(f)
    s = q + f * (p - q)
    if isinstance(mechanism, (Coin, Grr, Subset)):
        size = p + (d - 1) * q
        own = p * (size - 1) / (d - 1)
        rest = (q * (size - 1) - own) / (d - 2) if d > 2 else 0.0  # noqa: PLR2004
        both = rest + (own - rest) * (f[:, None] + f)
    else:
        both = q * q + q * (p - q) * (f[:, None] + f)
    both[np.diag_indices(d)] = s
    return np.asarray((both - np.outer(s, s)) / (n * (p - q) ** 2), np.float64)


def _checked(likelihoods: Sequence[Floats]) -> tuple[tuple[int, ...], int]:
    if not likelihoods or any(part.ndim != 2 or not part.shape[1] for part in likelihoods):  # noqa: PLR2004
        raise ParameterError("each variable has likelihoods (n, values)", [part.shape for part in likelihoods])
    if len({len(part) for part in likelihoods}) > 1:
        raise ParameterError("all variables have the same reports", [len(part) for part in likelihoods])
    if any(part.dtype not in (np.float32, np.float64) for part in likelihoods):
        raise ParameterError("likelihoods are float32 or float64", [str(part.dtype) for part in likelihoods])
    shape = tuple(part.shape[1] for part in likelihoods)
    if prod(shape) > MAX_CELLS:
        raise ParameterError(f"a table has at most {MAX_CELLS} cells", shape)
    for axis, part in enumerate(likelihoods):
        if not (np.isfinite(part.sum(dtype=np.float64)) and part.min(initial=0) >= 0):
            raise ParameterError("a likelihood is a finite number of at least 0", f"another in variable {axis}")
        top = part.max(axis=1, initial=0)
        if not top.all():
            raise ParameterError("each report is possible under some value", f"report {int(np.argmin(top))} of variable {axis}")
    return shape, len(likelihoods[0])
