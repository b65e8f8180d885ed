"""Names: sets of the store."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Iterable

    import redis


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
