"""Departures: workers that were killed did not leave, so other workers delete their consumers.

A consumer without entries is only a name. But each worker has its own, so kills would leave many of them.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import redis

if TYPE_CHECKING:
    from deniable_aggregator.store import Store

log = logging.getLogger("deniable.worker")

EVERY_SECONDS = 600.0
"""Seconds between searches for dead workers."""


def forget(store: Store, idle: float = 3600.0) -> None:
    """Delete consumers of dead workers.

    Parameters
    ----------
    store
        The app's store.
    idle
        Seconds without a sign of life after which a worker is dead. A consumer with entries is kept until these are taken over.
    """
    try:
        if forgotten := sum(each.forget(idle) for each in store.partitions):
            log.info("removed %d dead workers of %s", forgotten, store.app)
    except redis.ResponseError as error:
        log.warning("dead workers stay in the store's list (%s)", type(error).__name__)
