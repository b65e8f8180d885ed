"""The store: all shared state, in Redis (7.0 command set)."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import redis

from deniable_aggregator.store import about, schema, tallies, uploads
from deniable_aggregator.store.archived import Archived
from deniable_aggregator.store.change import Change
from deniable_aggregator.store.limit import Excess, Limit, arguments
from deniable_aggregator.store.lines import Lines
from deniable_aggregator.store.names import Names
from deniable_aggregator.store.script import Script
from deniable_aggregator.store.servers import connect, primary
from deniable_aggregator.store.staging import Piece, Staging, digest
from deniable_aggregator.store.table import Table
from deniable_aggregator.store.tallies import Shelf
from deniable_aggregator.store.uploads import Seen

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from deniable.declared import Definition
    from deniable.wire.layout import Layout
    from deniable.wire.report import Stratum
    from deniable_aggregator.store.durability import Durability
    from deniable_aggregator.store.room import Room
    from deniable_aggregator.store.schema import Key
    from deniable_aggregator.tally import Tally

__all__ = ["AT_ONCE", "GROUP", "Appended", "Client", "Store", "Weights", "connect"]

Client = redis.Redis
"""A client of the store, of one server or several. Only the store's own modules use it; others hand it on."""

GROUP = "agg"
_DEAD_LETTERS = 10_000
_MANY, _SPARSE = 32, 8  # from so many cells on, and one change in so many, adding to all cells is faster
_NAMED, _ROOM = 6, 64  # cells added in a row that take as long as one named cell, and as making room for a cell
AT_ONCE = 3 << 15
"""Cells in a row that a script may add at once. The store answers nobody meanwhile, for about 30 ms at most."""
_PIECE = 1 << 15  # cells of a piece of a larger commit
_HOUR = 3600  # the shortest period, and the finest time that is stored


@dataclass(frozen=True, slots=True)
class Appended:
    """The outcome of an upload.

    Parameters
    ----------
    outcome
        ``"appended"``; ``"duplicate"``, the key was seen before; ``"full"``, the backlog is at its cap; ``"no room"``, no memory
        is left for uploads; or ``"limited"``.
    previous
        For a duplicate, the record of the first upload.
    excess
        If it was limited, the limit that is used up.
    """

    outcome: str
    previous: bytes = b""
    excess: Excess | None = None


class Weights(NamedTuple):
    """The weight tally of a stratum.

    Parameters
    ----------
    stratum
        The stratum of the reports.
    """

    stratum: Stratum


class Store:
    """The shared state of one app.

    Parameters
    ----------
    client
        A redis client.
    app
        The app's name.
    durability
        What an upload that was appended has survived.
    room
        The memory that uploads may take.
    """

    def __init__(self, client: redis.Redis, app: str, durability: Durability | None = None, room: Room | None = None) -> None:
        self._client = client
        self.app = app
        self._durability = durability
        self._replicas = durability.replicas if durability else 0
        self._room = room
        self.tallies = Shelf(client, app, schema.TALLY)
        self.snapshots = Shelf(client, app, schema.SNAPSHOT)
        self.releases = Shelf(client, app, schema.RELEASE)
        self.stream = schema.REPORTS.of(app)
        self.dead = schema.DEAD.of(app)
        self.workers = schema.WORKERS.of(app)
        self.caught = schema.CAUGHT.of(app)
        self.alarms = self.table(schema.ALARMS)
        self.expired = self.table(schema.EXPIRED)
        self.erased = self.table(schema.ERASED)
        self.published = self.table(schema.PUBLISHED)
        self.audit = Lines(client, schema.AUDIT.of(app))
        self.metrics = Names(client, schema.METRICS.of(app))
        self.faults = self.table(schema.FAULTS)
        self._seen = Seen(client, app)
        self._append = self.script("limit", "seen", "append")
        self.staging = Staging(client, app)
        self.archived = Archived(client, app)
        self._commit = self.script("own", "filed", "gone", "add", "note", "commit")
        self._seal = self.script("seal")
        self._bury = self.script("bury")
        self._leave = self.script("leave")
        self._forget = self.script("forget")
        self._mark_idle = self.script("mark_idle")

    def table(self, kind: Key, *parts: str) -> Table:
        """Open a table of the app."""
        return Table(self._client, kind.of(self.app, *parts))

    def get(self, kind: Key) -> bytes | None:
        """Read a single value of the app."""
        return cast("bytes | None", self._client.get(kind.of(self.app)))

    def put(self, kind: Key, value: str | int) -> None:
        """Set a single value of the app."""
        self._client.set(kind.of(self.app), value)

    def putting(self, kind: Key, value: str | int) -> Change:
        """Return the change that sets a single value of the app."""
        return Change(kind.of(self.app), "SET", (value,))

    def script(self, *names: str) -> Script:
        """Open a script, by the names of its parts."""
        return Script(self._client, *names)

    # Ingest

    def append(
        self,
        entry: bytes,
        *,
        key: str,
        remember: bytes,
        cap: int,
        ttl: int,
        limits: Sequence[Limit] = (),
        volumes: Sequence[Limit] = (),
    ) -> Appended:
        """Append a batch once, even if it is sent several times.

        Parameters
        ----------
        entry
            The batch.
        key
            The upload's idempotency key.
        remember
            A few bytes, returned for duplicates of the upload.
        cap
            Most entries in the backlog.
        ttl
            Seconds to remember the key, at least. It is remembered up to a day longer, so that its end does not show its
            beginning.
        limits
            Limits that the upload counts for, in their order. If one is used up, the upload is not appended.
        volumes
            Further limits. A duplicate, or an upload at a full backlog, does not count for these.

        Raises
        ------
        StoreError
            If the store cannot be used, or does not keep the promised durability. The batch may have been appended. If it is sent
            again with its key, it is appended only once.
        """
        self.ensure()
        all_limits = [*limits, *volumes]
        try:
            if self._room and not self._room.take(primary(self._client, self.stream), len(entry)):
                self._seen.make_room(ttl)
                return Appended("no room")
            outcome, more = self._seen.ask(
                self._append,
                key,
                lambda name: (
                    [self.stream, self._seen.base, *(limit.key for limit in all_limits)],
                    [entry, *name, remember, cap, uploads.days(ttl), len(limits), *arguments(all_limits)],
                ),
                replicas=self._replicas,
            )
        except redis.OutOfMemoryError:
            return Appended("no room")
        if outcome == b"limited":
            return Appended("limited", excess=Excess(*more))
        return Appended(outcome.decode(), more)

    def ensure(self) -> None:
        """Check regularly that the store keeps the promised durability.

        Raises
        ------
        StoreError
            If it does not, or cannot be read.
        """
        if self._durability:
            self._durability.ensure(primary(self._client, self.stream))

    def recall(self, key: str, ttl: int) -> bytes | None:
        """Return the record of an upload, or None.

        Parameters
        ----------
        key
            The upload's idempotency key.
        ttl
            Seconds for which it is remembered, as for `append`.
        """
        return self._seen.recall(key, ttl, replicas=self._replicas)

    def backlog(self) -> int:
        """Count the batches that are not counted yet."""
        return self._client.xlen(self.stream)

    # Worker

    def join(self) -> None:
        """Make sure that the consumer group exists. It reads from the first entry."""
        try:
            self._client.xgroup_create(self.stream, GROUP, id="0", mkstream=True)
        except redis.ResponseError as error:
            if "BUSYGROUP" not in str(error):
                raise

    def commit(
        self,
        consumer: str,
        ids: Sequence[bytes],
        deltas: Mapping[Stratum | Weights, NDArray[np.int64]],
        now: int,
        files: Mapping[Stratum, str] | None = None,
    ) -> list[bytes]:
        """Add deltas and remove their entries, all or nothing. Expired or erased deltas are not added.

        Deltas of a sealed period are added to the first period that is not sealed. If this would block the store for long, it is
        decided at one moment, and added in pieces.

        Parameters
        ----------
        consumer
            The reader of the entries.
        ids
            The entries, all counted in the deltas.
        deltas
            Cells to add, to the tallies and the weight tallies of strata.
        now
            Unix time in seconds. Only the hour is stored, so that a tally of one report does not show its second.
        files
            Names of files of the archive that have the reports of these deltas, by stratum. Each is noted as its delta is added.

        Returns
        -------
        list of bytes
            Entries that this consumer no longer owns. If there are any, nothing was written.
        """
        hour, noted = now - now % _HOUR, {tallies.name(stratum): file for stratum, file in (files or {}).items()}
        most = (_NAMED + 1) * sum(map(len, deltas.values()))  # if every cell changed; the exact cost takes longer
        if most > AT_ONCE and sum(map(_cost, deltas.values())) > AT_ONCE:
            pieces = [Piece("file", name, hour, "file", file) for name, file in noted.items()]
            pieces += [piece for of, cells in deltas.items() for piece in _pieces(of, cells, hour)]
            return self.staging.commit(self.stream, GROUP, consumer, ids, pieces)
        keys = [self.stream, self.expired.key, self.erased.key, self.published.key]
        args: list[Any] = [GROUP, consumer, hour, len(ids), *ids]
        for name, file in noted.items():
            keys += [schema.ARCHIVED.of(self.app, name), schema.TALLY.of(self.app, name)]
            args += [name, "file", file]
        for of, cells in deltas.items():
            stratum, kind = (of.stratum, schema.WEIGHTS) if isinstance(of, Weights) else (of, schema.TALLY)
            name = tallies.name(stratum)
            keys += [kind.of(self.app, name), schema.TALLIES.of(self.app, stratum.metric)]
            args += [name, *_changes(cells)]
        return cast("list[bytes]", self._commit(keys=keys, args=args))

    def seal(self, definition: Definition, before: str) -> bool:
        """Seal the periods of a definition before a given one. Later reports of a sealed period count in that one.

        Parameters
        ----------
        definition
            Metric, version and fingerprint.
        before
            The first period that is not sealed. A sealed period stays sealed.

        Returns
        -------
        bool
            False while a commit of the metric is added in pieces. Then nothing has changed.
        """
        args = [tallies.name(definition), before, digest(definition[0])]
        return bool(self._seal([self.published.key, schema.REDO.of(self.app)], args))

    def bury(self, consumer: str, id_: bytes, reason: str) -> bool:
        """Move an entry that cannot be counted to the dead letters; return False if this consumer no longer owns it."""
        return bool(self._bury(keys=[self.stream, self.dead], args=[GROUP, consumer, id_, reason, _DEAD_LETTERS]))

    def leave(self, consumer: str) -> bool:
        """Delete a consumer, unless it has entries pending, which would be lost."""
        return bool(self._leave(keys=[self.stream], args=[GROUP, consumer]))

    def forget(self, idle: float) -> int:
        """Delete all consumers that are idle for some seconds and have no entries pending; return how many."""
        return int(self._forget(keys=[self.stream], args=[GROUP, round(1000 * idle)]))

    def mark_idle(self, consumer: str, ms: int) -> int:
        """Set the idle time of a consumer's entries to at least some milliseconds; return how many entries were less idle."""
        return int(self._mark_idle(keys=[self.stream], args=[GROUP, consumer, ms]))

    def now(self) -> float:
        """Return the Unix time, by this machine's clock or the store's, whichever is earlier.

        So nothing is published or deleted too early because one clock is ahead.
        """
        return min(time.time(), about.clock(primary(self._client, self.stream)))

    # Query

    def strata(self, metric: str) -> dict[Stratum, int]:
        """Return every stratum counted for a metric, with the Unix time of the hour of its last commit."""
        noted = self.table(schema.TALLIES, metric).all()
        return {tallies.stratum(name.decode()): int(updated) for name, updated in noted.items()}

    def read(self, layout: Layout, strata: Sequence[Stratum]) -> Tally:
        """Read and merge the tallies of some strata of one layout."""
        return self.tallies.read(layout, strata)

    def read_weights(self, layout: Layout, strata: Sequence[Stratum]) -> NDArray[np.int64]:
        """Read and add the weight tallies of some strata of one layout: (width + 1,), zeros if there are none."""
        total = np.zeros(layout.width + 1, np.int64)
        keys = [schema.WEIGHTS.of(self.app, tallies.name(stratum)) for stratum in strata]
        values = cast("list[bytes | None]", self._client.mget(keys)) if keys else []
        for value in filter(None, values):
            cells = tallies.cells(value)
            total[: len(cells)] += cells
        return total


def _pieces(of: Stratum | Weights, cells: NDArray[np.int64], hour: int) -> Iterator[Piece]:
    """Cut a delta into pieces: first the last cells, which make room for all of it, then the rest from the end backwards."""
    stratum, word = (of.stratum, "weights") if isinstance(of, Weights) else (of, "tally")
    name, changed = tallies.name(stratum), np.flatnonzero(cells)
    if not len(changed):
        return
    yield Piece(word, name, hour, "", f"{changed[-1]} 0")
    for start in reversed(range(0, int(changed[-1]) + 1, _PIECE)):
        some = cells[start : start + _PIECE]
        if some.any():
            yield Piece(word, name, hour, *_changes(some, start))


def _cost(cells: NDArray[np.int64]) -> int:
    """Return how long a commit takes to add a delta, in cells that are added in a row."""
    changed = np.flatnonzero(cells)
    if not len(changed):
        return 0
    first, end = int(changed[0]), int(changed[-1]) + 1
    return (end - first if _in_a_row(changed) else _NAMED * len(changed)) + end // _ROOM


def _in_a_row(changed: NDArray[np.intp]) -> bool:
    """Return whether adding to all cells from the first to the last changed one is faster than naming these."""
    return len(changed) >= _MANY and int(changed[-1]) + 1 - int(changed[0]) <= _SPARSE * len(changed)


def _changes(cells: NDArray[np.int64], start: int = 0) -> tuple[int | str, bytes | str]:
    """Encode a delta for ``add.lua``: if many cells changed, all cells from the first to the last one."""
    changed = np.flatnonzero(cells)
    if _in_a_row(changed):
        first, end = int(changed[0]), int(changed[-1]) + 1
        return start + first, cells[first:end].astype(">i8").tobytes()
    return "", " ".join(map(str, np.column_stack([start + changed, cells[changed]]).ravel().tolist()))
