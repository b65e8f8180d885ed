"""Folders and files that only their owner can write, by owners and modes. Windows has no such modes."""

from __future__ import annotations

import os
import stat
import sys
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING

from deniable.errors import StateError

assert sys.platform != "win32"  # noqa: S101 - for type checkers

if TYPE_CHECKING:
    from pathlib import Path


_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def require_own(directory: Path) -> None:
    """Raise `StateError` for a directory that somebody else can write or replace; one that is not there yet is accepted."""
    # The rules are those of ssh. The directory, its files and every folder above it must belong to this user or to root. Nobody
    # else may write them. Links are followed. A folder above may be writable for others if it has the sticky bit, and for a group
    # without other members.
    looked: set[str] = set()
    for folder in (os.path.abspath(directory), os.path.realpath(directory)):  # noqa: PTH100 - faster than `Path`
        above = os.path.dirname(folder)  # noqa: PTH120
        while above not in looked:
            looked.add(above)
            _require_kept(above)
            above = os.path.dirname(above)  # noqa: PTH120
    with suppress(FileNotFoundError):
        _require_own(str(directory))
        for name in os.listdir(directory):  # noqa: PTH208 - as above
            with suppress(FileNotFoundError):  # another process has removed it
                _require_own(f"{directory}/{name}")


def is_own(status: os.stat_result) -> bool:
    """Return whether a file belongs to this user or to root, and nobody else can write it."""
    return status.st_uid in (_me(), 0) and not status.st_mode & _OTHERS


def _require_kept(folder: str) -> None:
    """Refuse a folder in which somebody else can replace files."""
    try:
        status = os.stat(folder)  # noqa: PTH116 - as above
    except FileNotFoundError:
        return
    rule, mode = "others can replace what a device keeps", status.st_mode
    if status.st_uid not in (_me(), 0):
        advice = "name another place with state= or DENIABLE_STATE_DIR"
        raise StateError(f"{rule}; {folder} belongs to user {status.st_uid}: {advice}")
    others = mode & stat.S_IWOTH or (mode & stat.S_IWGRP and not _is_private(status.st_gid))
    if others and not mode & stat.S_ISVTX:
        raise StateError(f"{rule}; {folder} has mode {_written(mode)} and no sticky bit: run chmod go-w {folder}")


@lru_cache(maxsize=64)
def _is_private(group: int) -> bool:
    """Return whether this user is the only member of a group: it has the user's name, or is the user's and has no entry."""
    import grp  # noqa: PLC0415 - rarely needed
    import pwd  # noqa: PLC0415

    try:
        listed = grp.getgrgid(group)
    except KeyError:
        return group in (os.getegid(), *os.getgroups())
    try:
        name = pwd.getpwuid(_me()).pw_name
    except KeyError:
        return False
    return listed.gr_name == name and set(listed.gr_mem) <= {name}


def _require_own(path: str) -> None:
    status = os.lstat(path)
    if status.st_uid not in (_me(), 0):
        rule = "what a device keeps must belong to its user or to root"
        advice = "remove it, or name another place with state= or DENIABLE_STATE_DIR"
        raise StateError(f"{rule}; {path} belongs to user {status.st_uid}: {advice}")
    if stat.S_ISLNK(status.st_mode):
        status = os.stat(path)  # noqa: PTH116 - as above; a link has no mode of its own
    if status.st_mode & _OTHERS:
        rule = "others can write what a device keeps"
        mended = f"if nobody else has written it, run chmod go-w {path}"
        raise StateError(f"{rule}; {path} has mode {_written(status.st_mode)}: {mended}")


def _written(mode: int) -> str:
    return f"{stat.S_IMODE(mode):04o}"


def _me() -> int:
    return os.geteuid()
