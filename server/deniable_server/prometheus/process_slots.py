"""Shared counters of a server's processes: a private directory, with a slot for each process that lives.

A slot is a number that no other living process has. Its owner holds a lock on a file. The system releases the lock when the
process ends, in any way. The next process takes the slot and continues its counts. So there are never more files than processes
that lived at the same time, and no count is lost with a process.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
from itertools import count
from pathlib import Path
from tempfile import gettempdir, mkdtemp

_PREFIX = "deniable-counts-"
_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - the directory in it is private


class Slot:
    """The slot of this process, as a function that returns its number."""

    def __init__(
        self,
        folder: Path,  # folder of the slots
    ) -> None:
        self._folder = folder
        self._process = self._number = 0

    def __call__(self) -> int:
        """Return the number. A forked process gets its own."""
        if self._process != os.getpid():
            # After a fork, number and lock still belong to the parent, so they are left alone.
            self._number = next(number for number in count() if _lock(self._folder / f"{number}.lock") is not None)
            self._process = os.getpid()
        return self._number


def directory(
    home: Path | None = None,  # parent folder; by default in memory, if the system has a folder for that
) -> Path:
    """Make a private directory for this start of a server, and remove those of servers that were killed."""
    home = home or (_SHARED_MEMORY if os.access(_SHARED_MEMORY, os.W_OK) else Path(gettempdir()))
    for old in home.glob(f"{_PREFIX}*"):
        if _abandoned(old):
            shutil.rmtree(old, ignore_errors=True)
    while True:
        folder = Path(mkdtemp(prefix=_PREFIX, dir=home))
        # Held until this process and its children have ended. If another start intervened, it took the directory for abandoned.
        held = _lock(folder / "server")
        if held is not None and os.fstat(held).st_nlink:
            return folder


def _lock(path: Path) -> int | None:
    """Open a file and lock it for the life of this process; None if another process has the lock."""
    opened = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(opened)
        return None
    return opened


def _abandoned(folder: Path) -> bool:
    """Return whether a directory is ours, and the server that made it has ended."""
    try:
        status = folder.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
            return False
        opened = os.open(folder / "server", os.O_RDWR)
    except OSError:  # removed, or not locked yet
        return False
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    else:
        return True
    finally:
        os.close(opened)
