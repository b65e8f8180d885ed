"""When a process that ended by itself is started again: after a pause, which grows with each death in a row."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

LONGEST = 60.0
"""Seconds of the longest pause."""
STEADY = 120.0
"""Seconds after which a process that lives has no deaths in a row."""
MANY = 3
"""Deaths in a row from which on it is said what to do."""


class Restarts:
    """The deaths of one process."""

    def __init__(
        self,
        name: str,  # of the process, for people
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name, self._now = name, now
        self._deaths, self._since = 0, now()
        self._due: float | None = None

    def died(
        self,
        status: int,  # as of `subprocess.Popen.returncode`
    ) -> str:
        """Note a death; return the line to tell."""
        if self._now() - self._since > STEADY:
            self._deaths = 0
        self._deaths += 1
        pause = min(2.0 ** (self._deaths - 1), LONGEST)
        self._due = self._now() + pause
        line = f"The {self._name} {_ended(status)}; it is started again in {pause:g} s. What was accepted is kept."
        if self._deaths < MANY:
            return line
        return (
            f"{line} It died {self._deaths} times in a row: see what it wrote above, and ask `deniable doctor`. Ctrl-C stops all."
        )

    @property
    def waits(self) -> bool:
        """Whether a death was noted, and the process is to be started again."""
        return self._due is not None

    @property
    def due(self) -> bool:
        """Whether to start it now."""
        return self._due is not None and self._now() >= self._due

    def started(self) -> None:
        """Note that it was started."""
        self._due, self._since = None, self._now()


def _ended(status: int) -> str:
    if status >= 0:
        return f"ended by itself with status {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    return f"was killed by {name}{' (is there memory enough?)' if -status == signal.SIGKILL else ''}"
