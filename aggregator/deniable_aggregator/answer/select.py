"""Which releases a question is about. Nothing here reads a tally: the index of releases is enough.

There are two rules of time. `Published.covering` finds the release that holds a period, also where that release joins several
periods. `Published.between` finds the releases whose last period lies in a range, so that no report is in two rows of a table.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from hashlib import sha256
from math import inf
from threading import Lock
from typing import TYPE_CHECKING, Literal, NamedTuple

from deniable.messages.plural import plural
from deniable.registry import OTHER
from deniable_aggregator.answer.model.fields import Span, days_of
from deniable_aggregator.answer.refusal import check_period, read_cell, withheld
from deniable_aggregator.publish import definitions, release
from deniable_aggregator.publish.breakdown import Breakdown

if TYPE_CHECKING:
    from collections.abc import Collection as Some
    from collections.abc import Iterable, Mapping, Sequence

    from deniable.declared import Declared, Definition
    from deniable.wire.report import Stratum
    from deniable_aggregator.answer.app import AppMetrics
    from deniable_aggregator.answer.model.fields import Days
    from deniable_aggregator.publish.release import Release

State = Literal["published", "joined", "withheld", "missing"]

_MOST_KEPT = 50_000  # releases, about 40 MB
_lock = Lock()


class Selection(NamedTuple):
    """Releases of one cell of one version, of which something is estimated together."""

    app: AppMetrics
    declared: Declared
    releases: Mapping[Stratum, Release]  # by their last period, in order

    @property
    def n(self) -> int:
        """Their reports."""
        return sum(note.n for note in self.releases.values())

    @property
    def closed(self) -> bool:
        """Whether there are any, and nothing more will be published for them."""
        return bool(self.releases) and all(note.closed for note in self.releases.values())

    @property
    def last(self) -> str:
        """The last period of the last one."""
        return max(stratum.period for stratum in self.releases)

    @property
    def until(self) -> str:
        """The last period that is closed; the last one if none is."""
        return max((stratum.period for stratum, note in self.releases.items() if note.closed), default=self.last)

    @property
    def spans(self) -> list[Span]:
        """The periods that each covers."""
        return [_span(self.app, stratum.period, note) for stratum, note in self.releases.items()]

    @property
    def days(self) -> Days | None:
        """The days that they cover; None if there are none."""
        return days_of(self.spans, self.declared.metric.period)

    @property
    def updated(self) -> datetime | None:
        """The hour of the last of them; None if there are none."""
        return max((moment(note.published) for note in self.releases.values()), default=None)

    @property
    def periods(self) -> dict[str, float]:
        """How many reports each period has, as far as it is published."""
        metric = self.declared.metric
        least = 1 if self.app.trial else inf if self.declared.mechanism.part else metric.min_reports
        return release.by_period(self.releases, metric.period, least)

    @property
    def by_last(self) -> dict[str, Selection]:
        """Each release alone, by its last period."""
        return {stratum.period: self._replace(releases={stratum: note}) for stratum, note in self.releases.items()}

    def covers(self, period: str) -> bool:
        """Return whether one of them covers a period."""
        return any(_covers(self.app, stratum.period, note, period) for stratum, note in self.releases.items())

    def within(self, names: Some[str]) -> Selection:
        """Return those whose last period is one of these."""
        return self._replace(releases={stratum: note for stratum, note in self.releases.items() if stratum.period in names})


@dataclass(frozen=True, eq=False)
class Published:
    """What was published of one version of a metric, under the definition that the registry has now."""

    app: AppMetrics
    declared: Declared
    cells: Mapping[str, Mapping[str, tuple[Stratum, Release]]]  # by cell, then by last period
    earlier: Sequence[Published] = ()  # under other definitions of the same version, which the registry had before

    @classmethod
    def of_each(cls, app: AppMetrics, versions: Sequence[Declared]) -> list[Published]:
        """Look up some versions of one metric, in one trip to the store."""
        metric = versions[0].metric.id
        records = release.records(app.store, metric)
        with _lock:
            known: Lookup | None = app.lookups.get(metric)
        if known and known.is_of(versions) and known.records == records:
            _keep(app, metric, known)
            return list(known.published)
        by_definition: dict[Definition, dict[str, dict[str, tuple[Stratum, Release]]]] = {
            each.definition: {} for each in versions
        }
        # Releases of an earlier definition of the same version are not mixed with those of the present one.
        others: dict[Definition, dict[str, dict[str, tuple[Stratum, Release]]]] = {}
        numbers = {each.metric.version for each in versions}
        for stratum, note in release.read(records).items():
            cells = by_definition.get(stratum[:3])
            if cells is None and stratum.version in numbers:
                cells = others.setdefault(stratum[:3], {})
            if cells is not None:
                cells.setdefault(stratum.segment, {})[stratum.period] = (stratum, note)
        before = {
            declared.definition: cls(app, declared, others[declared.definition])
            for declared in (definitions.noted(app.store, app.registry, others) if others else ())
        }
        published = [
            cls(app, each, by_definition[each.definition], _latest_first(before, each.metric.version)) for each in versions
        ]
        if not others:  # of earlier definitions the store may learn more
            _keep(app, metric, Lookup(records, published))
        return published

    @property
    def length(self) -> str:
        """The length of its periods."""
        return self.declared.metric.period

    @property
    def spans(self) -> list[Span]:
        """The periods that each release of any cell covers."""
        return [_span(self.app, last, note) for cells in self.cells.values() for last, (_, note) in cells.items()]

    @cached_property
    def breakdown(self) -> Breakdown:
        """The segments of the metric."""
        return Breakdown.of(self.app.registry, self.declared.metric)

    @cached_property
    def names(self) -> frozenset[str]:
        """The last periods of the releases of any cell."""
        return frozenset(last for releases in self.cells.values() for last in releases)

    @cached_property
    def digest(self) -> str:
        """A text that changes with every release."""
        records = [
            (cell, last, note.number, note.published, note.closed, note.first, note.n)
            for cell, releases in sorted(self.cells.items())
            for last in sorted(releases)
            for _, note in [releases[last]]
        ]
        return sha256(repr(records).encode()).hexdigest()

    def sealed(self) -> Published:
        """Return the releases for which nothing more will be published, of the definition that the registry has now."""
        cells = {cell: {name: pair for name, pair in each.items() if pair[1].closed} for cell, each in self.cells.items()}
        return replace(self, cells={cell: each for cell, each in cells.items() if each}, earlier=())

    def cell(self, text: str | None) -> str:
        """Return a cell with its segments in the metric's order; without a text, the cell of all reports."""
        return read_cell(self.breakdown, text or "")

    def covering(self, cell: str, period: str | None = None) -> Selection:
        """Select the releases of a cell that cover a period, or all; raise `WithheldCell` if only other cells are published."""
        if period is not None:
            check_period(self.declared.metric, period)
        releases = self.cells.get(cell, {})
        selected = [
            releases[last] for last in sorted(releases) if period is None or _covers(self.app, last, releases[last][1], period)
        ]
        # A cell with few reports and one without any are refused alike. Where no cell is published, and in a trial, which
        # withholds nothing, the answer is empty.
        if not selected and not self.app.trial and (others := self.covered(period)):
            raise withheld(self.declared, self.breakdown, cell, others)
        return Selection(self.app, self.declared, dict(selected))

    def within(self, cell: str, first: str, last: str) -> Selection:
        """Select the releases of a cell between two periods; raise `WithheldCell` if only other cells are published there."""
        selection = self.between(cell, first, last)
        published = {each for each, releases in self.cells.items() if any(first <= name <= last for name in releases)}
        if not selection.releases and published and not self.app.trial:
            raise withheld(self.declared, self.breakdown, cell, published)
        return selection

    def overall(self, period: str | None = None) -> Selection:
        """Select the releases of all reports that cover a period, or all; none where the period is not one of its own."""
        releases = self.cells.get("", {})
        names = [last for last in sorted(releases) if period is None or _covers(self.app, last, releases[last][1], period)]
        return Selection(self.app, self.declared, dict(releases[last] for last in names))

    def covered(self, period: str | None = None) -> set[str]:
        """Name the cells with a release that covers a period; without a period, with any."""
        if period is None:
            return set(self.cells)
        return {
            cell
            for cell, each in self.cells.items()
            if any(_covers(self.app, last, note, period) for last, (_, note) in each.items())
        }

    def withheld(self, period: str | None = None) -> list[str]:
        """Name the declared values of segments that no release covers in a period, or in any, where one of other cells does."""
        covered = self.covered(period)
        if not covered or self.app.trial:
            return []
        values = [f"{name}={word}" for name in self.breakdown.names for word in self.breakdown.words_of(name) if word != OTHER]
        return [cell for cell in values if cell not in covered]

    def between(self, cell: str, first: str, last: str) -> Selection:
        """Select the releases of a cell whose last period lies between two periods, which are in it, too."""
        releases = self.cells.get(cell, {})
        names = [first] if first == last and first in releases else sorted(name for name in releases if first <= name <= last)
        return Selection(self.app, self.declared, dict(releases[name] for name in names))

    def state(self, cell: str, name: str) -> State:
        """Say what became of a cell in a period."""
        if name in self.cells.get(cell, {}):
            return "published"
        if any(_covers(self.app, last, note, name) for last, note in self._joining.get(cell, ())):
            return "joined"
        return "withheld" if name in self.names and not self.app.trial else "missing"

    @cached_property
    def _joining(self) -> Mapping[str, Sequence[tuple[str, Release]]]:
        """The releases of each cell that cover several periods, each with its last one."""
        return {
            cell: [(last, note) for last, (_, note) in releases.items() if note.first != last]
            for cell, releases in self.cells.items()
        }


class Lookup(NamedTuple):
    """What was published of some versions of a metric, by what the index said."""

    records: Mapping[bytes, bytes]
    published: Sequence[Published]

    def is_of(self, versions: Sequence[Declared]) -> bool:
        """Return whether it is of these versions, in this order."""
        own = [each.declared for each in self.published]
        return len(own) == len(versions) and all(each is other for each, other in zip(own, versions, strict=True))


def _keep(app: AppMetrics, metric: str, lookup: Lookup) -> None:
    """Keep a lookup, so that the index is read anew only when it says something else. Those asked for last stay."""
    with _lock:
        app.lookups.pop(metric, None)
        app.lookups[metric] = lookup
        while len(app.lookups) > 1 and sum(len(each.records) for each in app.lookups.values()) > _MOST_KEPT:
            del app.lookups[next(iter(app.lookups))]


def _latest_first(before: Mapping[Definition, Published], version: int) -> list[Published]:
    """Return what was published under earlier definitions of a version, the latest first."""
    return sorted((cells for of, cells in before.items() if of[1] == version), key=lambda cells: max(cells.names), reverse=True)


def earlier_says(selection: Selection) -> str:
    """Say what releases under an earlier definition are."""
    return f"published under an earlier definition of version {selection.declared.metric.version} (until {selection.until})"


def earlier_in_words(published: Iterable[Published]) -> list[str]:
    """Say what was published of all reports under earlier definitions of some versions, the latest first."""
    selections = [before.overall() for version in published for before in version.earlier]
    return [
        f"{selection.declared.metric.id}: {plural(selection.n, 'report')} {earlier_says(selection)}"
        for selection in selections
        if selection.releases
    ]


def state(versions: Iterable[tuple[Published, str]], name: str) -> State:
    """Say what became of a cell in a period, which each version names in its own way."""
    states: set[State] = {version.state(cell, name) for version, cell in versions}
    order: tuple[State, ...] = ("published", "joined", "withheld")
    return next((each for each in order if each in states), "missing")


def state_of(app: AppMetrics, versions: Iterable[Published]) -> str:
    """Return a text that changes with every release of some versions, and with the registry."""
    # The registry names files of candidates, and its digest does not tell what they contain.
    fields = sorted(
        (each.declared.definition, each.declared.candidates, each.digest)
        for version in versions
        for each in (version, *version.earlier)
    )
    return sha256(repr((app.name, app.registry.digest, app.simulated, fields)).encode()).hexdigest()[:16]


def _span(app: AppMetrics, last: str, note: Release) -> Span:
    # In a trial no period waits for others, so that the first release is of its own period, too.
    return Span(note.first or (last if app.trial else None), last)


def _covers(app: AppMetrics, last: str, note: Release, period: str) -> bool:
    return (_span(app, last, note).first or "") <= period <= last


def moment(seconds: int) -> datetime:
    """Return a Unix time as it is answered."""
    return datetime.fromtimestamp(seconds, UTC)
