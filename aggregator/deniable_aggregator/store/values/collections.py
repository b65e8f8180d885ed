"""Collections in the store: tables, lists of lines, sets of names, and changes of them.

One that does not exist is empty.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, cast

from deniable_aggregator.store.script import Script, ask

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import redis


class Change(NamedTuple):
    """A change that is not made yet."""

    key: str  # the key to be changed
    command: str  # The store's command, in capitals. An answer of 0 or nothing means that it changed nothing.
    arguments: tuple[str | int, ...]  # its arguments after the key


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
        return cast("list[bytes | None]", ask(self._client, self.key, "HMGET", self.key, *names))

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


class Lines:
    """A list of lines, empty where the store has none."""

    def __init__(
        self,
        client: redis.Redis,
        key: str,  # of the list
    ) -> None:
        self._client, self.key = client, key

    def some(self, first: int, last: int) -> list[bytes]:
        """Read those from one place to another, both included; places below 0 are told from the end."""
        return cast("list[bytes]", self._client.lrange(self.key, first, last))

    def first(self) -> bytes | None:
        """Read the oldest, or None."""
        return cast("bytes | None", self._client.lindex(self.key, 0))

    def dropping(self, number: int) -> Change:
        """Return the change that deletes some of the oldest."""
        return Change(self.key, "LTRIM", (number, -1))


class Names:
    """A set of names, empty where the store has none."""

    def __init__(
        self,
        client: redis.Redis,
        key: str,  # of the set
    ) -> None:
        self._client, self.key = client, key

    def all(self) -> set[str]:
        """Read all of them."""
        return {name.decode() for name in cast("set[bytes]", self._client.smembers(self.key))}

    def add(self, names: Iterable[str]) -> None:
        """Add some, at least one."""
        self._client.sadd(self.key, *names)

    def drop(self, name: str) -> None:
        """Forget one."""
        self._client.srem(self.key, name)


def values_at(places: Sequence[tuple[Table, str]]) -> list[bytes | None]:
    """Read the value of one name in each of some tables of one store, in one round trip."""
    if not places:
        return []
    pipeline = places[0][0]._client.pipeline(transaction=False)
    for table, name in places:
        pipeline.hget(table.key, name)
    return cast("list[bytes | None]", pipeline.execute())
