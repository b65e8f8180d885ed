"""Compaction: batches that were counted leave the disk of the store.

Redis appends every command to a file. A batch stays in it after its entry is deleted, until the file is rewritten. So does the
time at which a worker received it. By itself Redis rewrites the file when it has doubled, which takes months with little traffic.
So workers ask for it, and a counted batch is gone within an hour.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import redis

from deniable_aggregator.store.server.servers import primaries

if TYPE_CHECKING:
    from deniable_aggregator.store import Store

log = logging.getLogger("deniable.worker")


EVERY_SECONDS = 1800.0
"""Seconds between checks: counted batches are gone after twice this time."""


class Compaction:
    """Makes the store rewrite its file, if it has one."""

    def __init__(
        self,
        store: Store,  # a store in the Redis
    ) -> None:
        self._client = store._client
        self._seen: dict[redis.Redis, int] = {}  # by server

    def run(self) -> None:
        """Ask each server for a rewrite unless it made one since the last check. So many workers cause no more than one."""
        for server in primaries(self._client):
            try:
                self._rewrite(server)
            except redis.ResponseError as error:
                told = "batches stay in the store's append-only file until it rewrites it by itself (%s)"
                log.warning(told, type(error).__name__)

    def _rewrite(self, server: redis.Redis) -> None:
        info = server.info("persistence")
        done = int(info.get("aof_rewrites", 0))
        if info.get("aof_enabled") and not info.get("aof_rewrite_in_progress") and self._seen.get(server, done) == done:
            server.bgrewriteaof()
            done += 1
        self._seen[server] = done
