"""Room in the store: uploads may take only a part of its memory, so that everything else still works when it is used up.

Everybody with the public key can send uploads until no room is left. If the store has a limit (`maxmemory`), uploads are refused
before it is reached. Meanwhile waiting batches are counted, and keys can be revoked; nothing else is refused. Records of earlier
days are deleted, one day a minute (`deniable_aggregator.store.uploads`). Those of today stay until midnight (UTC). The use of
memory is read regularly: at most a second, or a hundredth of the limit, lies between two reads.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
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


@dataclass(slots=True)
class _Known:
    """What is known of a server: bytes left for uploads, and how many seconds and bytes later it is read again."""

    until: float = 0.0
    left: float = 0.0
    step: float = 0.0


class Room:
    """What this process knows of the memory left for uploads, by server of the store."""

    def __init__(self) -> None:
        self._known: dict[redis.Redis, _Known] = {}

    def take(self, client: redis.Redis, size: int) -> bool:
        """Return whether there is room for an upload, and count it.

        Parameters
        ----------
        client
            The server that takes it.
        size
            Bytes of its entry.

        Raises
        ------
        StoreError
            If the store cannot be read.
        """
        now, known = time.monotonic(), self._known.get(client)
        if known is None or now >= known.until or known.step <= 0:
            known = self._known[client] = _read(client, now)
        if known.left <= 0:
            return False
        known.left -= size + _OVERHEAD
        known.step -= size + _OVERHEAD
        return True


def _read(client: redis.Redis, now: float) -> _Known:
    told = _memory(client)
    most = int(told.get("maxmemory", 0))
    return _Known(now + _SECONDS, left(told), _STEP * most if most else float("inf"))


def is_full(client: redis.Redis) -> bool:
    """Return whether a server refuses uploads because of memory.

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
