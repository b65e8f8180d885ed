"""Removal: everything about a metric, or about one of its versions, is deleted from the store for good.

First the erasure is recorded under a digest, so that the record does not name the metric. The record of a metric is its highest
version: this version and all before it are erased. From then on no report of them is counted, neither of a batch that waits nor a
later one. Then their data are deleted. Another process may be writing at that moment, so workers with the registry search again
every hour (`deniable_aggregator.deletion.retention`).
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha1
from typing import TYPE_CHECKING

from deniable_aggregator.store import schema
from deniable_aggregator.store.sums.holdings import COUNTED, INDEXES, Holdings
from deniable_aggregator.store.uploads import batch, latest_reports, refused_reports
from deniable_aggregator.store.uploads.dead_letters import DeadLetters

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from deniable.wire.report import Stratum
    from deniable_aggregator.store import Store
    from deniable_aggregator.store.uploads.dead_letters import DeadLetter
    from deniable_aggregator.store.values.collections import Table


@dataclass(frozen=True, slots=True)
class ErasePlan:
    """The data that a removal deletes."""

    versions: tuple[int, ...]  # versions of the metric with data
    periods: int  # their number
    keys: int  # number of keys, and of fields in other keys
    letters: tuple[str, ...]  # ids of the dead letters with reports of it


class Erased:
    """The erased metrics of an app."""

    def __init__(
        self,
        marks: Mapping[bytes, bytes],  # content of the store's table
    ) -> None:
        self._marks = marks

    def __bool__(self) -> bool:
        """Return whether anything was erased."""
        return bool(self._marks)

    def has(self, metric: str, version: int) -> bool:
        """Return whether a version of a metric was erased."""
        highest = self._marks.get(_digest(metric).encode())
        return _digest(metric, version).encode() in self._marks or (highest is not None and version <= int(highest))


class Removal:
    """Removes a metric of an app."""

    def __init__(
        self,
        store: Store,  # the app's
        metric: str,  # its id; it need not be in the registry
        version: int | None = None,  # the only version to remove, or None for all
    ) -> None:
        self._store, self._metric, self._version = store, metric, version

    def find(
        self,
        letters: Iterable[DeadLetter] | None = None,  # the dead letters to look through; None for all
    ) -> ErasePlan:
        """Find the data to delete, without changing anything."""
        held = Holdings(self._store, self._metric)
        strata = set(filter(self._matches, held.strata(*INDEXES)))
        letters = DeadLetters(self._store) if letters is None else letters
        letters = [letter for letter in letters if self._changed(letter) is not None]
        put_aside = {group.stratum for letter in letters for group in letter.groups if self._matches(group.stratum)}
        fields = self._fields(held)
        noted = {
            int(field.split(b"|")[1]) for table, names in fields if table.key == self._store.definitions.key for field in names
        }
        return ErasePlan(
            tuple(sorted({stratum.version for stratum in strata | put_aside} | noted)),
            len({stratum[:4] for stratum in strata}),
            held.number(self._matches) + sum(len(names) for _, names in fields),
            tuple(letter.id for letter in letters),
        )

    def mark(
        self,
        highest: int,  # if all versions are removed, the highest one; later versions may be counted
    ) -> None:
        """Record the erasure in the store."""
        if self._version is not None:
            self._store.erase(_digest(self._metric, self._version), "")
        elif highest >= int(self._store.erased.get(_digest(self._metric)) or 0):
            self._store.erase(_digest(self._metric), highest)

    def is_marked(
        self,
        highest: int,  # as `mark` takes it
    ) -> bool:
        """Return whether the store has the erasure on record."""
        erased = self._store.erased
        if int(erased.get(_digest(self._metric)) or 0) >= (self._version or highest):
            return True
        return self._version is not None and erased.get(_digest(self._metric, self._version)) is not None

    def sweep(self) -> None:
        """Delete all its data except dead letters. If the store fails, the next sweep deletes the remainder."""
        held = Holdings(self._store, self._metric)
        held.delete(self._matches)
        # Fields of indexes go last, as the other data are found by them.
        for table, fields in self._fields(held):
            table.drop(*fields)
        latest_reports.forget(self._store)
        if all(map(self._matches, held.strata(*COUNTED, schema.RELEASES))):
            self._store.metrics.drop(self._metric)

    def rewrite(self) -> int:
        """Remove it from the dead letters; return how many had reports of it."""
        letters = DeadLetters(self._store)
        changed = {letter.id: self._changed(letter) for letter in letters}
        return letters.rewrite({id_: body for id_, body in changed.items() if body is not None})

    def _matches(self, stratum: Stratum) -> bool:
        return stratum.metric == self._metric and self._version in (None, stratum.version)

    def _fields(self, held: Holdings) -> list[tuple[Table, list[bytes]]]:
        """Return the tables with the fields to delete from each."""
        start = f"{self._metric}|{'' if self._version is None else f'{self._version}|'}".encode()
        indexes = [(index, held.fields(kind, self._matches)) for kind in INDEXES for index in held.indexes(kind)]
        tables = [
            self._store.alarms,
            self._store.published,
            self._store.definitions,
            *refused_reports.stored(self._store),
        ]
        tables += [table for each in self._store.partitions for table in (each.expired, each.published)]
        # The only partition of an app has the app's summaries.
        alone = {table.key: table for table in tables}.values()
        return [*indexes, *((table, [field for field in table.names() if field.startswith(start)]) for table in alone)]

    def _changed(self, letter: DeadLetter) -> bytes | None:
        """Return a dead letter's batch without the metric, empty if no group is left; None if it has no reports of it."""
        if not letter.groups:  # an unreadable batch is deleted if it contains the name
            return b"" if letter.names(self._metric) else None
        left = [group for group in letter.groups if not self._matches(group.stratum)]
        if len(left) == len(letter.groups):
            return None
        return batch.encode(left) if left else b""


def _digest(metric: str, version: int | None = None) -> str:
    """Return the digest of a name, as the Lua function `gone` computes it."""
    # It hides the name from whoever only looks. Whoever knows the names of the metrics can compute their digests.
    return sha1((metric if version is None else f"{metric}|{version}").encode(), usedforsecurity=False).hexdigest()
