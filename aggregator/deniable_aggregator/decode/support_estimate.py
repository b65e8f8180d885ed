"""An estimate from how many reports support each value."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import betainc, ndtri

from deniable_aggregator.decode.binomial import clopper_pearson, half_significant
from deniable_aggregator.decode.channel import Channel
from deniable_aggregator.decode.estimate import Estimate

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from deniable_aggregator.decode.channel import Pure
    from deniable_aggregator.decode.estimate import Target


@dataclass(frozen=True, eq=False)
class Supported(Estimate):
    """Frequencies from how many reports support each value: ``(support / n - q) / (p - q)``."""

    mechanism: Pure  # what the devices ran
    n: int  # reports
    support: NDArray[np.int64]  # (values,): reports that support each value, less those that oppose it
    touched: NDArray[np.int64] | None = None  # (values,): reports that support or oppose each value; None if none can oppose
    total_stderr: float = float("nan")  # standard error of the sum of all frequencies; nan where it is not known
    # The plausible shares of these values, if they were computed from more values than these.
    shares: NDArray[np.float64] | None = None

    @cached_property
    def frequency(self) -> NDArray[np.float64]:
        """Unbiased share of each value, ``(support / n - q) / (p - q)``; nan where there are no reports."""
        return self.channel.debias(self.support / self._n)

    @property
    def unallocated(self) -> tuple[float, float]:
        """The share of the population that none of these values accounts for, and its standard error; nan where not known."""
        return float(1 - self.frequency.sum()), self.total_stderr

    @property
    def mirrored(self) -> bool:
        """Whether each report supports exactly one of two values, which are all: then their estimates sum to 1."""
        return getattr(self.mechanism, "mirrored", False) and len(self.support) == 2  # noqa: PLR2004

    @property
    def count(self) -> NDArray[np.float64]:
        """Unbiased number of respondents with each value; nan where there are no reports."""
        p, q = self.mechanism.p, self.mechanism.q
        # n q is exact as a fraction, so rounding q loses nothing.
        return np.asarray((self.support - float(self.n * q)) / (float(p - q) if self.n else np.nan), np.float64)

    @property
    def stderr(self) -> NDArray[np.float64]:
        """Standard error of the frequency in the population that the respondents were drawn from."""
        # `sqrt(s (1-s) / n) / (p - q)` with s = q + f (p - q), and f the `plausible` share. If reports can oppose values, s - s^2
        # is the share of reports that support or oppose the value, less s^2.
        s = self.channel.support(self.plausible)
        square = s if self.touched is None else np.maximum(self.touched / self._n, abs(s))
        return np.sqrt((square - s * s) / self._n) / self.channel.gain

    @property
    def respondents_stderr(self) -> NDArray[np.float64]:
        """Standard error of the frequency among the respondents: only the randomness of the devices."""
        if self.touched is not None:
            return super().respondents_stderr
        return np.sqrt(self.channel.noise(self.plausible) / self._n) / self.channel.gain

    @property
    def absent_stderr(self) -> NDArray[np.float64]:
        """Standard error of the frequency of each value if nobody held it."""
        q = self.channel.q
        square = np.full(len(self.support), q) if self.touched is None else self.touched / self._n
        return np.sqrt((square - q**2) / self._n) / self.channel.gain

    @property
    def p_value(self) -> NDArray[np.float64]:
        """Chance of an estimate at least as large if nobody held the value: an exact binomial tail."""
        # A normal tail would be too thin: the largest of ten thousand candidates lies where the binomial's skewness matters. If
        # reports can oppose values, there is hardly any skewness, and the tail is normal.
        if self.touched is not None:
            return super().p_value
        c = self.support
        return np.where(c > 0, betainc(np.maximum(c, 1), self.n - c + 1, self.channel.q), 1.0)

    def _half_detected(self, chance: float) -> NDArray[np.float64]:
        """Compute the share of each value at which half of all p-values are below `chance`, from the median of its support."""
        if self.touched is not None:
            # A value's holders oppose none of its block, so each adds as much to what touches the value as to its support. This
            # is where the normal quantile, with the standard error that this makes, equals the share.
            z = -ndtri(chance)
            return np.asarray((z * z + z * np.sqrt(z * z + 4 * self.touched)) / (2 * self._n * self.channel.gain), np.float64)
        return np.full(len(self.support), self.channel.debias(half_significant(self._n, self.channel.q, chance)))

    def _interval(self, chance: float, target: Target) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Compute intervals."""
        if not self.n:
            return self.frequency, self.frequency
        if self.touched is not None:
            return self._opposed_interval(chance, self.touched)
        # The support of a value is binomial, and its interval is Clopper and Pearson's, transformed by the debiasing formula. It
        # covers at least at the stated level for every n.
        low, high = (self.channel.debias(end) for end in clopper_pearson(self.support, self.n, chance))
        # For respondents each end is nearer to the estimate, in proportion to the standard error if the share were at that end.
        # At a share of 0, where people do not differ, this is the exact interval still.
        if target == "respondents":
            low, high = (self.frequency + (end - self.frequency) * self.channel.narrowing(end) for end in (low, high))
        return low, high

    def _opposed_interval(self, chance: float, touched: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Compute intervals where reports can oppose values: those for the population, which also hold for respondents."""
        # The number of reports that support a value is binomial, and so is the number that opposes it. Each share has Clopper and
        # Pearson's interval. The distances of their ends combine as correlated errors do, since a report cannot do both.
        # G. Y. Zou, A. Donner: Construction of confidence limits about effect measures. Statistics in Medicine 27(10), 2008.
        counts = (touched + self.support) // 2, (touched - self.support) // 2
        up, down = (count / self._n for count in counts)
        (up_low, up_high), (down_low, down_high) = (clopper_pearson(count, self.n, chance) for count in counts)
        with np.errstate(invalid="ignore"):  # where all reports support the value, none opposes it
            tie = np.nan_to_num(np.sqrt(up * down / ((1 - up) * (1 - down))))
        below, above = (
            np.sqrt(a * a + b * b + 2 * tie * a * b) / self.channel.gain
            for a, b in ((up - up_low, down_high - down), (up_high - up, down - down_low))
        )
        return self.frequency - below, self.frequency + above

    @property
    def _n(self) -> float:
        return self.n or np.nan

    @cached_property
    def channel(self) -> Channel:
        """What a report says of a value."""
        return Channel.of(self.mechanism)

    @cached_property
    def plausible(self) -> NDArray[np.float64]:
        """Shares from which errors can be computed."""
        return super().plausible if self.shares is None else self.shares
