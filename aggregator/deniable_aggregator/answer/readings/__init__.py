"""Readings by kind. `reading_of` is the only place that chooses a kind."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from deniable_aggregator import tally
from deniable_aggregator.answer.reading import Reading
from deniable_aggregator.answer.readings.number import NumberReading
from deniable_aggregator.answer.readings.options import OptionReading
from deniable_aggregator.answer.readings.shares import ShareReading
from deniable_aggregator.store.sums.tallies import total

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from deniable.declared import Declared
    from deniable_aggregator.answer.select import Selection
    from deniable_aggregator.tally import Tally

__all__ = ["NumberReading", "OptionReading", "ShareReading", "read", "reading_of", "together"]

R = TypeVar("R", bound=Reading)


def reading_of(declared: Declared, counted: Tally, periods: Mapping[str, float]) -> Reading:
    """Read a tally that is made of so many reports of each period."""
    if declared.metric.estimate:
        return NumberReading(declared, counted, periods)
    kind = OptionReading if declared.metric.kind.options else ShareReading
    return kind(declared, counted, periods)


def read(selections: Sequence[Selection]) -> list[Reading]:
    """Read selections of one app, in one trip to the store."""
    if not selections:
        return []
    # Of several selections with one release in common, its tally is read once.
    layouts = {stratum: each.declared.layout for each in selections for stratum in each.releases}
    sums = dict(zip(layouts, selections[0].app.store.releases.of_strata(list(layouts.values()), list(layouts)), strict=True))

    def counted(selection: Selection) -> Tally:
        return total(selection.declared.layout, (sums[stratum] for stratum in selection.releases))

    return [reading_of(each.declared, counted(each), each.periods) for each in selections]


def together(readings: Sequence[R]) -> R:
    """Return one reading of several, which are of one version and of different periods."""
    periods = {period: n for each in readings for period, n in each.periods.items()}
    return type(readings[0])(readings[0].declared, tally.merge(*(each.counted for each in readings)), periods)
