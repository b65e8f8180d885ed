"""What a device keeps between runs, in one SQLite file that only its owner can read.

The file is in its own directory, and both are created together. If the directory exists without the file, the file was deleted.
Then it is unknown what was spent, so nothing may be recorded. A damaged file is treated in the same way. To start again, remove
the directory.

A connection is closed at the end of each transaction, so a fork copies none.
"""

from __future__ import annotations

import os
import re
import time
from contextlib import contextmanager, suppress
from errno import ENOSPC
from threading import RLock
from typing import TYPE_CHECKING, ClassVar, TypeVar
from weakref import WeakSet

from deniable.errors import StateError
from deniable.platform.files import rename, sync
from deniable.platform.folders import require_own
from deniable.process.forks import over_forks
from deniable.source import OS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from sqlite3 import Connection

T = TypeVar("T")

_FILE = "state.db"
FORMAT = 5
_PATIENCE = 0.25  # seconds to wait for another process; the host app waits, too
_SECRET_BITS = 256
_OF_DAMAGE = (TypeError, ValueError, OverflowError, AttributeError, LookupError)  # raised when damaged content is read
_UNFINISHED_AGE = 3600.0  # seconds; the process that was making an older directory has died
# With TRUNCATE a commit is safely on disk. A deleted journal could reappear after a power failure and undo the commit.
# `fullfsync` works on macOS only. `secure_delete` overwrites deleted content.
_SETTINGS = """
    PRAGMA journal_mode = TRUNCATE;
    PRAGMA synchronous = FULL;
    PRAGMA fullfsync = ON;
    PRAGMA secure_delete = ON;
"""
# What nobody can see yet needs no journal: after a crash it is removed. So the first transaction syncs the file once.
_SETTINGS_OF_FRESH = _SETTINGS.replace("TRUNCATE", "MEMORY")
SCHEMA = f"""
    CREATE TABLE facts (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
    CREATE TABLE accounts (
        tag TEXT PRIMARY KEY, period TEXT NOT NULL, reports INTEGER NOT NULL, spent INTEGER NOT NULL
    ) WITHOUT ROWID;
    CREATE TABLE spends (
        month TEXT NOT NULL, tag TEXT NOT NULL, cost INTEGER NOT NULL, PRIMARY KEY (month, tag)
    ) WITHOUT ROWID;
    CREATE TABLE kept (
        tag TEXT PRIMARY KEY, stand_in TEXT NOT NULL, point INTEGER NOT NULL, last BLOB, drawn INTEGER NOT NULL
    ) WITHOUT ROWID;
    CREATE TABLE responses (
        key BLOB PRIMARY KEY, tag TEXT NOT NULL, content BLOB NOT NULL
    ) WITHOUT ROWID;
    CREATE TABLE uses (tag TEXT NOT NULL, month TEXT NOT NULL, key BLOB NOT NULL, PRIMARY KEY (tag, month, key));
    CREATE TABLE journal (
        id INTEGER PRIMARY KEY, metric TEXT NOT NULL, version INTEGER NOT NULL, fingerprint TEXT NOT NULL, period TEXT NOT NULL,
        segment TEXT NOT NULL, payload BLOB NOT NULL, sealed INTEGER NOT NULL
    );
    CREATE TABLE refused (metric TEXT PRIMARY KEY, period TEXT NOT NULL, code TEXT NOT NULL) WITHOUT ROWID;
    CREATE TABLE waiting (
        id BLOB PRIMARY KEY, due INTEGER NOT NULL, metric TEXT NOT NULL, version INTEGER NOT NULL, fingerprint TEXT NOT NULL,
        period TEXT NOT NULL, segment TEXT NOT NULL, payload BLOB NOT NULL, sealed BLOB NOT NULL
    ) WITHOUT ROWID;
    CREATE TABLE people (person BLOB PRIMARY KEY, content BLOB NOT NULL) WITHOUT ROWID;
    PRAGMA user_version = {FORMAT};
"""


class BegunMeanwhileError(StateError):
    """Another process was first to make the state, so nothing of this transaction is kept."""


class State:
    """A device's file, one transaction at a time."""

    settings: ClassVar[str] = _SETTINGS
    _alive: ClassVar[WeakSet[State]] = WeakSet()

    def __init__(
        self,
        # The app's own directory. The first transaction makes it with the file. None keeps the state in memory.
        directory: Path | None,
        *,
        shared: bool = True,  # whether several threads have this object, so that a fork waits for its locks
    ) -> None:
        self._memory: Connection | None = None
        self.directory = directory
        # Guards data in memory that follow from the file. A fork waits for it. Transactions have another lock, so code that needs
        # only memory does not wait for the disk. Code that needs both takes this lock first.
        self.lock = RLock()
        self._writing = RLock()
        self._amid = False
        self._damaged = False
        # Why the last transaction failed; None after one that wrote something. For a damaged file it stays.
        self.trouble: str | None = None
        if shared:
            self._alive.add(self)

    def __del__(self) -> None:
        if self._memory is not None:
            self._memory.close()

    @property
    def begun(self) -> bool:
        """Whether the state exists."""
        if self.directory is None:
            return self._memory is not None
        try:
            return self.directory.exists()
        except OSError:  # the directory above cannot be read; a transaction will raise the error
            return True

    @property
    def file(self) -> Path:
        """The file of a state that is kept on disk."""
        assert self.directory is not None  # noqa: S101 - only such a state is asked
        return self.directory / _FILE

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Read and write in a block; at its end all is on disk, or nothing if it raises. An unusable file raises `StateError`."""
        import sqlite3  # noqa: PLC0415 - an app without consent never needs it

        process = os.getpid()
        with self._writing:
            if self._amid:  # this thread is in a transaction and would wait for itself
                raise StateError("a transaction ends before another begins: a signal handler or a finaliser has begun this one")
            self._amid = True
            fresh: Path | None = None
            try:
                if self.directory is not None and not self.directory.exists():
                    fresh = _fresh_folder(self.directory)
                with self._opened(fresh) as connection:
                    with _committed(connection, process, fresh=fresh is not None):
                        before = connection.total_changes
                        yield connection
                    wrote = connection.total_changes != before  # only a write shows that it can write
                if fresh is not None and self.directory is not None:
                    _enter(fresh, self.directory)
                if wrote and not self._damaged:
                    self.trouble = None
            except StateError as error:
                self.trouble = str(error)
                raise
            except (sqlite3.Error, OSError, *_OF_DAMAGE) as error:
                self._damaged = self._damaged or isinstance(error, _OF_DAMAGE)
                wrong = f"the state in {self.directory or 'memory'} cannot be used: {type(error).__name__}: {error}"
                self.trouble = f"{wrong}; {self._remedy(error)}"
                raise StateError(self.trouble) from None
            finally:
                self._amid = False
                if fresh is not None and os.getpid() == process:
                    _remove(fresh)

    def _remedy(self, error: Exception) -> str:
        """Say what a developer can do about an error of the file."""
        words = str(error)
        if self._damaged or "malformed" in words or "not a database" in words:
            return f"it is damaged; to start again with a new budget, remove {self.directory}"
        if "locked" in words:
            return "another process has it: if this lasts, end that process"
        if "full" in words or getattr(error, "errno", None) == ENOSPC:
            return "make room on the disk"
        return "see that this user can write there, or name another place with state= or DENIABLE_STATE_DIR"

    def begin(self, block: Callable[[Connection], T]) -> T:
        """Do a transaction that may be the first of the device. If another process is first, do it again, in its file."""
        try:
            with self.transaction() as db:
                return block(db)
        except BegunMeanwhileError:
            with self.transaction() as db:
                return block(db)

    @property
    def _patience(self) -> float:
        return _PATIENCE

    @contextmanager
    def _opened(self, fresh: Path | None) -> Iterator[Connection]:
        connection = self._connect(fresh)
        try:
            yield connection
        finally:
            self._leave(connection)

    def _leave(self, connection: Connection) -> None:
        if connection is not self._memory:
            connection.close()

    def _connect(
        self,
        fresh: Path | None,  # the folder in which the file is made, under its unfinished name
    ) -> Connection:
        import sqlite3  # noqa: PLC0415

        if self.directory is None:
            if self._memory is None:
                self._memory = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
                self._memory.execute("BEGIN")
                with self._memory:
                    _lay_out(self._memory)
            return self._memory
        if fresh is not None:
            file = fresh / _FILE
            os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
            connection = sqlite3.connect(file, isolation_level=None)
            connection.executescript(_SETTINGS_OF_FRESH)
            return connection
        require_own(self.directory)
        file = self.file
        if not file.exists():
            raise StateError(
                f"{file} was deleted, so nobody knows what was spent, and nothing is recorded; "
                f"to start again with a new budget, remove {self.directory}"
            )
        uri = f"{file.absolute().as_uri()}?mode=rw"
        # Whoever keeps a connection has a lock for its threads.
        connection = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=self._patience, check_same_thread=False)
        try:
            connection.executescript(self.settings)
            (format_,) = connection.execute("PRAGMA user_version").fetchone()
        except BaseException:
            connection.close()
            raise
        if format_ != FORMAT:
            connection.close()
            raise StateError(f"{file} is of another version (format {format_}, not {FORMAT}); remove {self.directory}")
        return connection

    def reset(self) -> None:
        """Replace the locks in a forked child."""
        self.lock = RLock()
        self._writing = RLock()
        self._amid = False

    @classmethod
    def reset_all(cls) -> None:
        """Replace the locks of every state of this process in a forked child."""
        for state in cls._alive:
            state.reset()

    @classmethod
    def locks(cls) -> Iterator[RLock]:
        """Yield the locks of every state of this process, in the order in which they are taken."""
        for state in cls._alive:
            yield from (state.lock, state._writing)  # noqa: SLF001 - our own


@contextmanager
def _committed(connection: Connection, process: int, *, fresh: bool) -> Iterator[None]:
    """Do a block in a transaction, which commits or rolls back."""
    connection.execute("BEGIN IMMEDIATE")
    with connection:
        if fresh:
            _lay_out(connection)
        yield
        if os.getpid() != process:  # a signal handler forked during the transaction
            raise StateError("a transaction belongs to one process, and this is a forked copy of it")


def _lay_out(connection: Connection) -> None:
    """Make the tables, in the transaction that is going on."""
    for statement in SCHEMA.split(";"):
        connection.execute(statement)
    secret = OS.below(1 << _SECRET_BITS).to_bytes(_SECRET_BITS // 8, "little")
    connection.execute("INSERT INTO facts VALUES ('secret', ?), ('lifetime', 0), ('place', '0/1')", (secret,))


def _fresh_folder(directory: Path) -> Path:
    """Make the folder in which the file is written before it has its name."""
    _make_folder(directory.parent)
    require_own(directory)
    _remove_unfinished(directory)
    fresh = directory.with_name(f".{directory.name}.{OS.below(1 << 64):016x}")
    fresh.mkdir(mode=0o700)
    return fresh


def _enter(fresh: Path, directory: Path) -> None:
    """Give a folder its name, with the file that its first transaction has written to disk."""
    sync(fresh)
    try:
        rename(fresh, directory)
    except OSError:
        if not (directory / _FILE).exists():
            raise
        raise BegunMeanwhileError(f"another process has made {directory} meanwhile") from None
    sync(directory.parent)
    require_own(directory)  # somebody may have replaced it


def _make_folder(folder: Path) -> None:
    """Make a folder and those above it, and write them to disk."""
    if not folder.exists():
        _make_folder(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)
        sync(folder.parent)


def _remove_unfinished(directory: Path) -> None:
    """Remove what was left by processes that died while they made this directory."""
    name = re.compile(rf"\.{re.escape(directory.name)}\.[0-9a-f]{{16}}")
    with suppress(OSError):  # another process may do the same
        for path in directory.parent.iterdir():
            if name.fullmatch(path.name) and time.time() - path.stat().st_mtime > _UNFINISHED_AGE:
                _remove(path)


def _remove(folder: Path) -> None:
    if folder.exists():
        from shutil import rmtree  # noqa: PLC0415 - slow to import, and hardly ever needed

        rmtree(folder, ignore_errors=True)


over_forks(State.locks, State.reset_all)
