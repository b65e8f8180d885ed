"""What the store raises, under names that say what happened."""

from __future__ import annotations

import redis

StoreError = redis.RedisError
"""The store cannot be used. All others are kinds of it."""
CommandRefused = redis.ResponseError
"""It answers with an error."""
CommandForbidden = redis.exceptions.NoPermissionError
"""Its user may not do this."""
StoreFull = redis.OutOfMemoryError
"""It has no memory left."""
AWAY = (redis.ConnectionError, redis.TimeoutError)
"""It does not answer. Whether it did what it was told is not known."""


class NoRoom(redis.RedisError):
    """What is left of its memory is kept for what must always work. What was asked for was not done."""


class Redivided(redis.ConnectionError):
    """It was emptied, and the app has another number of partitions since. What was asked for was not done."""


class PromiseBroken(redis.ResponseError):
    """The store does not keep the promised durability."""


_REDIRECTED = (redis.exceptions.ClusterError, redis.exceptions.AskError, redis.exceptions.TryAgainError)
_TRANSIENT = (*AWAY, StoreFull, redis.ReadOnlyError, *_REDIRECTED)
_TRANSIENT_WORDS = ("MISCONF", "NOREPLICAS", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "BUSY ")


def transient(error: Exception) -> bool:
    """Tell whether the store is away, full, failing over, or moving keys to another server."""
    return isinstance(error, _TRANSIENT) or (isinstance(error, StoreError) and str(error).startswith(_TRANSIENT_WORDS))
