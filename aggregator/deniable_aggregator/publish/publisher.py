"""The publisher: makes releases of what was counted, when it is time to, in the worker.

A period is published when it closes: when its reports are taken no more, and none that was taken waits to be counted. If it has
fewer than `Metric.min_reports` reports it waits for the periods after it, and is published together with them. Before it is read
it is sealed (`Store.seal`): a report of it that comes later all the same counts in the next period, so none is lost. A metric
without segments is also published before, and lags: a *snapshot* is taken of what is counted, and published once
`Metric.min_reports` more reports, and a quarter of what is published already, have come after it; then the next one is taken.
So each step is of enough reports, and so is the last, at the close, which publishes all. What comes in between shows nowhere, but
in a trial.

A metric with segments is not: between a part of a period and a breakdown of all of it there would be too many differences to
watch.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING

from deniable.declared import Declared
from deniable.registry import period
from deniable_aggregator import tally
from deniable_aggregator.audit.log import AuditLog
from deniable_aggregator.counting.faults import Faults
from deniable_aggregator.publish import counted, release, suppression
from deniable_aggregator.publish.breakdown import Breakdown
from deniable_aggregator.publish.release import Release
from deniable_aggregator.publish.suppression.cube import Cube
from deniable_aggregator.store import health, schema
from deniable_aggregator.store.script import Script
from deniable_aggregator.store.tallies import name

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from deniable.declared import Definition
    from deniable.registry import Metric, Registry
    from deniable.wire.layout import Layout
    from deniable.wire.report import Stratum
    from deniable_aggregator.store import Store
    from deniable_aggregator.tally import Tally

__all__ = ["EVERY_SECONDS", "TRIAL_SECONDS", "Publisher"]

log = logging.getLogger("deniable.publisher")

EVERY_SECONDS = 60.0
"""Between looks at whether it is time to."""
TRIAL_SECONDS = 2.0
"""The same, where everything is published at once."""

_GROWTH = 4  # snapshots are at least one report apart for each so many that are published
_ON_THE_WAY = 10  # seconds after which an upload that was let in has been appended, or answered that it was not
_PATIENCE = 16  # a period that has been counted for so long is looked at again after this part of that time

_Releases = dict["Stratum", tuple[Release, "Tally"]]


@dataclass(frozen=True, slots=True)
class _Published:
    """A version of a metric, and the cells that it is published by."""

    declared: Declared
    breakdown: Breakdown

    @property
    def metric(self) -> Metric:
        return self.declared.metric

    @property
    def layout(self) -> Layout:
        return self.declared.layout


class Publisher:
    """Publishes one app.

    Parameters
    ----------
    store
        Where it is counted.
    registry
        What its metrics are, and how they are published.
    actor
        Who publishes, for the audit log.
    faults
        Where a metric that fails, alone, is noted.
    """

    def __init__(self, store: Store, registry: Registry, *, actor: str = "worker", faults: Faults | None = None) -> None:
        self._store = store
        self._released = store.releases
        self._early, self._trial = registry.publication.early, registry.publication.trial
        self._actor, self._faults = actor, faults or Faults(store)
        self._settled: int | None = None
        self._looked: dict[Stratum, tuple[float, float]] = {}  # when a period was first looked at, and when it is next
        self._waiting: dict[Definition, list[Stratum]] = {}  # by definition
        self._publish = Script(store.redis, "chain", "place", "publish")
        self._audit = AuditLog(store.redis, store.app)
        self._questions = [_Published(Declared.of(metric), Breakdown.of(registry, metric)) for metric in registry.definitions]

    def run(self) -> None:
        """Publish what is due now."""
        self.publish(self._store.now())

    def publish(self, now: float) -> list[Stratum]:
        """Publish what is due.

        Parameters
        ----------
        now
            Unix time in seconds.

        Returns
        -------
        list of Stratum
            What was published, or had reports added, by cell.
        """
        drained = self.drained(now)
        made: list[Stratum] = []
        for question in self._questions:
            with self._faults.alone("publisher", question.declared.name):
                self._settled = self._store.staging.settled(question.metric.id)
                if self._settled is not None:  # a part of a commit is published never
                    made += self._published(question, now, drained)
        return made

    @property
    def waiting(self) -> Collection[Stratum]:
        """Periods that are closed and wait for others, since too few reports came."""
        return [whole for wholes in self._waiting.values() for whole in wholes]

    def _published(self, question: _Published, now: float, drained: float) -> list[Stratum]:
        """Publish what is due of a version, one period after the other; closed ones of too few reports with those after."""
        made: list[Stratum] = []
        definition = question.declared.definition
        periods = counted.strata(self._store, definition)
        summary = release.summary(self._store, definition)
        last = summary.closed
        listed = release.noted(self._store, [whole for whole in periods if whole.period > last])
        leaves: dict[str, Tally] = {}  # of closed periods that wait
        waiting: list[Stratum] = []
        for whole, strata in periods.items():
            if whole.period <= last:
                continue
            known, snapshot = listed.get(whole), None
            note = (known or Release(first=whole.period)).added(now)
            if question.metric.closes(whole.period).timestamp() + _ON_THE_WAY < drained:
                if not self._sealed(question, whole, summary.open):
                    return made
                # Kept responses are copies of one answer: those of several periods would seem to be more than they are.
                leaves = self._leaves(question, strata, {} if question.metric.kept else leaves)
                if not question.metric.kept:
                    note = replace(note, first=_after(last, question.metric.period))
                releases = self._cells(question, whole, leaves, replace(note, closed=True))
                waiting.append(whole)
                if releases:
                    leaves, waiting, last = {}, [], whole.period
            elif self._trial:
                releases = self._cells(question, whole, self._leaves(question, strata, {}), note)
                if known and releases[whole][1] == self._released.read(question.layout, [whole]):
                    continue
            else:
                releases, snapshot = self._early_release(question, whole, strata, note)
            if releases and self._write(whole, known, releases, snapshot):
                log.info("published %s of %s, number %d", whole.metric, whole.period, note.number)
                made += releases
        self._waiting[definition] = waiting
        return made

    def _sealed(self, question: _Published, whole: Stratum, first_open: str) -> bool:
        """Seal a closed period unless it is, or joins no other one; tell whether it may be read."""
        if question.metric.kept or whole.period < first_open:
            return True
        return self._store.seal(question.declared.definition, _after(whole.period, question.metric.period))

    def unpublished(self) -> dict[Metric, int]:
        """Count the reports of each version of each metric that are in no release yet; only for who runs the service."""
        questions = [each.declared for each in self._questions]
        return {each.metric: counted.unpublished(self._store, each) for each in questions}

    def drained(self, now: float) -> float:
        """Return the Unix time up to which whatever was taken is counted."""
        felt = health.feel(self._store)
        if not felt.backlog:
            return now
        return now - felt.lag if felt.known and felt.lag is not None else 0.0

    def _due(self, whole: Stratum) -> bool:
        """Tell whether to look at an open period: a quarter more takes about a quarter of the time that it was counted."""
        now = time.monotonic()
        first, at = self._looked.get(whole, (now, 0.0))
        if not self._early or now < at:
            return False
        self._looked[whole] = first, now + (now - first) / _PATIENCE
        return True

    def _early_release(
        self, question: _Published, whole: Stratum, strata: Sequence[Stratum], note: Release
    ) -> tuple[_Releases, Tally | None]:
        """Publish the snapshot if enough has come after it; return it with the next one."""
        if question.metric.segments or not self._due(whole):
            return {}, None
        came, published = self._store.read(question.layout, strata), self._released.read(question.layout, [whole])
        snapshot = self._store.snapshots.read(question.layout, [whole])
        least = question.metric.min_reports
        there = snapshot.n - published.n >= least
        if came.n - (snapshot if there else published).n < max(least, published.n // _GROWTH):
            return {}, None
        if there:
            return {whole: (replace(note, n=snapshot.n), snapshot)}, came
        if self._still_settled(whole.metric):
            self._store.staging.replace(self._store.snapshots.key(name(whole)), _bytes(came))
        return {}, None

    def _leaves(self, question: _Published, strata: Sequence[Stratum], before: Mapping[str, Tally]) -> dict[str, Tally]:
        """Read what was counted of each finest cell, and add it to what there was before."""
        leaves = dict(before)
        for stratum, each in zip(strata, self._store.tallies.each(question.layout, strata), strict=True):
            leaf = question.breakdown.filed(stratum.segment)
            leaves[leaf] = tally.merge(leaves[leaf], each) if leaf in leaves else each
        return leaves

    def _cells(self, question: _Published, whole: Stratum, leaves: Mapping[str, Tally], note: Release) -> _Releases:
        """Release what was counted, as a whole and by segments, as far as that tells of few reports nowhere."""
        cube = Cube.of(question.breakdown, {leaf: each.n for leaf, each in leaves.items()})
        tallies = [leaves[question.breakdown.text(leaf)] for leaf in cube.leaves]
        least = 1 if self._trial else question.metric.min_reports
        cells = suppression.publishable(cube, least).cells
        if note.number > 1:  # what was published stays, also if min_reports was raised since
            cells |= {""}
        nothing, released = tally.empty(question.layout), _Releases()
        for cell in sorted(cells):
            counted = tally.merge(nothing, *(tallies[each] for each in cube.members(cell)))
            released[whole._replace(segment=cell)] = replace(note, n=counted.n), counted
        return released

    def _write(self, whole: Stratum, known: Release | None, releases: _Releases, snapshot: Tally | None) -> bool:
        """Publish all cells at once, and log it, unless another worker was quicker."""
        if not self._still_settled(whole.metric):
            return False
        shelf = self._released
        kept = [self._store.snapshots.key(name(whole)), self._audit.key, self._store.published.key]
        state = [name(whole), known.note() if known else ""]
        cells: list[str | int] = []
        staged = [_bytes(each) for each in (*(each for _, each in releases.values()), *([snapshot] if snapshot else []))]
        for (stratum, (note, _)), each in zip(releases.items(), staged, strict=False):
            cells += [len(each), name(stratum), note.note()]
        lengths = [len(each) for each in staged[len(releases) :]]
        first, _ = releases[whole]
        more = first.n - (known.n if known else 0)
        summed = [name(whole[:3]), more, whole.period, int(first.closed), first.published]
        told: dict[str, str | int] = {"metric": whole.metric, "version": whole.version, "period": whole.period, "segment": ""}
        with self._store.staging.strings(staged) as places:
            pairs = zip(places, (shelf.key(name(stratum)) for stratum in releases), strict=False)
            index = schema.RELEASES.of(self._store.app, whole.metric)
            keys = [index, *kept, *chain.from_iterable(pairs), *places[len(releases) :]]
            entry = self._audit.append(
                "release.published",
                self._actor,
                told | {"number": first.number, "closed": int(first.closed)},
                along=lambda seen, line: self._publish(keys, [*state, seen, line, *summed, *cells, *lengths]),
            )
        return entry is not None

    def _still_settled(self, metric: str) -> bool:
        """Tell whether what was read of a metric since the look at it began has no part of a commit."""
        return self._store.staging.settled(metric) == self._settled


def _after(last: str, length: str) -> str:
    """Name the period after the last one that was published, if any."""
    return period.of(period.bounds(last, length)[1], length) if last else ""


def _bytes(each: Tally) -> bytes:
    return each.cells.astype(">i8").tobytes()
