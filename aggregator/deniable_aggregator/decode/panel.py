"""Panels: devices that report again and again, and what that does to the error of a mean over all their reports.

Who sent a report is not known, so two reports may be of one person. They then share who the person is, and the permanent
response if one is kept. This part of the variance falls with the number of people only, the rest with the number of reports. How
many reports a device makes is not known either, but the numbers of reports in each period bound it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.special import betainc, gammaincc, ndtri

from deniable_aggregator.decode.binomial import clopper_pearson
from deniable_aggregator.decode.bucket_estimate import Partial
from deniable_aggregator.decode.estimate import Estimate
from deniable_aggregator.decode.sets.option_estimate import OptionShares
from deniable_aggregator.decode.support_estimate import Supported

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    from deniable.mechanisms.permanent import Permanent
    from deniable.registry import Metric
    from deniable_aggregator.decode.channel import Channel
    from deniable_aggregator.decode.estimate import Target


def repeats(
    reports: Iterable[float],  # number of reports of each period
    most: int = 1,  # most reports of one device in a period
) -> float:
    """Bound how many other reports the device of a report has made, on average; 0 for one period with one report of each."""
    # With n_t reports in period t and N in all, it is `most / N * sum over s, t of min(n_s, n_t) - 1`: as if the devices of each
    # period reported in all larger ones, too.
    counts = np.array([number for number in reports if number], np.float64)
    n = counts.sum()
    return float(min(most * _shared(counts, counts) / n, n) - 1) if n else 0.0


def repeats_of(
    metric: Metric,  # as declared: `Metric.per_period` and `Metric.together`
    periods: Mapping[str, float],  # number of reports of each period
) -> float:
    """Bound how many other reports are as that of a device: its own of some periods, and those of devices that answer alike."""
    return float((1 + repeats(periods.values(), metric.per_period)) * metric.together - 1)


def overlap(
    # first, second: reports of each version by period. In one period a device has one version; others that answer alike may have
    # another.
    first: Mapping[str, float],
    second: Mapping[str, float],
    together: float = 1,  # how many devices answer alike
) -> float:
    """Bound the probability that a report of each of two versions, both drawn at random, are of one device, or of two alike."""
    counts = [np.array([number for number in each.values() if number], np.float64) for each in (first, second)]
    never = sum(min(number, second.get(period, 0)) for period, number in first.items()) if together == 1 else 0.0
    pairs = counts[0].sum() * counts[1].sum()
    return min(float((_shared(*counts) * together - never) / pairs), 1.0) if pairs else 0.0


def _shared(first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    """Sum the smaller of two numbers over all pairs."""
    ordered = np.sort(second)
    sums = np.concatenate([[0.0], np.cumsum(ordered)])
    below = np.searchsorted(ordered, first)
    return float((sums[below] + first * (len(ordered) - below)).sum())


@dataclass(frozen=True, eq=False)
class Panel(Estimate):
    """An estimate from reports of which devices may have made several."""

    n: int  # reports
    independent: Estimate  # the estimate as it is if each report is of another device
    repeats: float  # how many other reports the device of a report has made, on average, at most
    permanent: Permanent | None = None  # what the devices ran, if they keep their permanent responses; else None

    @property
    def frequency(self) -> NDArray[np.float64]:
        """Unbiased share of each value: the mean over the reports."""
        return self.independent.frequency

    @property
    def reports(self) -> NDArray[np.int64]:
        """How many reports each frequency rests on."""
        return self.independent.reports

    @property
    def mirrored(self) -> bool:
        """Whether these are two values whose estimates sum to 1."""
        return self.independent.mirrored

    @property
    def shared(self) -> NDArray[np.float64]:
        """Variance that all reports of a person share: of who the person is, and of the permanent response."""
        return self._shared_at(self.plausible)

    @property
    def plausible(self) -> NDArray[np.float64]:
        """Shares from which errors can be computed."""
        return self.independent.plausible

    @property
    def stderr(self) -> NDArray[np.float64]:
        """Standard error of the frequency in the population that the respondents were drawn from."""
        return _with(self.independent.stderr, self.shared * self._more)

    @property
    def respondents_stderr(self) -> NDArray[np.float64]:
        """Standard error of the frequency among the answers: only the randomness of the devices."""
        return _with(self.independent.respondents_stderr, self._response_variance(self.plausible) * self._more)

    @property
    def absent_stderr(self) -> NDArray[np.float64]:
        """Standard error of the frequency of each value if nobody held it."""
        return _with(self.independent.absent_stderr, self._response_variance(np.zeros(len(self.frequency))) * self._more)

    @property
    def p_value(self) -> NDArray[np.float64]:
        """Chance of an estimate at least as large if nobody held the value: the larger of two tails."""
        if self.permanent is None or not self.repeats:  # if nobody holds a value, people do not differ
            return self.independent.p_value
        error = self.absent_stderr
        basis, wider = _binomial(self.independent), error / self.independent.absent_stderr
        assert basis is not None  # noqa: S101 - where responses are kept it is one, or a regression
        # The binomial tail is that of the fewer reports of different people that have as large an error.
        hits, of = basis.hits / wider**2, basis.of / wider**2
        binomial = np.where(hits > 0, betainc(np.maximum(hits, 1e-9), of - hits + 1, basis.channel.q), 1.0)
        # The gamma tail allows for the skewness of few permanent responses that support a value nobody holds, each of them in all
        # of its reports.
        q, people = float(self.permanent.permanent_support[1]), self.n / (1 + self.repeats)
        skewness = (1 - 2 * q) * (self._ends[0] / people / error**2) ** 1.5 / np.sqrt(people * q * (1 - q))
        shape = 4 / np.maximum(skewness, 1e-3) ** 2
        gamma = gammaincc(shape, np.maximum(shape + self.frequency / error * np.sqrt(shape), 0.0))
        return np.asarray(np.maximum(binomial, gamma), np.float64)

    def detection_frequency(self, alpha: float = 0.05) -> float:
        """Return the share at which a typical value, beside those detected, would be detected half of the time."""
        return (
            super().detection_frequency(alpha) if self.permanent and self.repeats else self.independent.detection_frequency(alpha)
        )

    @property
    def unallocated(self) -> tuple[float, float]:
        """The share of the population that none of these values accounts for, and its standard error; nan where not known."""
        share, stderr = self.independent.unallocated
        remainder = min(max(share, 0.0), 1.0)
        return share, float(np.sqrt(stderr**2 + remainder * (1 - remainder) * self._more))

    def _interval(self, chance: float, target: Target) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Compute intervals: of a binomial, those for the fewer reports of different people that have as large an error there."""
        low, high = self._score_interval(chance, target)
        basis = _binomial(self.independent)
        if basis is None or target == "respondents":
            return low, high
        there = [np.clip(end, 0.0, 1.0) for end in (low, high)]
        few = [basis.fewer(end, self._shared_at(end) * self._more) for end in there]
        ends = [clopper_pearson(basis.hits * part, basis.of * part, chance)[side] for side, part in enumerate(few)]
        return np.minimum(basis.channel.debias(ends[0]), self.frequency), np.maximum(
            basis.channel.debias(ends[1]), self.frequency
        )

    def _score_interval(self, chance: float, target: Target) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Compute intervals: all shares e that are not too far from the estimate f for their own error."""
        ends = self.independent._interval(chance, target)  # noqa: SLF001 - an estimate, too
        k = ndtri(chance) ** 2 * self._more
        none, all_ = self._ends
        people = k if target == "population" else 0.0
        linear = people + k * (all_ - none)
        limits = []
        # `(e - f)^2 <= h^2 + z^2 shared(e) repeats / n`, h the distance of the end as it is if each report is of another device.
        for side, end in zip((-1, 1), ends, strict=True):
            f, square = self.frequency, np.square(end - self.frequency)
            half = (2 * f + linear) / (2 * (1 + people))
            root = half + side * np.sqrt(np.maximum(half**2 - (f**2 - square - k * none) / (1 + people), 0.0))
            inside = np.clip(root, 0.0, 1.0)  # beyond, people do not differ
            limits.append(f + side * np.sqrt(square + people * inside * (1 - inside) + k * self._response_variance(inside)))
        return limits[0], limits[1]

    @property
    def _more(self) -> float:
        """What each unit of the variance that reports share adds."""
        return self.repeats / (self.n or np.nan)

    @cached_property
    def _ends(self) -> tuple[float, float]:
        """Variance of a permanent response where nobody holds the value, and where all do."""
        if self.permanent is None:
            return 0.0, 0.0
        return self.permanent.permanent_variance(0.0), self.permanent.permanent_variance(1.0)

    def _shared_at(self, frequency: NDArray[np.float64]) -> NDArray[np.float64]:
        return frequency * (1 - frequency) + self._response_variance(frequency)

    def _response_variance(self, frequency: NDArray[np.float64]) -> NDArray[np.float64]:
        none, all_ = self._ends
        return none + (all_ - none) * frequency


class _Binomial(NamedTuple):
    """What an estimate rests on: of some reports, those that support each value."""

    # hits, of: (values,) each
    hits: NDArray[np.float64]
    of: NDArray[np.float64]
    channel: Channel  # what such a report says of a value

    def fewer(self, frequency: NDArray[np.float64], more: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the part of the reports that alone has a variance that is larger by `more`, for values of these frequencies."""
        variance = self.channel.variance(frequency) / self.channel.gain**2
        return variance / (variance + more * self.of)


def _binomial(estimate: Estimate) -> _Binomial | None:
    if isinstance(estimate, Partial | OptionShares):
        return _Binomial(estimate.support.astype(np.float64), estimate.covering.astype(np.float64), estimate.channel)
    if not isinstance(estimate, Supported) or estimate.touched is not None:
        return None
    return _Binomial(estimate.support.astype(np.float64), np.full(len(estimate.support), float(estimate.n)), estimate.channel)


def _with(stderr: NDArray[np.float64], variance: NDArray[np.float64]) -> NDArray[np.float64]:
    return stderr * np.sqrt(1 + variance / np.square(stderr))
