"""Replicas: which of them must have an upload before it is answered.

They are those that could become the primary. A replica that has not heard of its primary for long cannot, because the servers of
a cluster do not elect it. So a replica that stays away is waited for, and after that time no more, until it comes back.
"""

from __future__ import annotations

import re
import time
from threading import Lock
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from deniable.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

    from redis.connection import ConnectionPool

NUMBER: Final = 2
"""Replicas of each primary: with two, one may be away."""
TIMEOUT: Final = 35
"""Seconds after which a replica that was away cannot be elected. By deploy/cluster/cluster.conf it is 31."""
LOOK: Final = ("INFO", "replication", "stats")

_ONLINE = b"state=online"
_HISTORY = re.compile(rb"^(?:master_replid|sync_full|sync_partial_ok):(.*?)\r?$", re.MULTILINE)


class Replicas:
    """The replicas of each primary of a store.

    Raises
    ------
    ConfigurationError
        If one of the numbers is below 1.
    """

    def __init__(
        self,
        number: int = NUMBER,  # how many replicas each primary has
        timeout: float = TIMEOUT,  # seconds after which one that was away cannot be elected
        now: Callable[[], float] = time.monotonic,  # a clock that nobody sets, in seconds
    ) -> None:
        if number < 1 or timeout < 1:
            raise ConfigurationError(f"replicas, and seconds to wait for them, are 1 at least; got {number} and {timeout}")
        self.number, self.timeout, self.now = number, timeout, now
        self._watched: WeakKeyDictionary[ConnectionPool, Watched] = WeakKeyDictionary()
        self._lock = Lock()

    def of(self, primary: ConnectionPool) -> Watched:
        """Return the replicas of the primary that a pool connects to."""
        found = self._watched.get(primary)
        if found is None:
            with self._lock:
                found = self._watched.setdefault(primary, Watched(self))
        return found


class Watched:
    """The replicas of one primary, as it was seen to have them."""

    def __init__(
        self,
        replicas: Replicas,  # how many it has
    ) -> None:
        self._replicas = replicas
        self.needed = self.all = replicas.number
        """How many must have an upload, and how many there are."""
        self.missed = False
        """Whether some that must have uploads were away."""
        self._history: list[bytes] = []
        self._since: dict[int, float] = {}
        self._lock = Lock()

    def look(
        self,
        told: bytes,  # what the primary answers to `LOOK`
    ) -> int:
        """Return how many replicas must have an upload."""
        online, history, now = told.count(_ONLINE), _HISTORY.findall(told), self._replicas.now()
        with self._lock:
            if history != self._history:  # one came back, if only for a moment, or this is another server
                self._history, self._since = history, {}
            # By number of replicas, since when there were no more than so many.
            self._since = {number: self._since.get(number, now) for number in range(max(online, 1), self.all)}
            gone = [number for number, since in self._since.items() if now - since >= self._replicas.timeout]
            self.needed = min(gone, default=self.all)
            self.missed = online < self.needed
            return self.needed
