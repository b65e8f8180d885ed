"""Secrets that all processes share."""

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
    """Return the 32 random bytes under a key of the store, which are drawn now if there are none."""
    mine = token_bytes(32)  # of several processes that draw at the same time, one sets the key, and the others get its bytes
    return cast("bytes | None", client.set(key, mine, ex=life, nx=True, get=True)) or mine
