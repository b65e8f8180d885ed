"""Permanent responses: drawn once for an answer, kept, and reported once a period with fresh noise.

A response is stored under a keyed digest of the answer. The key is in the same file. So whoever has the file can try all answers
and learn which were given. If a response is lost, the next one counts as another response.

Whether there is a report says nothing about the answer. There is a limit on the different responses that a metric reports in a
calendar month, and on those that it ever draws. Beyond it the last one is reported again, because silence would show that the
answer has changed. An undeclared answer is replaced by a declared one, which is drawn once for each device and metric.

For the mean of a number, the answer is first rounded to an end of its range. The point where this happens is drawn once for each
device and metric, too, and never sent. So over all devices the mean is kept, and a small change of the answer hardly ever shows.
"""

from __future__ import annotations

import time
from math import lcm
from typing import TYPE_CHECKING

from deniable.device.ledger import TROUBLE_PAUSE, account
from deniable.errors import StateError
from deniable.frozen import NamedTuple
from deniable.source import OS

if TYPE_CHECKING:
    from collections.abc import Callable
    from sqlite3 import Connection

    from deniable.device.ledger import Ledger
    from deniable.device.prepared import Occasion, Prepared
    from deniable.device.state import State
    from deniable.source import Source

_KEY_BYTES = 16
_PAUSE = 60.0  # seconds between tries after a refusal by the budget
_MONTHS = 4  # how many months of reports are remembered: the report of a block may be made long after the block began


class _MetricRecord(NamedTuple):
    """What a device keeps for a metric besides its responses."""

    stand_in: int  # the answer that is reported for an undeclared one
    point: int  # where a number is rounded to an end of its range; 0 for other metrics
    last: bytes | None  # key of the response that was reported last
    responses: int  # how many were ever drawn


def row_of(
    db: Connection,  # a connection in a transaction
    rows: int,  # number of rows, at least 1
    source: Source,  # the source of randomness
) -> int:
    """Return this device's row in a metric with `rows` rows."""
    # A device has one place between 0 and 1. It is drawn uniformly, only as finely as its metrics need. Its row is that one of
    # `rows` equal parts that contains the place. So the device has the same row in all metrics with the same number of rows. Any
    # number of metrics shows little more than the metric with most rows; see `deniable.limits.exposure.groups`.
    (written,) = db.execute("SELECT value FROM facts WHERE name = 'place'").fetchone()
    place, parts = map(int, written.split("/"))
    finer = lcm(parts, rows) // parts
    if finer > 1:
        place, parts = place * finer + source.below(finer), parts * finer
        db.execute("UPDATE facts SET value = ? WHERE name = 'place'", (f"{place}/{parts}",))
    return place * rows // parts


class PermanentResponses:
    """Keeps the permanent responses of a device."""

    def __init__(
        self,
        state: State,  # the state file
        ledger: Ledger,  # the ledger, which pays for them
        source: Source = OS,  # the source of randomness
    ) -> None:
        self._state = state
        self._ledger = ledger
        self._source = source
        self._reported: dict[str, str] = {}  # the last period of each metric, as far as this process knows
        self._retries: dict[str, float] = {}  # until when a metric is not tried again
        self._retry = 0.0  # until when no metric is tried again
        self.repeated = 0  # reports that repeat an earlier answer, because the metric has no room for another one

    def respond(
        self,
        prepared: Prepared,  # a metric with permanent responses
        occasion: Occasion,  # when it is answered
        value: int | None,  # the answer's position in the domain; None for an undeclared answer
        *,
        sampled: bool = True,  # False to let the period pass without a report
    ) -> bytes | str:
        """Make the period's report from the permanent response to the answer; return its payload, or why there is none."""
        # The reasons are "this_period", "budget", "state" and "not_sampled".
        return self._first(prepared, occasion, lambda db: self._response(db, prepared, occasion, value), sampled=sampled)

    def reserve(
        self,
        # prepared, occasion, sampled: as in `respond`
        prepared: Prepared,
        occasion: Occasion,
        *,
        sampled: bool = True,
    ) -> str | None:
        """Begin the period's report, whose answer is not known yet; return None, or why there is none. `complete` makes it."""
        refused = self._first(prepared, occasion, lambda _: b"", sampled=sampled)
        return refused if isinstance(refused, str) else None

    def complete(
        self,
        # prepared, occasion, value: as in `respond`
        prepared: Prepared,
        occasion: Occasion,
        value: int | None,
    ) -> bytes | str:
        """Make a report that was begun by `reserve`."""
        try:
            with self._state.transaction() as db:
                return self._instantly(prepared, self._response(db, prepared, occasion, value))
        except StateError:
            return "state"

    def _first(
        self, prepared: Prepared, occasion: Occasion, then: Callable[[Connection], bytes | str], *, sampled: bool
    ) -> bytes | str:
        """Spend for the first report of a period, and go on in the same transaction; return a payload, or why there is none."""
        tag, period = prepared.allowance.tag, occasion.stratum.period
        if period <= self._reported.get(tag, ""):  # also if the clock went back: names of periods sort by time
            return "this_period"
        now = time.monotonic()
        if now < self._retry:
            return "state"
        if now < self._retries.get(tag, 0.0):
            return "budget"
        try:
            outcome = self._state.begin(lambda db: self._reserve(db, prepared, occasion, sampled=sampled) or then(db))
        except StateError:
            self._retry = now + TROUBLE_PAUSE
            return "state"
        if outcome == "budget":
            self._retries[tag] = now + _PAUSE
        else:
            self._reported[tag] = period  # also if it was not sampled: a period has one chance of a report
        return self._instantly(prepared, outcome) if outcome else b""

    def _instantly(self, prepared: Prepared, outcome: bytes | str) -> bytes | str:
        """Make a noisy copy of a response; return a reason as it is."""
        mechanism = prepared.permanent
        assert mechanism is not None  # noqa: S101 - the caller checks it
        if isinstance(outcome, str):
            return outcome
        return mechanism.respond_instantly(*mechanism.layout.unpack(outcome), self._source)

    def _reserve(self, db: Connection, prepared: Prepared, occasion: Occasion, *, sampled: bool) -> str | None:
        """Spend for the first report of a period; return None, or why there is none."""
        allowance = prepared.allowance
        if occasion.stratum.period <= account(db, allowance.tag)[0]:
            return "this_period"
        if not sampled:
            self._ledger.write_account(db, allowance, occasion, 1)
            return "not_sampled"
        return None if self._ledger.reserve(db, allowance, occasion) else "budget"

    def _response(self, db: Connection, prepared: Prepared, occasion: Occasion, value: int | None) -> bytes | str:
        """Return the response to be reported, as a payload, or why there is none."""
        allowance, mechanism = prepared.allowance, prepared.permanent
        assert mechanism is not None  # noqa: S101 - the caller checks it
        row = row_of(db, mechanism.layout.rows, self._source)
        record = self._record_of(db, prepared)
        value = record.stand_in if value is None else value
        if prepared.metric.rounded:
            value = prepared.metric.round_at(value, record.point)
        key = self._key(db, allowance.tag, mechanism.response_key(row, value))
        content = self._content(db, key)
        uses = self._uses(db, allowance.tag, occasion.month)
        if uses is None:
            return "this_period"
        full = key not in uses and len(uses) >= allowance.answers
        # There is no room for another response. The last one is reported again: silence would show that the answer has changed.
        if full or (content is None and record.responses >= allowance.answers_ever):
            again = uses[-1] if uses else record.last
            last = None if again is None else self._content(db, again)
            if again is not None and last is not None:
                key, content = again, last
                self.repeated += 1
        responses = record.responses
        if content is None:
            if responses >= allowance.answers_ever:  # earlier responses were lost from the file
                return "budget"
            content = mechanism.layout.pack(row, mechanism.respond_permanently(row, value, self._source))
            responses += 1
        db.execute("INSERT OR IGNORE INTO responses VALUES (?, ?, ?)", (key, allowance.tag, content))
        db.execute("INSERT OR REPLACE INTO uses VALUES (?, ?, ?)", (allowance.tag, occasion.month, key))
        db.execute("UPDATE kept SET last = ?, drawn = ? WHERE tag = ?", (key, responses, allowance.tag))
        return content

    def _record_of(self, db: Connection, prepared: Prepared) -> _MetricRecord:
        tag = prepared.allowance.tag
        row = db.execute("SELECT stand_in, point, last, drawn FROM kept WHERE tag = ?", (tag,)).fetchone()
        if row is None:
            metric = prepared.metric
            point = self._source.below(metric.axis.steps) if metric.axis and metric.rounded else 0
            row = (str(metric.stand_in(self._source)), point, None, 0)
            db.execute("INSERT INTO kept VALUES (?, ?, ?, ?, ?)", (tag, *row))
        return _MetricRecord(int(row[0]), *row[1:])

    @staticmethod
    def _uses(db: Connection, tag: str, month: str) -> list[bytes] | None:
        """Return the keys of the responses that were reported in a month, the last one last; None if this was forgotten."""
        # Older months are forgotten by their number: the clock may be wrong.
        query = "SELECT DISTINCT month FROM uses WHERE tag = ? ORDER BY month DESC LIMIT ?"
        months = [each for (each,) in db.execute(query, (tag, _MONTHS))]
        if len(months) == _MONTHS:
            if month < months[-1]:
                return None
            db.execute("DELETE FROM uses WHERE tag = ? AND month < ?", (tag, months[-1]))
        rows = db.execute("SELECT key FROM uses WHERE tag = ? AND month = ? ORDER BY rowid", (tag, month))
        return [key for (key,) in rows]

    @staticmethod
    def _content(db: Connection, key: bytes) -> bytes | None:
        row = db.execute("SELECT content FROM responses WHERE key = ?", (key,)).fetchone()
        return None if row is None else bytes(row[0])

    @staticmethod
    def _key(db: Connection, tag: str, key: int) -> bytes:
        from hmac import digest  # noqa: PLC0415 - it loads OpenSSL, and only such metrics need it

        (secret,) = db.execute("SELECT value FROM facts WHERE name = 'secret'").fetchone()
        return digest(secret, f"{tag} {key}".encode(), "sha256")[:_KEY_BYTES]
