"""Sessions of the dashboard, in the store. Signing out ends a session, whatever happens to the cookie.

For each session the store has the id of its key, for twelve hours, under the SHA-256 of the session's number. It also has the
secret that all servers sign cookies with, which the first one draws.

A number has 192 random bits and is only in the browser's cookie. So reading the store is not enough to use a session.
"""

from __future__ import annotations

from hashlib import sha256
from secrets import token_urlsafe
from typing import TYPE_CHECKING, cast

from deniable_aggregator.store import schema
from deniable_aggregator.store.values import secret

if TYPE_CHECKING:
    import redis

_SECONDS = 12 * 3600


class Sessions:
    """The sessions of a server."""

    def __init__(self, client: redis.Redis) -> None:
        self._client = client
        self._secret: bytes | None = None

    def secret(self) -> bytes:
        """Return the secret that signs cookies: random, and the same for all servers of a store.

        Raises
        ------
        StoreError
            If the store cannot be used.
        """
        if self._secret is None:
            self._secret = secret.shared(self._client, schema.SESSION_SECRET.of())
        return self._secret

    def open(self, app: str, key: str) -> str:
        """Begin a session of an app, with the id of its key; return its number."""
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
