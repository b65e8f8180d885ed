"""Differences: between two periods, or between two segments, with their errors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import ndtr

from deniable_aggregator.decode.multiple_testing import tail

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from deniable_aggregator.decode.estimate import Estimate

    Ends = tuple[NDArray[np.float64], NDArray[np.float64]]

__all__ = ["SMALLEST", "Difference", "Side"]

SMALLEST = 1e-12
"""Smallest p-value that is told apart from 0."""
_QUANTILES = np.arange(0.1, 7.15, 0.2)  # normal quantiles; between them, the ends of intervals are nearly linear


@dataclass(frozen=True, eq=False)
class Side:
    """One side of a comparison.

    Parameters
    ----------
    estimates
        (values,), unbiased; nan where there are no reports.
    interval
        Computes the intervals, (values,) each, at a confidence level.
    """

    estimates: NDArray[np.float64]
    interval: Callable[[float], Ends]

    @classmethod
    def of(cls, estimate: Estimate) -> Side:
        """Return the shares of values as a side."""
        return cls(estimate.frequency, estimate.interval)


@dataclass(frozen=True, eq=False)
class Difference:
    """How the estimate of each value differs between two sides: second - first.

    Parameters
    ----------
    first, second
        The sides. Their errors are taken to be independent. Where the same people answered both, and their second answers tend to
        agree with their first ones, the difference varies less than that.
    """

    first: Side
    second: Side

    @property
    def estimates(self) -> NDArray[np.float64]:
        """The unbiased difference of each value; nan where a side has no reports."""
        return self.second.estimates - self.first.estimates

    def interval(self, level: float = 0.95, *, simultaneous: bool = False) -> Ends:
        """Compute confidence intervals from those of the sides (MOVER): of each value alone, or all together (Bonferroni).

        Raises
        ------
        ParameterError
            If the level is not in (0, 1).

        References
        ----------
        R. G. Newcombe: Interval estimation for the difference between independent proportions. Statistics in Medicine 17(8),
        1998.

        G. Y. Zou, A. Donner: Construction of confidence limits about effect measures: a general approach. Statistics in Medicine
        27(10), 2008.
        """
        level = 1 - 2 * tail(level, len(self.estimates) if simultaneous else 1)
        (first_low, first_high), (second_low, second_high) = self.first.interval(level), self.second.interval(level)
        below = np.hypot(self.second.estimates - second_low, first_high - self.first.estimates)
        above = np.hypot(second_high - self.second.estimates, self.first.estimates - first_low)
        return self.estimates - below, self.estimates + above

    @property
    def p_value(self) -> NDArray[np.float64]:
        """The chance of error at which the interval of each value just includes 0; at least `SMALLEST`, nan where unknown.

        So test and interval never contradict each other. A pooled z test would name rare values too often: its normal tail is
        thinner than the binomial one, most of all where one side has few reports.
        """
        margins = np.array([self._margin(1 - 2 * float(ndtr(-z))) for z in _QUANTILES])
        crossed = np.argmax(margins <= 0, axis=0)  # 0 also if none is
        before = np.maximum(crossed - 1, 0)
        high, low = (np.take_along_axis(margins, each[None], 0)[0] for each in (before, crossed))
        part = np.where(high > low, high / np.where(high > low, high - low, 1.0), 0.0)
        p_value = 2 * ndtr(-(_QUANTILES[before] + part * (_QUANTILES[crossed] - _QUANTILES[before])))
        found = np.where(margins[0] <= 0, 1.0, np.where(margins[-1] > 0, SMALLEST, p_value))
        return np.where(np.isnan(self.estimates), np.nan, found)

    def _margin(self, level: float) -> NDArray[np.float64]:
        """Return by how much the interval of each value excludes 0; negative where it includes 0."""
        low, high = self.interval(level)
        return np.where(self.estimates > 0, low, -high)
