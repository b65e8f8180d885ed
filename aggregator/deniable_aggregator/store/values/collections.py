"""Collections in the store: tables, lists of lines and sets of names. One that does not exist is empty."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, cast

from deniable_aggregator.store.script import Script, ask

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import redis


class StoreCommand(NamedTuple):
    """A change of one key, which a script makes together with something else."""

    key: str
    command: str  # in capitals; if the store answers 0 or nothing, nothing was changed
    arguments: tuple[str | int, ...]  # after the key


class Table:
    """A table from names to values, which is a hash of the store."""

    def __init__(
        self,
        client: redis.Redis,
        key: str,  # key of the hash
    ) -> None:
        self._client, self.key = client, key

    def names(self) -> list[bytes]:
        """Read the names."""
        return cast("list[bytes]", self._client.hkeys(self.key))

    def all(self) -> dict[bytes, bytes]:
        """Read all names and values."""
        return cast("dict[bytes, bytes]", self._client.hgetall(self.key))

    def get(self, name: str) -> bytes | None:
        """Read the value of a name."""
        return cast("bytes | None", self._client.hget(self.key, name))

    def values(self, names: Sequence[str]) -> list[bytes | None]:
        """Read the values of some names, all at one moment."""
        return cast("list[bytes | None]", self._client.hmget(self.key, names)) if names else []

    def glance(self, names: Sequence[str]) -> list[bytes | None]:
        """Read the values of some names, over a connection that scripts use, so that none is opened for this."""
        return cast("list[bytes | None]", ask(self._client, self.key, "HMGET", self.key, *names))

    def put(self, values: Mapping[str, str | int]) -> None:
        """Set the values of some names."""
        if values:
            self._client.hset(self.key, mapping=cast("dict[Any, Any]", values))

    def drop(self, *names: str | bytes) -> None:
        """Delete some names."""
        if names:
            self._client.hdel(self.key, *names)

    def adding(self, name: str, value: str) -> StoreCommand:
        """Return the command that adds a name."""
        return StoreCommand(self.key, "HSET", (name, value))

    def dropping(self, name: str) -> StoreCommand:
        """Return the command that deletes a name."""
        return StoreCommand(self.key, "HDEL", (name,))

    def expire(self, seconds: int) -> None:
        """Delete the table after some seconds."""
        self._client.expire(self.key, seconds)

    def replace(self, name: str, before: bytes, after: str) -> bool:
        """Replace the value of a name, or delete it; return False if it has changed since it was read."""
        return bool(Script(self._client, "replace")([self.key], [name, before, after]))


class Lines:
    """Lines to which others are only appended, which are a list of the store."""

    def __init__(
        self,
        client: redis.Redis,
        key: str,  # of the list
    ) -> None:
        self._client, self.key = client, key

    def between(self, first: int, last: int) -> list[bytes]:
        """Read those from one place to another, both included; places below 0 count from the end."""
        return cast("list[bytes]", self._client.lrange(self.key, first, last))

    def first(self) -> bytes | None:
        """Read the oldest, or None."""
        return cast("bytes | None", self._client.lindex(self.key, 0))

    def appending(self, line: str) -> StoreCommand:
        """Return the command that appends one."""
        return StoreCommand(self.key, "RPUSH", (line,))

    def dropping(self, number: int) -> StoreCommand:
        """Return the command that deletes some of the oldest."""
        return StoreCommand(self.key, "LTRIM", (number, -1))


class Names:
    """Names, which are a set of the store."""

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
