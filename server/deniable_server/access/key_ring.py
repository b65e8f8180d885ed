"""The key ring of a server: keys from the environment, and keys from the store as they were at most two seconds ago."""

from __future__ import annotations

import logging
import time
from datetime import UTC, date, datetime
from hashlib import sha256
from hmac import compare_digest
from threading import Lock
from typing import TYPE_CHECKING

from deniable_aggregator.store.errors import StoreError
from deniable_server.access.keys import Key, KeyStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from deniable_aggregator.store import Store

__all__ = ["FRESH_SECONDS", "STALE_SECONDS", "Ring"]

log = logging.getLogger("deniable.keys")

FRESH_SECONDS = 2.0
"""Seconds for which a process uses the keys that it has read. Within this time a revoked key is refused everywhere."""
STALE_SECONDS = 300.0
"""The same while the store cannot be reached."""


class Ring:
    """The keys that a server accepts.

    Parameters
    ----------
    stores
        Those of the server's apps.
    given
        Keys from the environment, which need no store.
    clock
        Monotonic clock, in seconds.
    """

    def __init__(self, stores: Iterable[Store], given: Iterable[Key] = (), clock: Callable[[], float] = time.monotonic) -> None:
        self._stores = {store.app: KeyStore(store) for store in stores}
        self._given = tuple(given)
        self._clock = clock
        self._lock = Lock()
        self._read: tuple[Key, ...] = ()
        self._read_at = self._tried_at = float("-inf")
        self._noted: dict[str, date] = {}

    def find(self, text: str, *roles: str, anew: bool = False) -> Key | None:
        """Return the key of a request, if it has the permissions of one of the roles.

        The hash is compared with all known ones, each in constant time.

        Parameters
        ----------
        text
            As in the request.
        roles
            Roles that the request accepts.
        anew
            Read the store first, for a key that was just made.

        Raises
        ------
        StoreError
            If the store is unavailable and the known keys are missing or too old. Then it is unknown whether the key is valid.
        """
        digest = sha256(text.encode("utf-8", "surrogateescape")).digest()
        found = None
        for key in (*self._given, *self._known(anew=anew)):
            if compare_digest(key.digest, digest) and any(map(key.opens, roles)) and key.app in self._stores:
                found = key
        return found

    def holds(self, app: str, id_: str, role: str) -> bool:
        """Return whether a key that was found before is still valid, for the sessions that it opened.

        Raises
        ------
        StoreError
            As for `find`.
        """
        return any(key.app == app and key.id == id_ and key.opens(role) for key in (*self._given, *self._known()))

    def note(self, key: Key) -> None:
        """Record that a key was used today: once a day for each process. An error here does not fail the request."""
        if key.created is None:
            return
        today = datetime.now(UTC).date()
        if self._noted.get(key.id) == today:
            return
        try:
            self._stores[key.app].note(key.id, today)
        except StoreError as error:
            log.warning("a key's day of use could not be kept (%s)", type(error).__name__)
        else:
            self._noted[key.id] = today

    def _known(self, *, anew: bool = False) -> tuple[Key, ...]:
        """Return the store's keys, read again regularly by one thread. The others use the known ones meanwhile."""
        now = self._clock()
        usable = now - self._read_at < STALE_SECONDS
        if not anew and usable and now - self._tried_at < FRESH_SECONDS:
            return self._read
        if not self._lock.acquire(blocking=anew or not usable):
            return self._read
        try:
            # Otherwise another thread has just read them.
            if anew or self._tried_at <= now or self._clock() - self._read_at >= STALE_SECONDS:
                self._load(anew=anew)
        finally:
            self._lock.release()
        return self._read

    def _load(self, *, anew: bool) -> None:
        try:
            read = tuple(key for store in self._stores.values() for key in store.load())
        except StoreError as error:
            self._tried_at = self._clock()
            if anew or self._clock() - self._read_at >= STALE_SECONDS:
                raise
            log.warning("keys could not be read again (%s); those known stay good for a while", type(error).__name__)
            return
        self._read = read
        self._read_at = self._tried_at = self._clock()
