"""The counter: reads batches of some partitions, counts them, and commits the sums, each report exactly once.

It does not depend on mechanisms: an entry states the layout of its reports, and two kernels count every layout. One script does
the commit: it checks that the entries are still this worker's, adds the sums and deletes the entries. So an entry is in the
stream or counted, never both, whichever process dies.
"""

from __future__ import annotations

import logging
import math
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from deniable.errors import PayloadError
from deniable.messages.plural import plural
from deniable.wire.report import Stratum
from deniable_aggregator.archive.errors import ArchiveError
from deniable_aggregator.counting import batch_sums
from deniable_aggregator.counting.commit_files import LIFE_SECONDS, CommitFiles
from deniable_aggregator.counting.faults import Faults
from deniable_aggregator.counting.pauses import Pauses
from deniable_aggregator.store.errors import AWAY, NoRoom, StoreError, reason, transient
from deniable_aggregator.store.server.room import COMMITS, COUNTING, Room
from deniable_aggregator.store.sums.deltas import growth
from deniable_aggregator.store.uploads import batch, health
from deniable_aggregator.store.uploads.deliveries import Deliveries, StreamEntry

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from threading import Event

    from deniable_aggregator.archive.folder import Folder
    from deniable_aggregator.counting.batch_sums import Joined
    from deniable_aggregator.counting.events import Events
    from deniable_aggregator.store import Partition, Store
    from deniable_aggregator.store.outage import Outage
    from deniable_aggregator.store.sums.deltas import Deltas

log = logging.getLogger("deniable.worker")


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """Settings of a worker."""

    batch: int = 100  # entries read, and committed, at once
    block_ms: int = 2000  # milliseconds to wait for an entry; shorter than the socket timeout
    min_idle_ms: int = 60_000  # idle milliseconds after which another worker's entries are taken over
    claim_every: float = 30.0  # seconds between searches for such entries
    max_deliveries: int = 5  # deliveries after which an entry that is not counted is put aside


class Counter:
    """Counts the batches of some partitions, whose streams are on one server."""

    def __init__(
        self,
        stores: Sequence[Store],  # of the apps that have them
        partitions: Sequence[Partition],
        worker: str,  # its name among the readers of the streams
        settings: WorkerSettings,
        archive: Folder | None,
        events: Events,
        outage: Outage,
    ) -> None:
        self._stores = stores
        self._partitions = {partition.stream: partition for partition in partitions}
        self._signs = {partition.stream: health.Signs(partition) for partition in partitions}
        self._deliveries = Deliveries(partitions, worker)
        self._worker, self._settings, self._events = worker, settings, events
        self._files = CommitFiles(archive, self._tell_archive)
        self._faults = [Faults(store, events, outage) for store in stores]
        self._reading, self._adding = Room(COUNTING), Room(COMMITS)
        self._passed: set[str] = set()  # faults that are known to be over; another worker may have noted any other
        self._claim_at = self._beat_at = 0.0
        self._pauses = Pauses()  # while the store fails
        self._outage, self._place = outage, partitions[0].place
        self._again = False  # whether batches in hand may have been handed out in an answer that was lost
        self._joined = False
        self.counted = self.buried = 0
        self.cut_off = False
        """Whether the last use of the store or the archive failed. Then entries may be left in hand at the end."""
        self.barred = True
        """Whether the store's user may not read the reports; also True until that is known."""

    def join(self, stop: Event) -> None:
        """Join the consumer group of each partition, and wait until the archive can be written, or for the stop."""
        if self._joined:
            return
        for store in self._stores:
            # A store that was emptied has lost the app's number of partitions. It may be on another server that is away: then
            # the next upload writes the number.
            with suppress(*AWAY):
                store.divide()
        for partition in self._partitions.values():
            partition.join()
        self._joined, self.barred = True, False
        self._files.wait(stop)

    def turn(
        self,
        stop: Event,  # when set, the entries in hand are committed and nothing more is read
        *,
        block: bool,  # wait for entries if there are none
    ) -> bool:
        """Read once, count and commit; return whether there may be more to count at once."""
        try:
            self.join(stop)
            if stop.is_set():
                return False
            # Nothing is read that the store has no room to count. All partitions are on one server, so one is asked.
            next(iter(self._partitions.values())).check_room(self._reading)
            read = False
            for stream, entries in self._entries(stop, block=block):
                read = True
                self._settle(self._partitions[stream], entries, stop)
            self._beat()
            self._tell(health.MEMORY)
        except StoreError as error:
            # Nothing is lost: entries in hand are claimed again later. An emptied store has no groups, so they are joined again.
            self._events.failed()
            self.cut_off, self._joined, self.barred = True, False, reason(error) == "forbidden"
            self._again = isinstance(error, AWAY) or (self._again and transient(error))
            if isinstance(error, NoRoom):
                with suppress(StoreError):
                    self._tell(health.MEMORY, error)
                    self._beat()
            else:
                self._outage.failed(self._place, error)
            self._pauses.take(stop)
            return True
        except ArchiveError:  # raised only after the stop
            self.cut_off = True
            return False
        self._outage.passed(self._place)
        self.cut_off = False
        self._pauses.end()
        again, self._again = self._again, self._again and read
        return read or again

    def run(self, stop: Event) -> None:
        """Count until stopped."""
        while not stop.is_set():
            self.turn(stop, block=True)
            self._events.turned()
        self._events.ended()

    def leave(
        self,
        *,
        successor: bool = False,  # whether another worker starts at once in its place; then the last sign of life stays
    ) -> None:
        """Leave the consumer groups, unless the store would only time out again."""
        if self.cut_off or not self._joined:
            return
        try:
            for partition in self._partitions.values():
                partition.leave(self._worker)
                if not successor:
                    health.stop(partition, self._worker)
        except StoreError as error:
            self.cut_off = True
            log.warning("could not leave the consumer group (%s)", type(error).__name__)

    def _tell(self, fault: str, error: Exception | None = None) -> None:
        """Record a fault that holds counting up, or, without an error, that it has passed."""
        if error:
            self._passed.discard(fault)
        elif fault in self._passed:
            return
        for faults in self._faults:
            with faults.alone(fault):
                if error:
                    raise error
        if not error:
            self._passed.add(fault)

    def _tell_archive(self, error: ArchiveError | None) -> None:
        """Record whether the archive can be written."""
        with suppress(StoreError):  # the next try records it
            self._tell(health.ARCHIVE, error)
            if error:
                self._beat()
        if error:  # a worker that waits for the archive is well: nobody should restart it
            self._events.turned()

    def _entries(self, stop: Event, *, block: bool) -> Iterator[tuple[str, list[StreamEntry]]]:
        """Yield entries of each stream, and read the next ones when these are counted."""
        count = self._settings.batch
        if self._again:  # first those that were handed out in an answer that was lost
            yield from self._deliveries.again(count).items()
            return
        claimed = False
        for stream, entries in self._claim(stop):
            claimed = True
            yield stream, entries
        if not claimed:
            for stream, entries in self._read(block=block).items():
                yield stream, self._deliveries.more(stream, entries, count)

    def _read(self, *, block: bool) -> dict[str, list[StreamEntry]]:
        return self._deliveries.new(self._settings.batch, self._settings.block_ms if block else None)

    def _beat(self) -> None:
        if time.monotonic() >= self._beat_at:
            for partition in self._partitions.values():
                health.beat(partition, self._worker)
            self._beat_at = time.monotonic() + health.BEAT_SECONDS

    def _claim(self, stop: Event) -> Iterator[tuple[str, list[StreamEntry]]]:
        """Take over entries of dead workers every `claim_every` seconds. Put aside those that were taken over too often."""
        if time.monotonic() < self._claim_at:
            return
        claimed = False
        for stream, partition in self._partitions.items():
            partition.staging.apply()
            self._mark_idle(partition)
            if entries := self._claim_of(partition, stop):
                claimed = True
                yield stream, entries
        if not claimed:  # otherwise there may be more to claim at once
            self._claim_at = time.monotonic() + self._settings.claim_every

    def _mark_idle(self, partition: Partition) -> None:
        """Mark the entries of dead workers as idle."""
        # Redis computes idle time from its clock. If that was set back, the entries of a dead worker seem to be fresh.
        others = self._deliveries.others(partition.stream)
        for name in self._signs[partition.stream].silent(others, max(self._settings.min_idle_ms / 1000, health.LIFE_SECONDS)):
            partition.mark_idle(name, self._settings.min_idle_ms)

    def _claim_of(self, partition: Partition, stop: Event) -> list[StreamEntry]:
        """Take over entries of a partition."""
        while True:
            idle = self._deliveries.idle(partition.stream, self._settings.batch, self._settings.min_idle_ms)
            if not idle:
                return []
            # While the archive is away nobody can count these. To take them over in vain would only raise their deliveries.
            self._files.wait(stop)
            if stop.is_set():
                return []
            first, times = idle[0]
            # Entries that were delivered once are taken together. Others are tried one by one: if an entry kills its workers, it
            # alone reaches the limit and is put aside.
            ids = [id_ for id_, handed_out in idle if handed_out == 1] or [first]
            entries = self._deliveries.claim(partition.stream, ids, self._settings.min_idle_ms)
            if ids == [first] and times >= self._settings.max_deliveries:
                for entry in entries:
                    self._bury(partition, entry, f"delivered more than {self._settings.max_deliveries} times")
            elif entries:
                self._events.claimed(partition.app, len(entries))
                return entries

    def _settle(self, partition: Partition, entries: list[StreamEntry], stop: Event) -> None:
        """Count and commit entries, except those that another worker has taken over meanwhile."""
        groups: dict[bytes, list[batch.Group]] = {}
        for entry in entries:
            try:
                groups[entry.id] = _groups(entry)
            except PayloadError as error:
                self._bury(partition, entry, f"{error.code}: {error}")
        while groups:
            joined, deltas, reports = self._count(partition, groups)
            if not groups:
                return
            if not partition.has_room(self._adding, growth(deltas)):
                self._settle_each(partition, [entry for entry in entries if entry.id in groups], stop)
                return
            # All entries are committed or none. If some are another worker's by now, the others are counted anew.
            stale = self._commit(partition, list(groups), joined, deltas, stop)
            if not stale:
                self.counted += reports
                self._events.counted(partition.app, len(groups), reports)
                log.debug("counted %d reports of %d batches for %s", reports, len(groups), partition.app)
                return
            log.warning("taken over by another worker: %s", plural(len(stale), "batch"), extra={"app": partition.app})
            for id_ in stale:
                del groups[id_]

    def _settle_each(self, partition: Partition, entries: list[StreamEntry], stop: Event) -> None:
        """Count and commit entries one by one: their sums together take more memory than is left."""
        if len(entries) == 1:
            raise NoRoom("the sums of a batch take more memory than the store has left")
        for entry in entries:
            self._settle(partition, [entry], stop)

    def _count(self, partition: Partition, groups: dict[bytes, list[batch.Group]]) -> tuple[Joined, Deltas, int]:
        """Count batches by the ids of their entries. Batches that cannot be counted are put aside and removed from `groups`."""
        while True:
            try:
                joined = batch_sums.join(groups.values())
                return joined, *batch_sums.count(joined)
            except PayloadError:  # a server accepts none of these, so each batch is checked by itself only now
                for id_ in [id_ for id_, groups_ in groups.items() if not batch_sums.countable(groups_)]:
                    del groups[id_]
                    self._bury(partition, StreamEntry(id_, None), "payload: no device could have sent it")

    def _commit(self, partition: Partition, ids: list[bytes], joined: Joined, deltas: Deltas, stop: Event) -> list[bytes]:
        """Commit sums, however often the store fails meanwhile; return the ids of entries that are not this worker's any more."""
        pauses = Pauses()
        files, until = dict[Stratum, str](), -math.inf
        while True:
            try:
                # Files are on the disk before the commit notes them: a file that is noted is there.
                if time.monotonic() > until:
                    files, until = self._files.write(partition, joined, stop), time.monotonic() + LIFE_SECONDS
                began = time.perf_counter()
                stale = partition.commit(self._worker, ids, deltas, int(time.time()), files)
            except StoreError as error:
                if not transient(error):
                    raise
                # The commit may have succeeded, and its answer been lost. Then the entries are gone: nothing is added twice.
                self._outage.failed(self._place, error)
                if pauses.take(stop):
                    raise
                self._events.failed()
            else:
                self._events.committed(partition.app, time.perf_counter() - began)
                return stale

    def _bury(self, partition: Partition, entry: StreamEntry, reason: str) -> None:
        if partition.bury(self._worker, entry.id, reason):
            self.buried += 1
            self._events.buried(partition.app)
            log.error("a batch of %s was put aside: %s", partition.app, reason, extra={"app": partition.app})


def _groups(entry: StreamEntry) -> list[batch.Group]:
    if entry.body is None:
        raise PayloadError("entry", "the entry was deleted while it was pending")
    return batch.decode(entry.body)
