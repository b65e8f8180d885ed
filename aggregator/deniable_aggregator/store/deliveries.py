"""Deliveries: which worker has which batches of the streams."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import redis

from deniable_aggregator.store.cluster import Cluster
from deniable_aggregator.store.partition import GROUP
from deniable_aggregator.store.servers import primary

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from deniable_aggregator.store.partition import Partition

__all__ = ["Deliveries", "StreamEntry"]

_FIRST_PAUSE, _LONGEST_PAUSE = 0.002, 0.1  # seconds between reads of a cluster


@dataclass(frozen=True, slots=True)
class StreamEntry:
    """A batch read from the stream.

    Parameters
    ----------
    id
        Its stream id.
    body
        Its bytes; None if it was deleted while it was pending.
    """

    id: bytes
    body: bytes | None


class Deliveries:
    """What a worker receives of some partitions.

    Parameters
    ----------
    partitions
        All of one store.
    worker
        Its name.
    """

    def __init__(self, partitions: Sequence[Partition], worker: str) -> None:
        self._client = partitions[0]._client
        self._streams = [partition.stream for partition in partitions]
        self._worker = worker

    def new(self, count: int, wait_ms: int | None) -> dict[str, list[StreamEntry]]:
        """Deliver batches that no worker has had, by stream. If there are none, wait some milliseconds."""
        return self._read(">", count, wait_ms)

    def again(self, count: int) -> dict[str, list[StreamEntry]]:
        """Deliver again what the worker already has: an earlier answer may have been lost."""
        return self._read("0", count)

    def others(self, stream: str) -> list[str]:
        """Return the other workers that have entries."""
        holding = self._client.xpending(stream, GROUP)["consumers"]
        return [each["name"].decode() for each in holding if each["name"] != self._worker.encode()]

    def idle(self, stream: str, count: int, ms: int) -> list[tuple[bytes, int]]:
        """Return batches that were idle for some milliseconds: the id of each, and its number of deliveries."""
        found = self._client.xpending_range(stream, GROUP, "-", "+", count, idle=ms)
        return [(each["message_id"], each["times_delivered"]) for each in cast("list[dict[str, Any]]", found)]

    def claim(self, stream: str, ids: Sequence[bytes], ms: int) -> list[StreamEntry]:
        """Take over batches, if they are still idle for so long."""
        return _entries(cast("list[Any]", self._client.xclaim(stream, GROUP, self._worker, ms, list(ids))))

    def _read(self, after: str, count: int, wait_ms: int | None = None) -> dict[str, list[StreamEntry]]:
        if not isinstance(self._client, Cluster):
            return _by_stream(self._ask(self._client, self._streams, after, count, wait_ms))
        # One read must not ask for streams of several servers, and a read that waits would keep the others waiting.
        until, pause = time.monotonic() + (wait_ms or 0) / 1000, _FIRST_PAUSE
        while not (found := self._read_each(after, count)) and time.monotonic() + pause < until:
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
        return found

    def _read_each(self, after: str, count: int) -> dict[str, list[StreamEntry]]:
        """Read each stream by itself, all of one primary in one round trip."""
        by_primary: dict[Any, list[str]] = {}
        for stream in self._streams:
            by_primary.setdefault(primary(self._client, stream), []).append(stream)
        found: dict[str, list[StreamEntry]] = {}
        try:
            for server, streams in by_primary.items():
                pipeline = server.pipeline(transaction=False)
                for stream in streams:
                    self._ask(pipeline, [stream], after, count)
                for reply in pipeline.execute():
                    found |= _by_stream(reply)
        except redis.RedisError:
            cast("Cluster", self._client).refresh()  # perhaps another server has a stream now
            raise
        return found

    def _ask(self, client: Any, streams: Sequence[str], after: str, count: int, wait_ms: int | None = None) -> Any:
        return client.xreadgroup(GROUP, self._worker, dict.fromkeys(streams, after), count=count, block=wait_ms)


def _by_stream(reply: list[Any]) -> dict[str, list[StreamEntry]]:
    return {stream.decode(): _entries(read) for stream, read in reply if read}


def _entries(read: Iterable[tuple[bytes, dict[bytes, bytes] | None]]) -> list[StreamEntry]:
    return [StreamEntry(id_, (fields or {}).get(b"d")) for id_, fields in read]
