"""Tables: hashes of the store, each from names to what is told of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from deniable_aggregator.store.script import Script

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import redis

__all__ = ["Table"]


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

    def replace(self, name: str, before: bytes, after: str) -> bool:
        """Tell something else of a name, or nothing; False if what it told has changed since it was read."""
        return bool(Script(self._redis, "replace")([self.key], [name, before, after]))
