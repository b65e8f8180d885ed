"""Secrets that all processes share: the first one that needs a secret draws it."""

from __future__ import annotations

from secrets import token_bytes
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    import redis


def shared(
    client: redis.Redis,
    key: str,  # of the secret
    life: int | None = None,  # seconds after which the store forgets it; None for never
) -> bytes:
    """Return the random bytes under a key of the store, drawn now if there are none.

    Raises
    ------
    StoreError
        If the store cannot be used.
    """
    mine = token_bytes(32)
    return cast("bytes | None", client.set(key, mine, ex=life, nx=True, get=True)) or mine
