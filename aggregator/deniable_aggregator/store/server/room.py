"""Room in the store: uploads and counting may take only a part of its memory, so that everything else always works.

Everybody with the public key can send uploads until no room is left. If the store has a limit (`maxmemory`), uploads are refused
before it is reached. Meanwhile waiting batches are counted. Sums of many small groups take more than the batches did, so counting
ends before the limit, too. So there is always room to revoke a key, to sign in, and to erase a metric or delete what is due.
Records of earlier days are deleted, one day a minute (`uploads.seen`). Those of today stay until midnight (UTC). The use
of memory is read regularly: at most a second, or a hundredth of the limit, lies between two reads.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import redis

from deniable.forecast.space import UPLOADS
from deniable_aggregator.store.server.servers import primaries

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["COMMITS", "COUNTING", "UPLOADS", "Room", "fullest", "is_full", "left", "most"]

COUNTING = 0.85
"""Share up to which batches are taken to be counted, and sums are copied."""
COMMITS = 0.95
"""Share up to which the sums of batches that were taken are added. The rest is for everything else."""

_SECONDS = 1.0
_STEP = 0.01
_OVERHEAD = 100  # bytes of an upload beside its entry, at most


@dataclass(slots=True)
class _Known:
    """What is known of the memory of a server."""

    until: float = 0.0  # when it is read again, by the monotonic clock
    left: float = 0.0  # bytes that may be used
    step: float = 0.0  # bytes after which it is read again


class Room:
    """The memory that this process may use, by server of the store."""

    def __init__(
        self,
        share: float = UPLOADS,  # share of the memory that may be used
    ) -> None:
        self._share = share
        self._known: dict[redis.Redis, _Known] = {}

    def take(
        self,
        client: redis.Redis,  # the server that takes it
        size: int,  # its bytes
    ) -> bool:
        """Return whether there is room for some bytes, and count them as used."""
        now, known = time.monotonic(), self._known.get(client)
        if known is None or now >= known.until or known.step <= 0:
            known = self._known[client] = _read(client, now, self._share)
        if known.left <= size:
            return False
        known.left -= size + _OVERHEAD
        known.step -= size + _OVERHEAD
        return True


def _read(client: redis.Redis, now: float, share: float) -> _Known:
    memory = _memory(client)
    most = int(memory.get("maxmemory", 0))
    return _Known(now + _SECONDS, left(memory, share), _STEP * most if most else float("inf"))


def is_full(client: redis.Redis) -> bool:
    """Return whether a server refuses uploads because of memory."""
    return left(_memory(client)) <= 0


def most(client: redis.Redis) -> int:
    """Return the limits of all servers of the store together, in bytes; 0 if one has none, or does not show it."""
    limits = [int(_memory(server).get("maxmemory", 0)) for server in primaries(client)]
    return sum(limits) if all(limits) else 0


def fullest(client: redis.Redis) -> tuple[int, int] | None:
    """Return the bytes that the fullest server of the store uses, and its limit; None if no server shows a limit."""
    memories = map(_memory, primaries(client))
    used = [(int(each["used_memory"]), most) for each in memories if (most := int(each.get("maxmemory", 0)))]
    return max(used, key=lambda pair: pair[0] / pair[1], default=None)


def _memory(client: redis.Redis) -> dict[str, Any]:
    try:
        return dict(client.info("memory"))
    except redis.ResponseError:  # its user may not; then the store itself refuses when it is full
        return {}


def left(
    memory: Mapping[str, Any],  # the answer to `INFO memory`
    share: float = UPLOADS,  # share of the memory that may be used
) -> float:
    """Return how many more bytes may be used; infinite if the store has no limit, or does not show it."""
    most = int(memory.get("maxmemory", 0))
    return share * most - int(memory["used_memory"]) if most else float("inf")
