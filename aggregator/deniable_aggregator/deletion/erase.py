"""Removal: all that the store has of a metric, or of a version of one, goes for good.

First the store is told, by digests, so that it does not name what it was to forget: of a metric, the highest version that is gone
with all before it; of a version, that it is gone alone. From that moment on nothing of it is counted,
neither what waits nor what devices still send. Then everything is deleted that is found. Whoever was about to write something
just then may write it after: workers that have the registry look again every hour (`deniable_aggregator.deletion.retention`).
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha1
from typing import TYPE_CHECKING

from deniable_aggregator.store import batch, refused_reports, schema
from deniable_aggregator.store.dead_letters import DeadLetters
from deniable_aggregator.store.holdings import COUNTED, INDEXES, Holdings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deniable.wire.report import Stratum
    from deniable_aggregator.store import Store
    from deniable_aggregator.store.dead_letters import DeadLetter
    from deniable_aggregator.store.table import Table

__all__ = ["Erased", "Found", "Removal"]


@dataclass(frozen=True, slots=True)
class Found:
    """What there is to remove.

    Parameters
    ----------
    versions
        Which versions of the metric anything is kept of.
    periods
        Number of periods.
    keys
        Number of keys that go, and of fields of others.
    letters
        Ids of the dead letters that have reports of it.
    """

    versions: tuple[int, ...]
    periods: int
    keys: int
    letters: tuple[str, ...]


class Erased:
    """What was erased of an app.

    Parameters
    ----------
    told
        As the store has it.
    """

    def __init__(self, told: Mapping[bytes, bytes]) -> None:
        self._told = told

    def __bool__(self) -> bool:
        """Tell whether anything was."""
        return bool(self._told)

    def has(self, metric: str, version: int) -> bool:
        """Tell whether a version of a metric was erased."""
        highest = self._told.get(_digest(metric).encode())
        return _digest(metric, version).encode() in self._told or (highest is not None and version <= int(highest))


class Removal:
    """Removes what an app has of a metric.

    Parameters
    ----------
    store
        The app's.
    metric
        Its id; the registry need not know it.
    version
        The only version that goes, or None for all.
    """

    def __init__(self, store: Store, metric: str, version: int | None = None) -> None:
        self._store, self._metric, self._version = store, metric, version

    def find(self) -> Found:
        """Look what there is, without changing anything.

        Raises
        ------
        StoreError
            If the store cannot be used.
        """
        held = Holdings(self._store, self._metric)
        strata = set(filter(self._wanted, held.strata(*INDEXES)))
        letters = [letter for letter in DeadLetters(self._store) if self._changed(letter) is not None]
        put_aside = {group.stratum for letter in letters for group in letter.groups if self._wanted(group.stratum)}
        fields = self._fields(held)
        return Found(
            tuple(sorted({stratum.version for stratum in strata | put_aside})),
            len({stratum[:4] for stratum in strata}),
            held.number(self._wanted) + sum(map(len, fields.values())),
            tuple(letter.id for letter in letters),
        )

    def mark(self, highest: int) -> None:
        """Tell the store that it is gone for good.

        Parameters
        ----------
        highest
            Where all versions go, the highest one; a later one may be counted.
        """
        erased = self._store.erased
        if self._version is not None:
            erased.put({_digest(self._metric, self._version): ""})
        elif highest > int(erased.get(_digest(self._metric)) or 0):
            erased.put({_digest(self._metric): highest})

    def sweep(self) -> None:
        """Delete what is kept of it but for dead letters; what is not there is none the worse.

        Raises
        ------
        StoreError
            If the store cannot be used. What is left is found by the next sweep.
        """
        held = Holdings(self._store, self._metric)
        held.delete(self._wanted)
        # Fields go last: by them the rest is found.
        for table, fields in self._fields(held).items():
            table.drop(*fields)
        if all(map(self._wanted, held.strata(*COUNTED, schema.RELEASES))):
            self._store.metrics.drop(self._metric)

    def rewrite(self) -> int:
        """Take it out of the dead letters; return how many had reports of it."""
        letters = DeadLetters(self._store)
        changed = {letter.id: self._changed(letter) for letter in letters}
        return letters.rewrite({id_: body for id_, body in changed.items() if body is not None})

    def _wanted(self, stratum: Stratum) -> bool:
        return stratum.metric == self._metric and self._version in (None, stratum.version)

    def _fields(self, held: Holdings) -> dict[Table, list[bytes]]:
        """List the fields that go, by the table that they are in."""
        start = f"{self._metric}|{'' if self._version is None else f'{self._version}|'}".encode()
        found = {held.index(kind): held.fields(kind, self._wanted) for kind in INDEXES}
        for table in (self._store.expired, self._store.alarms, self._store.published, *refused_reports.tables(self._store)):
            found[table] = [field for field in table.names() if field.startswith(start)]
        return found

    def _changed(self, letter: DeadLetter) -> bytes | None:
        """Write what is left of a dead letter's batch, nothing where all of it goes; None where it has no part in this."""
        if not letter.groups:  # what cannot be read goes if it has the name in it: nobody else will ever tell
            return b"" if letter.names(self._metric) else None
        left = [group for group in letter.groups if not self._wanted(group.stratum)]
        if len(left) == len(letter.groups):
            return None
        return batch.encode(left) if left else b""


def _digest(metric: str, version: int | None = None) -> str:
    """Digest a name as the function `gone` does; what it names is public, only not for the store to tell."""
    return sha1((metric if version is None else f"{metric}|{version}").encode(), usedforsecurity=False).hexdigest()
