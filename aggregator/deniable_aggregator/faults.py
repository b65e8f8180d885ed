"""Faults: what fails in a chore of the worker, or in one metric of it, stays there.

Only a store that is away, full or failing over holds up everything, since nothing can be done without it.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING

import redis

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deniable_aggregator.events import Events

__all__ = ["LOST", "alone", "transient"]

log = logging.getLogger("deniable.worker")

LOST = (redis.ConnectionError, redis.TimeoutError)
"""Whether the store did what it was told is not known."""
_TRANSIENT = (*LOST, redis.OutOfMemoryError, redis.ReadOnlyError)
_TRANSIENT_WORDS = ("MISCONF", "NOREPLICAS", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "BUSY ")


def transient(error: Exception) -> bool:
    """Tell whether the store is away, full, or failing over."""
    return isinstance(error, _TRANSIENT) or (isinstance(error, redis.RedisError) and str(error).startswith(_TRANSIENT_WORDS))


@contextmanager
def alone(events: Events, chore: str, about: str = "") -> Iterator[None]:
    """Let what fails here fail alone, under its own name.

    Parameters
    ----------
    events
        Who hears of it.
    chore
        What fails.
    about
        Of what, such as a metric.

    Raises
    ------
    redis.RedisError
        If the store cannot be used.
    """
    try:
        yield
    except Exception as error:
        if transient(error):
            raise
        events.faulted(chore)
        # The text of an error may hold counts, so only its type is told.
        log.error("%s%s failed (%s)", chore, f" of {about}" if about else "", type(error).__name__)  # noqa: TRY400
