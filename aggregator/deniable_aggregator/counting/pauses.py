"""Pauses between tries of a task that fails, each twice as long as the one before."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from threading import Event

_FIRST, _LONGEST = 0.1, 5.0  # seconds


class Pauses:
    """The pauses of one task."""

    def __init__(self) -> None:
        self.next = _FIRST  # seconds

    def take(self, stop: Event) -> bool:
        """Pause; return whether to stop."""
        pause, self.next = self.next, min(2 * self.next, _LONGEST)
        return stop.wait(pause)

    def end(self) -> None:
        """Begin again with the shortest pause, after a try that succeeded."""
        self.next = _FIRST
