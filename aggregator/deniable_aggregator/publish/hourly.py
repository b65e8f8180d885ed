"""Hourly copies of the exact sums: all that administrators see of reports that are in no release.

Sums change with each report. Two looks at them, a report apart, would show that report. So administrators see copies. All copies
of an app are made in one pass after each full hour, by one worker. Sums that can no longer change need no copy: those of sealed
periods.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from deniable.declared import Declared
from deniable_aggregator.publish import release
from deniable_aggregator.publish.timetable import Pass
from deniable_aggregator.store import schema
from deniable_aggregator.store.server.room import COUNTING, Room
from deniable_aggregator.store.sums import tallies
from deniable_aggregator.store.sums.tallies import Stored
from deniable_aggregator.store.uploads import refused_reports

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from deniable.registry import Registry
    from deniable.wire.layout import Layout
    from deniable.wire.report import Stratum
    from deniable_aggregator.store import Partition, Store
    from deniable_aggregator.tally import Tally

EVERY_SECONDS = 60.0
"""Seconds between looks whether an hour has passed."""

_HOUR, _LEAST = 3600, 3300  # seconds between two passes, at least; after it the next one comes at a full hour
_SEALED, _DROPPED = "sealed", ""  # nothing more can come; nothing more can come, and the copy was deleted


class Hourly:
    """The exact sums of an app as they were when they were last copied."""

    def __init__(
        self,
        store: Store,  # the app's
    ) -> None:
        self._store = store
        self._room = Room(COUNTING)

    # Reading

    def strata(self, metric: str) -> dict[Stratum, int]:
        """Return every stratum of a metric that has a copy or is sealed, each with 0."""
        return {tallies.stratum(name): 0 for partition in self._store.partitions for name in _noted(partition, metric)}

    def sums(self, layout: Layout, strata: Sequence[Stratum]) -> list[Stored]:
        """Read the copies of some strata of one layout, or the sums of sealed ones, empty where there is none."""
        parts = [self._of_partition(partition, layout, strata) for partition in self._store.partitions]
        return [reduce(Stored.plus, sums) for sums in zip(*parts, strict=True)]

    def read(self, layout: Layout, strata: Sequence[Stratum]) -> Tally:
        """Read and merge the copies of some strata of one layout."""
        return tallies.total(layout, self.sums(layout, strata))

    @staticmethod
    def _of_partition(partition: Partition, layout: Layout, strata: Sequence[Stratum]) -> list[Stored]:
        noted = {name: hour for metric in {each.metric for each in strata} for name, hour in _noted(partition, metric).items()}
        names = [tallies.name(stratum) for stratum in strata]
        keys = [
            (schema.TALLY if noted.get(name) in (_SEALED, _DROPPED) else schema.COPY).of(partition.name, name) for name in names
        ]
        return partition.tallies.of_keys([layout] * len(strata), keys)

    # Copying

    def run(self, registry: Registry) -> None:
        """Copy what has changed, unless this was done within this hour. What could not be copied is tried again soon."""
        # A trial needs no copies: it shows everything at once.
        now = int(self._store.now())
        if registry.publication.trial:
            Pass(now, now, _number(self._store, registry)).note(self._store)
            return
        due = -(-(now + _LEAST) // _HOUR) * _HOUR
        if not self._store.claim(schema.COPIED, due):
            return
        complete = False
        try:
            copied = [self._copy(metric, now - now % _HOUR) for metric in sorted(registry.metrics)]
            refused_reports.copy(self._store, self._store.table(schema.REFUSALS))
            complete = all(copied)
            if complete:
                Pass(now - now % 60, due, _number(self, registry)).note(self._store)
        finally:
            if not complete:
                self._store.release(schema.COPIED)

    def _copy(self, metric: str, hour: int) -> bool:
        """Copy what has changed of a metric and was not copied in this hour; return False if it is to be tried again."""
        # While a commit is added in pieces, a copy could have only some of its sums.
        settled = self._store.settled(metric)
        if settled is None:
            return False
        notes = [
            {tallies.stratum(name): state for name, state in _noted(each, metric).items()} for each in self._store.partitions
        ]
        done = {stratum for noted in notes for stratum, state in noted.items() if state == str(hour)}
        for partition, noted in zip(self._store.partitions, notes, strict=True):
            strata = partition.strata(metric)
            sealed = self._sealed(strata)
            # The hour of a commit is by the clock of its worker, which may be slow: so one hour more counts as a change.
            due = [
                stratum
                for stratum, at in strata.items()
                if stratum not in sealed | done and at + _HOUR >= int(noted.get(stratum) or 0)
            ]
            if due:
                partition.check_room(self._room)
            partition.copy([tallies.name(stratum) for stratum in due], metric, hour)
            # A copy goes an hour after its stratum was sealed: who has read that there is one finds it.
            over = [tallies.name(stratum) for stratum in sealed if noted.get(stratum) == _SEALED]
            partition.drop_copies(over)
            states = {tallies.name(stratum): _SEALED for stratum in sealed if noted.get(stratum) not in (_SEALED, _DROPPED)}
            partition.copies(metric).put(states | dict.fromkeys(over, _DROPPED))
        return self._store.settled(metric) == settled

    def _sealed(self, strata: Iterable[Stratum]) -> set[Stratum]:
        """Return the strata to which nothing can be added any more."""
        first_open = {definition: release.summary(self._store, definition).open for definition in {each[:3] for each in strata}}
        return {stratum for stratum in strata if stratum.period < first_open[stratum[:3]]}


def _number(source: Store | Hourly, registry: Registry) -> int:
    """Count the reports of all metrics, by their sums or the copies."""
    number = 0
    for declared in map(Declared.of, registry.definitions):
        strata = [stratum for stratum in source.strata(declared.metric.id) if stratum[:3] == declared.definition]
        number += sum(counted.n for counted in source.sums(declared.layout, strata))
    return number


def _noted(partition: Partition, metric: str) -> dict[str, str]:
    """Return the hour in which each stratum of a metric was copied, or that it is sealed."""
    return {name.decode(): hour.decode() for name, hour in partition.copies(metric).all().items()}
