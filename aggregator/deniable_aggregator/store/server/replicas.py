"""Replicas: which of them must have an upload before it is answered.

These are the ones that could become the primary. The servers of a cluster do not elect a replica that has not heard of its
primary for long. So uploads wait for a replica that is away until it cannot be elected any more, and again after it came back.
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
    """The replicas of each primary of a store."""

    def __init__(
        self,
        number: int = NUMBER,  # how many replicas each primary has
        timeout: float = TIMEOUT,  # seconds after which one that was away cannot be elected
        now: Callable[[], float] = time.monotonic,  # a clock that nobody sets, in seconds
    ) -> None:
        if number < 1 or timeout < 1:
            raise ConfigurationError(f"{number} replicas, and {timeout} seconds to wait for them: write 1 or more of both")
        self.number, self.timeout, self.now = number, timeout, now
        self._watched: WeakKeyDictionary[ConnectionPool, Watched] = WeakKeyDictionary()
        self._lock = Lock()

    def of(self, primary: ConnectionPool) -> Watched:
        """Return the replicas of the primary that a pool connects to."""
        watched = self._watched.get(primary)
        if watched is None:
            with self._lock:
                watched = self._watched.setdefault(primary, Watched(self))
        return watched


class Watched:
    """The replicas of one primary, as its own state shows them."""

    def __init__(
        self,
        replicas: Replicas,  # how many it has
    ) -> None:
        self._replicas = replicas
        self.needed = self.all = replicas.number
        """How many must have an upload, and how many there should be."""
        self.missed = False
        """Whether some that must have uploads were away at the last look."""
        self._history: list[bytes] = []
        # By number of replicas, since when no more than so many were there.
        self._since: dict[int, float] = {}
        self._lock = Lock()

    def look(
        self,
        state: bytes,  # the primary's answer to `LOOK`
    ) -> int:
        """Return how many replicas must have an upload."""
        online, history, now = state.count(_ONLINE), _HISTORY.findall(state), self._replicas.now()
        with self._lock:
            if history != self._history:  # one came back, if only for a moment, or this is another server
                self._history, self._since = history, {}
            self._since = {number: self._since.get(number, now) for number in range(max(online, 1), self.all)}
            gone = [number for number, since in self._since.items() if now - since >= self._replicas.timeout]
            self.needed = min(gone, default=self.all)
            self.missed = online < self.needed
            return self.needed
