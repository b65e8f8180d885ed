"""Compaction: what was counted leaves the disk of the store, too.

Redis appends all that it does to a file. A batch whose entry is deleted is in this file until it is rewritten, together with the
time at which a worker was handed it; by itself Redis does that when the file has doubled, which with little traffic is after
months. So workers ask for it, and within an hour it is gone.
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
"""Between looks: what was counted is gone after twice this time."""


class Compaction:
    """Has the store's file rewritten, if it keeps one.

    Parameters
    ----------
    store
        One of those in a Redis.
    """

    def __init__(self, store: Store) -> None:
        self._redis = store._client
        self._seen = -1

    def run(self) -> None:
        """Ask for a rewriting unless there was one since the last look, by whomever: many workers ask no more often than one."""
        try:
            info = self._redis.info("persistence")
            done = int(info.get("aof_rewrites", 0))
            if info.get("aof_enabled") and not info.get("aof_rewrite_in_progress") and self._seen in (-1, done):
                self._redis.bgrewriteaof()
                done += 1
            self._seen = done
        except redis.ResponseError as error:
            log.warning("batches stay in the store's append-only file until it rewrites it by itself (%s)", type(error).__name__)
