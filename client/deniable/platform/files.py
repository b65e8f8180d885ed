"""Files that are written, renamed, removed and locked alike on all systems, and that are completely written to disk.

On Windows a file that some process has open cannot be renamed or removed, unless that process allows it. Two things follow. Our
own files are opened so that this is allowed. And as a virus scanner may have a new file open for a moment, we try again.
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

if sys.platform == "win32":
    import _winapi
    import msvcrt

    _PAUSES = (0.01, 0.03, 0.06, 0.1)  # seconds; the app may wait
    # A lock of Windows keeps others from reading what is locked. So it is on a byte far beyond the end of any file of ours.
    _LOCKED = 1 << 30
    _SHARED = 1 | 2 | 4  # others may read, write, and rename or remove

    def open_to_read(path: Path) -> int:
        """Open a file so that it can be renamed and removed meanwhile; return its descriptor."""
        # `_winapi` is what `multiprocessing` opens its pipes with. `os.open` allows neither.
        existing = _winapi.OPEN_EXISTING
        handle = _winapi.CreateFile(str(path), _winapi.GENERIC_READ, _SHARED, _winapi.NULL, existing, 0, _winapi.NULL)
        return msvcrt.open_osfhandle(handle, os.O_RDONLY | os.O_BINARY | os.O_NOINHERIT)

    def lock(descriptor: int) -> bool | None:
        """Lock a file; return False if another process has locked it, and None if there are no such locks."""
        os.lseek(descriptor, _LOCKED, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except PermissionError:
            return False
        except OSError:  # a file system without locks
            return None
        finally:
            os.lseek(descriptor, 0, os.SEEK_SET)
        return True

    def _unlock(descriptor: int) -> None:
        os.lseek(descriptor, _LOCKED, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)

    def sync(directory: Path) -> None:
        """Do nothing: Windows cannot be asked to write a folder's entries to disk. NTFS does so within seconds."""

else:
    import fcntl

    _PAUSES: tuple[float, ...] = ()  # nobody is in the way

    def open_to_read(path: Path) -> int:
        """Open a file, but no link; return its descriptor."""
        return os.open(path, os.O_RDONLY | os.O_NOFOLLOW)

    def lock(descriptor: int) -> bool | None:
        """Lock a file; return False if another process has locked it, and None if there are no such locks."""
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:  # a file system without locks
            return None
        return True

    def _unlock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_UN)

    def sync(directory: Path) -> None:
        """Write a folder's entries to disk: files that were made, renamed or removed."""
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def let_go(descriptor: int) -> None:
    """Unlock and close a file."""
    with suppress(OSError):  # a forked child may have the descriptor, too, so closing ours would not end the lock
        _unlock(descriptor)
    with suppress(OSError):
        os.close(descriptor)


def write_new(path: Path, data: bytes) -> None:
    """Write a new file, readable by its owner only; return when it is on disk; raise `OSError` if it exists."""
    with os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def rename_onto(path: Path, target: Path) -> None:
    """Rename a file in one step, also onto one that exists."""
    _patiently(lambda: path.replace(target))


def rename(path: Path, target: Path) -> None:
    """Rename a file or a folder; raise `OSError` if there is a file in the other folder."""
    _patiently(lambda: path.rename(target))


def remove(path: Path) -> None:
    """Remove a file."""
    _patiently(path.unlink)


def _patiently(act: Callable[[], object]) -> None:
    for pause in _PAUSES:
        try:
            act()
        except PermissionError:
            time.sleep(pause)
        else:
            return
    act()
