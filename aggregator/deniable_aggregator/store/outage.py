"""Outages: a process that cannot use the store says so once, with what to do, and seldom again while that lasts."""

from __future__ import annotations

import logging
import time
from threading import Lock
from typing import TYPE_CHECKING

from deniable_aggregator.store.errors import StoreError, cause, reason, remedy
from deniable_aggregator.store.server.embedded import redacted

if TYPE_CHECKING:
    from collections.abc import Hashable

_AGAIN_MINUTES = 10


class Outage:
    """What the threads of a process say of servers of the store that they cannot use."""

    def __init__(
        self,
        url: str = "",  # with which the store was opened
        *,
        user: str = "worker",  # the user of deploy/users.acl that the process runs as
        role: str = "worker",  # what it is
    ) -> None:
        self._url, self._user, self._role = url, user, role
        self._log = logging.getLogger(f"deniable.{role}")
        self._lock = Lock()
        self._silent: dict[tuple[Hashable, str], float] = {}  # until when nothing more is said, by server and reason

    def failed(
        self,
        place: Hashable,  # of the server, as of a `Store` or a `Partition`
        error: StoreError,
    ) -> None:
        """Say why the store cannot be used, and what to do, unless that was said in the last minutes."""
        now, line = time.monotonic(), (place, reason(error))
        with self._lock:
            if now < self._silent.get(line, now):
                return
            self._silent[line] = now + 60 * _AGAIN_MINUTES
        where = f" at {redacted(self._url)}" if self._url else ""
        rule = f"the store{where} cannot be used: {cause(error)}. To mend that: {remedy(error, self._url, self._user)}"
        self._log.warning("%s. This %s goes on trying, and says so again in %d minutes", rule, self._role, _AGAIN_MINUTES)

    def passed(self, place: Hashable) -> None:
        """Say that it can be used again, if anything else was said."""
        with self._lock:
            lines = [line for line in self._silent if line[0] == place]
            for line in lines:
                del self._silent[line]
        if lines:
            self._log.warning("the store can be used again")
