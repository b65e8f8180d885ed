"""Departures: workers that were killed could not say that they go, so those that live forget them.

A consumer that has nothing in hand is only a name, but each worker has one of its own: after a year of kills they would be many.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import redis

if TYPE_CHECKING:
    from deniable_aggregator.store import Store

__all__ = ["EVERY_SECONDS", "forget"]

log = logging.getLogger("deniable.worker")

EVERY_SECONDS = 600.0
"""Between looks for workers that are gone."""


def forget(store: Store, idle: float = 3600.0) -> None:
    """Have the store forget consumers that are gone.

    Parameters
    ----------
    store
        Of the app that they counted for.
    idle
        Seconds without a sign of life after which a consumer is gone. One that has entries in hand is kept whatever its age:
        first they are taken over.
    """
    try:
        if forgotten := store.forget(idle):
            log.info("forgot %d workers of %s that went without a word", forgotten, store.app)
    except redis.ResponseError as error:
        log.warning("workers that are gone stay in the store's list (%s)", type(error).__name__)
