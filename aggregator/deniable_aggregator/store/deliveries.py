"""Deliveries: which batches of the streams are in whose hands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from deniable_aggregator.store import GROUP

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from deniable_aggregator.store import Store

__all__ = ["Deliveries", "StreamEntry"]


@dataclass(frozen=True, slots=True)
class StreamEntry:
    """A batch read from the stream.

    Parameters
    ----------
    id
        Its stream id.
    body
        Its bytes; None where it was deleted while it was pending.
    """

    id: bytes
    body: bytes | None


class Deliveries:
    """What a worker is handed of some apps.

    Parameters
    ----------
    stores
        One for each app, of one Redis.
    worker
        Its name.
    """

    def __init__(self, stores: Sequence[Store], worker: str) -> None:
        self._redis = stores[0]._client
        self._streams = [store.stream for store in stores]
        self._worker = worker

    def new(self, count: int, wait_ms: int | None) -> dict[str, list[StreamEntry]]:
        """Hand out batches that nobody has had, by stream; wait some milliseconds where there is none."""
        return self._read(">", count, wait_ms)

    def again(self, count: int) -> dict[str, list[StreamEntry]]:
        """Hand out what is in hand already: the store may have handed it out in an answer that never came."""
        return self._read("0", count)

    def others(self, stream: str) -> list[str]:
        """Name the other workers that have something in hand."""
        holding = self._redis.xpending(stream, GROUP)["consumers"]
        return [each["name"].decode() for each in holding if each["name"] != self._worker.encode()]

    def idle(self, stream: str, count: int, ms: int) -> list[tuple[bytes, int]]:
        """List batches that were in hand for some milliseconds: the id of each, and how often it was handed out."""
        found = self._redis.xpending_range(stream, GROUP, "-", "+", count, idle=ms)
        return [(each["message_id"], each["times_delivered"]) for each in cast("list[dict[str, Any]]", found)]

    def claim(self, stream: str, ids: Sequence[bytes], ms: int) -> list[StreamEntry]:
        """Take over batches, if they are still in hand for so long."""
        return _entries(cast("list[Any]", self._redis.xclaim(stream, GROUP, self._worker, ms, list(ids))))

    def _read(self, after: str, count: int, wait_ms: int | None = None) -> dict[str, list[StreamEntry]]:
        reply = self._redis.xreadgroup(GROUP, self._worker, dict.fromkeys(self._streams, after), count=count, block=wait_ms)
        return {stream.decode(): _entries(read) for stream, read in cast("list[Any]", reply) if read}


def _entries(read: Iterable[tuple[bytes, dict[bytes, bytes] | None]]) -> list[StreamEntry]:
    return [StreamEntry(id_, (fields or {}).get(b"d")) for id_, fields in read]
