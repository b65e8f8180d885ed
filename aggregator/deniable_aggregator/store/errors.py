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
"""It does not answer. Perhaps it did what was asked for."""


class NoRoom(redis.RedisError):
    """The rest of its memory is reserved for what must always work, so nothing was done."""


class Redivided(redis.ConnectionError):
    """It was emptied, and the app has another number of partitions since, so nothing was done."""


class PromiseBroken(redis.ResponseError):
    """The store does not keep the promised durability."""


_REDIRECTED = (redis.exceptions.ClusterError, redis.exceptions.AskError, redis.exceptions.TryAgainError)
_TRANSIENT = (*AWAY, StoreFull, redis.ReadOnlyError, *_REDIRECTED)
_TRANSIENT_WORDS = ("MISCONF", "NOREPLICAS", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "BUSY ")


def transient(error: Exception) -> bool:
    """Tell whether the store is away, full, failing over, or moving keys to another server."""
    return isinstance(error, _TRANSIENT) or (isinstance(error, StoreError) and str(error).startswith(_TRANSIENT_WORDS))
