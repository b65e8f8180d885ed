"""Permanent responses: drawn once for an answer, kept, and reported once a period through fresh noise.

A response is kept under the digest of a secret of this device, so that no answer can be read off the file; whoever has the file
and tries all answers can still tell which ones were given. Losing a response makes no other one free: that is a new spend.

Whether there is a report says nothing about the answer. When the budget has no room for a response to it, the one that was
reported last is reported again: silence would tell that the answer has changed.
"""

from __future__ import annotations

import hmac
import time
from typing import TYPE_CHECKING, NamedTuple

from deniable.errors import StateError
from deniable.ledger import TROUBLE_PAUSE, cost
from deniable.source import OS

if TYPE_CHECKING:
    from sqlite3 import Connection

    from deniable.ledger import Ledger
    from deniable.mechanisms.chain import Chain
    from deniable.state import State

__all__ = ["Memo"]

_ACCOUNT_BYTES = 16


class _Question(NamedTuple):
    row: int
    period: str  # of the last report
    last: bytes | None  # account of what it was made from


class Memo:
    """Keeps the permanent responses of a device.

    Parameters
    ----------
    state
        Where.
    ledger
        What pays for them.

    Attributes
    ----------
    repeated : int
        Reports of an earlier answer, for want of budget for the one given.
    """

    def __init__(self, state: State, ledger: Ledger) -> None:
        self._state = state
        self._ledger = ledger
        self._reported: dict[str, str] = {}  # the last period of each question, as far as this process knows
        self.repeated = 0
        self._retry = 0.0  # until when the state is not tried again

    def respond(self, tag: str, chain: Chain, value: int | None, period: str) -> bytes | str:
        """Report once in a period, from the permanent response to the answer.

        Parameters
        ----------
        tag
            The fingerprint of the metric. With its meaning or version, everything begins anew, at new cost.
        chain
            The metric's mechanism.
        value
            The answer's place in the domain; None to let the period pass without a report.
        period
            The current one.

        Returns
        -------
        bytes or str
            A payload, or why there is none: ``"this_period"``, ``"budget"``, ``"state"``, ``"not_sampled"``.
        """
        if period <= self._reported.get(tag, ""):  # also when the clock went back: their names sort as they follow
            return "this_period"
        now = time.monotonic()
        if now < self._retry:
            return "state"
        try:
            with self._state.transaction() as db:
                kept = self._kept(db, tag, chain, value, period)
        except StateError:
            self._retry = now + TROUBLE_PAUSE
            return "state"
        if kept != "budget":
            self._reported[tag] = period
        if isinstance(kept, str):
            return kept
        return chain.respond_instantly(*chain.layout.unpack(kept), OS)

    def _kept(self, db: Connection, tag: str, chain: Chain, value: int | None, period: str) -> bytes | str:
        question = self._question(db, tag, chain)
        if period <= question.period:
            return "this_period"
        kept: bytes | str = "not_sampled"
        account = question.last
        if value is not None:
            account = self._account(db, tag, chain.memo_key(question.row, value))
            found = self._response(db, chain, account, question.row, value)
            if found is None and question.last is not None:
                # Wherever another answer has room, this one has: it is the youngest in the window.
                account = question.last
                found = self._response(db, chain, account)
                self.repeated += found is not None
            if found is None:
                return "budget"
            kept = found
        db.execute("UPDATE questions SET period = ?, last = ? WHERE tag = ?", (period, account, tag))
        return kept

    @staticmethod
    def _question(db: Connection, tag: str, chain: Chain) -> _Question:
        found = db.execute("SELECT row, period, last FROM questions WHERE tag = ?", (tag,)).fetchone()
        if found is None:
            found = (OS.below(chain.layout.rows), "", None)
            db.execute("INSERT INTO questions VALUES (?, ?, ?, ?)", (tag, *found))
        return _Question(*found)

    @staticmethod
    def _account(db: Connection, tag: str, key: int) -> bytes:
        (secret,) = db.execute("SELECT value FROM facts WHERE name = 'secret'").fetchone()
        return hmac.digest(secret, f"{tag} {key}".encode(), "sha256")[:_ACCOUNT_BYTES]

    def _response(self, db: Connection, chain: Chain, account: bytes, row: int = 0, value: int | None = None) -> bytes | None:
        """Return the response of an account, if the budget allows; without a value only one that is kept."""
        assert chain.permanent_ratio is not None  # noqa: S101 - the caps have refused what has no bound
        amount, moment = cost(chain.permanent_ratio), self._ledger.moment(db)
        found = db.execute("SELECT content FROM responses WHERE account = ?", (account,)).fetchone()
        if found is not None:
            return bytes(found[0]) if self._ledger.charge(db, account, amount, moment, drawn=False) else None
        if value is None or not self._ledger.charge(db, account, amount, moment, drawn=True):
            return None
        kept = chain.layout.pack(row, chain.respond_permanently(row, value, OS))
        db.execute("INSERT INTO responses VALUES (?, ?)", (account, kept))
        return kept
