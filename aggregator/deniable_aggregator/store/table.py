"""Tables: hashes of the store, from names to values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from deniable_aggregator.store.change import Change
from deniable_aggregator.store.script import Script, ask

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import redis


class Table:
    """A table. One that does not exist is empty."""

    def __init__(
        self,
        client: redis.Redis,
        key: str,  # key of the hash
    ) -> None:
        self._client, self.key = client, key

    def names(self) -> list[bytes]:
        """Return its names."""
        return cast("list[bytes]", self._client.hkeys(self.key))

    def all(self) -> dict[bytes, bytes]:
        """Return all names and values."""
        return cast("dict[bytes, bytes]", self._client.hgetall(self.key))

    def get(self, name: str) -> bytes | None:
        """Return the value of a name."""
        return cast("bytes | None", self._client.hget(self.key, name))

    def some(self, names: Sequence[str]) -> list[bytes | None]:
        """Return the values of some names, read at one moment."""
        return cast("list[bytes | None]", self._client.hmget(self.key, names)) if names else []

    def glance(self, names: Sequence[str]) -> list[bytes | None]:
        """Return the values of some names, over a connection that scripts keep: no other is opened."""
        return cast("list[bytes | None]", ask(self._client, "HMGET", self.key, *names))

    def put(self, told: Mapping[str, str | int]) -> None:
        """Set the values of some names."""
        if told:
            self._client.hset(self.key, mapping=cast("dict[Any, Any]", told))

    def drop(self, *names: str | bytes) -> None:
        """Delete some names."""
        if names:
            self._client.hdel(self.key, *names)

    def adding(self, name: str, value: str) -> Change:
        """Return the change that gives a new name a value."""
        return Change(self.key, "HSET", (name, value))

    def dropping(self, name: str) -> Change:
        """Return the change that deletes a name."""
        return Change(self.key, "HDEL", (name,))

    def expire(self, seconds: int) -> None:
        """Forget all of it after some seconds."""
        self._client.expire(self.key, seconds)

    def replace(self, name: str, before: bytes, after: str) -> bool:
        """Replace or delete the value of a name; return False if it has changed since it was read."""
        return bool(Script(self._client, "replace")([self.key], [name, before, after]))


def each(places: Sequence[tuple[Table, str]]) -> list[bytes | None]:
    """Read what tables of one store tell of a name each, in one round trip."""
    if not places:
        return []
    pipeline = places[0][0]._client.pipeline(transaction=False)
    for table, name in places:
        pipeline.hget(table.key, name)
    return cast("list[bytes | None]", pipeline.execute())
