"""Compaction: batches that were counted leave the disk of the store.

Redis appends every command to a file. A batch stays in it after its entry is deleted, until the file is rewritten. So does the
time at which a worker received it. By itself Redis rewrites the file when it has doubled, which takes months with little traffic.
So workers ask for it, and a counted batch is gone within an hour.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import redis

if TYPE_CHECKING:
    from deniable_aggregator.store import Store

__all__ = ["EVERY_SECONDS", "Compaction"]

log = logging.getLogger("deniable.worker")


EVERY_SECONDS = 1800.0
"""Seconds between checks: counted batches are gone after twice this time."""


class Compaction:
    """Makes the store rewrite its file, if it has one.

    Parameters
    ----------
    store
        A store in the Redis.
    """

    def __init__(self, store: Store) -> None:
        self._client = store._client
        self._seen = -1

    def run(self) -> None:
        """Ask for a rewrite unless there was one since the last check. So many workers cause no more rewrites than one."""
        try:
            info = self._client.info("persistence")
            done = int(info.get("aof_rewrites", 0))
            if info.get("aof_enabled") and not info.get("aof_rewrite_in_progress") and self._seen in (-1, done):
                self._client.bgrewriteaof()
                done += 1
            self._seen = done
        except redis.ResponseError as error:
            log.warning("batches stay in the store's append-only file until it rewrites it by itself (%s)", type(error).__name__)
