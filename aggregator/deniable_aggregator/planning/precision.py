"""How precise reports are: the error of a share or a mean, and what so many reports can show."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from math import isnan, sqrt
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import ndtri

from deniable.errors import ParameterError
from deniable.forecast.search import foreseen
from deniable.mechanisms.base import FrequencyOracle
from deniable.mechanisms.sets import OfSets
from deniable_aggregator.decode.channel import Channel
from deniable_aggregator.decode.families import family_of
from deniable_aggregator.decode.multiple_testing import tail
from deniable_aggregator.decode.sets.option_estimate import OptionShares

if TYPE_CHECKING:
    from deniable.mechanisms import Mechanism
    from deniable.registry import Metric

POWER = 0.8
"""Probability that a difference between two arms is seen, if it is there."""

_SPREAD = 0.25  # the largest variance of answers between 0 and 1
_HALVINGS = 60  # as many bits as a difference needs


@dataclass(frozen=True, kw_only=True)
class Precision(ABC):
    """How exact the reports of one mechanism make a share, or a mean place on an axis.

    All errors are of the population that those who answer are drawn from.
    """

    together: float  # how many devices answer alike

    @property
    def share_about(self) -> float:
        """Share of the reports that are about what is estimated."""
        return 1.0

    @abstractmethod
    def variance(self, at: float) -> float:
        """Compute the variance of one report's estimate, for a share of `at`."""

    def detects(self, n: int, level: float = 0.95) -> float | None:  # noqa: ARG002 - nothing is detected of a mean
        """Compute the share that n reports detect half of the time; None if there is none, or none is known."""
        return None

    def stderr(self, n: int, at: float) -> float:
        """Compute the standard error of the estimate of n reports."""
        return sqrt(self.variance(at) / n)

    def error(self, n: int, at: float, level: float = 0.95) -> float:
        """Compute how far the estimate of n reports may be off, with this confidence: half the length of an interval."""
        return -float(ndtri(tail(level))) * self.stderr(n, at)

    def users(self, within: float, at: float, level: float = 0.95) -> int:
        """Compute the fewest reports whose `error` is at most `within`."""
        n = max(round(self.variance(at) * (float(ndtri(tail(level))) / within) ** 2), 1)
        while self.error(n, at, level) > within:
            n += 1
        while n > 1 and self.error(n - 1, at, level) <= within:
            n -= 1
        return n

    def arm(self, difference: float, at: float, level: float = 0.95) -> int:
        """Compute the reports that each of two arms needs, to see a rise from `at` by `difference` with `POWER`."""
        z = float(ndtri(POWER) - ndtri(tail(level)))
        return int(np.ceil((z / difference) ** 2 * (self.variance(at) + self.variance(at + difference))))

    def difference(self, n: int, at: float, level: float = 0.95) -> float | None:
        """Compute the smallest rise from `at` that two arms of n reports see with `POWER`; None if they see none."""
        low, high = 0.0, 1 - at
        if not high or self.arm(high, at, level) > n:
            return None
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            low, high = (low, middle) if self.arm(middle, at, level) <= n else (middle, high)
        return high


@dataclass(frozen=True, kw_only=True)
class _Shares(Precision):
    """Shares of values."""

    mechanism: FrequencyOracle  # what the devices run
    values: int  # how many values are estimated; 0 where it is not known

    def variance(self, at: float) -> float:
        """Add the variance of who answers to that of the devices."""
        return self.mechanism.variance(at, 1) + at * (1 - at) * self.together

    def detects(self, n: int, level: float = 0.95) -> float | None:
        """Ask the decoder what it would detect, if nobody held any of the values."""
        if not self.values:
            return None
        return _known(family_of(self.mechanism).nobody(self.values, n).detection_frequency(1 - level))


@dataclass(frozen=True, kw_only=True)
class _Found(_Shares):
    """Shares of values that a search finds."""

    metric: Metric

    def detects(self, n: int, level: float = 0.95) -> float | None:
        """Foresee what the search would find, if nobody held another value."""
        return _known(foreseen(self.metric, self.mechanism, n, 1 - level))


@dataclass(frozen=True, kw_only=True)
class _Options(Precision):
    """Shares of the options of a set."""

    mechanism: OfSets

    @cached_property
    def _channel(self) -> Channel:
        return Channel(*(float(each) for each in self.mechanism.yes))

    @property
    def share_about(self) -> float:
        """Share of the reports that are about an option."""
        return float(self.mechanism.about)

    def variance(self, at: float) -> float:
        """Only some of the reports are about the option."""
        noise = float(self._channel.variance(np.array(at))) / self._channel.gain**2 / self.share_about
        return noise + at * (1 - at) * (self.together - 1)

    def detects(self, n: int, level: float = 0.95) -> float | None:
        """Ask the decoder what it would detect, if nobody chose any of the options."""
        nothing = np.zeros(self.mechanism.options_listed, np.int64)
        covering = np.full(len(nothing), round(n * self.share_about))
        return _known(OptionShares(n, nothing, covering, self._channel).detection_frequency(1 - level))


@dataclass(frozen=True, kw_only=True)
class _Mean(Precision):
    """The mean place of answers on their axis, from 0 to 1, if they are spread as far as they can be."""

    worst: float  # the largest variance of one report

    def variance(self, at: float) -> float:  # noqa: ARG002 - the worst answers are taken
        """Add the spread of answers for the devices that answer alike."""
        return self.worst + _SPREAD * (self.together - 1)


def precision(
    metric: Metric,  # as declared
    mechanism: Mechanism,
    values: int,  # how many values are estimated; 0 where it is not known
) -> Precision | None:
    """Return how precise the reports of a metric are; None for Bloom filters, whose error depends on all answers."""
    if isinstance(mechanism, OfSets):
        return _Options(mechanism=mechanism, together=metric.together)
    if metric.estimate and not metric.binned:
        return _Mean(worst=float(mechanism.worst_variance), together=metric.together)
    if not isinstance(mechanism, FrequencyOracle):
        raise ParameterError("mechanism: choose one of shares or means, for which there are plans", mechanism.name)
    if not family_of(mechanism).foreseen:
        return None
    if mechanism.searches:
        return _Found(mechanism=mechanism, values=values, together=metric.together, metric=metric)
    return _Shares(mechanism=mechanism, values=values, together=metric.together)


def _known(share: float) -> float | None:
    return None if isnan(share) else share
