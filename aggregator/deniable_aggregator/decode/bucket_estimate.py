"""An estimate from reports that each cover some of the values only."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import betainc

from deniable_aggregator.decode.binomial import clopper_pearson, half_significant
from deniable_aggregator.decode.channel import Channel
from deniable_aggregator.decode.estimate import Estimate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from deniable.mechanisms.dbitflip import DBitFlip
    from deniable_aggregator.decode.estimate import Target
    from deniable_aggregator.tally import Tally


@dataclass(frozen=True, eq=False)
class Partial(Estimate):
    """Frequencies from reports about sets of values: ``(support - q told) / (n s (p - q))``, s the share of sets with a value.

    Of the reports that cover a value, a share q is noise on average. The number that cover it is known, and this formula uses it.
    With its expectation s n instead, the variance would be larger.
    """

    mechanism: DBitFlip  # What the devices ran. Here p and q are its `one` and `other`.
    n: int  # reports
    support: NDArray[np.int64]  # (values,): reports that support each value
    told: NDArray[np.int64]  # (values,): reports that cover each value
    # What `plausible` makes of the frequencies, where it was told of more values than these.
    shares: NDArray[np.float64] | None = None

    @property
    def reports(self) -> NDArray[np.int64]:
        """How many reports cover each value."""
        return self.told

    @cached_property
    def frequency(self) -> NDArray[np.float64]:
        """Unbiased share of each value; nan where there are no reports."""
        return (self.support - self.channel.q * self.told) / (self._n * self._share * self.channel.gain)

    @cached_property
    def plausible(self) -> NDArray[np.float64]:
        """Shares from which errors can be computed."""
        return super().plausible if self.shares is None else self.shares

    @property
    def stderr(self) -> NDArray[np.float64]:
        """Standard error of the frequency in the population that the respondents were drawn from."""
        f = self.plausible
        square = self.channel.noise(f) / self.channel.gain**2 + f
        return np.sqrt((square / self._share - f * f) / self._n)

    @property
    def absent_stderr(self) -> NDArray[np.float64]:
        """Standard error of the frequency of each value if nobody held it, given the number of reports that cover it."""
        q = self.channel.q
        return np.asarray(np.sqrt(q * (1 - q) * self.told) / (self._n * self._share * self.channel.gain), np.float64)

    @property
    def p_value(self) -> NDArray[np.float64]:
        """Chance of an estimate at least as large if nobody held the value: an exact binomial tail."""
        c = self.support
        return np.where(c > 0, betainc(np.maximum(c, 1), self.told - c + 1, self.channel.q), 1.0)

    def _half_detected(self, chance: float) -> NDArray[np.float64]:
        """Compute the share of each value at which half of all p-values are below `chance`, from the median of its support."""
        told = np.where(self.told > 0, self.told, np.nan)
        return self.channel.debias(half_significant(told, self.channel.q, chance))

    def _interval(self, chance: float, target: Target) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Compute intervals.

        The reports that cover a value are a sample of all, and the number that supports it is binomial. So this is Clopper and
        Pearson's interval from these alone. It covers at least at the stated level, for any number of reports. If the estimate,
        which also depends on their number, lies outside, the interval is extended to it. For respondents it is narrower in
        proportion to the standard error.
        """
        if not self.n:
            return self.frequency, self.frequency
        ends = [self.channel.debias(end) for end in clopper_pearson(self.support, self.told, chance)]
        if target == "respondents":
            middle, narrower = (ends[0] + ends[1]) / 2, self.respondents_stderr / self.stderr
            ends = [middle + (end - middle) * narrower for end in ends]
        return np.minimum(ends[0], self.frequency), np.maximum(ends[1], self.frequency)

    @property
    def _n(self) -> float:
        return self.n or np.nan

    @cached_property
    def channel(self) -> Channel:
        """What a report that covers a value says of it."""
        return Channel(float(self.mechanism.one), float(self.mechanism.other))

    @property
    def _share(self) -> float:
        return self.mechanism.buckets / self.mechanism.domain_size


def of(
    mechanism: DBitFlip,  # what the devices ran
    tally: Tally,  # the sum of their reports
    values: Sequence[int] | None,  # the values wanted; None for the whole domain
) -> Partial:
    """Count, for each value, its own bits that are set and the reports that have such a bit."""
    firsts = np.fromiter(map(mechanism.first, range(mechanism.layout.rows)), np.int64, mechanism.layout.rows)
    places = (firsts[:, None] + np.arange(mechanism.buckets)) % mechanism.domain_size
    support, told = (np.zeros(mechanism.domain_size, np.int64) for _ in range(2))
    np.add.at(support, places, tally.counts)
    np.add.at(told, places, tally.reports[:, None])
    whole = Partial(mechanism, tally.n, support, told)
    if values is None:
        return whole
    chosen = list(values)
    return Partial(mechanism, tally.n, support[chosen], told[chosen], whole.plausible[chosen])
