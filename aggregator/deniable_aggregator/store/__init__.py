"""The store: all shared state, in Redis (7.0 command set)."""

from __future__ import annotations

import time
from functools import reduce
from hashlib import sha256
from operator import add
from typing import TYPE_CHECKING, cast

import redis

from deniable_aggregator.store import schema
from deniable_aggregator.store.errors import Redivided
from deniable_aggregator.store.script import Script
from deniable_aggregator.store.server import about
from deniable_aggregator.store.server.servers import connect, place, primary
from deniable_aggregator.store.sums import tallies
from deniable_aggregator.store.sums.deltas import Weights
from deniable_aggregator.store.sums.staging import Staging
from deniable_aggregator.store.sums.tallies import Shelf, Stored
from deniable_aggregator.store.uploads.partition import GROUP, Appended, Partition, Upload, names
from deniable_aggregator.store.values.collections import Lines, Names, StoreCommand, Table

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from deniable.declared import Definition
    from deniable.wire.layout import Layout
    from deniable.wire.report import Stratum
    from deniable_aggregator.store.schema import Key
    from deniable_aggregator.store.server.durability import Durability
    from deniable_aggregator.store.server.room import Room
    from deniable_aggregator.store.uploads.batch import Admitted, Opened
    from deniable_aggregator.tally import Tally

__all__ = ["GROUP", "Appended", "Client", "Partition", "Store", "Upload", "Weights", "connect"]

_SECONDS = 60.0

Client = redis.Redis
"""A client of the store, of one server or several. Only the store's own modules use it; others hand it on."""


class Store:
    """The shared state of one app: what is published and administered, and its partitions, which have the reports."""

    def __init__(
        self,
        client: redis.Redis,
        app: str,  # the app's name
        durability: Durability | None = None,  # what an upload that was appended has survived
        room: Room | None = None,  # the memory that uploads may take
    ) -> None:
        self._client = client
        self.app = app
        self._durability = durability
        self._room = room
        self._partitions, self._fixed = self._opened(1), False
        self._checked = 0.0
        self.snapshots = Shelf(client, app, schema.SNAPSHOT)
        self.releases = Shelf(client, app, schema.RELEASE)
        self.alarms = self.table(schema.ALARMS)
        self.published = self.table(schema.PUBLISHED)
        self.audit = Lines(client, schema.AUDIT.of(app))
        self.history = Lines(client, schema.HISTORY.of(app))
        self.metrics = Names(client, schema.METRICS.of(app))
        self.faults = self.table(schema.FAULTS)
        self.definitions = self.table(schema.DEFINITIONS)
        self.registries = schema.REGISTRIES.of(app)
        self.staging = Staging(client, app)
        self._seal = self.script("seal")
        self._mark = self.script("always", "mark")

    # Partitions

    @property
    def partitions(self) -> tuple[Partition, ...]:
        """The partitions of the app: one, unless it was divided."""
        if self._due():
            number = self.get(schema.PARTITIONS)
            if number:
                self._fix(int(number))
        return self._partitions

    @property
    def place(self) -> Hashable:
        """The app's server, which can only be compared; None if it is not known."""
        return place(self._client, self.audit.key)

    def divide(
        self,
        number: int | None = None,  # at most `uploads.partition.MOST`; None for the one known so far, or 1
    ) -> int:
        """Fix the number of the app's partitions, unless it is fixed; return the number."""
        # It is fixed for good before the first upload: by another number, an upload that is sent again would come to another
        # partition, and would be counted twice. A store that was emptied gets the number that this process knows.
        known = self._partitions
        self._fix(known[0].fix(number or len(known)))
        return len(self._partitions)

    @property
    def knows_partitions(self) -> bool:
        """Whether the partition of an upload is known without asking the store."""
        return self._fixed and time.monotonic() < self._checked + _SECONDS

    def partition(
        self,
        key: str,  # the upload's idempotency key
    ) -> Partition:
        """Return the partition of an upload."""
        if self._due():
            try:
                self.divide()
            except redis.RedisError:
                if not self._fixed:  # otherwise what was fixed a minute ago is good enough, until the store answers again
                    raise
        partitions = self._partitions
        if len(partitions) == 1:
            return partitions[0]
        return partitions[int.from_bytes(sha256(key.encode()).digest()) % len(partitions)]

    def _fix(self, number: int) -> None:
        if number != len(self._partitions):
            self._partitions = self._opened(number)
        self._fixed = True

    def _due(self) -> bool:
        """Return whether the number of partitions is to be read: it is not known, or the store may have been emptied since."""
        if self.knows_partitions:
            return False
        self._checked = time.monotonic()
        return True

    def _opened(self, number: int) -> tuple[Partition, ...]:
        return tuple(
            Partition(self._client, self.app, name, number, self._durability, self._room) for name in names(self.app, number)
        )

    def is_used(self) -> bool:
        """Whether anybody has ever taken, counted or logged anything of the app here."""
        return bool(self.get(schema.PARTITIONS) or self.audit.first() or self.backlog())

    def table(self, kind: Key, *parts: str) -> Table:
        """Open a table of the app."""
        return Table(self._client, kind.of(self.app, *parts))

    def shared_table(self, kind: Key) -> Table:
        """Open a table of all apps."""
        return Table(self._client, kind.of())

    def other(self, app: str) -> Store:
        """Open the state of another app in the same store."""
        return Store(self._client, app)

    def get(self, kind: Key) -> bytes | None:
        """Read a single value of the app."""
        return cast("bytes | None", self._client.get(kind.of(self.app)))

    def put(self, kind: Key, value: str | int) -> None:
        """Set a single value of the app."""
        self._client.set(kind.of(self.app), value)

    def claim(self, kind: Key, until: int) -> bool:
        """Set a single value of the app until a Unix time; return False if it is set."""
        return bool(self._client.set(kind.of(self.app), "", nx=True, exat=until))

    def release(self, kind: Key) -> None:
        """Delete a single value of the app that was claimed."""
        self._client.delete(kind.of(self.app))

    def putting(self, kind: Key, value: str | int) -> StoreCommand:
        """Return the command that sets a single value of the app."""
        return StoreCommand(kind.of(self.app), "SET", (value,))

    @property
    def simulated(self) -> str:
        """The days for which it has reports of simulated people; empty if it has none."""
        return (self.get(schema.SIMULATED) or b"").decode()

    def script(self, *names: str) -> Script:
        """Open a script, by the names of its parts."""
        return Script(self._client, *names)

    # Uploads

    def append(self, upload: Upload) -> Appended:
        """Append a batch to the partition of its key: see `Partition.append`."""
        try:
            return self.partition(upload.key).append(upload)
        except redis.OutOfMemoryError:  # while the number of partitions was fixed
            return Appended("no room")
        except Redivided:
            self._fixed = False
            raise

    def admit(self, reports: Opened) -> Admitted:
        """Append opened reports to the partition of their stratum: see `Partition.admit`."""
        try:
            return self.partition(reports.key).admit(reports)
        except Redivided:
            self._fixed = False
            raise

    def recall(self, key: str, ttl: int) -> bytes | None:
        """Return the record of an upload, or None: see `Partition.recall`."""
        return self.partition(key).recall(key, ttl)

    def ensure(self) -> None:
        """Check regularly that the store keeps the promised durability."""
        for partition in self.partitions:
            partition.ensure()

    def backlog(self) -> int:
        """Count the batches that are not counted yet."""
        return sum(each.backlog() for each in self.partitions)

    # Counted reports

    def strata(self, metric: str) -> dict[Stratum, int]:
        """Return the strata counted for a metric, each with the hour of its last commit: see `Partition.strata`."""
        strata: dict[Stratum, int] = {}
        for partition in self.partitions:
            for stratum, updated in partition.strata(metric).items():
                strata[stratum] = max(updated, strata.get(stratum, 0))
        return strata

    def sums(self, layout: Layout, strata: Sequence[Stratum]) -> list[Stored]:
        """Read the tallies of some strata of one layout, empty where there is none."""
        # Each partition is read at one moment, but not all at the same.
        parts = [partition.tallies.sums(layout, strata) for partition in self.partitions]
        return [reduce(Stored.plus, sums) for sums in zip(*parts, strict=True)]

    def read(self, layout: Layout, strata: Sequence[Stratum]) -> Tally:
        """Read and merge the tallies of some strata of one layout."""
        return tallies.total(layout, self.sums(layout, strata))

    def read_weights(self, layout: Layout, strata: Sequence[Stratum]) -> NDArray[np.int64]:
        """Read and add the weight tallies of some strata of one layout: (width + 1,), zeros if there are none."""
        return reduce(add, (each.read_weights(layout, strata) for each in self.partitions))

    def settled(
        self,
        metric: str | None = None,  # metric whose tallies are read; None for all
    ) -> int | None:
        """Return the number of commits in pieces so far, or None while one is added: see `Staging.settled`."""
        commits = [each.staging.settled(metric) for each in self.partitions]
        return None if None in commits else sum(cast("list[int]", commits))

    def seal(
        self,
        definition: Definition,  # metric, version and fingerprint
        before: str,  # the first period that is not sealed
    ) -> bool:
        """Seal the periods of a definition before another one, in all partitions: see `Partition.seal`."""
        if not all(each.seal(definition, before) for each in self.partitions):
            return False  # some partitions may have sealed them already
        if len(self.partitions) > 1:  # the summary of releases has the period, too: `publish.release` reads it there
            self._seal([self.published.key, schema.REDO.of(self.app)], [tallies.name(definition), before, ""])
        return True

    @property
    def erased(self) -> Table:
        """What was erased for good in all partitions."""
        return self.partitions[-1].erased

    def erase(self, name: str, value: str | int) -> None:
        """Record in each partition that something is erased for good."""
        # The last one is the one that is read (`erased`): what is recorded there is recorded in all.
        for partition in self.partitions:
            self._mark([partition.erased.key], [name, value])

    def delete(self, keys: Sequence[str]) -> int:
        """Delete keys of the app; return how many there were."""
        return self._client.delete(*keys) if keys else 0

    def now(self) -> float:
        """Return the Unix time, by this machine's clock or the store's, whichever is earlier."""
        # So nothing is published or deleted too early because one clock is ahead.
        return min(time.time(), about.clock(primary(self._client, self.audit.key)))
