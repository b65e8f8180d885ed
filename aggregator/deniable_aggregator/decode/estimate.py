"""Estimates: frequencies in a population from a sum of randomised reports, with their errors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from math import isfinite
from typing import TYPE_CHECKING, Literal

import numpy as np
from scipy.special import ndtr, ndtri

from deniable.errors import ParameterError
from deniable_aggregator.decode.multiple_testing import benjamini_hochberg, holm, tail

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Target = Literal["population", "respondents"]

__all__ = ["Estimate", "finite", "plausible"]

_SURE = 3  # standard errors: noise alone hardly ever exceeds them


def plausible(
    frequency: NDArray[np.float64],  # of all values that are known; unbiased, so it may be negative; nan without reports
    noise: NDArray[np.float64],  # standard error of each frequency if nobody held the value
) -> NDArray[np.float64]:
    """Return shares in [0, 1] from which errors can be computed; equal for equal frequencies."""
    # What is surely no noise counts as it is. Of the rest the largest count, as far as there is room for them in a whole. If
    # shares were only cut at 0, those of many values with few reports would sum to much more than 1, and errors computed from
    # them would be too large. A variance is nearly linear in the share. So errors from shares that sum to 1 are right over all
    # values. They are not right for each: a value that people hold may look like noise, and then it may count as 0.
    shares = np.clip(np.nan_to_num(frequency), 0.0, 1.0)
    sure = shares > _SURE * noise
    levels, places, number = np.unique(np.where(sure, 0.0, -shares), return_inverse=True, return_counts=True)
    room = max(1 - shares[sure].sum(), 0.0) + np.cumsum(levels * number) - levels * number
    return np.where(sure, shares, np.clip(room / number, 0.0, -levels)[places])


def finite(number: float) -> float | None:
    """Return a number for JSON, which has no nan."""
    return float(number) if isfinite(number) else None


class Estimate(ABC):
    """Frequencies of some values, with their errors.

    An estimate may be negative or above 1. It is unbiased, and clipping it would bias every sum and comparison. Clip for display
    only.

    Attributes
    ----------
    n : int
        Reports.
    frequency : ndarray of float
        (values,), the unbiased share of each value; nan where there are no reports.
    stderr : ndarray of float
        (values,), standard error of the frequency in the population that the respondents were drawn from.
    respondents_stderr : ndarray of float
        (values,), the same for the frequency among the respondents: only the randomness of the devices.
    p_value : ndarray of float
        (values,), chance of an estimate at least as large if nobody held the value.
    """

    n: int

    @property
    @abstractmethod
    def frequency(self) -> NDArray[np.float64]:
        """Unbiased share of each value; nan where there are no reports."""

    @property
    @abstractmethod
    def stderr(self) -> NDArray[np.float64]:
        """Standard error of the frequency in the population that the respondents were drawn from."""

    @property
    def respondents_stderr(self) -> NDArray[np.float64]:
        """Standard error of the frequency among the respondents, without the variance of sampling them."""
        f = np.clip(self.frequency, 0.0, 1.0)
        return np.sqrt(np.maximum(np.square(self.stderr) - f * (1 - f) / (self.n or np.nan), 0.0))

    @property
    def shared(self) -> NDArray[np.float64]:
        """Variance that all reports of a person share, because of who the person is."""
        return self.plausible * (1 - self.plausible)

    @cached_property
    def plausible(self) -> NDArray[np.float64]:
        """Shares from which errors can be computed."""
        return plausible(self.frequency, self.absent_stderr)

    @property
    @abstractmethod
    def absent_stderr(self) -> NDArray[np.float64]:
        """Standard error of the frequency of each value if nobody held it."""

    @property
    def mirrored(self) -> bool:
        """Whether these are two values whose estimates sum to 1, whatever devices report. Each then says what the other says."""
        return False

    @property
    def hypotheses(self) -> int:
        """How many hypotheses there are about the shares. There is one for each value, but one for two that are `mirrored`."""
        return 1 if self.mirrored else len(self.frequency)

    @property
    def reports(self) -> NDArray[np.int64]:
        """(values,), how many reports each frequency rests on; by default all."""
        return np.full(len(self.frequency), self.n, np.int64)

    @property
    def count(self) -> NDArray[np.float64]:
        """Unbiased number of respondents with each value; nan where there are no reports."""
        return self.n * self.frequency

    @property
    def p_value(self) -> NDArray[np.float64]:
        """Chance of an estimate at least as large if nobody held the value, by the normal approximation."""
        return np.asarray(ndtr(-self.frequency / self.absent_stderr), np.float64)

    def detected(self, alpha: float = 0.05, *, control: Literal["family", "discovery"] = "family") -> NDArray[np.bool_]:
        """Return which values are present, with a bound on error over all of them.

        Parameters
        ----------
        alpha
            The bound, in (0, 1).
        control
            ``"family"``: the probability that any value detected is absent is at most alpha (Holm). ``"discovery"``: the share of
            absent values among those detected is at most alpha on average (Benjamini and Hochberg).

        Raises
        ------
        ParameterError
            If alpha is not in (0, 1).
        """
        if not 0 < alpha < 1:
            raise ParameterError("alpha: write a probability of error between 0 and 1", alpha)
        if not self.n:
            return np.zeros(len(self.frequency), np.bool_)
        return (holm if control == "family" else benjamini_hochberg)(self.p_value, alpha)

    def detection_frequency(self, alpha: float = 0.05) -> float:
        """Return the share at which a typical value, beside those detected, would be detected half of the time.

        It is nan without reports, and where a value would not be detected half of the time even if everybody held it.
        """
        left = max(len(self.frequency) - int(self.detected(alpha).sum()), 1)
        shares = self._half_detected(alpha / left) if self.n else np.zeros(0)
        known = shares[~np.isnan(shares)]
        share = float(np.median(known)) if len(known) else float("nan")
        return share if share <= 1 else float("nan")

    def _half_detected(self, chance: float) -> NDArray[np.float64]:
        """Compute the share of each value at which half of all p-values are below `chance`; nan where nothing is known."""
        return np.asarray(-ndtri(chance) * self.absent_stderr, np.float64)

    @property
    def unallocated(self) -> tuple[float, float]:
        """The share of the population that none of these values accounts for, and its standard error; nan where not known.

        It is what the sum over all of them leaves, detected or not. A sum over those detected would be biased: they were detected
        because their estimates came out large.
        """
        return float("nan"), float("nan")

    def interval(
        self, level: float = 0.95, *, simultaneous: bool = False, target: Target = "population"
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Compute confidence intervals.

        Parameters
        ----------
        level
            Confidence, in (0, 1).
        simultaneous
            Whether all intervals hold together with this confidence (Bonferroni), instead of each alone.
        target
            ``"population"``: the share in the population that the respondents were drawn from. ``"respondents"``: the share among
            those who answered; narrower.

        Returns
        -------
        low, high : ndarray of float
            (values,) each; nan where there are no reports.

        Raises
        ------
        ParameterError
            If the level is not in (0, 1).
        """
        return self._interval(tail(level, self.hypotheses if simultaneous else 1), target)

    def selected_interval(
        self, selected: NDArray[np.bool_], level: float = 0.95, *, target: Target = "population"
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Compute confidence intervals that allow for a selection of values by their estimates.

        A value may be on a list because chance added to its estimate, so pointwise intervals of the list miss more often than
        they should. These are wider for the values selected: of their intervals, a share of 1 - level misses on average (the
        false coverage rate). For the others they are pointwise.

        Parameters
        ----------
        selected
            (values,), such as those detected.
        level
            Confidence, in (0, 1).
        target
            ``"population"`` or ``"respondents"``; see `interval`.

        Returns
        -------
        low, high : ndarray of float
            (values,) each; nan where there are no reports.

        Raises
        ------
        ParameterError
            If the level is not in (0, 1).

        References
        ----------
        Y. Benjamini, D. Yekutieli: False discovery rate-adjusted multiple confidence intervals. JASA 100(469), 2005.
        """
        share = min(max(int(np.count_nonzero(selected)), 1) / max(self.hypotheses, 1), 1.0)
        ends = zip(self._interval(tail(level) * share, target), self._interval(tail(level), target), strict=True)
        low, high = (np.where(selected, adjusted, pointwise) for adjusted, pointwise in ends)
        return low, high

    def _interval(self, chance: float, target: Target) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Compute intervals with an error of `chance` on each side, by the normal approximation."""
        reach = -ndtri(chance) * (self.stderr if target == "population" else self.respondents_stderr)
        return self.frequency - reach, self.frequency + reach
