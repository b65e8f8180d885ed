"""The worker: reads batches from the stream, counts them, and commits the sums, each report exactly once.

It does not depend on mechanisms: an entry states the layout of its reports, and two kernels count every layout. Whatever dies, an
entry is either in the stream or counted, never both. One script does the commit: it checks that the entries are still this
worker's, adds the sums and deletes the entries.
"""

from __future__ import annotations

import logging
import math
import os
import socket
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import uuid4

from deniable.errors import PayloadError
from deniable.wire.report import Stratum
from deniable_aggregator.archive.errors import ArchiveError
from deniable_aggregator.counting import batch_sums
from deniable_aggregator.counting.commit_files import LIFE_SECONDS, CommitFiles
from deniable_aggregator.counting.events import Events
from deniable_aggregator.store import batch, health
from deniable_aggregator.store.deliveries import Deliveries, StreamEntry
from deniable_aggregator.store.errors import AWAY, StoreError, transient

if TYPE_CHECKING:
    from collections.abc import Sequence
    from threading import Event

    from deniable_aggregator.archive.folder import Folder
    from deniable_aggregator.counting.batch_sums import Joined
    from deniable_aggregator.counting.chores import Chore
    from deniable_aggregator.store import Partition, Store
    from deniable_aggregator.store.deltas import Deltas

__all__ = ["Worker", "WorkerSettings"]

log = logging.getLogger("deniable.worker")


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """Settings of a worker.

    Parameters
    ----------
    batch
        Entries read, and committed, at once.
    block_ms
        Milliseconds to wait for an entry; shorter than the socket timeout.
    min_idle_ms
        Idle milliseconds after which another worker's entries are taken over.
    claim_every
        Seconds between searches for such entries.
    max_deliveries
        Deliveries after which an entry that is not counted is put aside.
    """

    batch: int = 100
    block_ms: int = 2000
    min_idle_ms: int = 60_000
    claim_every: float = 30.0
    max_deliveries: int = 5


class Worker:
    """Counts the reports of some apps.

    Parameters
    ----------
    stores
        One for each app, of one Redis.
    settings
        The worker's settings.
    chores
        Run when due, after a commit and when there is nothing to read.
    archive
        Where reports of ``bits`` layouts are kept. While it cannot be written nothing is counted.
    events
        Receives the worker's events.
    """

    def __init__(
        self,
        stores: Sequence[Store],
        settings: WorkerSettings | None = None,
        *,
        chores: Sequence[Chore] = (),
        archive: Folder | None = None,
        events: Events | None = None,
    ) -> None:
        self._stores = stores
        self._partitions: dict[str, Partition] = {}  # by stream
        self._settings = settings or WorkerSettings()
        self._chores = chores
        self._events = events or Events()
        self._files = CommitFiles(archive)
        self._claim_at = self._beat_at = 0.0
        self._signs: dict[str, health.Signs] = {}
        self.consumer = f"{socket.gethostname()}:{os.getpid()}:{uuid4().hex[:8]}"
        self.counted = 0
        self.buried = 0
        self.cut_off = False
        """Whether the last use of the store or the archive failed. If so at the end, entries may be left in hand."""

    def run(self, stop: Event, *, burst: bool = False) -> None:
        """Count until stopped, then leave.

        Parameters
        ----------
        stop
            When set, the entries in hand are committed and nothing more is read.
        burst
            Return as soon as the stream is empty and no chore has more to do.
        """
        joined = again = False
        pause = 0.1
        self._files.wait(stop)
        while not stop.is_set():
            try:
                if not joined:
                    self._join()
                    joined = True
                entries = self._deliveries.again(self._settings.batch) if again else self._claim() or self._read(block=not burst)
                for stream, read in entries.items():
                    self._settle(self._partitions[stream], read, stop)
                self._beat()
                more = [chore.do() for chore in self._chores]
                self.cut_off = False
                pause = 0.1
                if burst and not again and not entries and not any(more):
                    break
                again = again and bool(entries)
            except StoreError as error:
                # The store is unavailable or was emptied. Nothing is lost: entries in hand are claimed again later.
                log.warning("the store cannot be used (%s); trying again in %.1f s", type(error).__name__, pause)
                self.cut_off = True
                self._events.failed()
                joined = False
                again = isinstance(error, AWAY) or (again and transient(error))
                stop.wait(pause)
                pause = min(2 * pause, 5.0)
            except ArchiveError:  # and stopped
                self.cut_off = True
        if self.cut_off or not joined:  # the store would only time out again, or there is nothing to leave
            return
        try:
            for partition in self._partitions.values():
                partition.leave(self.consumer)
                health.stop(partition, self.consumer)
        except StoreError as error:
            self.cut_off = True
            log.warning("could not leave the consumer group (%s)", type(error).__name__)

    def _join(self) -> None:
        """Join the consumer group of each partition, and divide apps that nobody has used yet."""
        for store in self._stores:
            store.divide()
        found = {partition.stream: partition for store in self._stores for partition in store.partitions}
        if found.keys() != self._partitions.keys():
            self._partitions = found
            self._signs = {stream: health.Signs(partition) for stream, partition in found.items()}
            self._deliveries = Deliveries(list(found.values()), self.consumer)
        for partition in found.values():
            partition.join()

    def _read(self, *, block: bool) -> dict[str, list[StreamEntry]]:
        return self._deliveries.new(self._settings.batch, self._settings.block_ms if block else None)

    def _beat(self) -> None:
        if time.monotonic() >= self._beat_at:
            for partition in self._partitions.values():
                health.beat(partition, self.consumer)
            self._beat_at = time.monotonic() + health.BEAT_SECONDS

    def _claim(self) -> dict[str, list[StreamEntry]]:
        """Take over entries of dead workers, now and then. Put aside those that were taken over too often."""
        if time.monotonic() < self._claim_at:
            return {}
        claimed: dict[str, list[StreamEntry]] = {}
        for stream, partition in self._partitions.items():
            partition.staging.apply()
            self._mark_idle(partition)
            entries = self._claim_of(partition)
            if entries:
                claimed[stream] = entries
        if not claimed:  # otherwise there may be more to claim at once
            self._claim_at = time.monotonic() + self._settings.claim_every
        return claimed

    def _mark_idle(self, partition: Partition) -> None:
        """Mark the entries of dead workers as idle. Their idle time is too short if the clock was set back."""
        others = self._deliveries.others(partition.stream)
        for name in self._signs[partition.stream].silent(others, max(self._settings.min_idle_ms / 1000, health.LIFE_SECONDS)):
            partition.mark_idle(name, self._settings.min_idle_ms)

    def _claim_of(self, partition: Partition) -> list[StreamEntry]:
        """Take over entries of a partition: those that were delivered once together, any others one by one.

        If an entry kills its workers, only that entry is retried.
        """
        while True:
            idle = self._deliveries.idle(partition.stream, self._settings.batch, self._settings.min_idle_ms)
            if not idle:
                return []
            first, times = idle[0]
            ids = [id_ for id_, handed_out in idle if handed_out == 1] or [first]
            entries = self._deliveries.claim(partition.stream, ids, self._settings.min_idle_ms)
            if ids == [first] and times >= self._settings.max_deliveries:
                for entry in entries:
                    self._bury(partition, entry, f"delivered more than {self._settings.max_deliveries} times")
            elif entries:
                self._events.claimed(partition.app, len(entries))
                return entries

    def _settle(self, partition: Partition, entries: list[StreamEntry], stop: Event) -> None:
        """Count and commit entries. Those that another worker has taken over are left to it."""
        groups: dict[bytes, list[batch.Group]] = {}
        for entry in entries:
            try:
                groups[entry.id] = _groups(entry)
            except PayloadError as error:
                self._bury(partition, entry, f"{error.code}: {error}")
        while groups:
            try:
                joined = batch_sums.join(groups.values())
                deltas, reports = batch_sums.count(joined)
            except PayloadError:  # the ingest accepts none of these, so they are searched for only now
                for id_ in [id_ for id_, groups_ in groups.items() if not batch_sums.countable(groups_)]:
                    del groups[id_]
                    self._bury(partition, StreamEntry(id_, None), "payload: no device could have sent it")
                continue
            stale = self._commit(partition, list(groups), joined, deltas, stop)
            if not stale:
                self.counted += reports
                self._events.counted(partition.app, len(groups), reports)
                log.debug("counted %d reports of %d batches for %s", reports, len(groups), partition.app)
                return
            log.warning("%d batches were taken over by another worker", len(stale), extra={"app": partition.app})
            for id_ in stale:
                del groups[id_]

    def _commit(self, partition: Partition, ids: list[bytes], joined: Joined, deltas: Deltas, stop: Event) -> list[bytes]:
        pause = 0.1
        files, until = dict[Stratum, str](), -math.inf
        while True:
            try:
                if time.monotonic() > until:
                    files, until = self._files.write(partition, joined, stop), time.monotonic() + LIFE_SECONDS
                began = time.perf_counter()
                stale = partition.commit(self.consumer, ids, deltas, int(time.time()), files)
            except StoreError as error:
                if not transient(error):
                    raise
                # The commit may have succeeded. It can be sent again: then the entries are stale.
                log.warning("a commit is tried again: the store failed (%s)", type(error).__name__)
                if stop.wait(pause):
                    raise
                self._events.failed()
                pause = min(2 * pause, 5.0)
            else:
                self._events.committed(partition.app, time.perf_counter() - began)
                return stale

    def _bury(self, partition: Partition, entry: StreamEntry, reason: str) -> None:
        if partition.bury(self.consumer, entry.id, reason):
            self.buried += 1
            self._events.buried(partition.app)
            log.error("a batch of %s was put aside: %s", partition.app, reason, extra={"app": partition.app})


def _groups(entry: StreamEntry) -> list[batch.Group]:
    if entry.body is None:
        raise PayloadError("entry", "the entry was deleted while it was pending")
    return batch.decode(entry.body)
