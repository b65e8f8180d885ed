"""Tables: hashes of the store, each from names to what is told of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from deniable_aggregator.store.script import Script

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import redis

__all__ = ["Table", "each"]


class Table:
    """A table, empty where the store has none.

    Parameters
    ----------
    client
        A redis client.
    key
        Of the hash.
    """

    def __init__(self, client: redis.Redis, key: str) -> None:
        self._redis, self.key = client, key

    def names(self) -> list[bytes]:
        """List the names in it."""
        return cast("list[bytes]", self._redis.hkeys(self.key))

    def all(self) -> dict[bytes, bytes]:
        """Read all of it."""
        return cast("dict[bytes, bytes]", self._redis.hgetall(self.key))

    def get(self, name: str) -> bytes | None:
        """Read what it tells of a name."""
        return cast("bytes | None", self._redis.hget(self.key, name))

    def some(self, names: Sequence[str]) -> list[bytes | None]:
        """Read what it tells of some names, all at one moment."""
        return cast("list[bytes | None]", self._redis.hmget(self.key, names)) if names else []

    def put(self, told: Mapping[str, str | int]) -> None:
        """Tell of some names."""
        if told:
            self._redis.hset(self.key, mapping=cast("dict[Any, Any]", told))

    def drop(self, *names: str | bytes) -> None:
        """Forget some names."""
        if names:
            self._redis.hdel(self.key, *names)

    def expire(self, seconds: int) -> None:
        """Forget all of it after some seconds."""
        self._redis.expire(self.key, seconds)

    def replace(self, name: str, before: bytes, after: str) -> bool:
        """Tell something else of a name, or nothing; False if what it told has changed since it was read."""
        return bool(Script(self._redis, "replace")([self.key], [name, before, after]))


def each(places: Sequence[tuple[Table, str]]) -> list[bytes | None]:
    """Read what tables of one store tell of a name each, in one round trip."""
    if not places:
        return []
    pipeline = places[0][0]._redis.pipeline(transaction=False)
    for table, name in places:
        pipeline.hget(table.key, name)
    return cast("list[bytes | None]", pipeline.execute())
