"""Secrets that all processes share: the first one that needs a secret draws it."""

from __future__ import annotations

from secrets import token_bytes
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    import redis


def shared(client: redis.Redis, key: str, life: int | None = None) -> bytes:
    """Return the random bytes under a key of the store, drawn now if there are none.

    Parameters
    ----------
    client
        A redis client.
    key
        Of the secret.
    life
        Seconds after which the store forgets it; None for never.

    Raises
    ------
    StoreError
        If the store cannot be used.
    """
    mine = token_bytes(32)
    return cast("bytes | None", client.set(key, mine, ex=life, nx=True, get=True)) or mine
