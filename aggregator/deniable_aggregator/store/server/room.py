"""Room in the store: uploads, and then counting, may take only a part of its memory, so that all else works when it is used up.

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

__all__ = ["COMMITS", "COUNTING", "UPLOADS", "Room", "is_full", "left", "most"]

COUNTING = 0.85
"""Share up to which batches are taken to be counted, and sums are copied."""
COMMITS = 0.95
"""Share up to which the sums of batches that were taken are added. The rest is for everything else."""

_SECONDS = 1.0
_STEP = 0.01
_OVERHEAD = 100  # bytes of an upload beside its entry, at most


@dataclass(slots=True)
class _Known:
    """What is known of a server: bytes left, and how many seconds and bytes later it is read again."""

    until: float = 0.0
    left: float = 0.0
    step: float = 0.0


class Room:
    """What this process knows of the memory left, by server of the store."""

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
        """Return whether there is room for something, and count it.

        Raises
        ------
        StoreError
            If the store cannot be read.
        """
        now, known = time.monotonic(), self._known.get(client)
        if known is None or now >= known.until or known.step <= 0:
            known = self._known[client] = _read(client, now, self._share)
        if known.left <= size:
            return False
        known.left -= size + _OVERHEAD
        known.step -= size + _OVERHEAD
        return True


def _read(client: redis.Redis, now: float, share: float) -> _Known:
    told = _memory(client)
    most = int(told.get("maxmemory", 0))
    return _Known(now + _SECONDS, left(told, share), _STEP * most if most else float("inf"))


def is_full(client: redis.Redis) -> bool:
    """Return whether a server refuses uploads because of memory.

    Raises
    ------
    StoreError
        If the store cannot be read.
    """
    return left(_memory(client)) <= 0


def most(client: redis.Redis) -> int:
    """Return the limits of all servers of the store together, in bytes; 0 if one has none, or does not show it.

    Raises
    ------
    StoreError
        If the store cannot be read.
    """
    each = [int(_memory(server).get("maxmemory", 0)) for server in primaries(client)]
    return sum(each) if all(each) else 0


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
