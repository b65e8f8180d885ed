"""Departures: workers that were killed could not say that they go, so those that live forget them.

A consumer that has nothing in hand is only a name, but each worker has one of its own: after a year of kills they would be many.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

import redis

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deniable_aggregator.store import Store

__all__ = ["Departures"]

log = logging.getLogger("deniable.worker")


class Departures:
    """A watch of the worker that has the store forget consumers that are gone.

    Parameters
    ----------
    stores
        Of one Redis.
    idle
        Seconds without a sign of life after which a consumer is gone. One that has entries in hand is kept whatever its age:
        first they are taken over.
    every
        Seconds between looks.
    """

    def __init__(self, stores: Sequence[Store], *, idle: float = 3600.0, every: float = 600.0) -> None:
        self._stores = stores
        self._idle = idle
        self._every = every
        self._at = time.monotonic()

    def __call__(self) -> None:
        """Forget those that are gone, if it is time."""
        if time.monotonic() < self._at:
            return
        self._at = time.monotonic() + self._every
        for store in self._stores:
            try:
                if forgotten := store.forget(self._idle):
                    log.info("forgot %d workers of %s that went without a word", forgotten, store.app)
            except redis.ResponseError as error:
                log.warning("workers that are gone stay in the store's list (%s)", type(error).__name__)
