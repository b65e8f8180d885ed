"""Partitions: the reports of an app, from the upload to its sums.

An app has one partition, or several whose keys are on several servers of a cluster. An upload belongs to the partition that its
Idempotency-Key chooses, so one that is sent again comes to the same one. Sums of partitions are added when they are read.

The only partition of an app has the name of the app in its keys. Of several, each has the app's name with a number that puts it
into its part of the cluster's slots, such as ``shop#2``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import count as from_zero
from math import isqrt
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import redis
from redis.crc import key_slot

from deniable_aggregator.store import schema
from deniable_aggregator.store.errors import NoRoom, Redivided
from deniable_aggregator.store.script import Call, Script
from deniable_aggregator.store.server.servers import place, primary
from deniable_aggregator.store.sums import deltas, tallies
from deniable_aggregator.store.sums.deltas import Weights
from deniable_aggregator.store.sums.staging import Piece, Staging, digest
from deniable_aggregator.store.sums.tallies import Shelf
from deniable_aggregator.store.uploads import seen
from deniable_aggregator.store.uploads.archived import Archived
from deniable_aggregator.store.uploads.batch import Admitted
from deniable_aggregator.store.uploads.seen import Seen
from deniable_aggregator.store.values.collections import Table
from deniable_aggregator.store.values.limit import Excess, arguments

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    from numpy.typing import NDArray

    from deniable.declared import Definition
    from deniable.wire.layout import Layout
    from deniable.wire.report import Stratum
    from deniable_aggregator.store.schema import Key
    from deniable_aggregator.store.server.durability import Durability
    from deniable_aggregator.store.server.room import Room
    from deniable_aggregator.store.sums.deltas import Deltas
    from deniable_aggregator.store.uploads.batch import Opened
    from deniable_aggregator.store.values.limit import Limit

GROUP = "agg"
MOST = 64
"""Partitions that an app may have."""
_SLOTS = 1 << 14  # of a cluster
_DEAD_LETTERS = 10_000  # of an app
_COPIES = 100  # in one round trip
_HOUR = 3600  # the shortest period, and the finest time that is stored


def names(
    app: str,  # the app's name, which has no `#`
    number: int,  # of its partitions
) -> list[str]:
    """Return the names of an app's partitions, which spread them evenly over the slots of a cluster."""
    return [app] if number == 1 else [_name(app, place, number) for place in range(number)]


def _name(app: str, place: int, number: int) -> str:
    tried = (f"{app}#{each:x}" for each in from_zero())
    return next(name for name in tried if key_slot(f"{{{name}}}".encode()) * number // _SLOTS == place)


@dataclass(frozen=True, slots=True)
class Appended:
    """The outcome of an upload."""

    # "appended"; "duplicate", the key was seen before; "full", the backlog is at its cap; "no room", no memory is left for
    # uploads; "limited", a limit is used up.
    outcome: str
    previous: bytes = b""  # for a duplicate, the record of the first upload
    excess: Excess | None = None  # if it was limited, the limit


class Upload(NamedTuple):
    """A batch to be appended."""

    entry: bytes  # the batch
    key: str  # the upload's idempotency key
    remember: bytes  # a few bytes, returned for duplicates of the upload
    cap: int  # most entries in the backlog of all partitions, of which each has an equal part
    ttl: int  # Seconds to remember the key, at least. Up to a day more are added, so that the end does not show the beginning.
    # Limits that the upload counts for, in their order, with keys of its partition. If one is used up, it is not appended.
    limits: Sequence[Limit] = ()
    volumes: Sequence[Limit] = ()  # further limits, for which no duplicate counts, and no upload at a full backlog


def appended(answer: tuple[bytes, Any]) -> Appended | None:
    """Read the answer of the script; None if it is to be run again with the store's secret."""
    outcome, more = answer
    if outcome in (b"secret", b"new"):
        return None
    return Appended("limited", excess=Excess(*more)) if outcome == b"limited" else Appended(outcome.decode(), more)


class Partition:
    """A partition of an app."""

    def __init__(
        self,
        client: redis.Redis,
        app: str,  # the app's name
        name: str,  # its own name, in its keys
        among: int = 1,  # how many partitions the app has
        durability: Durability | None = None,  # what an upload that was appended has survived
        room: Room | None = None,  # the memory that uploads may take
    ) -> None:
        self._client = client
        self.app, self.name, self.among = app, name, among
        self._durability = durability
        self._replicas = durability.replicas if durability else None
        self._room = room
        self.tallies = Shelf(client, name, schema.TALLY)
        self.stream = schema.REPORTS.of(name)
        self.dead = schema.DEAD.of(name)
        self.workers = schema.WORKERS.of(name)
        self.caught = schema.CAUGHT.of(name)
        self.expired = self.table(schema.EXPIRED)
        self.erased = self.table(schema.ERASED)
        self.published = self.table(schema.PUBLISHED)
        self.staging = Staging(client, name)
        self.archived = Archived(client, name)
        self._seen = Seen(client, name)
        self._fix = self.script("fix")
        check = partial(self.ensure, anew=True)
        self._append = Script(client, "limit", "seen", "enter", "append", check=check)
        self._admit = Script(client, "enter", "admit", check=check)
        self._commit = self.script("own", "filed", "gone", "add", "note", "commit")
        self._seal = self.script("seal")
        self._bury = self.script("enter", "bury")
        self._leave = self.script("leave")
        self._forget = self.script("forget")
        self._mark_idle = self.script("mark_idle")

    def table(self, kind: Key, *parts: str) -> Table:
        """Open a table of the partition."""
        return Table(self._client, kind.of(self.name, *parts))

    @property
    def place(self) -> Hashable:
        """The partition's server, which can only be compared; None if it is not known."""
        return place(self._client, self.stream)

    def part(
        self,
        amount: int,  # allowed in the whole app
        cost: int = 1,  # of one upload
    ) -> int:
        """Return its part of a limit."""
        # An equal share, four standard deviations of what chance may send here in addition, and one upload, which may be larger
        # than the share.
        share = -(-amount // self.among)
        return share if self.among == 1 else min(amount, share + 4 * isqrt(share * cost) + cost)

    def script(self, *names: str) -> Script:
        """Open a script, by the names of its parts."""
        return Script(self._client, *names)

    # Uploads

    def append(self, upload: Upload) -> Appended:
        """Append a batch once, even if it is sent several times; after a `StoreError` the batch may have been appended."""
        try:
            if not self._admits(upload):
                return Appended("no room")
            call = partial(self._call, upload)
            while (outcome := appended(self._seen.ask(self._append, upload.key, call, replicas=self._replicas))) is None:
                self._begin()
        except redis.OutOfMemoryError:
            return Appended("no room")
        return outcome

    def admit(self, reports: Opened) -> Admitted:
        """Append opened reports that were not appended before; after a `StoreError` they may have been: try again."""
        try:
            self.ensure()
            if self._room and not self._room.take(primary(self._client, self.stream), reports.size):
                return Admitted("no room")
            if self.fix(self.among) != self.among:
                raise Redivided("the app has another number of partitions now")
            keys = [self.stream, schema.OPENED.of(self.name, reports.digests), schema.SEEN_HOUR.of(self.name)]
            outcome, new = self._admit(keys, reports.arguments(self.among), replicas=self._replicas)
        except redis.OutOfMemoryError:
            return Admitted("no room")
        return Admitted(outcome.decode(), new)

    def begin_append(self, upload: Upload) -> Call | None:
        """Return the call with which `append` would append a batch; None if there is no room."""
        return self._call(upload, self._seen.name(upload.key)) if self._admits(upload) else None

    def append_together(self, calls: Sequence[Call]) -> list[Any]:
        """Run such calls, of partitions on this server: see `Script.together`."""
        return self._append.together(calls, replicas=self._replicas)

    def _admits(self, upload: Upload) -> bool:
        """Return whether there is room for an upload; raise an error if the promised durability is not kept."""
        self.ensure()
        if self._room and not self._room.take(primary(self._client, self.stream), len(upload.entry)):
            self._seen.make_room(upload.ttl)
            return False
        return True

    def _call(self, upload: Upload, name: seen.Name) -> Call:
        limits = [*upload.limits, *upload.volumes]
        keys = [self.stream, self._seen.base, *(limit.key for limit in limits)]
        part = -(-upload.cap // self.among)
        numbers = part, seen.days(upload.ttl), len(upload.limits), *arguments(limits)
        return Call(keys, [upload.entry, *name, upload.remember, *numbers])

    def _begin(self) -> None:
        """Prepare a partition that is new, or whose server was emptied."""
        # Perhaps the app was divided anew after that: then `Store.append` reads the number of partitions again.
        if self.fix(self.among) != self.among:
            raise Redivided("the app has another number of partitions now")
        self._seen.begin()

    def fix(self, number: int) -> int:
        """Fix the number of the app's partitions, unless it is fixed; return it."""
        return int(self._fix([schema.PARTITIONS.of(self.app)], [number], replicas=self._replicas))

    def ensure(
        self,
        *,
        anew: bool = False,  # whether the server does not know our script, so that it was started and may have other settings
    ) -> None:
        """Check regularly, or at once, that the partition's server keeps the promised durability."""
        if self._durability:
            self._durability.ensure(primary(self._client, self.stream), anew=anew)

    def recall(
        self,
        key: str,  # the upload's idempotency key
        ttl: int,  # seconds for which it is remembered, as for `append`
    ) -> bytes | None:
        """Return the record of an upload, or None."""
        return self._seen.recall(key, ttl, replicas=self._replicas)

    def backlog(self) -> int:
        """Count the batches that are not counted yet."""
        return self._client.xlen(self.stream)

    def last_upload(self) -> int | None:
        """Return the hour in which the last upload was accepted, in seconds since 1970; None if none was."""
        return self._seen.hour()

    # Worker

    def has_room(self, room: Room, size: int = 0) -> bool:
        """Return whether the partition's server has room for so many bytes, and count them."""
        return room.take(primary(self._client, self.stream), size)

    def check_room(self, room: Room) -> None:
        """Raise `NoRoom` if the partition's server has no room."""
        if not self.has_room(room):
            raise NoRoom("what is left of the store's memory is kept for what must always work")

    def join(self) -> None:
        """Make sure that the consumer group exists. It reads from the first entry."""
        try:
            self._client.xgroup_create(self.stream, GROUP, id="0", mkstream=True)
        except redis.ResponseError as error:
            if "BUSYGROUP" not in str(error):
                raise

    def commit(
        self,
        consumer: str,  # the reader of the entries
        ids: Sequence[bytes],  # the entries, all counted in the deltas
        added: Deltas,
        now: int,  # Unix time in seconds
        files: Mapping[Stratum, str] | None = None,  # the file of the archive that has the reports of a delta, by stratum
    ) -> list[bytes]:
        """Add deltas and remove their entries, all or nothing; return the entries that the consumer no longer owns."""
        # Only the hour is stored, so that a tally of one report does not show its second.
        hour, noted = now - now % _HOUR, {tallies.name(stratum): file for stratum, file in (files or {}).items()}
        if not deltas.fit(added):  # one script would block the store for long, so it only decides; pieces are added afterwards
            pieces = [Piece("file", name, hour, "file", file) for name, file in noted.items()]
            return self.staging.commit(self.stream, GROUP, consumer, ids, [*pieces, *deltas.pieces(added, hour)])
        keys = [self.stream, self.expired.key, self.erased.key, self.published.key]
        args: list[Any] = [GROUP, consumer, hour, len(ids), *ids]
        for name, file in noted.items():
            keys += [schema.ARCHIVED.of(self.name, name), schema.TALLY.of(self.name, name)]
            args += [name, "file", file]
        for of, cells in added.items():
            stratum, kind = (of.stratum, schema.WEIGHTS) if isinstance(of, Weights) else (of, schema.TALLY)
            name = tallies.name(stratum)
            keys += [kind.of(self.name, name), schema.TALLIES.of(self.name, stratum.metric)]
            args += [name, *deltas.changes(cells)]
        # If any are returned, nothing was written. Expired or erased deltas are not added. Deltas of a sealed period are added to
        # the first period that is not sealed.
        return cast("list[bytes]", self._commit(keys=keys, args=args))

    def seal(
        self,
        definition: Definition,  # metric, version and fingerprint
        before: str,  # the first period that is not sealed
    ) -> bool:
        """Seal the periods of a definition before another one, for good. Later reports of these periods count in that one."""
        # While a commit of the metric is added in pieces, nothing is changed, and False is returned.
        args = [tallies.name(definition), before, digest(definition[0])]
        return bool(self._seal([self.published.key, schema.REDO.of(self.name)], args))

    def bury(self, consumer: str, id_: bytes, reason: str) -> bool:
        """Move an entry that cannot be counted to the dead letters; return False if this consumer no longer owns it."""
        cap = -(-_DEAD_LETTERS // self.among)
        return bool(self._bury(keys=[self.stream, self.dead], args=[GROUP, consumer, id_, reason, cap]))

    def leave(self, consumer: str) -> bool:
        """Delete a consumer, unless it has entries pending, which would be lost."""
        return bool(self._leave(keys=[self.stream], args=[GROUP, consumer]))

    def forget(self, idle: float) -> int:
        """Delete all consumers that are idle for some seconds and have no entries pending; return how many."""
        return int(self._forget(keys=[self.stream], args=[GROUP, round(1000 * idle)]))

    def mark_idle(self, consumer: str, ms: int) -> int:
        """Make a consumer's entries idle for some milliseconds at least; return how many were not idle for so long."""
        return int(self._mark_idle(keys=[self.stream], args=[GROUP, consumer, ms]))

    # Query

    def strata(self, metric: str) -> dict[Stratum, int]:
        """Return every stratum counted for a metric, with the Unix time of the hour of its last commit."""
        noted = self.table(schema.TALLIES, metric).all()
        return {tallies.stratum(name.decode()): int(updated) for name, updated in noted.items()}

    def copies(self, metric: str) -> Table:
        """Open the table of a metric's copied tallies."""
        return self.table(schema.COPIES, metric)

    def copy(self, names: Sequence[str], metric: str, hour: int) -> None:
        """Copy the tallies of some strata, by their names, and note the hour, except those that were deleted meanwhile."""
        for first in range(0, len(names), _COPIES):
            chunk = names[first : first + _COPIES]
            pipeline = self._client.pipeline(transaction=False)
            for name in chunk:
                pipeline.copy(schema.TALLY.of(self.name, name), schema.COPY.of(self.name, name), replace=True)
            copied = [name for name, done in zip(chunk, pipeline.execute(), strict=True) if done]
            self.copies(metric).put(dict.fromkeys(copied, hour))

    def drop_copies(self, names: Sequence[str]) -> None:
        """Delete the copies of some strata, by their names."""
        for first in range(0, len(names), _COPIES):
            self._client.delete(*(schema.COPY.of(self.name, name) for name in names[first : first + _COPIES]))

    def read_weights(self, layout: Layout, strata: Sequence[Stratum]) -> NDArray[np.int64]:
        """Read and add the weight tallies of some strata of one layout: (width + 1,), zeros if there are none."""
        total = np.zeros(layout.width + 1, np.int64)
        keys = [schema.WEIGHTS.of(self.name, tallies.name(stratum)) for stratum in strata]
        values = cast("list[bytes | None]", self._client.mget(keys)) if keys else []
        for value in filter(None, values):
            cells = tallies.cells(value)
            total[: len(cells)] += cells
        return total
