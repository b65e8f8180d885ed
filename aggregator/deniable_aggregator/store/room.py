"""Room in the store: uploads may take a part of its memory, so that counting, queries and the operator never lack any.

Whoever has the public key can send uploads until there is no room for more. Where the store has a limit (`maxmemory`), uploads
are refused before it is reached: what waits is counted, what is remembered of earlier days is forgotten a day a minute
(`deniable_aggregator.store.uploads`), what is remembered of today stays until midnight (UTC); keys can be revoked meanwhile, and
nothing else is refused. How much is used is looked up now and then: at most a second, or a hundredth of the limit, lies between
two looks.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import redis

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["SHARE", "Room", "is_full", "left"]

SHARE = 0.75
"""Of the store's memory, what may be in use for an upload to be taken. The rest is for whatever else is done."""

_SECONDS = 1.0
_STEP = 0.01
_OVERHEAD = 100  # bytes of an upload beside its entry, or less


class Room:
    """What one process knows of the memory that is left for uploads."""

    def __init__(self) -> None:
        self._until = 0.0
        self._left = self._step = 0.0

    def take(self, client: redis.Redis, size: int) -> bool:
        """Tell whether there is room for an upload, and count it.

        Parameters
        ----------
        client
            The store.
        size
            Bytes of its entry.

        Raises
        ------
        StoreError
            If the store cannot be asked.
        """
        now = time.monotonic()
        if now >= self._until or self._step <= 0:
            self._look(client)
            self._until = now + _SECONDS
        if self._left <= 0:
            return False
        self._left -= size + _OVERHEAD
        self._step -= size + _OVERHEAD
        return True

    def _look(self, client: redis.Redis) -> None:
        told = _memory(client)
        most = int(told.get("maxmemory", 0))
        self._left = left(told)
        self._step = _STEP * most if most else float("inf")


def is_full(client: redis.Redis) -> bool:
    """Tell whether uploads are refused for want of room.

    Raises
    ------
    StoreError
        If the store cannot be asked.
    """
    return left(_memory(client)) <= 0


def _memory(client: redis.Redis) -> dict[str, Any]:
    try:
        return dict(client.info("memory"))
    except redis.ResponseError:  # its user may not; then the store itself refuses when it is full
        return {}


def left(memory: Mapping[str, Any]) -> float:
    """Return how many bytes uploads may yet take; infinite where the store has no limit, or does not tell.

    Parameters
    ----------
    memory
        As ``INFO memory`` tells it.
    """
    most = int(memory.get("maxmemory", 0))
    return SHARE * most - int(memory["used_memory"]) if most else float("inf")
