"""Deliveries: which worker has which batches of the streams."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import redis

from deniable.wire.report import MAX_INFLATED_BYTES
from deniable_aggregator.store.server.cluster import Cluster
from deniable_aggregator.store.server.servers import primary
from deniable_aggregator.store.uploads.partition import GROUP

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from deniable_aggregator.store import Store
    from deniable_aggregator.store.uploads.partition import Partition

log = logging.getLogger("deniable.worker")

FORGET_SECONDS = 600.0
"""Seconds between searches for dead workers."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.002, 0.1  # seconds between reads of a cluster
_LARGEST = MAX_INFLATED_BYTES  # bytes of an entry, at most: it holds less than its upload
_AT_ONCE = 128  # entries in one answer of the store, at most, so that a worker holds little more than 128 MiB of them


@dataclass(frozen=True, slots=True)
class StreamEntry:
    """A batch read from the stream."""

    id: bytes  # its stream id
    body: bytes | None  # its bytes; None if it was deleted while it was pending


class Deliveries:
    """What a worker receives of some partitions."""

    def __init__(
        self,
        partitions: Sequence[Partition],  # all of one store
        worker: str,  # its name
    ) -> None:
        self._client = partitions[0]._client
        streams = [partition.stream for partition in partitions]
        self._lots = [streams[first : first + _AT_ONCE] for first in range(0, len(streams), _AT_ONCE)]
        self._worker = worker
        self._share = max(1, _AT_ONCE // len(self._lots[0]))  # of a stream in an answer about several

    def new(self, count: int, wait_ms: int | None) -> dict[str, list[StreamEntry]]:
        """Deliver batches that no worker has had, by stream. If there are none, wait some milliseconds.

        These are the first ones of some streams, at most 128 in all. `more` delivers the rest of a stream.
        """
        share = min(count, self._share)
        if len(self._lots) == 1:
            return self._read(self._lots[0], ">", share, wait_ms)
        for _ in self._lots:
            self._lots.append(lot := self._lots.pop(0))  # so that each lot has its turn
            if read := self._read(lot, ">", share):
                return read
        return self._read([stream for lot in self._lots for stream in lot], ">", 1, wait_ms) if wait_ms else {}

    def more(self, stream: str, entries: list[StreamEntry], count: int) -> list[StreamEntry]:
        """Deliver further batches of a stream until there are `count`, or as many as a worker may hold."""
        entries, size, asked = list(entries), 0, min(count, self._share)
        last = entries
        while len(last) == asked:
            size += sum(len(entry.body or b"") for entry in last)
            asked = min(count - len(entries), _AT_ONCE - -(-size // _LARGEST))
            if asked <= 0:
                break
            last = self._read([stream], ">", asked).get(stream, [])
            entries += last
        return entries

    def again(self, count: int) -> dict[str, list[StreamEntry]]:
        """Deliver again what the worker already has: an earlier answer may have been lost."""
        return next(filter(None, (self._read(lot, "0", min(count, self._share)) for lot in self._lots)), {})

    def others(self, stream: str) -> list[str]:
        """Return the other workers that have entries."""
        holding = self._client.xpending(stream, GROUP)["consumers"]
        return [each["name"].decode() for each in holding if each["name"] != self._worker.encode()]

    def idle(self, stream: str, count: int, ms: int) -> list[tuple[bytes, int]]:
        """Return batches that were idle for some milliseconds: the id of each, and its number of deliveries."""
        found = self._client.xpending_range(stream, GROUP, "-", "+", min(count, _AT_ONCE), idle=ms)
        return [(each["message_id"], each["times_delivered"]) for each in cast("list[dict[str, Any]]", found)]

    def claim(self, stream: str, ids: Sequence[bytes], ms: int) -> list[StreamEntry]:
        """Take over batches, if they are still idle for so long."""
        return _entries(cast("list[Any]", self._client.xclaim(stream, GROUP, self._worker, ms, list(ids))))

    def _read(self, streams: Sequence[str], after: str, count: int, wait_ms: int | None = None) -> dict[str, list[StreamEntry]]:
        """Read the first entries of each of some streams."""
        if not isinstance(self._client, Cluster):
            return _by_stream(self._ask(self._client, streams, after, count, wait_ms))
        # One read must not ask for streams of several servers, and a read that waits would keep the others waiting.
        until, pause = time.monotonic() + (wait_ms or 0) / 1000, _FIRST_PAUSE
        while not (read := self._read_each(streams, after, count)) and time.monotonic() + pause < until:
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
        return read

    def _read_each(self, streams: Sequence[str], after: str, count: int) -> dict[str, list[StreamEntry]]:
        """Read each stream by itself, all of one primary in one round trip."""
        by_primary: dict[Any, list[str]] = {}
        for stream in streams:
            by_primary.setdefault(primary(self._client, stream), []).append(stream)
        read: dict[str, list[StreamEntry]] = {}
        try:
            for server, own in by_primary.items():
                pipeline = server.pipeline(transaction=False)
                for stream in own:
                    self._ask(pipeline, [stream], after, count)
                for reply in pipeline.execute():
                    read |= _by_stream(reply)
        except redis.RedisError:
            cast("Cluster", self._client).refresh()  # perhaps another server has a stream now
            raise
        return read

    def _ask(self, client: Any, streams: Sequence[str], after: str, count: int, wait_ms: int | None = None) -> Any:
        return client.xreadgroup(GROUP, self._worker, dict.fromkeys(streams, after), count=count, block=wait_ms)


def _by_stream(reply: list[Any]) -> dict[str, list[StreamEntry]]:
    return {stream.decode(): _entries(read) for stream, read in reply if read}


def _entries(read: Iterable[tuple[bytes, dict[bytes, bytes] | None]]) -> list[StreamEntry]:
    return [StreamEntry(id_, (fields or {}).get(b"d")) for id_, fields in read]


def forget_dead(store: Store, idle: float = 3600.0) -> None:
    """Delete consumers of dead workers: those that were killed did not leave.

    Parameters
    ----------
    store
        The app's store.
    idle
        Seconds without a sign of life after which a worker is dead. A consumer with entries is kept until these are taken over.
    """
    try:
        if forgotten := sum(each.forget(idle) for each in store.partitions):
            log.info("removed %d dead workers of %s", forgotten, store.app)
    except redis.ResponseError as error:
        log.warning("dead workers stay in the store's list (%s)", type(error).__name__)
