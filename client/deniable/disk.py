"""Files that are whole, on disk, and their owner's alone."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["sync", "write_new"]


def write_new(path: Path, data: bytes) -> None:
    """Write a file that did not exist, readable by its owner only, and return when it is on disk.

    Raises
    ------
    OSError
        If it exists, or the disk refuses.
    """
    with os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def sync(directory: Path) -> None:
    """Have a directory's entries on disk: what was made, renamed or removed in it. Windows opens no directories.

    Raises
    ------
    OSError
        If the disk refuses.
    """
    if sys.platform != "win32":
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
