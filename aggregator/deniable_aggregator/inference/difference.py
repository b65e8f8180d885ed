"""Differences: between two periods, or between two segments, with their errors."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import numpy as np
from scipy.special import ndtr

from deniable_aggregator.decode.multiple_testing import tail

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from deniable_aggregator.decode.estimate import Estimate

    Ends = tuple[NDArray[np.float64], NDArray[np.float64]]

SMALLEST = 1e-12
"""Smallest p-value that is computed; less counts as this."""
QUANTILES = np.arange(0.1, 7.15, 0.2)
"""Normal quantiles, between which the ends of intervals are nearly linear."""


class Differences(Protocol):
    """How some estimates differ between two sides."""

    @property
    def sides(self) -> Ends:
        """The estimates of the first side and of the second; (estimates,) each."""

    @property
    def estimates(self) -> NDArray[np.float64]:
        """Each difference: second - first."""

    @property
    def hypotheses(self) -> int:
        """How many differences are tested."""

    @property
    def p_value(self) -> NDArray[np.float64]:
        """The chance of error at which the interval of each just includes 0; nan where unknown."""

    def interval(self, level: float = 0.95, *, simultaneous: bool = False) -> Ends:
        """Compute confidence intervals: of each alone, or all together."""


@dataclass(frozen=True, eq=False)
class Several:
    """Differences of several kinds, such as of a mean and of quantiles."""

    parts: Sequence[Differences]

    @property
    def sides(self) -> Ends:
        """As of all parts, one after the other."""
        first, second = zip(*(each.sides for each in self.parts), strict=True)
        return np.concatenate(first), np.concatenate(second)

    @property
    def estimates(self) -> NDArray[np.float64]:
        """As of all parts."""
        return np.concatenate([each.estimates for each in self.parts])

    @property
    def hypotheses(self) -> int:
        """As of all parts."""
        return sum(each.hypotheses for each in self.parts)

    @property
    def p_value(self) -> NDArray[np.float64]:
        """As of all parts."""
        return np.concatenate([each.p_value for each in self.parts])

    def interval(self, level: float = 0.95, *, simultaneous: bool = False) -> Ends:
        """Compute the intervals of all parts: of each difference alone, or all together (Bonferroni)."""
        level = 1 - 2 * tail(level, self.hypotheses if simultaneous else 1)
        low, high = zip(*(each.interval(level) for each in self.parts), strict=True)
        return np.concatenate(low), np.concatenate(high)


@dataclass(frozen=True, eq=False)
class Side:
    """One side of a comparison."""

    estimates: NDArray[np.float64]  # (values,), unbiased; nan where there are no reports
    interval: Callable[[float], Ends]  # computes the intervals, (values,) each, at a confidence level
    mirrored: bool = False  # whether these are two values whose estimates sum to 1

    @classmethod
    def of(cls, estimate: Estimate) -> Side:
        """Return the shares of values as a side."""
        return cls(estimate.frequency, estimate.interval, estimate.mirrored)


@dataclass(frozen=True, eq=False)
class Difference:
    """How the estimate of each value differs between two sides: second - first."""

    # first, second: the sides. Their errors are taken to be independent. Where the same people answered both, and their second
    # answers tend to agree with their first ones, the difference varies less than that.
    first: Side
    second: Side

    @property
    def sides(self) -> Ends:
        """The estimates of both sides."""
        return self.first.estimates, self.second.estimates

    @property
    def estimates(self) -> NDArray[np.float64]:
        """The unbiased difference of each value; nan where a side has no reports."""
        return self.second.estimates - self.first.estimates

    @property
    def hypotheses(self) -> int:
        """How many differences are tested: one of each value, but one of two that are mirrored on both sides."""
        return 1 if self.first.mirrored and self.second.mirrored else len(self.estimates)

    def interval(self, level: float = 0.95, *, simultaneous: bool = False) -> Ends:
        """Compute confidence intervals from those of the sides (MOVER): of each value alone, or all together (Bonferroni)."""
        # R. G. Newcombe: Interval estimation for the difference between independent proportions. Statistics in Med. 17(8), 1998.
        # G. Y. Zou, A. Donner: Construction of confidence limits about effect measures. Statistics in Medicine 27(10), 2008.
        level = 1 - 2 * tail(level, self.hypotheses if simultaneous else 1)
        (first_low, first_high), (second_low, second_high) = self.first.interval(level), self.second.interval(level)
        below = np.hypot(self.second.estimates - second_low, first_high - self.first.estimates)
        above = np.hypot(second_high - self.second.estimates, self.first.estimates - first_low)
        return self.estimates - below, self.estimates + above

    @property
    def p_value(self) -> NDArray[np.float64]:
        """The chance of error at which the interval of each value just includes 0; at least `SMALLEST`, nan where unknown."""
        # So test and interval never contradict each other. A pooled z test would name rare values too often: its normal tail is
        # thinner than the binomial one, most of all where one side has few reports.
        return np.asarray(np.maximum(2 * ndtr(-self.quantile), SMALLEST), np.float64)

    @property
    def quantile(self) -> NDArray[np.float64]:
        """The normal quantile to which the interval of each value may reach and just include 0; nan where unknown."""
        lows, highs = self.ends_by_quantile
        margins = np.where(self.estimates > 0, lows, -highs)  # by how much 0 is excluded
        excluded = np.argmax(margins <= 0, axis=0)
        before = np.where(margins[-1] > 0, len(QUANTILES), excluded)
        before = np.clip(before - 1, 0, len(QUANTILES) - 2)  # beyond the last, as between the last two
        one, other = (np.take_along_axis(margins, each[None], 0)[0] for each in (before, before + 1))
        part = np.where(one > other, one / np.where(one > other, one - other, 1.0), 0.0)
        quantiles = np.where(margins[0] <= 0, 0.0, QUANTILES[before] + part * (QUANTILES[before + 1] - QUANTILES[before]))
        return np.where(np.isnan(self.estimates), np.nan, quantiles)

    @cached_property
    def ends_by_quantile(self) -> Ends:
        """(quantiles, values) each: the pointwise intervals that reach from one of `QUANTILES` below to as far above."""
        ends = [Difference.interval(self, 1 - 2 * float(ndtr(-z))) for z in QUANTILES]
        low, high = (np.array(each) for each in zip(*ends, strict=True))
        return low, high
