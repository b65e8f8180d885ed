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

    from deniable.mechanisms.permanent.dbitflip import DBitFlip
    from deniable_aggregator.decode.estimate import Target
    from deniable_aggregator.tally import Tally


@dataclass(frozen=True, eq=False)
class Partial(Estimate):
    """Frequencies from reports about sets of values: ``(support - q covering) / (n s (p - q))``.

    A share s of the sets has a given value.

    Of the reports that cover a value, a share q is noise on average. The number that cover it is known, and this formula uses it.
    With its expectation s n instead, the variance would be larger.
    """

    mechanism: DBitFlip  # What the devices ran. Here p and q are its `one` and `other`.
    n: int  # reports
    support: NDArray[np.int64]  # (values,): reports that support each value
    covering: NDArray[np.int64]  # (values,): reports that cover each value
    # The plausible shares of these values, if they were computed from more values than these.
    shares: NDArray[np.float64] | None = None

    @property
    def reports(self) -> NDArray[np.int64]:
        """How many reports cover each value."""
        return self.covering

    @cached_property
    def frequency(self) -> NDArray[np.float64]:
        """Unbiased share of each value; nan where there are no reports."""
        return (self.support - self.channel.q * self.covering) / (self._n * self._share * self.channel.gain)

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
        return np.asarray(np.sqrt(q * (1 - q) * self.covering) / (self._n * self._share * self.channel.gain), np.float64)

    @property
    def p_value(self) -> NDArray[np.float64]:
        """Chance of an estimate at least as large if nobody held the value: an exact binomial tail."""
        c = self.support
        return np.where(c > 0, betainc(np.maximum(c, 1), self.covering - c + 1, self.channel.q), 1.0)

    def _half_detected(self, chance: float) -> NDArray[np.float64]:
        """Compute the share of each value at which half of all p-values are below `chance`, from the median of its support."""
        covering = np.where(self.covering > 0, self.covering, np.nan)
        return self.channel.debias(half_significant(covering, self.channel.q, chance))

    def _interval(self, chance: float, target: Target) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Compute Clopper and Pearson's intervals from the reports that cover each value."""
        if not self.n:
            return self.frequency, self.frequency
        # These reports are a sample of all, and the number that supports the value is binomial. So the interval covers at the
        # stated level or above, for any number of reports.
        ends = [self.channel.debias(end) for end in clopper_pearson(self.support, self.covering, chance)]
        if target == "respondents":
            # Narrower in proportion to the standard error.
            middle, narrower = (ends[0] + ends[1]) / 2, self.respondents_stderr / self.stderr
            ends = [middle + (end - middle) * narrower for end in ends]
        # The estimate also depends on how many reports cover the value, so it may lie outside.
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
    values: Sequence[int] | None,  # the values to estimate; None for the whole domain
) -> Partial:
    """Count, for each value, its own bits that are set and the reports that have such a bit."""
    firsts = np.fromiter(map(mechanism.first, range(mechanism.layout.rows)), np.int64, mechanism.layout.rows)
    places = (firsts[:, None] + np.arange(mechanism.buckets)) % mechanism.domain_size
    support, covering = (np.zeros(mechanism.domain_size, np.int64) for _ in range(2))
    np.add.at(support, places, tally.counts)
    np.add.at(covering, places, tally.reports[:, None])
    complete = Partial(mechanism, tally.n, support, covering)
    if values is None:
        return complete
    chosen = list(values)
    return Partial(mechanism, tally.n, support[chosen], covering[chosen], complete.plausible[chosen])
