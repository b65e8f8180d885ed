"""Lines: lists of the store, which others only append to."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from deniable_aggregator.store.change import Change

if TYPE_CHECKING:
    import redis


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
