"""What a web app keeps of the people who are signed in: for each person a device's state, in one store of the app.

All rules are those of a device. A transaction lays what is kept of the person on a desk, which is a state in memory. The rules
work there. Then what is on the desk is written back, in one transaction of the store.

The store knows a person by a keyed hash of the app's identifier. The secret under which a device keeps its answers follows from
the same key, and is not in the store.
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
from contextlib import contextmanager
from hmac import digest
from threading import RLock
from typing import TYPE_CHECKING, Any, Protocol

from deniable.device.ledger import TROUBLE_PAUSE
from deniable.device.state import FORMAT, SCHEMA, BegunMeanwhileError, State
from deniable.errors import ConfigurationError, StateError
from deniable.source import OS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path
    from sqlite3 import Connection

_LEAST_KEY = 16  # bytes of the app's key
_LEASE = 10.0  # seconds for which a worker may have a person in Redis
_PATIENCE = 2.0  # seconds to wait for other workers; a request of the app waits, too
_TABLES = ("facts", "accounts", "spends", "kept", "responses", "uses")
"""What is kept of a person. Nothing of what was sent is: it would link reports."""


_NEW = json.dumps({"format": FORMAT, "facts": [["lifetime", 0], ["place", "0/1"]]}).encode()


class _DamagedError(StateError):
    """What is kept of one person cannot be read."""


class Entry:
    """What a store has of one person: None if nothing."""

    def __init__(self, content: bytes | None) -> None:
        self.content = content


class Store(Protocol):
    """Where an app keeps people."""

    trouble: str | None  # why it could not be used, when it was tried last
    retry: float  # until when it is not tried again (monotonic clock)

    @property
    def desk(self) -> Connection:
        """The state in memory on which whoever has an entry works."""

    def entry(self, person: bytes) -> AbstractContextManager[Entry]:
        """Give what is kept of a person to nobody else in a block; at its end it is written, or nothing if the block raises."""

    def forget(self, person: bytes) -> None:
        """Delete what is kept of a person."""

    def close(self) -> None:
        """Close what is open, until it is used again; nothing if it is in use."""


class Desk:
    """The state in memory on which whoever has an entry of a store works. It is made when it is used."""

    def __init__(self) -> None:
        self._desk: Connection | None = None

    @property
    def desk(self) -> Connection:
        """The state in memory on which whoever has an entry works."""
        if self._desk is None:
            self._desk = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
            self._desk.executescript(SCHEMA)
        return self._desk

    def _clear(self, in_use: RLock) -> None:
        """Close what is open, unless a thread has the lock."""
        if in_use.acquire(blocking=False):
            try:
                self._drop()
            finally:
                in_use.release()

    def _drop(self) -> None:
        if self._desk is not None:
            self._desk.close()
            self._desk = None


class PeopleFile(Desk, State):
    """A file with all people of an app, for all of its processes on a machine."""

    # A log of changes takes one sync for each, where a device's file takes several.
    settings = """
        PRAGMA journal_mode = WAL;
        PRAGMA synchronous = FULL;
        PRAGMA fullfsync = ON;
        PRAGMA secure_delete = ON;
    """

    def __init__(self, directory: Path) -> None:
        Desk.__init__(self)
        State.__init__(self, directory)
        self.retry = 0.0
        self._connection: tuple[tuple[int, int], Connection] | None = None

    def __del__(self) -> None:
        super().__del__()
        self._drop()

    def close(self) -> None:
        """Close what is open, until it is used again; nothing if it is in use."""
        self._clear(self._writing)

    def _drop(self) -> None:
        super()._drop()
        if self._connection is not None and self._connection[0][0] == os.getpid():
            self._connection[1].close()
        elif self._connection is not None:
            _abandoned.append(self._connection[1])
        self._connection = None

    @property
    def _patience(self) -> float:
        return _PATIENCE

    def _connect(self, fresh: Path | None = None) -> Connection:
        """Return the connection that this process keeps: to open one takes longer than what is done with it."""
        if fresh is not None:
            return super()._connect(fresh)
        if self._connection is not None and self._connection[0] != self._place:
            _abandoned.append(self._connection[1])
            self._connection = None
        if self._connection is None:
            connection = super()._connect(None)
            self._connection = self._place, connection
        return self._connection[1]

    @property
    def _place(self) -> tuple[int, int]:
        """Return which process and which file this is: somebody may have removed the file."""
        try:
            return os.getpid(), self.file.stat().st_ino
        except OSError:
            return os.getpid(), 0

    def _leave(self, connection: Connection) -> None:
        if self._connection is None or connection is not self._connection[1]:
            super()._leave(connection)

    @contextmanager
    def entry(self, person: bytes) -> Iterator[Entry]:
        """Give what is kept of a person to nobody else in a block."""
        with self.transaction() as db:
            row = db.execute("SELECT content FROM people WHERE person = ?", (person,)).fetchone()
            entry = Entry(None if row is None else row[0])
            before = entry.content
            yield entry
            if entry.content != before:
                db.execute("INSERT OR REPLACE INTO people VALUES (?, ?)", (person, entry.content))

    def forget(self, person: bytes) -> None:
        """Delete what is kept of a person, also from the log of changes."""
        with self.transaction() as db:
            db.execute("DELETE FROM people WHERE person = ?", (person,))
        with self._writing:
            self._connect().execute("PRAGMA wal_checkpoint(TRUNCATE)")


_abandoned: list[Connection] = []
"""Connections of files that are gone, and of the process that this one was forked from: SQLite forbids to close them here."""

# In one step: whoever no longer has the person writes nothing.
_WRITE = """
if redis.call('GET', KEYS[2]) ~= ARGV[1] then return 0 end
if ARGV[2] == '' then redis.call('DEL', KEYS[1]) else redis.call('SET', KEYS[1], ARGV[2]) end
redis.call('DEL', KEYS[2])
return 1
"""
_RELEASE = "if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end"


class PeopleInRedis(Desk):
    """All people of an app in a Redis of the app, for all of its machines. It is as durable as that Redis."""

    def __init__(self, redis: Any, app: str) -> None:
        super().__init__()
        self._redis = redis
        self._app = app
        self._lock = RLock()
        self.trouble: str | None = None
        self.retry = 0.0

    def __del__(self) -> None:
        self._drop()

    def close(self) -> None:
        """Close what is open, until it is used again; nothing if it is in use."""
        self._clear(self._lock)

    @contextmanager
    def entry(self, person: bytes) -> Iterator[Entry]:
        """Give what is kept of a person to nobody else in a block."""
        name = f"deniable:{self._app}:{{{person.hex()}}}"
        token = f"{OS.below(1 << 64):016x}"
        with self._lock:
            self._have(name, token)
            try:
                entry = Entry(self._ask("get", name))
                before = entry.content
                yield entry
                if entry.content != before and not self._ask("eval", _WRITE, 2, name, f"{name}:by", token, entry.content or b""):
                    raise StateError(
                        "another worker has taken over this person, which was too slow; if this happens often, use more workers"
                    )
            finally:
                self._ask("eval", _RELEASE, 1, f"{name}:by", token)

    def _have(self, name: str, token: str) -> None:
        deadline = time.monotonic() + _PATIENCE
        while not self._ask("set", f"{name}:by", token, nx=True, px=int(_LEASE * 1000)):
            if time.monotonic() > deadline:
                raise StateError(
                    "another worker has had this person for too long; if this happens often, see whether the store is slow"
                )
            time.sleep(0.002)

    def _ask(self, command: str, *arguments: object, **options: object) -> Any:
        try:
            return getattr(self._redis, command)(*arguments, **options)
        except Exception as error:  # noqa: BLE001 - of the app's own client, whatever it is
            raise StateError(
                f"the app's Redis cannot be used: {type(error).__name__}; see whether it runs, at the address that the app uses"
            ) from None

    def forget(self, person: bytes) -> None:
        """Delete what is kept of a person."""
        with self.entry(person) as entry:
            entry.content = None


class Key:
    """The app's key: it names people in the store, and has a secret for each."""

    def __init__(
        self,
        key: str | bytes,  # at least 16 bytes that nobody can guess
        app: str,
    ) -> None:
        material = key.encode() if isinstance(key, str) else key
        if not isinstance(material, bytes) or len(material) < _LEAST_KEY:
            raise ConfigurationError(
                f"key is a secret of at least {_LEAST_KEY} bytes: python -c 'import secrets; print(secrets.token_hex())'"
            )
        self._key = digest(material, f"deniable people of {app}".encode(), "sha256")

    def person(self, identifier: str) -> bytes:
        """Return the name of a person in the store."""
        return self._of("person", identifier)

    def secret(self, identifier: str) -> bytes:
        """Return the secret under which the answers of a person are kept."""
        return self._of("secret", identifier)

    def _of(self, use: str, identifier: str) -> bytes:
        return digest(self._key, f"{use} {identifier}".encode("utf-8", "surrogatepass"), "sha256")


class PersonStates:
    """The states of all people of an app."""

    def __init__(self, store: Store, key: Key) -> None:
        self.store = store
        self.key = key

    def of(self, identifier: str) -> PersonState:
        """Return the state of one person, for one thread."""
        return PersonState(self.store, self.key, identifier)

    def forget(self, identifier: str) -> None:
        """Delete what is kept of a person; raise `StateError` if that fails."""
        self.store.forget(self.key.person(identifier))


class PersonState(State):
    """The state of one person, in the app's store."""

    def __init__(self, store: Store, key: Key, identifier: str) -> None:
        super().__init__(None, shared=False)
        self._store = store
        self._person = key.person(identifier)
        self._secret = key.secret(identifier)

    @property
    def begun(self) -> bool:
        """Whether the state exists. What is only read is not written."""
        return True

    @contextmanager
    def _opened(self, fresh: Path | None) -> Iterator[Connection]:
        assert fresh is None  # noqa: S101 - a state in memory
        store = self._store
        if time.monotonic() < store.retry:  # else each request would wait
            raise StateError(store.trouble or "the store could not be used; it is tried again in a moment")
        try:
            with store.entry(self._person) as entry:
                _lay(store.desk, entry.content, self._secret)
                before = store.desk.total_changes
                yield store.desk
                if store.desk.total_changes != before:
                    entry.content = _written(store.desk)
        except (_DamagedError, BegunMeanwhileError) as error:  # of this person alone, or of this moment
            store.trouble = str(error)
            raise
        except StateError as error:
            store.trouble, store.retry = str(error), time.monotonic() + TROUBLE_PAUSE
            raise


def _lay(desk: Connection, content: bytes | None, secret: bytes) -> None:
    """Lay what is kept of a person on the desk."""
    if desk.in_transaction:  # the last one on it was interrupted
        desk.rollback()
    desk.execute("BEGIN")
    try:
        _fill(desk, _NEW if content is None else content, secret)
    except (ValueError, TypeError, KeyError, AttributeError, sqlite3.Error):
        desk.rollback()
        raise _DamagedError(
            f"what is kept of a person is of another version (format {FORMAT} is needed); call forget for the person"
        ) from None
    desk.commit()


def _fill(desk: Connection, content: bytes, secret: bytes) -> None:
    document = json.loads(content)
    if document["format"] != FORMAT:
        raise ValueError
    document["facts"].append(["secret", {"hex": secret.hex()}])
    for table in _TABLES:
        desk.execute(f"DELETE FROM {table}")  # noqa: S608 - our own words
        rows = [
            [bytes.fromhex(each["hex"]) if isinstance(each, dict) else each for each in row] for row in document.get(table, ())
        ]
        if rows:
            desk.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(rows[0]))})", rows)  # noqa: S608 - as above


def _written(desk: Connection) -> bytes:
    """Write what is on the desk, but for the secret."""
    document: dict[str, Any] = {"format": FORMAT}
    for table in _TABLES:
        order = "rowid" if table == "uses" else "1"  # the last use is the last row
        rows = desk.execute(f"SELECT * FROM {table} ORDER BY {order}").fetchall()  # noqa: S608 - our own words
        if rows:
            document[table] = [[{"hex": each.hex()} if isinstance(each, bytes) else each for each in row] for row in rows]
    document["facts"] = [row for row in document["facts"] if row[0] != "secret"]
    return json.dumps(document, separators=(",", ":")).encode()
