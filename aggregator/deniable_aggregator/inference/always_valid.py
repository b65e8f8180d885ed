"""Differences that may be looked at again and again: their intervals and p-values hold at all looks together."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from deniable_aggregator.decode.multiple_testing import tail
from deniable_aggregator.inference.difference import QUANTILES, SMALLEST, Difference

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from deniable_aggregator.inference.difference import Ends


@dataclass(frozen=True, eq=False)
class AlwaysValid(Difference):
    """A difference between two arms of an experiment, as often as anybody looks at it; both sides are of all reports so far."""

    # Whoever looks at an ordinary interval until it excludes 0 will see this sooner or later. Here the difference d is tested
    # against a mixture of normal differences of standard deviation t, the planned one. With the variance V of d, `e = sqrt(V / (V
    # + t^2)) exp(d^2 t^2 / (2 V (V + t^2)))` exceeds 1 / alpha at any look with probability alpha at most, if there is no
    # difference. So 1 / e is a p-value, and the interval has all differences that it does not reject. It reaches `sqrt((1 + V /
    # t^2) log((1 + t^2 / V) / alpha^2))` standard errors to each side. Where a standard error is not the same on both sides, as
    # with few reports, this is a quantile of the pointwise intervals.
    # H. Robbins: Statistical methods related to the law of the iterated logarithm. Annals of Mathematical Statistics 41(5), 1970.
    # R. Johari and others: Always valid inference: continuous monitoring of A/B tests. Operations Research 70(3), 2022.

    # The difference for which the experiment was planned. Around it the test has the most power; it holds for any.
    planned: float

    def interval(self, level: float = 0.95, *, simultaneous: bool = False) -> Ends:
        """Compute intervals that hold at all looks together: of each value alone, or of all values (Bonferroni)."""
        alpha = 2 * tail(level, self.hypotheses if simultaneous else 1)
        more = self._more
        low, high = self._ends(np.sqrt((1 + 1 / more) * np.log((1 + more) / alpha**2)))
        return low, high

    @property
    def p_value(self) -> NDArray[np.float64]:
        """The chance of error at which the interval of each value just includes 0; nan where unknown."""
        more = self._more
        logarithm = np.square(self.quantile) * more / (2 * (1 + more)) - np.log1p(more) / 2
        return np.maximum(np.exp(-np.maximum(logarithm, 0.0)), SMALLEST)

    @cached_property
    def _more(self) -> NDArray[np.float64]:
        """How many times the square of the planned difference is as large as the variance."""
        low, high = self._ends(np.ones(len(self.estimates)))
        return np.asarray(np.square(2 * self.planned / (high - low)), np.float64)

    def _ends(self, quantiles: NDArray[np.float64]) -> Ends:
        """Return the ends of the intervals that reach to these quantiles, one for each value; linear beyond the last."""
        below = np.clip(np.searchsorted(QUANTILES, quantiles) - 1, 0, len(QUANTILES) - 2)
        part = (quantiles - QUANTILES[below]) / (QUANTILES[below + 1] - QUANTILES[below])
        values = np.arange(len(quantiles))
        low, high = (each[below, values] * (1 - part) + each[below + 1, values] * part for each in self.ends_by_quantile)
        return low, high
