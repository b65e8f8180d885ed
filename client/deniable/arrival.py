"""What `flush` and `close` return: whether the reports have arrived, and if not, why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Literal

__all__ = ["Arrival"]


@dataclass(frozen=True, slots=True)
class Arrival:
    """What became of the reports that this process has recorded. It is true if the server took every one, and there were any.

    Parameters
    ----------
    queued
        Reports that were recorded and may travel.
    arrived
        Those of them that the server took.
    why
        Why others have not arrived, or why there are none; empty if all have arrived.
    """

    queued: int = 0
    arrived: int = 0
    why: str = ""

    @classmethod
    def off(cls, reason: str | None) -> Arrival:
        """Return what becomes of the reports of a client that is off."""
        return cls(why=f"the client is off: {reason}")

    @property
    def status(self) -> Literal["arrived", "nothing to send", "not delivered"]:
        """What became of them, in short."""
        if not self.queued:
            return "nothing to send"
        return "arrived" if self.arrived == self.queued else "not delivered"

    def __bool__(self) -> bool:
        return 0 < self.queued == self.arrived

    def __str__(self) -> str:
        if not self.queued:
            return f"{self.status}: {self.why}" if self.why else self.status
        reports = f"{self.arrived if self else self.queued - self.arrived} of {self.queued} reports"
        return f"{self.status}: {reports}{f': {self.why}' if self.why else ''}"


SWALLOWED = Arrival(why="an unexpected error was swallowed; strict=True raises it")
"""After an error that the app does not see."""
