"""Room in the store: uploads may take only a part of its memory, so that everything else still works when it is used up.

Everybody with the public key can send uploads until no room is left. If the store has a limit (`maxmemory`), uploads are refused
before it is reached. Meanwhile waiting batches are counted, and keys can be revoked; nothing else is refused. Records of earlier
days are deleted, one day a minute (`deniable_aggregator.store.uploads`). Those of today stay until midnight (UTC). The use of
memory is read regularly: at most a second, or a hundredth of the limit, lies between two reads.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import redis

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["SHARE", "Room", "is_full", "left"]

SHARE = 0.75
"""Share of the store's memory up to which uploads are accepted. The rest is for everything else."""

_SECONDS = 1.0
_STEP = 0.01
_OVERHEAD = 100  # bytes of an upload beside its entry, at most


class Room:
    """What this process knows of the memory left for uploads."""

    def __init__(self) -> None:
        self._until = 0.0
        self._left = self._step = 0.0

    def take(self, client: redis.Redis, size: int) -> bool:
        """Return whether there is room for an upload, and count it.

        Parameters
        ----------
        client
            The store.
        size
            Bytes of its entry.

        Raises
        ------
        StoreError
            If the store cannot be read.
        """
        now = time.monotonic()
        if now >= self._until or self._step <= 0:
            self._read(client)
            self._until = now + _SECONDS
        if self._left <= 0:
            return False
        self._left -= size + _OVERHEAD
        self._step -= size + _OVERHEAD
        return True

    def _read(self, client: redis.Redis) -> None:
        told = _memory(client)
        most = int(told.get("maxmemory", 0))
        self._left = left(told)
        self._step = _STEP * most if most else float("inf")


def is_full(client: redis.Redis) -> bool:
    """Return whether uploads are refused because of memory.

    Raises
    ------
    StoreError
        If the store cannot be read.
    """
    return left(_memory(client)) <= 0


def _memory(client: redis.Redis) -> dict[str, Any]:
    try:
        return dict(client.info("memory"))
    except redis.ResponseError:  # its user may not; then the store itself refuses when it is full
        return {}


def left(memory: Mapping[str, Any]) -> float:
    """Return how many more bytes uploads may take; infinite if the store has no limit, or does not show it.

    Parameters
    ----------
    memory
        The answer to ``INFO memory``.
    """
    most = int(memory.get("maxmemory", 0))
    return SHARE * most - int(memory["used_memory"]) if most else float("inf")
