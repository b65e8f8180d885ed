"""The ledger: what this device has spent on each metric, in millionths of a nat, as a plain sum.

Each metric has a reserved part of the budget (`deniable.limits.allowance`), and a largest number of reports in a period. So what
one metric may spend does not depend on the answers to another. An update of the app may change the parts. The sums over all
metrics are checked, too, so what was spent before still counts.

A report counts in the calendar month in which its period ends. What was spent in a month is never deleted. So for each month the
bound holds by period, whatever the clock said and whenever a report was made or sent.

The ledger is written to disk before a report exists. A write for each report would be slow. So a process pays for several reports
of the period at once: a *lease*. It gives back what it does not use. If it dies, the whole lease counts as spent.

A metric's periods never go back. If the clock is set back, this gives back no reports and no budget.
"""

from __future__ import annotations

import time
from contextlib import suppress
from datetime import UTC, datetime
from math import inf, isinf
from typing import TYPE_CHECKING, Any

from deniable.errors import StateError
from deniable.frozen import NamedTuple, dataclass
from deniable.limits.allowance import MICRO, micro
from deniable.registry import period
from deniable.source import mark_process, process_mark

if TYPE_CHECKING:
    from collections.abc import Callable
    from sqlite3 import Connection

    from deniable.device.prepared import Occasion
    from deniable.device.state import State
    from deniable.limits.allowance import Allowance
    from deniable.registry.tables import Budget

TROUBLE_PAUSE = 10.0
"""Seconds between tries of a state that cannot be used. Each try may make the app wait."""

_PARTS = 64  # a lease has at most 1/64 of the remaining reports: other processes need some, and a crash loses the lease
_REPORTS = 1024  # most reports of a lease
_LOW = 2  # a lease is renewed when half of it is left: an app that records fast must not come to its end first
_PAUSE = 60.0  # seconds between reads of what was spent


@dataclass(frozen=True, slots=True)
class Spent:
    """What a device has spent and may still spend, in nats."""

    # month, month_left: for one calendar month; `month_left` is infinite without a bound
    month: float
    month_left: float
    # lifetime, lifetime_left: for the lifetime; `lifetime_left` is infinite without a bound
    lifetime: float
    lifetime_left: float


class _Lease:
    """Reports of a period that a process may still make."""

    __slots__ = ("allowance", "device", "left", "low", "occasion", "unspent")

    def __init__(
        self,
        allowance: Allowance,
        occasion: Occasion,
        left: int,
        device: bytes,  # secret of the state file that it is from; the directory may be removed and made again
    ) -> None:
        self.allowance = allowance
        self.occasion = occasion
        self.left = left
        self.low = left // _LOW  # so many are left when it is renewed; not for a few reports
        self.unspent = 0  # used reports that were paid for but not sampled
        self.device = device

    @property
    def unused(self) -> int:
        """Number of reports that were paid for but not made."""
        return self.left + self.unspent


class _Refusal(NamedTuple):
    """Why a report was refused, and until when none is tried again (monotonic clock)."""

    why: str
    period: str
    until: float


class Ledger:
    """Spends within a budget. All processes of the device share it through the state file."""

    def __init__(
        self,
        state: State,  # the state file
        budget: Budget,  # what may be spent on all metrics together
        most: int = _REPORTS,  # most reports of a lease
    ) -> None:
        self._state = state
        self._most = most
        self.budget = budget
        self.nearly_used: Callable[[], object] = lambda: None  # called when `renew_ahead` has something to do
        self._forget_leases()

    def _forget_leases(self) -> None:
        self._lock, self._mark = self._state.lock, mark_process()
        self._leases: dict[str, _Lease] = {}
        self._low: list[_Lease] = []  # those to be renewed
        self._refusals: dict[str, _Refusal] = {}

    def spend(
        self,
        allowance: Allowance,  # the metric's allowance
        occasion: Occasion,  # when the report is made
        *,
        sampled: bool = True,  # False for an answer that was not sampled. It counts as a report of the period but costs nothing.
    ) -> str | None:
        """Spend for a report; return None, or why it must not be made: ``"this_period"``, ``"budget"`` or ``"state"``."""
        with self._state.lock:
            if self._lock is not self._state.lock or self._mark != process_mark():  # a fork: the leases are the parent's
                self._forget_leases()
            period = occasion.stratum.period
            lease = self._leases.get(allowance.tag)
            if lease is not None and lease.left and lease.occasion.stratum.period == period:
                lease.left -= 1
                if lease.left == lease.low and lease.low > 1:
                    self._low.append(lease)
                    self.nearly_used()
                lease.unspent += not sampled  # the lease has paid for it, and gives this back at its end
                return None
            refusal = self._refusals.get(allowance.tag)
            if refusal is not None and refusal.period == period and time.monotonic() < refusal.until:
                return refusal.why
            return self._renew(allowance, occasion, sampled=sampled)

    def _renew(self, allowance: Allowance, occasion: Occasion, *, sampled: bool) -> str | None:
        def renew(db: Connection) -> str | None:
            self._return_lease(db, allowance.tag)
            free = self._free(db, allowance, occasion)
            if isinstance(free, str):
                return free
            number = max(1, min(free // _PARTS, self._most))
            self._debit(db, allowance, occasion, number, number - (not sampled))
            self._leases[allowance.tag] = _Lease(allowance, occasion, number - 1, _fact(db, "secret"))
            return None

        try:
            refusal = self._state.begin(renew)
        except StateError:
            self._leases.pop(allowance.tag, None)  # the transaction was not written
            refusal = "state"
        if refusal is not None:
            pause = TROUBLE_PAUSE if refusal == "state" else _PAUSE
            self._refusals[allowance.tag] = _Refusal(refusal, occasion.stratum.period, time.monotonic() + pause)
        return refusal

    def ended(
        self,
        allowance: Allowance,  # of a metric that was refused for the budget
    ) -> bool:
        """Return whether nothing is left for it ever, and not only in this month; False if the state cannot be read."""
        with suppress(StateError), self._state.transaction() as db:
            spent = account(db, allowance.tag)[2]
            if allowance.answers:
                return self._lifetime_left(db) < max(0, allowance.due - spent)
            return self._left_ever(db, allowance, spent) < allowance.cost
        return False

    def renew_ahead(self) -> None:
        """Add to the leases that are nearly used up, in the sending thread: the app's thread need not wait for the disk then."""
        with self._state.lock:
            low, self._low = self._low, []
        for lease in low:
            # Without the lock, so that reports are made meanwhile. They are added when they are paid for. A crash loses them.
            # Until they are added nobody can use them: the last answers of a period may be dropped then, and none is made twice.
            with suppress(StateError):
                number = 0
                with self._state.transaction() as db:
                    free = self._free(db, lease.allowance, lease.occasion)
                    if isinstance(free, int) and lease.device == _fact(db, "secret"):
                        number = min(free // _PARTS, self._most)
                        self._debit(db, lease.allowance, lease.occasion, number, number)
                if number and not self._add(lease, number):
                    with self._state.transaction() as db:
                        self._debit(db, lease.allowance, lease.occasion, -number, -number)

    def _add(self, lease: _Lease, reports: int) -> bool:
        """Add reports to a lease; return False if it was given back meanwhile."""
        with self._state.lock:
            if self._leases.get(lease.allowance.tag) is not lease:
                return False
            lease.left += reports
            lease.low = reports // _LOW
            return True

    def _free(self, db: Connection, allowance: Allowance, occasion: Occasion) -> int | str:
        """Return how many reports may be made now, or why none may be made."""
        last, reports, spent = account(db, allowance.tag)
        period = occasion.stratum.period
        free = allowance.per_period - (reports if period == last else 0)
        if period < last or free <= 0:
            return "this_period"
        left = min(self._month_left(db, occasion.month), self._left_ever(db, allowance, spent))
        free = int(min(free, left // allowance.cost))
        return free if free > 0 else "budget"

    def _debit(self, db: Connection, allowance: Allowance, occasion: Occasion, reports: int, paid: int) -> None:
        """Write the number of reports of the period, and how many of them are paid for. Negative numbers give back."""
        amount = paid * allowance.cost
        self.write_account(db, allowance, occasion, reports, amount)
        _add(db, allowance, occasion, amount)

    def return_leases(self) -> None:
        """Give back what is left of all leases."""
        with self._state.lock:
            ours = self._lock is self._state.lock and self._mark == process_mark()
            if ours and any(lease.unused for lease in self._leases.values()):
                with suppress(StateError), self._state.transaction() as db:  # otherwise it stays spent
                    for tag in tuple(self._leases):
                        self._return_lease(db, tag)

    def _return_lease(self, db: Connection, tag: str) -> None:
        lease = self._leases.pop(tag, None)  # first, so that it stays spent if this fails
        if lease is not None and lease.unused and lease.device == _fact(db, "secret"):
            self._debit(db, lease.allowance, lease.occasion, -lease.left, -lease.unused)

    # The following methods are called in a transaction.

    def _month_left(self, db: Connection, month: str) -> float:
        return _micro(self.budget.per_month) - _spent_in(db, month)

    def _lifetime_left(self, db: Connection) -> float:
        left: float = _micro(self.budget.lifetime) - _fact(db, "lifetime")
        return left

    def _left_ever(self, db: Connection, allowance: Allowance, spent: int) -> float:
        """Return what a metric that has spent so much may spend in all months together."""
        own = inf if allowance.lifetime is None else allowance.lifetime - spent
        return min(own, self._lifetime_left(db))

    def write_account(
        self,
        db: Connection,  # a connection in a transaction
        # allowance, occasion: see `spend`
        allowance: Allowance,
        occasion: Occasion,
        reports: int,  # reports of the period; negative to give some back
        amount: int = 0,  # millionths of a nat; negative to give some back
    ) -> None:
        """Write that a metric was recorded, and what it has spent of the lifetime."""
        last, before, spent = account(db, allowance.tag)
        period = occasion.stratum.period
        if period > last:
            last, before = period, 0
        if period == last:  # otherwise a lease of an earlier period is given back
            before += reports
        row = (allowance.tag, last, before, spent + amount)
        db.execute("INSERT OR REPLACE INTO accounts VALUES (?, ?, ?, ?)", row)
        db.execute("UPDATE facts SET value = value + ? WHERE name = 'lifetime'", (amount,))

    def reserve(
        self,
        db: Connection,  # a connection in a transaction
        # allowance, occasion: see `spend`
        allowance: Allowance,
        occasion: Occasion,
    ) -> bool:
        """Spend for a report of a permanent response; return whether the budget allows it."""
        due = max(0, allowance.due - account(db, allowance.tag)[2])
        due_in_month = max(0, allowance.month - _spent_in(db, occasion.month, allowance.tag))
        if self._month_left(db, occasion.month) < due_in_month or self._lifetime_left(db) < due:
            return False
        # The first report spends the whole reserve of the metric: for the lifetime once, and for each month in which it is
        # reported. So the rest of the budget does not show how many different answers there were.
        self.write_account(db, allowance, occasion, 1, due)
        _add(db, allowance, occasion, due_in_month)
        return True

    def spent(
        self,
        month: str,  # a calendar month, such as 2026-11
    ) -> Spent:
        """Read what was spent: leases in full, metrics with permanent responses with their whole reserve."""
        spent, left, lifetime, lifetime_left = 0, _micro(self.budget.per_month), 0, _micro(self.budget.lifetime)
        if self._state.begun:  # reading does not create the file
            with self._state.transaction() as db:
                spent, left = _spent_in(db, month), self._month_left(db, month)
                lifetime, lifetime_left = _fact(db, "lifetime"), self._lifetime_left(db)
        return Spent(spent / MICRO, left / MICRO, lifetime / MICRO, lifetime_left / MICRO)

    def this_month(self) -> str:
        """Say what was spent in this month, with what a nat is."""
        month = period.of(datetime.now(UTC), "month")
        spent = self.spent(month)
        most = spent.month + spent.month_left
        of = "" if isinf(most) else f" of {most:,.6g}"
        return f"The answers of {month} have spent {spent.month:,.6g}{of} nats, the unit of what answers give away."


def account(db: Connection, tag: str) -> tuple[str, int, int]:
    """Return a metric's last period, its reports in this period, and what was ever spent on it, in millionths of a nat."""
    row: tuple[str, int, int] | None
    row = db.execute("SELECT period, reports, spent FROM accounts WHERE tag = ?", (tag,)).fetchone()
    return row or ("", 0, 0)


def _add(db: Connection, allowance: Allowance, occasion: Occasion, amount: int) -> None:
    """Add to what a metric has spent in the month of an occasion. A negative amount gives back."""
    query = "INSERT INTO spends VALUES (?, ?, ?) ON CONFLICT (month, tag) DO UPDATE SET cost = cost + excluded.cost"
    db.execute(query, (occasion.month, allowance.tag, amount))


def _spent_in(db: Connection, month: str, tag: str | None = None) -> int:
    """Return what was spent in a month: on one metric, or on all of them."""
    query = "SELECT coalesce(sum(cost), 0) FROM spends WHERE month = ?1 AND tag = coalesce(?2, tag)"
    return int(db.execute(query, (month, tag)).fetchone()[0])


def _fact(db: Connection, name: str) -> Any:
    return db.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()[0]


def _micro(bound: float | None) -> float:
    """Return a bound in millionths of a nat; infinite without one."""
    return inf if bound is None else micro(bound)
