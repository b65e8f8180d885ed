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
from deniable_aggregator.publish import release
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
TRIAL_SECONDS = 2.0
"""The same for a trial."""

_ON_THE_WAY = 10  # seconds after which an accepted upload has been appended, or was answered with an error
_PATIENCE = 16  # a period is checked again after this part of the time that it has been counted for


class _Looks(NamedTuple):
    """The times of the first and the next look at an open period."""

    first: float
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
        self._store = store
        self._early, self._trial = registry.publication.early, registry.publication.trial
        self._actor, self._faults = actor, faults or Faults(store)
        self._looked: dict[Stratum, _Looks] = {}
        self._waiting: dict[Definition, list[Stratum]] = {}  # by definition
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
        """Publish what is due.

        Returns
        -------
        list of Stratum
            The releases made or extended, by cell.
        """
        drained = self.drained(now)
        made: list[Stratum] = []
        for version in self._versions:
            with self._faults.alone("publisher", version.declared.name):
                made += self._published(version, now, drained)
        return made

    @property
    def waiting(self) -> Collection[Stratum]:
        """Closed periods that wait for more reports."""
        return [whole for wholes in self._waiting.values() for whole in wholes]

    def _published(self, version: Version, now: float, drained: float) -> list[Stratum]:
        """Publish what is due of a version, period by period; closed ones with too few reports join later ones."""
        made: list[Stratum] = []
        commits = self._store.settled(version.metric.id)
        if commits is None:  # a part of a commit must not be published
            return made
        metric, definition = version.metric, version.declared.definition
        least = 1 if self._trial else metric.min_reports
        summary = release.summary(self._store, definition)
        last = summary.closed
        leaves: dict[str, Stored] = {}  # of closed periods that wait
        waiting: list[Stratum] = []
        for each in self._periods(version, last, commits):
            whole, step = each.whole, None
            note = (each.known or Release(first=whole.period)).added(now)
            if metric.closes(whole.period).timestamp() + _ON_THE_WAY < drained:
                if not self._sealed(each, summary.open):
                    return made
                # Kept responses are copies of one answer: over several periods the same few devices would pass for more.
                leaves = each.leaves({} if metric.kept else leaves)
                first = note.first if metric.kept else _after(last, metric.period)
                step = each.last(leaves, replace(note, first=first, closed=True), least)
                waiting.append(whole)
                if step:
                    leaves, waiting, last = {}, [], whole.period
            elif self._trial:
                step = each.all_of_it(note)
            elif not metric.segments and self._due(whole):
                step = each.early(note)
            if step and self._write(each, step):
                log.info("published %s of %s, number %d", whole.metric, whole.period, note.number)
                made += step.cells
        self._waiting[definition] = waiting
        return made

    def _periods(self, version: Version, last: str, commits: int) -> list[Period]:
        """Return the periods of a version after the last closed one."""
        strata = strata_by_period(self._store, version.declared.definition)
        wholes = [whole for whole in strata if whole.period > last]
        known = release.noted(self._store, wholes)
        return [Period(self._store, version, whole, strata[whole], known.get(whole), commits) for whole in wholes]

    def _sealed(self, each: Period, first_open: str) -> bool:
        """Seal a closed period, unless it is sealed or is never joined with others; return whether it may be read."""
        metric, last = each.version.metric, each.whole.period
        if metric.kept or last < first_open:
            return True
        return self._store.seal(each.version.declared.definition, _after(last, metric.period))

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

    def _due(self, whole: Stratum) -> bool:
        """Return whether to check an open period. A quarter more reports takes about a quarter of its time so far."""
        now = time.monotonic()
        first, at = self._looked.get(whole, (now, 0.0))
        if not self._early or now < at:
            return False
        self._looked[whole] = _Looks(first, now + (now - first) / _PATIENCE)
        return True

    def _write(self, each: Period, step: Step) -> bool:
        """Publish all cells at one moment, with an entry in the audit log, unless another worker was faster."""
        if not each.settled():
            return False
        whole, known, first = each.whole, each.known, step.cells[each.whole].note
        shelf = self._store.releases
        kept = [self._store.snapshots.key(name(whole)), self._audit.key, self._store.published.key]
        state = [name(whole), known.note() if known else ""]
        staged = [cell.content for cell in step.cells.values()]
        fields: list[str | int] = []
        for (stratum, cell), content in zip(step.cells.items(), staged, strict=True):
            fields += [len(content), name(stratum), cell.note.note()]
        if step.snapshot:
            staged.append(written(step.snapshot.cells))
            fields.append(len(staged[-1]))
        more = first.n - (known.n if known else 0)
        summed = [name(whole[:3]), more, whole.period, int(first.closed), first.published]
        told: dict[str, str | int] = {"metric": whole.metric, "version": whole.version, "period": whole.period, "segment": ""}
        with self._store.staging.strings(staged) as places:
            pairs = zip(places, (shelf.key(name(stratum)) for stratum in step.cells), strict=False)
            index = schema.RELEASES.of(self._store.app, whole.metric)
            keys = [index, *kept, *chain.from_iterable(pairs), *places[len(step.cells) :]]
            entry = self._audit.append(
                "release.published",
                self._actor,
                told | {"number": first.number, "closed": int(first.closed)},
                along=lambda seen, line: self._publish(keys, [*state, seen, line, *summed, *fields]),
            )
        return entry is not None


def _after(last: str, length: str) -> str:
    """Return the period after the last one that was published, if any."""
    return period.of(period.bounds(last, length)[1], length) if last else ""
