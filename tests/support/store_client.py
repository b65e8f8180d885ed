"""The Redis client of a store, which only tests look behind: they read what lies there, and break it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import redis

    from deniable_aggregator.store import Store


def client_of(store: Store) -> redis.Redis:
    """Return the client that a store speaks through."""
    return store.redis
