"""Which key opens which app: those of the environment, and those of the store as they were at most two seconds ago."""

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
"""How long a process goes by what it has read: within this time a revoked key is refused everywhere."""
STALE_SECONDS = 300.0
"""How long a process goes by what it has read while the store cannot be reached."""


class Ring:
    """The keys that a server knows.

    Parameters
    ----------
    stores
        Those of the server's apps.
    given
        Keys of the environment, which no store needs to know.
    clock
        Seconds, never going back.
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
        """Return the key that a request carries, if it may do what keys of one of the roles may.

        Only hashes are compared, all of them, each in constant time.

        Parameters
        ----------
        text
            As in the request.
        roles
            What the request is about to do.
        anew
            Look in the store first, for a key that was made a moment ago.

        Raises
        ------
        StoreError
            If the store is away and nothing is known of it, or nothing that is recent enough: whether the key is good cannot be
            told then.
        """
        digest = sha256(text.encode("utf-8", "surrogateescape")).digest()
        found = None
        for key in (*self._given, *self._known(anew=anew)):
            if compare_digest(key.digest, digest) and any(map(key.opens, roles)) and key.app in self._stores:
                found = key
        return found

    def holds(self, app: str, id_: str, role: str) -> bool:
        """Tell whether a key that was found before is still good, for sessions that it has opened.

        Raises
        ------
        StoreError
            As by `find`.
        """
        return any(key.app == app and key.id == id_ and key.opens(role) for key in (*self._given, *self._known()))

    def note(self, key: Key) -> None:
        """Remember that a key was used today. Once a day for each process, and not worth failing for."""
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
        """Return the store's keys, read again now and then; by one thread, while the others go by what is known."""
        now = self._clock()
        usable = now - self._read_at < STALE_SECONDS
        if not anew and usable and now - self._tried_at < FRESH_SECONDS:
            return self._read
        if not self._lock.acquire(blocking=anew or not usable):
            return self._read
        try:
            # Else another thread has just read them.
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
