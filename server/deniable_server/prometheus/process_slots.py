"""Where the processes of a server count together: a private directory, and in it a slot for each process that lives.

A slot is a number that no other living process has. Its owner holds a lock on a file, which the system takes away when the
process ends, however it ends; the next process takes the slot and counts on from what its files say. So there are never more
files than processes that once lived at the same time, and no count is lost with a process.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
from itertools import count
from pathlib import Path
from tempfile import gettempdir, mkdtemp

__all__ = ["Slot", "directory"]

_PREFIX = "deniable-counts-"
_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - what is made there is private


class Slot:
    """The slot of this process, as a function that gives its number.

    Parameters
    ----------
    folder
        Where slots are taken.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process = self._number = 0

    def __call__(self) -> int:
        """Return the number; a process that was forked has one of its own."""
        if self._process != os.getpid():
            # What a fork inherits is still its parent's: neither number nor lock are touched.
            self._number = next(number for number in count() if _lock(self._folder / f"{number}.lock") is not None)
            self._process = os.getpid()
        return self._number


def directory(home: Path | None = None) -> Path:
    """Make a private directory for one start of a server, and remove those of servers that were killed.

    Parameters
    ----------
    home
        Where to make it; by default in memory, where the system has a place for that.
    """
    home = home or (_SHARED_MEMORY if os.access(_SHARED_MEMORY, os.W_OK) else Path(gettempdir()))
    for old in home.glob(f"{_PREFIX}*"):
        if _abandoned(old):
            shutil.rmtree(old, ignore_errors=True)
    while True:
        made = Path(mkdtemp(prefix=_PREFIX, dir=home))
        # Held until this process and all that it forks have ended. Where another start came between, it was taken for abandoned.
        held = _lock(made / "server")
        if held is not None and os.fstat(held).st_nlink:
            return made


def _lock(path: Path) -> int | None:
    """Open a file and lock it for as long as this process lives; None where another has it."""
    opened = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(opened)
        return None
    return opened


def _abandoned(folder: Path) -> bool:
    """Tell whether a directory is ours, and the server that made it has ended."""
    try:
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
            return False
        opened = os.open(folder / "server", os.O_RDWR)
    except OSError:  # gone, or not locked yet
        return False
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    else:
        return True
    finally:
        os.close(opened)
