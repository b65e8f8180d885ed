"""Ordered answers: mean position, cumulative shares and median, from the estimated shares of the values."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import ndtri

from deniable.errors import ParameterError
from deniable_aggregator.decode.multiple_testing import tail
from deniable_aggregator.decode.pair_support import estimates_covariance
from deniable_aggregator.decode.panel import Panel
from deniable_aggregator.decode.support_estimate import Supported

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from deniable.mechanisms import Mechanism
    from deniable_aggregator.decode.estimate import Estimate


@dataclass(frozen=True, eq=False)
class Order:
    """Linear estimates of an ordered domain, with exact variances."""

    mean: float  # mean position; the first value has position 1
    stderr: float  # its standard error in the population that the respondents were drawn from
    # (values,), the share of answers that are this value or an earlier one. Unbiased, so not always rising. The last is 1.
    below: NDArray[np.float64]
    below_stderr: NDArray[np.float64]  # (values,), their standard errors
    shares: NDArray[np.float64]  # (values,), unbiased; their sum is 1
    covariance: NDArray[np.float64]  # (values, values), of the shares

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Compute a confidence interval of the mean position."""
        reach = -float(ndtri(tail(level))) * self.stderr
        return self.mean - reach, self.mean + reach

    def sum(self, weights: NDArray[np.float64]) -> tuple[float, float]:
        """Return a weighted sum of the shares, and its standard error."""
        return float(weights @ self.shares), sqrt(max(float(weights @ self.covariance @ weights), 0.0))

    def median(self, level: float = 0.95) -> tuple[int, int, int]:
        """Return the place of the median value, and of the first and last value that it may be."""
        reach = -float(ndtri(tail(level, len(self.below)))) * self.below_stderr
        # First and last are those at which the interval of a cumulative share has 1/2, all intervals together.
        middle, first, last = (int(np.argmax(each >= 0.5)) for each in (self.below, self.below + reach, self._upper(reach)))  # noqa: PLR2004
        return middle, min(first, middle), max(last, middle)

    def _upper(self, reach: NDArray[np.float64]) -> NDArray[np.float64]:
        low = self.below - reach
        low[-1] = 1.0
        return low


def order(
    mechanism: Mechanism,
    estimate: Estimate,  # the shares of all values
    *,
    repeats: float = 0.0,  # other reports of a report's device, at most: see `panel`
    permanent: bool = False,  # whether devices keep their permanent responses
) -> Order | None:
    """Estimate mean position, cumulative shares and median; None without reports."""
    # The sum of all shares is 1. So the mean and the cumulative shares are differences from it: what the estimates leave is taken
    # from each value alike. Variances come from the covariance of all estimates.
    if not estimate.n:
        return None
    independent = estimate.independent if isinstance(estimate, Panel) else estimate
    if not isinstance(independent, Supported) or independent.touched is not None:
        raise ParameterError("mechanism: choose a pure one, whose reports show ordered answers", mechanism.name)
    size, f, n = len(estimate.frequency), estimate.plausible, estimate.n
    covariance = estimates_covariance(mechanism, f, n, repeats=repeats, permanent=permanent)
    even = np.eye(size) - 1 / size  # takes from each estimate an equal part of what all of them are above 1
    shares, spread = even @ estimate.frequency + 1 / size, even @ covariance @ even
    positions, sums = np.arange(1, size + 1), np.tri(size)
    below = np.maximum(np.einsum("ij,jk,ik->i", sums, spread, sums), 0.0)
    variance = max(float(positions @ spread @ positions), 0.0)
    return Order(float(positions @ shares), float(np.sqrt(variance)), sums @ shares, np.sqrt(below), shares, spread)
