"""Readings: what the reports of one tally say. Whatever is answered of reports is a view of readings."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, NamedTuple

from deniable.mechanisms.base import FrequencyOracle
from deniable.mechanisms.prefix import PrefixTree
from deniable_aggregator import decode, tally
from deniable_aggregator.answer.remembered import once
from deniable_aggregator.decode import panel
from deniable_aggregator.decode.discovery import discover
from deniable_aggregator.decode.distribution import distribution
from deniable_aggregator.decode.mean import mean
from deniable_aggregator.decode.options import option_shares
from deniable_aggregator.decode.order import order

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from deniable.declared import Declared
    from deniable_aggregator.answer.collection import Collection
    from deniable_aggregator.answer.select import Selection
    from deniable_aggregator.decode.distribution import Distribution
    from deniable_aggregator.decode.estimate import Estimate
    from deniable_aggregator.tally import Tally


class Centre(NamedTuple):
    """A mean place on the axis."""

    # place, stderr: the mean, and its standard error
    place: float
    stderr: float
    spread: float  # greatest plausible variance that all reports of a person share
    # interval, respondents: compute the interval at a level: for the population, and for the answers that came
    interval: Callable[[float], tuple[float, float]]
    respondents: Callable[[float], tuple[float, float]]


@dataclass(frozen=True, eq=False)
class Reading:
    """What one tally says. Each estimate is made once, when it is first asked for."""

    declared: Declared  # the metric
    counted: Tally  # its reports
    periods: Mapping[str, float]  # how many of them each period has

    @property
    def n(self) -> int:
        """Number of reports."""
        return self.counted.n

    @cached_property
    def repeats(self) -> float:
        """How many other reports in the tally the device of a report has made, on average, at most."""
        return panel.repeats_of(self.declared.metric, self.periods)

    @property
    def values(self) -> Sequence[int]:
        """Positions of the values with a share: all, the candidates, what was discovered, or options; none of a number."""
        return self._decoded[0]

    @property
    def shares(self) -> Estimate | None:
        """The share of each of the values; None of a number."""
        return self._decoded[1]

    @cached_property
    def _decoded(self) -> tuple[Sequence[int], Estimate | None]:
        metric, mechanism, counted, repeats = self.declared.metric, self.declared.mechanism, self.counted, self.repeats
        if metric.estimate:
            return (), None
        if metric.type == "set":
            shares = option_shares(mechanism, counted)
            return range(len(metric.values)), panel.Panel(counted.n, shares, repeats) if counted.n and repeats else shares
        if not metric.open:
            return range(metric.domain_size), decode.estimate(mechanism, counted, repeats=repeats, kept=metric.kept)
        # A search, and many candidates, are slow, so they are remembered.
        return once((self.declared.fingerprint, self.declared.candidates, repeats), counted, self._search)

    def _search(self) -> tuple[Sequence[int], Estimate]:
        metric, mechanism, counted, repeats = self.declared.metric, self.declared.mechanism, self.counted, self.repeats
        if isinstance(mechanism, PrefixTree):
            discovery = discover(mechanism, counted, text=metric.type == "string")
            return discovery.values, panel.Panel(counted.n, discovery, repeats) if repeats else discovery
        candidates = self.declared.candidates
        return candidates, decode.estimate(mechanism, counted, candidates, repeats=repeats, kept=metric.kept)

    @cached_property
    def centre(self) -> Centre:
        """The mean place of a number, or of an ordinal of which only the mean is asked."""
        metric = self.declared.metric
        if metric.binned:
            return self._of_parts()
        found = mean(self.declared.mechanism, self.counted, repeats=self.repeats, kept=metric.kept)
        return Centre(found.place, found.stderr, found.spread, found.interval, partial(found.interval, target="respondents"))

    def _of_parts(self) -> Centre:
        """Estimate the mean from the shares of equal parts of the axis, each at its middle: it errs by half a part at most."""
        mechanism, kept, nan = self.declared.mechanism, self.declared.metric.kept, float("nan")
        assert isinstance(mechanism, FrequencyOracle)  # noqa: S101 - a number in parts has one
        shares = decode.estimate(mechanism, self.counted, repeats=self.repeats, kept=kept)
        found = order(mechanism, shares, repeats=self.repeats, kept=kept)
        if found is None:
            return Centre(nan, nan, nan, lambda _: (nan, nan), lambda _: (nan, nan))
        size = mechanism.domain_size

        def interval(level: float) -> tuple[float, float]:
            low, high = found.interval(level)
            return (low - 1) / size, high / size

        stderr = found.stderr / size
        shared = stderr**2 * self.n / (1 + self.repeats)  # responses are kept: at most all of it
        return Centre((found.mean - 0.5) / size, stderr, shared, interval, interval)

    @cached_property
    def spread(self) -> Distribution | None:
        """The distribution of a number; None without reports. The fit is slow, so it is remembered."""
        declared, metric = self.declared, self.declared.metric
        places = [metric.axis.share(value) for value in metric.step_values] if metric.axis else []

        def fit() -> Distribution | None:
            return distribution(declared.mechanism, self.counted, repeats=self.repeats, kept=metric.kept, values=places)

        # A step is in no fingerprint.
        return once(("distribution", declared.fingerprint, self.repeats, metric.step), self.counted, fit)


def read(app: Collection, selections: Sequence[Selection]) -> list[Reading]:
    """Read some selections, in one trip to the store."""
    layouts = {stratum: each.declared.layout for each in selections for stratum in each.releases}
    tallies = dict(zip(layouts, app.store.releases.some(list(layouts.values()), list(layouts)), strict=True))

    def counted(selection: Selection) -> Tally:
        some = [tallies[stratum] for stratum in selection.releases]
        return tally.merge(*some) if some else tally.empty(selection.declared.layout)

    return [Reading(each.declared, counted(each), each.periods) for each in selections]


def together(readings: Sequence[Reading]) -> Reading:
    """Return one reading of several, which are of one version and of different periods."""
    periods = {period: n for each in readings for period, n in each.periods.items()}
    return Reading(readings[0].declared, tally.merge(*(each.counted for each in readings)), periods)
