"""Pools: sealed reports of one stratum and key, on disk, that are forwarded together or not at all.

A file of SQLite has them. A report is known by the digest of its sealed bytes, so one that comes again counts once. There is no
address, no time and no name of an upload in the file, and its rows are in the order of digests. After each commit the journal is
empty; what is deleted is overwritten.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from secrets import token_hex
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple

from deniable.wire.report import Stratum

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

FILE = "pools.db"  # its name in the folder of a relay
PART = 500  # reports that one upload to the server has at most
_DIGEST_BYTES = 16
_WAIT = 30.0
_TABLES = """
CREATE TABLE IF NOT EXISTS pools (
    id INTEGER PRIMARY KEY,
    stratum TEXT NOT NULL,
    number INTEGER NOT NULL,     -- of the key that its reports are sealed to
    least INTEGER NOT NULL,      -- reports that are a crowd
    first REAL NOT NULL,         -- when it closes, in seconds since 1970
    last REAL NOT NULL,          -- when it closes for good
    closed INTEGER NOT NULL DEFAULT 0,  -- how often it has
    UNIQUE (stratum, number)
);
CREATE TABLE IF NOT EXISTS transfers (
    id INTEGER PRIMARY KEY AUTOINCREMENT,  -- a settled one's number is not used again
    name TEXT NOT NULL,          -- random: the server knows its parts by it
    pool INTEGER NOT NULL,
    size INTEGER NOT NULL,       -- reports
    part INTEGER NOT NULL DEFAULT 0,  -- the next one
    after BLOB NOT NULL DEFAULT x''   -- digest of the last report that was forwarded
);
CREATE TABLE IF NOT EXISTS reports (
    pool INTEGER NOT NULL,
    digest BLOB NOT NULL,
    sealed BLOB,                 -- null once it was forwarded
    transfer INTEGER,            -- null while it waits
    PRIMARY KEY (pool, digest)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS totals (name TEXT PRIMARY KEY, reports INTEGER NOT NULL) WITHOUT ROWID;
"""


class Crowd(NamedTuple):
    """Of which pool a report is, and what that pool waits for."""

    stratum: Stratum
    number: int  # of the key that they are sealed to: the server sees it, so who has another one is in another crowd
    least: int  # reports that are a crowd
    first: float  # when the pool closes, in seconds since 1970
    last: float  # when it closes for good: reports that came after the first time go then, if they are a crowd by themselves


class Part(NamedTuple):
    """Reports of a pool that go in one upload."""

    transfer: int
    name: str  # the upload's idempotency key; each attempt has the same
    stratum: Stratum
    size: int  # reports of the whole pool
    last: float  # when the pool closed for good, in seconds since 1970
    reports: tuple[bytes, ...]  # sealed, in the order of digests: a function of random bytes, so it says nothing


@dataclass(slots=True)
class _Ticket:
    """Reports that wait to be written."""

    reports: Sequence[tuple[Crowd, Sequence[bytes]]]
    turn: Lock  # held until they are written, or their own thread is to write
    done: bool = False
    fault: BaseException | None = None


class Pools:
    """The pools of a relay. Threads may share it; one process has a file."""

    def __init__(
        self,
        path: Path,
        wait: float = _WAIT,  # seconds for another process to let go of the file
    ) -> None:
        self._waiting: list[_Ticket] = []
        self._busy = False  # whether a thread writes, or is about to
        self._ids: dict[Crowd, int] = {}  # of open pools
        self._queue, self._writing = Lock(), Lock()
        self._file = sqlite3.connect(path, timeout=wait, isolation_level=None, check_same_thread=False)
        # A write-ahead log would have the order of arrival. A rollback journal has pages as they were, for one commit.
        for setting in ("journal_mode = TRUNCATE", "synchronous = FULL", "secure_delete = ON", "locking_mode = EXCLUSIVE"):
            self._file.execute(f"PRAGMA {setting}")
        self._file.executescript(_TABLES)

    def close(self) -> None:
        """Close the file."""
        with self._writing:
            self._file.close()

    def add(self, reports: Sequence[tuple[Crowd, Sequence[bytes]]]) -> None:
        """Keep sealed reports, and return once they are durable. Raise `sqlite3.Error` if none of them was kept."""
        ticket = _Ticket(reports, Lock())
        ticket.turn.acquire()
        with self._queue:
            self._waiting.append(ticket)
            is_first, self._busy = not self._busy, True
        # One thread writes what all others wait for: one commit for all. Then the first that came meanwhile does the same.
        if not is_first:
            ticket.turn.acquire()
        if not ticket.done:
            with self._writing:
                self._write_waiting()
        if ticket.fault:
            raise ticket.fault

    def close_due(self, now: float) -> None:
        """Make a transfer of each pool that closes now and is a crowd; forget what stays too small, and pools that are over."""
        with self._commit() as file:
            self._ids.clear()
            due = "SELECT id, least, last <= ? FROM pools WHERE closed = 0 AND first <= ? OR closed = 1 AND last <= ?"
            for pool, least, is_last in file.execute(due, (now, now, now)).fetchall():
                self._close(pool, least, for_good=bool(is_last))
            over = "SELECT id FROM pools WHERE closed = 2 AND id NOT IN (SELECT pool FROM transfers)"
            for (pool,) in file.execute(over).fetchall():
                file.execute("DELETE FROM reports WHERE pool = ?", (pool,))
                file.execute("DELETE FROM pools WHERE id = ?", (pool,))

    def parts(self) -> list[Part]:
        """Return the next part of each transfer."""
        transfers = "SELECT t.id, name, size, part, after, pool, stratum, last FROM transfers t JOIN pools p ON p.id = pool"
        chosen = "SELECT sealed FROM reports WHERE pool = ? AND transfer = ? AND digest > ? ORDER BY digest LIMIT ?"
        with self._writing:
            return [
                Part(
                    transfer,
                    f"{name}.{part}",
                    Stratum(*json.loads(stratum)),
                    size,
                    last,
                    tuple(sealed for (sealed,) in self._file.execute(chosen, (pool, transfer, after, PART))),
                )
                for transfer, name, size, part, after, pool, stratum, last in self._file.execute(transfers).fetchall()
            ]

    def settle(self, part: Part) -> None:
        """Delete the reports of a part that the server has taken. Their digests stay until the pool is over."""
        with self._commit() as file:
            digests = [_digest(sealed) for sealed in part.reports]
            row = file.execute("SELECT pool, part, name FROM transfers WHERE id = ?", (part.transfer,)).fetchone()
            if row is None or f"{row[2]}.{row[1]}" != part.name:
                return  # it is settled
            sql = "UPDATE reports SET sealed = NULL WHERE pool = ? AND digest = ?"
            file.executemany(sql, [(row[0], digest) for digest in digests])
            file.execute("UPDATE transfers SET part = part + 1, after = ? WHERE id = ?", (digests[-1], part.transfer))
            self._count("forwarded", len(digests))
            left = "SELECT 1 FROM reports WHERE pool = ? AND transfer = ? AND sealed IS NOT NULL LIMIT 1"
            if file.execute(left, (row[0], part.transfer)).fetchone() is None:
                file.execute("DELETE FROM transfers WHERE id = ?", (part.transfer,))

    def drop(self, part: Part) -> int:
        """Delete a part and all that would follow it: its period is over at the server. Return how many reports these are."""
        with self._commit() as file:
            sql = "UPDATE reports SET sealed = NULL WHERE transfer = ? AND sealed IS NOT NULL"
            dropped = file.execute(sql, (part.transfer,)).rowcount
            file.execute("DELETE FROM transfers WHERE id = ?", (part.transfer,))
            self._count("too_late", dropped)
        return dropped

    def totals(self) -> Counter[str]:
        """Return how many reports were forwarded and dropped since the file was made, and how many are here."""
        with self._writing:
            totals = Counter(dict(self._file.execute("SELECT name, reports FROM totals")))
            sql = "SELECT count(*), count(transfer) FROM reports WHERE sealed IS NOT NULL"
            here, closed = self._file.execute(sql).fetchone()
        return totals + Counter(waiting=here - closed, closed=closed)

    def _write_waiting(self) -> None:
        with self._queue:
            tickets, self._waiting = self._waiting, []
        try:
            with self._transaction() as file:
                rows = [
                    (pool, _digest(sealed), sealed)
                    for ticket in tickets
                    for crowd, reports in ticket.reports
                    for pool in [self._open(file, crowd)]
                    for sealed in reports
                ]
                rows.sort()  # a page of the file has what came in one commit in this order
                file.executemany("INSERT OR IGNORE INTO reports (pool, digest, sealed) VALUES (?, ?, ?)", rows)
        except BaseException as fault:  # noqa: BLE001 - each thread raises it
            self._ids.clear()  # some may not be written
            for ticket in tickets:
                ticket.fault = fault
        with self._queue:
            self._busy = bool(self._waiting)
            heads = self._waiting[:1]
        for ticket in tickets:
            ticket.done = True
        for ticket in (*heads, *tickets):
            ticket.turn.release()

    def _open(self, file: sqlite3.Connection, crowd: Crowd) -> int:
        """Return the id of a pool, which is open from now on."""
        if crowd not in self._ids:
            # A report that was checked just before its pool closed for good, and came after, opens it once more.
            sql = """INSERT INTO pools (stratum, number, least, first, last) VALUES (?, ?, ?, ?, ?)
                ON CONFLICT DO UPDATE SET least = max(least, excluded.least), closed = min(closed, 1) RETURNING id"""
            stratum, *others = crowd
            ((self._ids[crowd],),) = file.execute(sql, (json.dumps(stratum, separators=(",", ":")), *others)).fetchall()
        return self._ids[crowd]

    def _close(self, pool: int, least: int, *, for_good: bool) -> None:
        file = self._file
        ((size,),) = file.execute("SELECT count(*) FROM reports WHERE pool = ? AND transfer IS NULL", (pool,)).fetchall()
        if size >= least:
            sql = "INSERT INTO transfers (name, pool, size) VALUES (?, ?, ?) RETURNING id"
            ((transfer,),) = file.execute(sql, (token_hex(16), pool, size)).fetchall()
            file.execute("UPDATE reports SET transfer = ? WHERE pool = ? AND transfer IS NULL", (transfer, pool))
        elif for_good and size:
            file.execute("DELETE FROM reports WHERE pool = ? AND transfer IS NULL", (pool,))
            self._count("too_few", size)
        file.execute("UPDATE pools SET closed = ? WHERE id = ?", (2 if for_good else 1, pool))

    def _count(self, name: str, reports: int) -> None:
        sql = "INSERT INTO totals VALUES (?, ?) ON CONFLICT DO UPDATE SET reports = reports + excluded.reports"
        self._file.execute(sql, (name, reports))

    @contextmanager
    def _commit(self) -> Iterator[sqlite3.Connection]:
        with self._writing, self._transaction() as file:
            yield file

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        self._file.execute("BEGIN IMMEDIATE")
        try:
            yield self._file
            self._file.execute("COMMIT")
        except BaseException:
            if self._file.in_transaction:  # some faults of the disk end it
                self._file.execute("ROLLBACK")
            raise


def _digest(sealed: bytes) -> bytes:
    return sha256(sealed).digest()[:_DIGEST_BYTES]
