"""The key ring of a server: keys from the environment, and keys from the store as they were at most two seconds ago."""

from __future__ import annotations

import time
from datetime import UTC, date, datetime
from hashlib import sha256
from hmac import compare_digest
from typing import TYPE_CHECKING, NamedTuple

from deniable_aggregator.store.errors import StoreError
from deniable_server.access.keys import Key, KeyStore, find, id_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from deniable_aggregator.store import Store
    from deniable_aggregator.store.outage import Outage

FRESH_SECONDS = 2.0
"""Seconds for which a process uses the keys that it has read. Within this time a revoked key is refused everywhere."""
STALE_SECONDS = 300.0
"""The same while the store cannot be reached."""


class Ring:
    """The keys that a server accepts. A key is looked up by the first bits of its SHA-256, and again after two seconds."""

    def __init__(
        self,
        stores: Iterable[Store],  # those of the server's apps
        fixed: Iterable[Key] = (),  # keys from the environment, which need no store
        clock: Callable[[], float] = time.monotonic,  # monotonic clock, in seconds
        *,
        outage: Outage,  # says why the store cannot be used
    ) -> None:
        self._stores = {store.app: KeyStore(store) for store in stores}
        self._fixed: dict[str, tuple[Key, ...]] = {}
        for key in fixed:
            self._fixed[key.id] = (*self._fixed.get(key.id, ()), key)
        self._clock, self._outage = clock, outage
        self._read: dict[str, _Read] = {}
        self._noted: dict[str, date] = {}

    def serve(self, store: Store) -> None:
        """Accept keys of an app from now on."""
        self._stores = {**self._stores, store.app: KeyStore(store)}  # requests may be looking through the former one

    def find(
        self,
        text: str,  # as in the request
        *roles: str,  # roles that the request accepts
        anew: bool = False,  # Ask the store for a key that this process has not seen. Without it, such a key is not found.
    ) -> Key | None:
        """Return a request's key if it has one of the roles; StoreError if nobody knows while the store is away."""
        digest = sha256(text.encode("utf-8", "surrogateescape")).digest()
        for key in self._keys_of(id_of(digest), anew=anew):
            # In constant time: how long it takes must not tell how much of a digest was right.
            if compare_digest(key.digest, digest) and any(map(key.opens, roles)) and key.app in self._stores:
                return key
        return None

    def unserved(self, text: str, *roles: str) -> str | None:
        """Return the app of a key that is good, if this server does not serve that app."""
        digest = sha256(text.encode("utf-8", "surrogateescape")).digest()
        keys = list(self._fixed.get(id_of(digest), ()))
        for store in list(self._stores.values())[:1]:  # each of them knows all apps
            keys += [key] if (key := store.of_any_app(id_of(digest))) else []
        for key in keys:
            if key.app not in self._stores and compare_digest(key.digest, digest) and any(map(key.opens, roles)):
                return key.app
        return None

    def fresh(self, text: str, role: str) -> Key | None:
        """Return the key of a request if the store need not be asked: it was read lately, and its use today is noted."""
        digest = sha256(text.encode("utf-8", "surrogateescape")).digest()
        id_ = id_of(digest)
        read = self._read.get(id_)
        keys = self._fixed.get(id_) or (read.keys if read and self._clock() - read.at < FRESH_SECONDS else ())
        for key in keys:
            if compare_digest(key.digest, digest) and key.opens(role) and key.app in self._stores and self._is_noted(key):
                return key
        return None

    def holds(self, app: str, id_: str, role: str) -> bool:
        """Return whether the key that opened a session is still valid; raise StoreError as `find` does."""
        return self.held(app, id_, role) is not None

    def held(self, app: str, id_: str, role: str) -> Key | None:
        """Return this key, or None if it is not valid any more."""
        keys = self._keys_of(id_, anew=id_ not in self._read)
        return next((key for key in keys if key.app == app and key.opens(role)), None)

    def note(self, key: Key) -> None:
        """Record that a key was used today: once a day for each process. An error here does not fail the request."""
        if self._is_noted(key):
            return
        today = datetime.now(UTC).date()
        try:
            self._stores[key.app].note(key.id, today)
        except StoreError as error:
            self._outage.failed("", error)
        else:
            self._noted[key.id] = today

    def _is_noted(self, key: Key) -> bool:
        return key.created is None or self._noted.get(key.id) == datetime.now(UTC).date()

    def _keys_of(self, id_: str, *, anew: bool) -> tuple[Key, ...]:
        """Return the keys with an id: those of the environment, and those of the store as they were at most two seconds ago."""
        fixed = self._fixed.get(id_, ())
        if fixed:
            return fixed
        now, read = self._clock(), self._read.get(id_)
        if read is None:
            return self._look_up(id_, self._stores.values()) if anew else ()
        usable = now - read.at < STALE_SECONDS
        if usable and now - read.tried_at < FRESH_SECONDS:
            return read.keys
        if usable:
            self._read[id_] = read._replace(tried_at=now)  # other threads use the known one while this one asks
        try:
            return self._look_up(id_, [self._stores[key.app] for key in read.keys])
        except StoreError as error:
            if not usable:
                raise
            self._outage.failed("", error)
            return read.keys

    def _look_up(self, id_: str, stores: Iterable[KeyStore]) -> tuple[Key, ...]:
        """Ask the store for a key, in one round trip for all apps. Remember it, or forget it if it was revoked."""
        keys, now = tuple(find(stores, id_)), self._clock()
        if keys:
            self._read[id_] = _Read(keys, now, now)
        else:
            self._read.pop(id_, None)
        return keys


class _Read(NamedTuple):
    """What the store said of an id."""

    keys: tuple[Key, ...]  # of different apps; one, but for a collision
    at: float  # clock's second of the reading
    tried_at: float  # of the latest try
