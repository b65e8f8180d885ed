"""Estimates: frequencies in a population from a sum of randomised reports, with their errors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from math import isfinite
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
from scipy.special import bdtrik, betainc, betaincinv, ndtr, ndtri

from deniable.errors import ParameterError
from deniable_aggregator.decode.multiple_testing import benjamini_hochberg, holm

if TYPE_CHECKING:
    from fractions import Fraction

    from numpy.typing import NDArray

    from deniable_aggregator.decode.bloom_regression import Fit

    Target = Literal["population", "respondents"]

__all__ = [
    "Estimate",
    "Fitted",
    "Supported",
    "clopper_pearson",
    "finite",
    "half_significant",
    "plausible",
    "stderr_of_mean",
    "tail",
]

_SURE = 3  # standard errors: noise alone hardly ever exceeds them
_ROUNDING = 1e-6  # of a report: by so much a quantile may miss the whole number that it is


def tail(level: float, intervals: int = 1) -> float:
    """Compute the error probability on each side of intervals that hold together with a confidence (Bonferroni).

    Raises
    ------
    ParameterError
        If the level is not in (0, 1).
    """
    if not 0 < level < 1:
        raise ParameterError("a confidence level lies between 0 and 1", level)
    return (1 - level) / 2 / max(intervals, 1)


def clopper_pearson(
    hits: NDArray[np.int64] | NDArray[np.float64], of: NDArray[np.int64] | NDArray[np.float64] | int, chance: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Compute intervals of binomial probabilities with an error of at most `chance` on each side.

    Parameters
    ----------
    hits
        Array, in [0, of]. Between whole numbers the limits are interpolated.
    of
        Trials, of all or of each; without trials the interval is [0, 1].
    chance
        In (0, 1/2).

    References
    ----------
    C. J. Clopper, E. S. Pearson: The use of confidence or fiducial limits. Biometrika 26(4), 1934.
    """
    c = hits.astype(np.float64)
    with np.errstate(invalid="ignore"):  # at both ends the quantile is undefined, and the bound is 0 or 1
        low = np.where(c > 0, betaincinv(c, of - c + 1, chance), 0.0)
        high = np.where(c < of, betaincinv(c + 1, of - c, 1 - chance), 1.0)
    return low, high


def half_significant(of: NDArray[np.float64] | float, q: float, chance: float) -> NDArray[np.float64]:
    """Compute the probability of support at which an exact test of a value is significant half of the time.

    Parameters
    ----------
    of
        Reports that may support a value, in all or for each; nan where there are none.
    q
        Probability that a report supports a value that nobody holds, in (0, 1).
    chance
        Largest p-value that is significant, in (0, 1).

    Returns
    -------
    ndarray of float
        In (0, 1); inf where not even support by all reports is significant.
    """
    least = np.ceil(bdtrik(1 - chance, of, q) + 1 - _ROUNDING)
    return np.where(least > of, np.inf, betaincinv(least, np.maximum(of - least + 1, 1), 0.5))


def stderr_of_mean(sums: NDArray[Any], reports: NDArray[np.int64]) -> float:
    """Estimate the standard error of a mean over all reports from its sum over the reports of each row.

    The hash functions of a row are drawn independently of those of others, so rows are a sample of clusters. Their spread has all
    of the error: by devices, by who answers, and by what the functions confuse.

    Parameters
    ----------
    sums
        float array (rows,).
    reports
        int64 array (rows,).

    Returns
    -------
    float
        nan if fewer than two rows have reports.

    References
    ----------
    W. G. Cochran: Sampling techniques. Wiley, 3rd edition, 1977, section 6.3 (ratio estimates).
    """
    n, rows = int(reports.sum()), int(np.count_nonzero(reports))
    if rows < 2:  # noqa: PLR2004
        return float("nan")
    spread = np.square(sums - reports * (sums.sum() / n)).sum()
    return float(np.sqrt(spread * rows / (rows - 1)) / n)


def plausible(frequency: NDArray[np.float64], noise: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return shares from which errors can be computed.

    What is surely no noise counts as it is. Of the rest the largest count, as far as there is room for them in a whole. If shares
    were only cut at 0, those of many values with few reports would sum to much more than 1, and errors computed from them would
    be too large. A variance is nearly linear in the share. So errors from shares that sum to 1 are right over all values. They
    are not right for each: a value that people hold may look like noise, and then it may count as 0.

    Parameters
    ----------
    frequency
        Of all values that are known; unbiased, so it may be negative. nan where there are no reports.
    noise
        Standard error of each frequency if nobody held the value.

    Returns
    -------
    ndarray of float
        (values,), each in [0, 1]; equal for equal frequencies.
    """
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
        """Standard error of the frequency among the respondents: without the variance of sampling them."""
        f = np.clip(self.frequency, 0.0, 1.0)
        return np.sqrt(np.maximum(np.square(self.stderr) - f * (1 - f) / (self.n or np.nan), 0.0))

    @property
    def shared(self) -> NDArray[np.float64]:
        """Variance that all reports of a person share: of who the person is."""
        return self.plausible * (1 - self.plausible)

    @property
    def plausible(self) -> NDArray[np.float64]:
        """Shares from which errors can be computed."""
        return np.clip(self.frequency, 0.0, 1.0)

    @property
    @abstractmethod
    def absent_stderr(self) -> NDArray[np.float64]:
        """Standard error of the frequency of each value if nobody held it."""

    @property
    def count(self) -> NDArray[np.float64]:
        """Unbiased number of respondents with each value; 0 where there are no reports."""
        return self.n * self.frequency if self.n else np.zeros(len(self.frequency))

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
            raise ParameterError("a probability of error lies between 0 and 1", alpha)
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
        return self._interval(tail(level, len(self.frequency) if simultaneous else 1), target)

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
            As of `interval`.

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
        Y. Benjamini, D. Yekutieli: False discovery rate-adjusted multiple confidence intervals for selected parameters. JASA
        100(469), 2005.
        """
        share = max(int(np.count_nonzero(selected)), 1) / max(len(selected), 1)
        ends = zip(self._interval(tail(level) * share, target), self._interval(tail(level), target), strict=True)
        low, high = (np.where(selected, adjusted, pointwise) for adjusted, pointwise in ends)
        return low, high

    def _interval(self, chance: float, target: Target) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Compute intervals with an error of `chance` on each side, by the normal approximation."""
        reach = -ndtri(chance) * (self.stderr if target == "population" else self.respondents_stderr)
        return self.frequency - reach, self.frequency + reach


class Channel(Protocol):
    """The parameters of a mechanism's reports: the probabilities that a report supports the true value (p), and another (q)."""

    @property
    def p(self) -> Fraction: ...
    @property
    def q(self) -> Fraction: ...


@dataclass(frozen=True, eq=False)
class Supported(Estimate):
    """Frequencies from how many reports support each value: ``(support / n - q) / (p - q)``.

    Parameters
    ----------
    mechanism
        What the devices ran.
    n
        Reports.
    support
        int64 array (values,): reports that support each value, less those that oppose it.
    touched
        int64 array (values,): reports that support or oppose each value; None if none can oppose.
    total_stderr
        Standard error of the sum of all frequencies; nan where it is not known.
    shares
        What `plausible` makes of the frequencies, where it was told of more values than these.
    """

    mechanism: Channel
    n: int
    support: NDArray[np.int64]
    touched: NDArray[np.int64] | None = None
    total_stderr: float = float("nan")
    shares: NDArray[np.float64] | None = None

    @cached_property
    def frequency(self) -> NDArray[np.float64]:
        """Unbiased share of each value, ``(support / n - q) / (p - q)``; nan where there are no reports."""
        return self._debias(self.support / self._n)

    @property
    def unallocated(self) -> tuple[float, float]:
        """The share of the population that none of these values accounts for, and its standard error; nan where not known."""
        return float(1 - self.frequency.sum()), self.total_stderr

    @property
    def count(self) -> NDArray[np.float64]:
        """Unbiased number of respondents with each value; 0 where there are no reports."""
        p, q = self.mechanism.p, self.mechanism.q
        # n q is exact as a fraction, so rounding q loses nothing.
        return np.asarray((self.support - float(self.n * q)) / float(p - q), np.float64)

    @property
    def stderr(self) -> NDArray[np.float64]:
        """Standard error of the frequency in the population that the respondents were drawn from.

        ``sqrt(s (1-s) / n) / (p - q)`` with s = q + f (p - q), and f the `plausible` share. If reports can oppose
        values, s - s^2 is the share of reports that support or oppose the value, less s^2.
        """
        s = self._q + self.plausible * self._gain
        square = s if self.touched is None else np.maximum(self.touched / self._n, abs(s))
        return np.sqrt((square - s * s) / self._n) / self._gain

    @property
    def respondents_stderr(self) -> NDArray[np.float64]:
        """Standard error of the frequency among the respondents: only the randomness of the devices."""
        if self.touched is not None:
            return super().respondents_stderr
        f, p, q = self.plausible, float(self.mechanism.p), self._q
        return np.sqrt((f * p * (1 - p) + (1 - f) * q * (1 - q)) / self._n) / self._gain

    @property
    def absent_stderr(self) -> NDArray[np.float64]:
        """Standard error of the frequency of each value if nobody held it."""
        return np.sqrt((self._absent_square - self._q**2) / self._n) / self._gain

    @property
    def p_value(self) -> NDArray[np.float64]:
        """Chance of an estimate at least as large if nobody held the value: an exact binomial tail.

        A normal tail would be too thin: the largest of ten thousand candidates lies where the binomial's skewness matters. If
        reports can oppose values, there is hardly any skewness, and the tail is normal.
        """
        if self.touched is not None:
            return super().p_value
        c = self.support
        return np.where(c > 0, betainc(np.maximum(c, 1), self.n - c + 1, self._q), 1.0)

    def _half_detected(self, chance: float) -> NDArray[np.float64]:
        """Compute the share of each value at which half of all p-values are below `chance`, from the median of its support."""
        if self.touched is not None:
            # A value's holders oppose none of its block, so each adds as much to what touches the value as to its support. This
            # is where the normal quantile, with the standard error that this makes, equals the share.
            z = -ndtri(chance)
            return np.asarray((z * z + z * np.sqrt(z * z + 4 * self.touched)) / (2 * self._n * self._gain), np.float64)
        return np.full(len(self.support), self._debias(half_significant(self._n, self._q, chance)))

    def _interval(self, chance: float, target: Target) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Compute intervals.

        The support of a value is binomial, and its interval is Clopper and Pearson's, transformed by the debiasing formula. It
        covers at least at the stated level for every n. For respondents each end is nearer to the estimate, in proportion to the
        standard error if the share were at that end. At a share of 0, where people do not differ, this is the exact interval
        still.
        """
        if not self.n:
            return self.frequency, self.frequency
        if self.touched is not None:
            return self._opposed_interval(chance, self.touched)
        low, high = (self._debias(end) for end in clopper_pearson(self.support, self.n, chance))
        if target == "respondents":
            low, high = (self.frequency + (end - self.frequency) * self._narrowing(end) for end in (low, high))
        return low, high

    def _opposed_interval(self, chance: float, touched: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Compute intervals where reports can oppose values; those for the population hold for respondents all the more.

        The number of reports that support a value is binomial, and so is the number that opposes it. Each share has Clopper and
        Pearson's interval. The distances of their ends combine as correlated errors do, since a report cannot do both.

        References
        ----------
        G. Y. Zou, A. Donner: Construction of confidence limits about effect measures: a general approach. Statistics in Medicine
        27(10), 2008.
        """
        counts = (touched + self.support) // 2, (touched - self.support) // 2
        up, down = (count / self._n for count in counts)
        (up_low, up_high), (down_low, down_high) = (clopper_pearson(count, self.n, chance) for count in counts)
        with np.errstate(invalid="ignore"):  # where all reports support the value, none opposes it
            tie = np.nan_to_num(np.sqrt(up * down / ((1 - up) * (1 - down))))
        below, above = (
            np.sqrt(a * a + b * b + 2 * tie * a * b) / self._gain
            for a, b in ((up - up_low, down_high - down), (up_high - up, down - down_low))
        )
        return self.frequency - below, self.frequency + above

    def _narrowing(self, frequency: NDArray[np.float64]) -> NDArray[np.float64]:
        """Compute by what factor the error is smaller among respondents, for values of these frequencies."""
        f = np.clip(frequency, 0.0, 1.0)
        s = self._q + f * self._gain
        return np.sqrt(np.maximum(1 - f * (1 - f) * self._gain**2 / (s * (1 - s)), 0.0))

    @property
    def _absent_square(self) -> NDArray[np.float64]:
        """Share of the reports that support or oppose each value, if nobody holds it."""
        return np.full(len(self.support), self._q) if self.touched is None else self.touched / self._n

    @property
    def _n(self) -> float:
        return self.n or np.nan

    @property
    def _q(self) -> float:
        return float(self.mechanism.q)

    @cached_property
    def _gain(self) -> float:
        return float(self.mechanism.p) - float(self.mechanism.q)

    @cached_property
    def plausible(self) -> NDArray[np.float64]:
        """Shares from which errors can be computed."""
        if self.shares is not None:
            return self.shares
        noise = np.sqrt(self._absent_square - self._q**2) / self._gain / np.sqrt(self._n)
        return plausible(self.frequency, noise)

    def _debias(self, share: NDArray[np.float64]) -> NDArray[np.float64]:
        return (share - self._q) / self._gain


@dataclass(frozen=True, eq=False)
class Fitted(Estimate):
    """Frequencies and errors from a regression.

    Parameters
    ----------
    n
        Reports.
    fit
        The regression.
    repeats
        How many other reports of its permanent response a report has beside it, as the regression was told.
    kept
        Whether the devices keep their permanent responses.
    """

    n: int
    fit: Fit
    repeats: float = 0.0
    kept: bool = False

    @property
    def frequency(self) -> NDArray[np.float64]:
        """Share of each value; nan where there are no reports."""
        return self.fit.frequency

    @property
    def stderr(self) -> NDArray[np.float64]:
        """Standard error of the frequency in the population that the respondents were drawn from."""
        return self.fit.stderr

    @property
    def respondents_stderr(self) -> NDArray[np.float64]:
        """Standard error of the frequency among the answers: without the variance of sampling people."""
        return np.sqrt(np.maximum(np.square(self.stderr) - super().shared / self._people, 0.0))

    @property
    def shared(self) -> NDArray[np.float64]:
        """Variance that all reports of a person share: of who the person is; where responses are kept, at most all of it."""
        return np.square(self.stderr) * self._people if self.kept else super().shared

    @property
    def _people(self) -> float:
        return (self.n or np.nan) / (1 + self.repeats)

    @property
    def absent_stderr(self) -> NDArray[np.float64]:
        """Standard error of the frequency of each value if nobody held it."""
        return self.fit.absent_stderr

    @property
    def p_value(self) -> NDArray[np.float64]:
        """Chance of an estimate at least as large if nobody held the value, given the others."""
        return self.fit.p_value

    @property
    def unallocated(self) -> tuple[float, float]:
        """The share of the population that no candidate accounts for, and its standard error; nan where not known."""
        return self.fit.unallocated, self.fit.unallocated_stderr
