"""Outages: processes that cannot use the store say so once, with what to do, and seldom again while that lasts.

Later they say that the store can be used again.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import time
from contextlib import contextmanager
from tempfile import TemporaryFile
from threading import Lock
from typing import IO, TYPE_CHECKING, NamedTuple

from deniable_aggregator.process.logs import OF_PROCESS
from deniable_aggregator.store.errors import StoreError, cause, reason, remedy
from deniable_aggregator.store.server.embedded import redacted

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

_AGAIN_MINUTES = 10
_CALM_SECONDS = 15.0  # without a failure: a store that is full to the brim fails and works in turns

_shared: list[IO[bytes]] = []


class _Line(NamedTuple):
    """The last line about a server of the store and one reason."""

    silent: float  # until when nothing more is said
    failed: float  # when it failed last


def share() -> None:
    """Have this process, and those that it forks later, speak as one: each line comes from one of them."""
    if not _shared:
        _shared.append(TemporaryFile(buffering=0))  # noqa: SIM115 - `unshare` closes it


def unshare() -> None:
    """Have this process speak for itself."""
    while _shared:
        _shared.pop().close()


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
        self._own: dict[str, _Line] = {}
        self._failing: set[Hashable] = set()  # servers that this process could not use

    @property
    def lasts(self) -> bool:
        """Whether this process has said that a server cannot be used, and not yet that it can be used again."""
        return bool(self._failing)

    def failed(
        self,
        place: Hashable,  # of the server, as of a `Store` or a `Partition`
        error: StoreError,
        app: str = "",  # that alone is concerned; by default all that use the server
    ) -> None:
        """Say why the store cannot be used, and what to do, unless that was said in the last minutes."""
        now, line = time.monotonic(), f"{hash(place)} {reason(error)} {app}"
        with self._lines() as lines:
            self._failing.add(place)
            silent = lines[line].silent if line in lines else now
            lines[line] = _Line(silent if now < silent else now + 60 * _AGAIN_MINUTES, now)
        if now < silent:
            return
        where = f" at {redacted(self._url)}" if self._url else ""
        concerned = f" for {app}" if app else ""
        why = f"the store{where} cannot be used{concerned}: {cause(error)}. To mend that: {remedy(error, self._url, self._user)}"
        again = f"This {self._role} goes on trying, and says so again in {_AGAIN_MINUTES} minutes"
        self._log.warning("%s. %s", why, again, extra={"app": app, **OF_PROCESS} if app else OF_PROCESS)

    def passed(self, place: Hashable) -> None:
        """Say that it can be used again, if anything else was said, and it has not failed for some seconds."""
        if place not in self._failing:
            return
        now, begin = time.monotonic(), f"{hash(place)} "
        with self._lines() as lines:
            ending = [line for line in lines if line.startswith(begin)]
            if any(now < lines[line].failed + _CALM_SECONDS for line in ending):
                return
            self._failing.discard(place)
            for line in ending:
                del lines[line]
        if ending:
            self._log.warning("the store can be used again", extra=OF_PROCESS)

    @contextmanager
    def _lines(self) -> Iterator[dict[str, _Line]]:
        """Open what was said by this process, or by all that share it."""
        with self._lock:
            if not _shared:
                yield self._own
                return
            descriptor = _shared[0].fileno()
            fcntl.lockf(descriptor, fcntl.LOCK_EX)  # of this process, so it does not come with a fork
            try:
                text = os.pread(descriptor, os.fstat(descriptor).st_size, 0)
                lines = {line: _Line(*times) for line, times in json.loads(text or "{}").items()}
                yield lines
                written = json.dumps(lines).encode()
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, written, 0)
            finally:
                fcntl.lockf(descriptor, fcntl.LOCK_UN)
