"""Where the system has the files of apps, and folders that only their owner can write."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from deniable.errors import StateError

__all__ = ["default_directory", "is_own", "make_own", "require_own"]

if sys.platform == "win32":

    def _of_apps() -> Path:
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")

    def require_own(directory: Path) -> None:
        """Accept any directory: that of LOCALAPPDATA is the user's own, and nobody looks at the access list of another."""

    def is_own(_status: os.stat_result) -> bool:
        """Accept any file, for the same reason."""
        return True

    def make_own(directory: Path) -> None:
        """Make a directory. From Python 3.12.4 on, this mode gives it an access list of its owner and administrators."""
        directory.mkdir(mode=0o700, exist_ok=True)

else:
    from deniable.platform.owners import is_own, require_own

    def _of_apps() -> Path:
        if sys.platform == "darwin":
            return Path.home() / "Library" / "Application Support"
        return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")

    def make_own(directory: Path) -> None:
        """Make a directory that only its owner can read, or mend the mode of one that is there."""
        directory.mkdir(mode=0o700, exist_ok=True)
        if directory.stat().st_mode & 0o077:
            directory.chmod(0o700)


def default_directory() -> Path:
    """Return the system's place for state files; raise `StateError` if the user has no home directory."""
    try:
        return _of_apps() / "deniable"
    except RuntimeError:
        raise StateError(
            "there is no home directory to keep the budget in: name another place with state= or DENIABLE_STATE_DIR"
        ) from None
