"""Removal of an app: everything about all of its metrics, what waits, its keys and its state are deleted for good.

Three things stay, because erasing an app must not undo them: the audit log, what analysts have spent on questions, and which
metrics were erased. With them stays the number of partitions, by which they are found. What expires within days is left to it:
remembered uploads, whose key is deleted, limits, and sessions, which end with their key.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from deniable_aggregator.deletion.erase import Removal
from deniable_aggregator.store import schema
from deniable_aggregator.store.uploads import refused_reports
from deniable_aggregator.store.uploads.dead_letters import DeadLetters

if TYPE_CHECKING:
    from collections.abc import Iterable

    from deniable_aggregator.store import Store

_STATE = (
    *(schema.REPORTS, schema.DEAD, schema.SEEN_SECRET, schema.SEEN_HOUR),
    *(schema.ARCHIVE, schema.RECOUNTED, schema.WATCHED, schema.CAUGHT),
    *(schema.REDO, schema.FAULTS, schema.LATEST, schema.KEYS, schema.KEYS_USED, schema.AUDIT_SERVED, schema.SIMULATED),
    *(schema.COPIED_AT, schema.HISTORY),
)


@dataclass(frozen=True, slots=True)
class AppPlan:
    """The data that a removal of an app deletes."""

    metrics: dict[str, int]  # number of keys, and of fields in other keys, of each metric
    waiting: int  # batches that wait to be counted
    letters: int  # dead letters
    keys: int  # keys that people and devices have

    def __bool__(self) -> bool:
        """Return whether there is anything."""
        return bool(self.metrics or self.waiting or self.letters or self.keys)


class AppRemoval:
    """Removes an app."""

    def __init__(
        self,
        store: Store,  # the app's
        declared: Iterable[str] = (),  # metrics that a registry declares; others are those that a worker's registry ever had
    ) -> None:
        self._store, self._declared = store, frozenset(declared)
        self._refused = refused_reports.stored(store)

    def find(self) -> AppPlan:
        """Find the data to delete, without changing anything."""
        held = {metric: Removal(self._store, metric).find(letters=()).keys for metric in sorted(self._metrics())}
        return AppPlan(
            {metric: keys for metric, keys in held.items() if keys},
            self._store.backlog(),
            len(DeadLetters(self._store)),
            len(self._store.table(schema.KEYS).all()),
        )

    def sweep(self) -> None:
        """Delete all of it. If the store fails, the next sweep deletes the remainder."""
        metrics = self._metrics()
        self._store.shared_table(schema.KEYS_APPS).drop(*self._store.table(schema.KEYS).all())
        # What waits goes first, so that nothing is counted meanwhile.
        for keys in self._state().values():
            self._store.delete(keys)
        for metric in sorted(metrics):
            Removal(self._store, metric).sweep()
        for table in self._refused:
            table.drop(*table.names())

    def _metrics(self) -> set[str]:
        """Return the names of all metrics that the store has anything of."""
        tables = [self._store.alarms, self._store.published, *self._refused]
        tables += [table for each in self._store.partitions for table in (each.expired, each.published)]
        named = {_metric(field) for table in tables for field in table.names()}
        return (named | self._store.metrics.all() | self._declared) - {""}

    def _state(self) -> dict[str, list[str]]:
        """Return the keys of the app that are of no metric, by the app or partition whose place they have."""
        keys: defaultdict[str, list[str]] = defaultdict(list)
        for name in dict.fromkeys([self._store.app, *(each.name for each in self._store.partitions)]):
            keys[name] += [kind.of(name) for kind in _STATE]
        return keys


def _metric(field: bytes) -> str:
    return field.decode().partition("|")[0]
