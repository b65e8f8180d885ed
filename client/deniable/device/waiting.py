"""Reports that wait until they may travel, kept in the state.

Each report has an earliest time of sending, which does not depend on the answer. The order of the rows is random. Whoever takes a
report deletes it in the same transaction, so no two processes send it.

The clock may be set back. The state remembers the latest time that it saw, so waiting reports do not wait for longer.
"""

from __future__ import annotations

import time
from collections import Counter
from contextlib import suppress
from math import ceil
from typing import TYPE_CHECKING

from deniable.errors import StateError
from deniable.registry.tables import TAKEN_FOR
from deniable.source import OS
from deniable.wire.report import Report, Stratum

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from sqlite3 import Connection

    from deniable.device.state import State

_MOST = 10_000  # reports that wait
_MOST_AT_ONCE = 1000  # reports that are taken at once
_LONGEST = 100 * 86_400  # seconds; no report waits for longer, since it would be refused
_SEEN_EVERY = 600  # seconds; the latest time is written as a multiple of them
_LOOK_EVERY = 600.0  # seconds, while reports wait
_LOOK_AGAIN = 3600.0  # seconds, if none wait: another process may have left some
_AFTER_TROUBLE = 60.0


class Waiting:
    """Keeps reports until they may travel."""

    def __init__(
        self,
        state: State,  # the state file
        clock: Callable[[], float] = time.time,  # seconds since the epoch
    ) -> None:
        self._state = state
        self._clock = clock
        self.reset()

    def reset(self) -> None:
        """Start again in a forked child. A state in memory was copied, and the parent sends what waits in it."""
        self.counts: Counter[str] = Counter()  # lost reports: `spool_full`, `spool_expired`, `purged`
        self.purging = False  # Whether all must be deleted but could not be yet. Until then none is taken.
        self._look_at = 0.0  # on the monotonic clock
        self._empty = False  # whether there were none at the last look
        if self._state.directory is None and self._state.begun:
            with suppress(StateError), self._state.transaction() as db:
                db.execute("DELETE FROM waiting")

    @property
    def durable(self) -> bool:
        """Whether reports are kept on disk."""
        return self._state.directory is not None

    def __len__(self) -> int:
        if not self._state.begun or (self._empty and time.monotonic() < self._look_at):
            return 0  # without a look at the disk, as for most apps
        try:
            with self._state.transaction() as db:
                return int(db.execute("SELECT count(*) FROM waiting").fetchone()[0])
        except StateError:
            return 0

    def put(self, reports: Sequence[tuple[Report, float]]) -> bool:
        """Keep reports, each with the seconds that it must wait; return whether the state could be used. Too many are dropped."""
        self._look_at, self._empty = 0.0, False
        try:
            with self._state.transaction() as db:
                now = self._see(db)
                room = max(0, _MOST - int(db.execute("SELECT count(*) FROM waiting").fetchone()[0]))
                for report, seconds in reports[:room]:
                    # A random key, so that the order on disk is not that of the answers.
                    key = OS.below(1 << 64).to_bytes(8, "little")
                    row = (key, ceil(now + min(seconds, _LONGEST)), *report.stratum, report.payload, report.sealed)
                    db.execute("INSERT INTO waiting VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
        except StateError:
            return False
        self.counts["spool_full"] += max(0, len(reports) - room)
        return True

    def metrics(self) -> dict[str, int]:
        """Count the reports that wait by metric; none if the state cannot be used."""
        if self._state.begun and not (self._empty and time.monotonic() < self._look_at):
            with suppress(StateError), self._state.transaction() as db:
                return dict(db.execute("SELECT metric, count(*) FROM waiting GROUP BY metric").fetchall())
        return {}

    def take(self) -> list[Report]:
        """Take the reports that may travel now."""
        if not self._state.begun or time.monotonic() < self._look_at:
            return []
        if self.purging:
            self.purge()
            return []
        try:
            with self._state.transaction() as db:
                if db.execute("SELECT 1 FROM waiting LIMIT 1").fetchone() is None:
                    self._look_at, self._empty = time.monotonic() + _LOOK_AGAIN, True
                    return []
                now = self._see(db)
                self.counts["spool_expired"] += db.execute("DELETE FROM waiting WHERE due < ?", (now - TAKEN_FOR,)).rowcount
                columns = "id, metric, version, fingerprint, period, segment, payload, sealed"
                due = f"SELECT {columns} FROM waiting WHERE due <= ? LIMIT ?"  # noqa: S608 - our own words
                rows = db.execute(due, (now, _MOST_AT_ONCE)).fetchall()
                # In the same transaction, so that no other process takes them, too.
                db.executemany("DELETE FROM waiting WHERE id = ?", [row[:1] for row in rows])
                (first,) = db.execute("SELECT min(due) FROM waiting").fetchone()
                if first is None:
                    db.execute("DELETE FROM facts WHERE name = 'clock'")
        except StateError:
            self._look_at = time.monotonic() + _AFTER_TROUBLE
            return []
        left = _LOOK_AGAIN if first is None else min(max(0.0, first - now), _LOOK_EVERY)
        self._look_at = time.monotonic() + left
        return [Report(Stratum(*row[1:6]), *row[6:]) for row in rows]

    def purge(self) -> None:
        """Delete all reports. If the state cannot be used now, `purging` stays set, and `take` tries again."""
        self.purging = True
        with suppress(StateError):
            if self._state.begun:
                with self._state.transaction() as db:
                    self.counts["purged"] += db.execute("DELETE FROM waiting").rowcount
                    db.execute("DELETE FROM facts WHERE name = 'clock'")
            self.purging = False

    def forget(self) -> int:
        """Delete all reports of a state in memory, which ends with the process; return how many there were."""
        there = 0 if self.durable else len(self)
        if there:
            with suppress(StateError), self._state.transaction() as db:
                db.execute("DELETE FROM waiting")
        return there

    def make_due(self) -> None:
        """Let all reports travel now; for tests."""
        self._look_at = 0.0
        if self._state.begun:
            with self._state.transaction() as db:
                db.execute("UPDATE waiting SET due = ?", (self._see(db),))

    def _see(self, db: Connection) -> float:
        """Return the time. If the clock was set back, the reports that wait are due as much earlier."""
        now = self._clock()
        seen = int(now - now % _SEEN_EVERY)  # rounded, because no file has a finer time than it needs
        (latest,) = db.execute("SELECT max(value) FROM facts WHERE name = 'clock'").fetchone()
        if latest is not None and now < latest:
            db.execute("UPDATE waiting SET due = due - ?", (int(latest - now),))
        if latest != seen:
            db.execute("INSERT OR REPLACE INTO facts VALUES ('clock', ?)", (seen,))
        return now
