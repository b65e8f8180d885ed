"""The journal: the randomised reports that were sent, kept on the device so that an app can show them."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from deniable.errors import StateError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from deniable.device.state import State
    from deniable.wire.report import Report

_LENGTH = 1000


@dataclass(frozen=True, slots=True)
class SentReport:
    """A report that the server has taken."""

    # metric, version, period, segment: its stratum, without the fingerprint
    metric: str
    version: int
    period: str
    segment: str
    payload: str  # Its payload, in hexadecimal. This is randomised; see `deniable.explain`.

    def __str__(self) -> str:
        counted = f"{self.metric} (version {self.version}) for {self.period}{', ' * bool(self.segment)}{self.segment}"
        return f"{counted}: {self.payload}"


class Journal:
    """Keeps the last thousand reports that were sent."""

    def __init__(
        self,
        state: State,  # the state file
    ) -> None:
        self._state = state
        self.clearing = False  # Whether it must be cleared but could not be yet. Until then it shows nothing.

    def add(self, reports: Iterable[Report]) -> None:
        """Add reports that were sent; raise `StateError` if the state cannot be used."""
        rows = [(r.stratum.metric, r.stratum.version, r.stratum.period, r.stratum.segment, r.payload) for r in reports]
        with self._state.transaction() as db:
            db.executemany("INSERT INTO journal (metric, version, period, segment, payload) VALUES (?, ?, ?, ?, ?)", rows)
            db.execute("DELETE FROM journal WHERE id <= (SELECT max(id) FROM journal) - ?", (_LENGTH,))

    def clear(self) -> None:
        """Delete all entries. If the state cannot be used now, `clearing` stays set, and the caller tries again later."""
        self.clearing = True
        with suppress(StateError):
            if self._state.begun:
                with self._state.transaction() as db:
                    db.execute("DELETE FROM journal")
            self.clearing = False

    def entries(self) -> list[SentReport]:
        """Return the reports that were sent, the newest first; raise `StateError` if the state cannot be used."""
        if self.clearing:
            self.clear()
        if self.clearing or not self._state.begun:
            return []
        with self._state.transaction() as db:
            columns = "metric, version, period, segment, lower(hex(payload))"
            return [SentReport(*row) for row in db.execute(f"SELECT {columns} FROM journal ORDER BY id DESC")]  # noqa: S608
