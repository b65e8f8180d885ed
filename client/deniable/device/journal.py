"""The journal: the randomised reports that were sent, kept on the device so that an app can show them, and what was refused."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from deniable.errors import StateError
from deniable.frozen import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from deniable.device.state import State
    from deniable.wire.report import Report

_LENGTH = 1000


@dataclass(frozen=True, slots=True)
class SentReport:
    """A report that the server has taken."""

    # metric, version, period, segment: its stratum
    metric: str
    version: int
    period: str
    segment: str
    payload: str  # Its payload, in hexadecimal. This is randomised; see `deniable.explain`.
    fingerprint: str  # that of the metric's definition when the report was made
    sealed: bool  # whether it was sealed for a relay; the payload is what was sealed
    # What it says by itself, such as ``jpeg``: one answer or several, and not always the true one. Empty if it names none, or the
    # definition has changed since.
    names: str = ""

    def __str__(self) -> str:
        version = f" (version {self.version})" if self.version > 1 else ""
        return f"{self.metric}{version} for {self.words}"

    @property
    def words(self) -> str:
        """What was sent, without the metric."""
        counted = f"{self.period}{', ' * bool(self.segment)}{self.segment}"
        return f"{counted}: {in_words(self.names, self.payload)}{', sealed' * self.sealed}"


def in_words(
    names: str,  # the answers that a report names; empty if it names none
    payload: str,  # in hexadecimal
) -> str:
    """Say what a report says, and the bytes that say it."""
    return f"{f'says {names}, ' if names else ''}sent as bytes {payload}"


class Journal:
    """Keeps the last thousand reports that were sent, and of each metric the last period of which the server refused a report."""

    def __init__(
        self,
        state: State,  # the state file
    ) -> None:
        self._state = state
        self.clearing = False  # Whether it must be cleared but could not be yet. Until then it shows nothing.
        self._refused: dict[str, tuple[str, str]] | None = None  # of each metric the period, and why; None before it was read

    def add(self, reports: Iterable[Report]) -> None:
        """Add reports that were sent; raise `StateError` if the state cannot be used."""
        rows = [(*report.stratum, report.payload, bool(report.sealed)) for report in reports]
        with self._state.transaction() as db:
            columns = "metric, version, fingerprint, period, segment, payload, sealed"
            db.executemany(f"INSERT INTO journal ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?)", rows)  # noqa: S608
            db.execute("DELETE FROM journal WHERE id <= (SELECT max(id) FROM journal) - ?", (_LENGTH,))

    def refuse(
        self,
        refused: Sequence[tuple[str, str, str]],  # metrics, each with the period and a code that says why
    ) -> None:
        """Note that the server refused reports; raise `StateError` if the state cannot be used."""
        self._refusals().update({metric: (period, code) for metric, period, code in refused})
        with self._state.transaction() as db:
            db.executemany("INSERT OR REPLACE INTO refused VALUES (?, ?, ?)", refused)

    def refusal(self, metric: str, period: str) -> str | None:
        """Return why the server refused a report of a period; None if no refusal is known."""
        refused, code = self._refusals().get(metric, ("", ""))
        return code if refused == period else None

    def _refusals(self) -> dict[str, tuple[str, str]]:
        if self._refused is None:
            self._refused = {}
            with suppress(StateError):
                if self._state.begun:
                    with self._state.transaction() as db:
                        rows = db.execute("SELECT metric, period, code FROM refused")
                        self._refused = {metric: (period, code) for metric, period, code in rows}
        return self._refused

    def clear(self) -> None:
        """Delete all entries. If the state cannot be used now, `clearing` stays set, and the caller tries again later."""
        self.clearing, self._refused = True, {}
        with suppress(StateError):
            if self._state.begun:
                with self._state.transaction() as db:
                    db.execute("DELETE FROM journal")
                    db.execute("DELETE FROM refused")
            self.clearing = False

    def entries(self) -> list[SentReport]:
        """Return the reports that were sent, the newest first; raise `StateError` if the state cannot be used."""
        if self.clearing:
            self.clear()
        if self.clearing or not self._state.begun:
            return []
        with self._state.transaction() as db:
            columns = "metric, version, period, segment, lower(hex(payload)), fingerprint, sealed"
            rows = db.execute(f"SELECT {columns} FROM journal ORDER BY id DESC")  # noqa: S608 - our own words
            return [SentReport(*(*row[:-1], bool(row[-1]))) for row in rows]
