"""The ledger: what this device has spent over all metrics, in millionths of a nat, as a plain sum.

Spending is written before a report exists. To write for every report would take the app's time, so a process takes a little ahead
for itself, a *lease*; what it does not use it gives back, and what it takes along when it dies counts as spent.

Time is the wall clock's, but never earlier than any time seen before: a clock set back brings no budget back.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from math import ceil, inf, log, nextafter
from typing import TYPE_CHECKING, Any

from deniable.errors import StateError

if TYPE_CHECKING:
    from collections.abc import Callable
    from fractions import Fraction
    from sqlite3 import Connection

    from deniable.budget import Budget
    from deniable.state import State

__all__ = ["MICRO", "TROUBLE_PAUSE", "Ledger", "Spent", "cost"]

MICRO = 1_000_000
"""Parts of a nat that the ledger counts in."""

TROUBLE_PAUSE = 10.0
"""Seconds between tries at a state that could not be used: each may take the app's time."""

_DAY = 86_400
_PARTS = 64  # of what is left, the most a lease takes: another process, or a crash, is to leave something
_REPORTS = 1024  # that a lease is for, at most
_LONGEST_LEASE = 3600.0  # seconds
_PAUSE = 60.0  # seconds between looks at a budget that was spent
_REMEMBERED = 400.0  # days, at least: a window that an update of the app makes longer finds what was spent before
_ENTER = """
    INSERT INTO spends (account, moment, cost) VALUES (?, ?, ?)
    ON CONFLICT (account) DO UPDATE SET moment = excluded.moment, cost = cost + excluded.cost
"""


def cost(ratio: Fraction) -> int:
    """Return ln(ratio) in millionths of a nat, rounded up.

    Parameters
    ----------
    ratio
        A worst likelihood ratio, at least 1.
    """
    loss = log(ratio.numerator) - log(ratio.denominator)
    return ceil(nextafter(loss, inf) * MICRO)


@dataclass(frozen=True, slots=True)
class Spent:
    """What a device has spent and may still spend, in nats.

    Parameters
    ----------
    window, window_left
        In the window that ends now; `window_left` is infinite without a bound.
    lifetime, lifetime_left
        Ever; likewise.
    """

    window: float
    window_left: float
    lifetime: float
    lifetime_left: float


class Ledger:
    """Spends within a budget. All processes of the device share it through the state's file.

    Parameters
    ----------
    state
        Where it is kept.
    budget
        What may be spent.
    clock
        Seconds since the epoch.
    """

    def __init__(self, state: State, budget: Budget, clock: Callable[[], float] = time.time) -> None:
        self._state = state
        self._clock = clock
        self.budget = budget
        self._forget()

    def _forget(self) -> None:
        self._lock = self._state.lock
        self._lease = 0  # what is left of it
        self._entry = (0, 0)  # its row, and when it ends
        self._ends = 0.0  # on the monotonic clock, which may stand still while the device sleeps
        self._ends_at = 0.0  # on the wall clock, which may be set back
        self._refused = inf  # the least cost that was refused lately
        self._why = "budget"  # it was
        self._retry = 0.0  # until when it is not tried again

    def spend(self, amount: int) -> str | None:
        """Debit a report; return None, or why it may not exist: ``"budget"`` or ``"state"``.

        Parameters
        ----------
        amount
            Millionths of a nat, from `cost`.
        """
        with self._state.lock:
            if self._lock is not self._state.lock:  # a fork has made another: the lease is the parent's
                self._forget()
            now = time.monotonic()
            if amount <= self._lease and now < self._ends and self._clock() < self._ends_at:
                self._lease -= amount
                return None
            if amount >= self._refused and now < self._retry:
                return self._why
            return self._renew(amount, now)

    def _renew(self, amount: int, now: float) -> str | None:
        try:
            with self._state.transaction() as db:
                self._settle(db)
                moment = self.moment(db)
                left = self.left(db, moment)
                if left >= amount:
                    lease = max(amount, int(min(left / _PARTS, amount * _REPORTS)))
                    seconds = min(_LONGEST_LEASE, self.budget.window * _DAY / 100)
                    # Entered with the time at which it ends: whatever it pays for lies before.
                    end = moment + int(seconds * MICRO)
                    entry = (self.enter(db, None, lease, end), end)
        except StateError:
            return self._refuse(amount, "state", now + TROUBLE_PAUSE)
        if left < amount:
            return self._refuse(amount, "budget", now + _PAUSE)
        self._lease, self._entry, self._refused = lease - amount, entry, inf
        self._ends, self._ends_at = now + seconds, end / MICRO
        return None

    def _refuse(self, amount: int, why: str, until: float) -> str:
        self._refused, self._why, self._retry = amount, why, until
        return why

    def settle(self) -> None:
        """Give back what a lease has left."""
        with self._state.lock:
            if self._lock is self._state.lock and self._lease:
                with suppress(StateError), self._state.transaction() as db:  # else it stays spent
                    self._settle(db)

    def _settle(self, db: Connection) -> None:
        unused, self._lease = self._lease, 0  # first: if this fails, it stays spent
        if unused:
            # Its end tells it from another's in the same row: the directory may have been removed, and the device begun anew.
            ours = "account IS NULL AND id = ? AND moment = ?"
            if db.execute(f"UPDATE spends SET cost = cost - ? WHERE {ours}", (unused, *self._entry)).rowcount:  # noqa: S608
                db.execute("UPDATE facts SET value = value - ? WHERE name = 'lifetime'", (unused,))

    # What follows is for use within a transaction.

    def moment(self, db: Connection) -> int:
        """Return the time in microseconds, never earlier than any returned before; forget what no window reaches any more."""
        moment = self._now(db)
        db.execute("UPDATE facts SET value = ? WHERE name = 'clock'", (moment,))
        old = moment - int(max(self.budget.window, _REMEMBERED) * _DAY * MICRO)
        db.execute("DELETE FROM spends WHERE account IS NULL AND moment <= ?", (old,))
        return moment

    def _now(self, db: Connection) -> int:
        return max(int(self._clock() * MICRO), int(_fact(db, "clock")))

    @property
    def _window(self) -> int:
        return int(self.budget.window * _DAY * MICRO)

    def left(self, db: Connection, moment: int, *, ever: bool = True) -> float:
        """Return what may be spent, in millionths of a nat.

        Parameters
        ----------
        db
            In a transaction.
        moment
            From `moment`.
        ever
            Whether the lifetime counts, too.
        """
        left = _micro(self.budget.per_window) - self._spent_since(db, moment - self._window)
        return min(left, _micro(self.budget.lifetime) - _fact(db, "lifetime")) if ever else left

    @staticmethod
    def _spent_since(db: Connection, moment: int) -> int:
        (total,) = db.execute("SELECT coalesce(sum(cost), 0) FROM spends WHERE moment > ?", (moment,)).fetchone()
        return int(total)

    def enter(self, db: Connection, account: bytes | None, amount: int, moment: int) -> int:
        """Write a spend down; return its row, of a lease."""
        db.execute("UPDATE facts SET value = value + ? WHERE name = 'lifetime'", (amount,))
        row = db.execute(_ENTER, (account, moment, amount)).lastrowid
        assert row is not None  # noqa: S101 - an INSERT has one
        return row

    def charge(self, db: Connection, account: bytes, amount: int, moment: int, *, drawn: bool) -> bool:
        """Spend for a kept response; return whether the budget allows.

        Drawing it is spent for good. Using it again costs nothing but room in the window: what the reports of a window tell, they
        tell in this window, whenever the response was drawn.

        Parameters
        ----------
        db
            In a transaction.
        account
            Names the response.
        amount
            Millionths of a nat.
        moment
            From `moment`.
        drawn
            Whether it is drawn now. If it was before, and then lost, or its spend was, this is a new spend.
        """
        last = db.execute("SELECT moment FROM spends WHERE account = ?", (account,)).fetchone()
        if drawn or last is None:
            if self.left(db, moment) < amount:
                return False
            self.enter(db, account, amount, moment)
            return True
        if last[0] <= moment - self._window and self.left(db, moment, ever=False) < amount:
            return False
        db.execute("UPDATE spends SET moment = ? WHERE account = ?", (moment, account))
        return True

    def spent(self) -> Spent:
        """Read what was spent; leases count in full.

        Raises
        ------
        StateError
            If the state cannot be used.
        """
        if not self._state.begun:  # to look is no reason to begin
            return Spent(0.0, _micro(self.budget.per_window) / MICRO, 0.0, _micro(self.budget.lifetime) / MICRO)
        with self._state.transaction() as db:
            window = self._spent_since(db, self._now(db) - self._window)
            lifetime = _fact(db, "lifetime")
        lefts = (_micro(self.budget.per_window) - window, _micro(self.budget.lifetime) - lifetime)
        return Spent(window / MICRO, lefts[0] / MICRO, lifetime / MICRO, lefts[1] / MICRO)


def _fact(db: Connection, name: str) -> Any:
    return db.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()[0]


def _micro(bound: float | None) -> float:
    """Return a bound in millionths of a nat, rounded down."""
    return inf if bound is None else int(bound * MICRO)
