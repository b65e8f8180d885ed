"""The releases that a series shows, and those before them on which its shifts depend."""

from __future__ import annotations

from datetime import timedelta
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from deniable.registry import period
from deniable_aggregator.answer.measurement import Span
from deniable_aggregator.answer.published import by_period, releases_of
from deniable_aggregator.answer.refusal import Refusal, read_cell, withheld
from deniable_aggregator.answer.series.model import Told
from deniable_aggregator.decode.panel import repeats_of
from deniable_aggregator.inference.shift import MEMORY
from deniable_aggregator.publish.breakdown import Breakdown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from deniable.declared import Declared
    from deniable.wire.report import Stratum
    from deniable_aggregator.answer.collection import Collection
    from deniable_aggregator.publish.release import Release
    from deniable_aggregator.tally import Tally

_FEWEST, _MOST_PERIODS = 4, 100
_LISTED, _OPEN = 400_000, 20_000  # values over all periods that take no longer than a page may


class Released(NamedTuple):
    """A release of the cell asked for."""

    declared: Declared
    stratum: Stratum
    note: Release


class Estimated(NamedTuple):
    """What is estimated of a release."""

    released: Released
    at: int
    counted: Tally
    periods: Mapping[str, float]

    @property
    def repeats(self) -> float:
        """The effective number of reports of a device in it, at most."""
        return repeats_of(self.released.declared.metric, self.periods)


def read(app: Collection, several: Sequence[tuple[int, Released]]) -> list[Estimated]:
    """Read the tallies of some releases, each with its place in the series, in one trip to the store."""
    counted = app.store.releases.some([each.declared.layout for _, each in several], [each.stratum for _, each in several])
    return [
        Estimated(each, at, found, by_period(app, each.declared, {each.stratum: each.note}))
        for (at, each), found in zip(several, counted, strict=True)
    ]


def find(app: Collection, asked: Sequence[Declared], segment: str | None) -> tuple[dict[str, Released], set[str]]:
    """Return the releases of a cell by their last period, and the periods in which other cells are published."""
    found: dict[str, Released] = {}
    others: set[str] = set()
    refusal: Refusal | None = None
    for declared in reversed(asked):
        breakdown = Breakdown.of(app.registry, declared.metric)
        try:
            cell = read_cell(breakdown, segment or "")
        except Refusal as each:
            refusal = each
            continue
        published = releases_of(app, declared)
        chosen = {
            stratum.period: Released(declared, stratum, note) for stratum, note in published.items() if stratum.segment == cell
        }
        if published and not chosen:
            refusal = withheld(declared, breakdown, cell, {stratum.segment for stratum in published})
        # A metric's versions may have periods of other lengths, which are no part of one series.
        if declared.metric.period == asked[0].metric.period:
            found |= chosen
            others |= {stratum.period for stratum in published}
    if refusal and not found:
        raise refusal
    return found, others


def shown(current: Declared, found: Mapping[str, Released]) -> list[str]:
    """Return the last periods up to the last release, from the first release among them on."""
    metric, names = current.metric, list[str]()
    size = len(current.candidates) if metric.open else 1 if metric.axis else metric.domain_size
    most = (_OPEN if metric.open else _LISTED) // max(size, 1)
    most = min(max(most, _FEWEST), _MOST_PERIODS)
    if found:
        names = list(islice(_back(max(found), min(found), metric.period), most))
    names.reverse()
    return names[next((at for at, name in enumerate(names) if name in found), 0) :]


def _back(last: str, first: str, length: str) -> Iterator[str]:
    """Yield the names of periods, the last first."""
    while last >= first:
        yield last
        begins, _ = period.bounds(last, length)
        last = period.of(begins - timedelta(seconds=1), length)


def before(current: Declared, found: Mapping[str, Released], names: Sequence[str]) -> list[tuple[int, Released]]:
    """Return the closed releases before the periods shown on which their shifts depend, by their place before these."""
    if not names:
        return []
    earlier = islice(_back(names[0], min(found), current.metric.period), 1, None)
    there = ((-before, found[name]) for before, name in enumerate(earlier, 1) if name in found)
    mine = [(at, each) for at, each in there if each.declared is current and each.note.closed]
    return mine[MEMORY - 1 :: -1]


def told(name: str, found: Mapping[str, Released], others: set[str]) -> Told:
    """Say what there is of a period."""
    if name in found:
        declared, _, note = found[name]
        return Told(name, "published", Span(note.first or None, name), declared.metric.version, note.n, note.closed)
    if any(each.note.covers(last, name) for last, each in found.items()):
        return Told(name, "joined", None, None, 0, closed=True)
    return Told(name, "withheld" if name in others else "missing", None, None, 0, closed=False)
