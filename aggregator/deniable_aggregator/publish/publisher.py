"""The publisher: a chore that makes releases of what was counted, when they are due.

A period is published when it closes: no more of its reports are accepted, and all accepted ones are counted. If it has fewer than
`Metric.min_reports` reports, it waits, and is published together with later periods. It is sealed before it is read
(`Store.seal`). A report that comes even later counts in the next period, so none is lost.

A metric without segments is also published before the close, with a lag. A *snapshot* is taken of what is counted. It is
published once `Metric.min_reports` more reports have come after it, and a quarter of what is published. Then the next one is
taken. So each step has enough reports, and so has the last one, at the close, which publishes all. What was counted in between is
never shown, except in a trial.

A metric with segments is published at the close only: differences between a part of a period and its breakdown would be too many
to check.
"""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from deniable.declared import Declared
from deniable.registry import period
from deniable_aggregator.audit.log import AuditLog
from deniable_aggregator.counting.faults import Faults
from deniable_aggregator.publish import definitions, release
from deniable_aggregator.publish.breakdown import Breakdown
from deniable_aggregator.publish.period import Period, Step, Version
from deniable_aggregator.publish.release import Release
from deniable_aggregator.publish.strata import strata_by_period, unpublished
from deniable_aggregator.store import schema
from deniable_aggregator.store.sums.tallies import name, written
from deniable_aggregator.store.uploads import health

if TYPE_CHECKING:
    from collections.abc import Collection

    from deniable.declared import Definition
    from deniable.registry import Registry
    from deniable.wire.report import Stratum
    from deniable_aggregator.store import Store
    from deniable_aggregator.store.sums.tallies import Stored

log = logging.getLogger("deniable.publisher")

EVERY_SECONDS = 60.0
"""Seconds between checks."""

_ON_THE_WAY = 10  # seconds after which an accepted upload has been appended, or was answered with an error
_PATIENCE = 16  # a period is checked again after this part of the time that it has been counted for


class _Looks(NamedTuple):
    """When an open period is looked at."""

    first: float  # by the monotonic clock
    next: float


class Publisher:
    """Publishes the reports of one app."""

    def __init__(
        self,
        store: Store,  # the app's store
        registry: Registry,  # its metrics, and the rules of their publication
        *,
        actor: str = "worker",  # actor for the audit log
        faults: Faults | None = None,  # records a metric that fails, while the others continue
    ) -> None:
        self._store, self._registry = store, registry
        self._early, self._trial = registry.publication.early, registry.publication.trial
        self._actor, self._faults = actor, faults or Faults(store)
        self._looked: dict[Stratum, _Looks] = {}
        self._waiting: dict[Definition, list[Stratum]] = {}  # by definition
        self._noted: set[Definition] = set()
        self._publish = store.script("chain", "place", "publish")
        self._audit = AuditLog(store)
        self._versions = [Version(Declared.of(metric), Breakdown.of(registry, metric)) for metric in registry.definitions]

    def run(self) -> None:
        """Publish what is due now."""
        self.publish(self._store.now())

    def publish(
        self,
        now: float,  # Unix time in seconds
    ) -> list[Stratum]:
        """Publish what is due; return the cells of which releases were made or extended."""
        drained = self.drained(now)
        releases: list[Stratum] = []
        for version in self._versions:
            with self._faults.alone("publisher", version.declared.name):
                releases += self._published(version, now, drained)
        return releases

    @property
    def waiting(self) -> Collection[Stratum]:
        """Closed periods that wait for more reports."""
        return [stratum for strata in self._waiting.values() for stratum in strata]

    def _published(self, version: Version, now: float, drained: float) -> list[Stratum]:
        """Publish what is due of a version. Closed periods with too few reports wait, and join later ones."""
        releases: list[Stratum] = []
        commits = self._store.settled(version.metric.id)
        if commits is None:  # a part of a commit must not be published
            return releases
        metric, definition = version.metric, version.declared.definition
        least = 1 if self._trial else metric.min_reports
        summary = release.summary(self._store, definition)
        last = summary.closed
        leaves: dict[str, Stored] = {}  # of closed periods that wait
        waiting: list[Stratum] = []
        for current in self._periods(version, last, commits):
            stratum, step = current.stratum, None
            note = (current.known or Release(first=stratum.period)).added(now)
            # All reports that were accepted while the period was open are counted: none is in a request or in the stream any
            # more.
            if metric.closes(stratum.period).timestamp() + _ON_THE_WAY < drained:
                if not self._sealed(current, summary.open):
                    return releases
                # Permanent responses are copies of one answer: over several periods the same few devices would pass for more.
                leaves = current.leaves({} if metric.permanent else leaves)
                first = note.first if metric.permanent else _after(last, metric.period)
                step = current.last(leaves, replace(note, first=first, closed=True), least)
                waiting.append(stratum)
                if step:
                    leaves, waiting, last = {}, [], stratum.period
            elif self._trial:
                step = current.all_of_it(note)
            elif not metric.segments and self._due(stratum):
                step = current.early(note)
            if step and self._write(current, step):
                log.info("published %s of %s, number %d", stratum.metric, stratum.period, note.number)
                releases += step.cells
        self._waiting[definition] = waiting
        return releases

    def _periods(self, version: Version, last: str, commits: int) -> list[Period]:
        """Return the periods of a version after the last closed one."""
        counted = strata_by_period(self._store, version.declared.definition)
        later = [stratum for stratum in counted if stratum.period > last]
        known = release.noted(self._store, later)
        return [Period(self._store, version, stratum, counted[stratum], known.get(stratum), commits) for stratum in later]

    def _sealed(self, current: Period, first_open: str) -> bool:
        """Seal a closed period, unless it is sealed or its metric joins no periods; return whether it may be read."""
        metric, last = current.version.metric, current.stratum.period
        if metric.permanent or last < first_open:
            return True
        return self._store.seal(current.version.declared.definition, _after(last, metric.period))

    def unpublished(self) -> list[tuple[Declared, int]]:
        """Count the reports of each version of each metric that are in no release yet; for administrators only."""
        declared = [each.declared for each in self._versions]
        return [(each, unpublished(self._store, each)) for each in declared]

    def drained(self, now: float) -> float:
        """Return the Unix time up to which every accepted batch is counted."""
        state = health.read(self._store)
        if not state.backlog:
            return now
        return now - state.lag if state.known and state.lag is not None else 0.0

    def _due(self, stratum: Stratum) -> bool:
        """Return whether to check an open period now."""
        # A step needs a quarter more reports, which take about a quarter of the period's time so far. A sixteenth is soon enough.
        now = time.monotonic()
        first, at = self._looked.get(stratum, (now, 0.0))
        if not self._early or now < at:
            return False
        self._looked[stratum] = _Looks(first, now + (now - first) / _PATIENCE)
        return True

    def _write(self, current: Period, step: Step) -> bool:
        """Publish all cells at one moment, with an entry in the audit log, unless another worker was faster."""
        if not current.settled():
            return False
        declared = current.version.declared
        if declared.definition not in self._noted:
            definitions.note(self._store, self._registry, declared)  # before the release, which cannot be read without
            self._noted.add(declared.definition)
        stratum, known, first = current.stratum, current.known, step.cells[current.stratum].note
        first_keys = [self._store.snapshots.key(name(stratum)), self._audit.key, self._store.published.key]
        state = [name(stratum), known.note() if known else ""]
        staged = [released.content for released in step.cells.values()]
        fields: list[str | int] = []
        for (cell, released), content in zip(step.cells.items(), staged, strict=True):
            fields += [len(content), name(cell), released.note.note()]
        if step.snapshot:
            staged.append(written(step.snapshot.cells))
            fields.append(len(staged[-1]))
        more = first.n - (known.n if known else 0)
        summed = [name(stratum[:3]), more, stratum.period, int(first.closed), first.published]
        details: dict[str, str | int] = {
            "metric": stratum.metric,
            "version": stratum.version,
            "period": stratum.period,
            "segment": "",
        }
        with self._store.staging.strings(staged) as places:
            # Large tallies were stored in pieces. The script moves them to their places, unless the release is not in the `state`
            # that was read: then another worker was faster.
            pairs = zip(places, (self._store.releases.key(name(cell)) for cell in step.cells), strict=False)
            index = schema.RELEASES.of(self._store.app, stratum.metric)
            keys = [index, *first_keys, *chain.from_iterable(pairs), *places[len(step.cells) :]]
            entry = self._audit.append(
                "release.published",
                self._actor,
                details | {"number": first.number, "closed": int(first.closed)},
                along=lambda seen, line: self._publish(keys, [*state, seen, line, *summed, *fields]),
            )
        return entry is not None


def _after(last: str, length: str) -> str:
    """Return the period after the last one that was published, if any."""
    return period.of(period.bounds(last, length)[1], length) if last else ""
