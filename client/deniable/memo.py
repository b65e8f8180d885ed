"""Permanent responses: drawn once for an answer, kept, and reported once a period through fresh noise.

A response is kept under the digest of a secret of this device, so that no answer can be read off the file; whoever has the file
and tries all answers can still tell which ones were given. Losing a response makes no other one free: that is a new spend.
"""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING, NamedTuple

from deniable.errors import StateError
from deniable.ledger import cost
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
    period: str


class Memo:
    """Keeps the permanent responses of a device.

    Parameters
    ----------
    state
        Where.
    ledger
        What pays for them.
    """

    def __init__(self, state: State, ledger: Ledger) -> None:
        self._state = state
        self._ledger = ledger
        self._reported: dict[str, str] = {}  # the last period of each question, as far as this process knows

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
        try:
            with self._state.transaction() as db:
                kept = self._kept(db, tag, chain, value, period)
            self._ledger.trouble = None
        except StateError as error:
            self._ledger.trouble = str(error)
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
        if value is not None:
            kept = self._response(db, tag, chain, question.row, value)
            if kept == "budget":  # another answer may still be paid for
                return kept
        db.execute("UPDATE questions SET period = ? WHERE tag = ?", (period, tag))
        return kept

    @staticmethod
    def _question(db: Connection, tag: str, chain: Chain) -> _Question:
        found = db.execute("SELECT row, period FROM questions WHERE tag = ?", (tag,)).fetchone()
        if found is None:
            found = (OS.below(chain.layout.rows), "")
            db.execute("INSERT INTO questions VALUES (?, ?, ?)", (tag, *found))
        return _Question(*found)

    def _response(self, db: Connection, tag: str, chain: Chain, row: int, value: int) -> bytes | str:
        (secret,) = db.execute("SELECT value FROM facts WHERE name = 'secret'").fetchone()
        name = f"{tag} {chain.memo_key(row, value)}".encode()
        account = hmac.digest(secret, name, "sha256")[:_ACCOUNT_BYTES]
        assert chain.permanent_ratio is not None  # noqa: S101 - the caps have refused what has no bound
        found = db.execute("SELECT content FROM responses WHERE account = ?", (account,)).fetchone()
        amount, moment = cost(chain.permanent_ratio), self._ledger.moment(db)
        if not self._ledger.charge(db, account, amount, moment, drawn=found is None):
            return "budget"
        if found is not None:
            return bytes(found[0])
        kept = chain.layout.pack(row, chain.respond_permanently(row, value, OS))
        db.execute("INSERT INTO responses VALUES (?, ?)", (account, kept))
        return kept
