"""Who is signed in to the dashboard, in the store, so that signing out ends it whatever becomes of the cookie.

Of each session the store has the id of the key that opened it, for twelve hours, under the SHA-256 of its number; and what all
servers sign cookies with, drawn by the first one.

A number has 192 random bits and is in the browser's cookie alone: nobody who reads the store can use what is there.
"""

from __future__ import annotations

from hashlib import sha256
from secrets import token_urlsafe
from typing import TYPE_CHECKING, cast

from deniable_aggregator.store import schema, secret

if TYPE_CHECKING:
    import redis

__all__ = ["Sessions"]

_SECONDS = 12 * 3600


class Sessions:
    """The sessions of a server.

    Parameters
    ----------
    client
        A redis client.
    """

    def __init__(self, client: redis.Redis) -> None:
        self._client = client
        self._secret: bytes | None = None

    def secret(self) -> bytes:
        """Return what cookies are signed with: random, and the same for all servers of a store.

        Raises
        ------
        StoreError
            If the store cannot be used.
        """
        if self._secret is None:
            self._secret = secret.shared(self._client, schema.SESSION_SECRET.of())
        return self._secret

    def open(self, app: str, key: str) -> str:
        """Begin a session of an app, opened by the key with this id; return its number."""
        number = token_urlsafe(24)
        self._client.set(_place(app, number), key, ex=_SECONDS)
        return number

    def key(self, app: str, number: str) -> str | None:
        """Return the id of the key that opened a session; None if it has ended."""
        found = cast("bytes | None", self._client.get(_place(app, number)))
        return found.decode() if found else None

    def close(self, app: str, number: str) -> None:
        """End a session."""
        self._client.delete(_place(app, number))


def _place(app: str, number: str) -> str:
    return schema.SESSION.of(app, sha256(number.encode()).hexdigest())
