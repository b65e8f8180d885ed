"""A stand-in for Windows: `PYTHONPATH=tests/support pytest -p windows` lets the SDK meet on Linux what it would meet there.

A file that is open cannot be renamed, replaced or removed, unless whoever opened it allows that. Nothing is renamed onto a file
that exists. A folder cannot be opened, and a file that was opened to read cannot be synced. Names of devices are no names of
files. Modes mean nothing. There is no fork, no `fcntl`, and no user's number. Only the SDK believes that this is Windows: the
modules of `deniable.platform` are loaded while `sys.platform` says so.
"""

# It replaces what `Path` calls, and must import some modules first.
# ruff: noqa: E402, PTH112, PTH115, PTH118, PTH119, PTH120, PTH208

from __future__ import annotations

import errno
import os
import shutil
import signal
import sys
import tempfile
from importlib import import_module
from pathlib import PurePath
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

# They look for the system, or need what goes below, when they are imported.
for _name in (
    "asyncio", "concurrent.futures.process", "gzip", "http.server", "multiprocessing.pool", "multiprocessing.synchronize",
    "_pytest.faulthandler", "requests", "selectors", "sqlite3", "subprocess", "tempfile", "uuid", "xdist",
):  # fmt: skip
    import_module(_name)

import fcntl

from _pytest import capture

_IN_USE = "The process cannot access the file because it is being used by another process"
_DEVICES = {"con", "prn", "aux", "nul", *(f"{port}{number}" for port in ("com", "lpt") for number in range(10))}
_SHARES_DELETE = 4
_shared: set[int] = set()  # descriptors of files that may be renamed and removed

_open, _close, _fsync, _mkdir, _chmod = os.open, os.close, os.fsync, os.mkdir, os.chmod
_unlink, _rename, _replace, _rmdir = os.unlink, os.rename, os.replace, os.rmdir


def _opened() -> Iterator[tuple[int, str]]:
    for name in os.listdir("/proc/self/fd"):
        try:
            yield int(name), os.readlink(f"/proc/self/fd/{name}")
        except FileNotFoundError:
            continue


def _require_free(path: object, *, shared: bool = True) -> None:
    """Raise what Windows does if a file, or one in a folder, is open; `shared` if those that share it do not count."""
    text = os.fsdecode(path)
    real = os.path.join(os.path.realpath(os.path.dirname(text)), os.path.basename(text))
    for descriptor, target in _opened():
        if (target == real or target.startswith(f"{real}/")) and not (shared and descriptor in _shared):
            raise PermissionError(errno.EACCES, _IN_USE, text)


def _require_name(path: object) -> None:
    name = PurePath(os.fsdecode(path)).name
    if set(name) & set('<>:"|?*') or name.endswith((".", " ")) or name.partition(".")[0].lower() in _DEVICES:
        raise OSError(errno.EINVAL, "The filename, directory name, or volume label syntax is incorrect", name)


def open_(path: object, flags: int, *more: object, **options: object) -> int:
    if os.path.isdir(path):
        raise PermissionError(errno.EACCES, "Permission denied", path)
    if flags & os.O_CREAT:
        _require_name(path)
    return _open(path, flags, *more, **options)


def close(descriptor: int) -> None:
    _shared.discard(descriptor)
    _close(descriptor)


def fsync(descriptor: object) -> None:
    number = descriptor if isinstance(descriptor, int) else descriptor.fileno()
    if fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
        raise OSError(errno.EBADF, "Bad file descriptor")
    _fsync(number)


def mkdir(path: object, _mode: int = 0o777, **options: object) -> None:
    _require_name(path)
    _mkdir(path, **options)


def chmod(path: object, mode: int, **options: object) -> None:
    """Know nothing but files that cannot be written."""
    if not mode & 0o200:
        _chmod(path, mode, **options)


def unlink(path: object, **options: object) -> None:
    _require_free(path)
    _unlink(path, **options)


def rmdir(path: object, **options: object) -> None:
    _require_free(path)
    _rmdir(path, **options)


def rename(source: object, target: object, **options: object) -> None:
    if os.path.lexists(target):
        raise FileExistsError(errno.EEXIST, "Cannot create a file when that file already exists", source)
    _require_free(source)
    _require_name(target)
    _rename(source, target, **options)


def replace(source: object, target: object, **options: object) -> None:
    _require_free(source)
    _require_name(target)
    if os.path.isdir(target):
        raise PermissionError(errno.EACCES, "Access is denied", target)
    _require_free(target, shared=False)
    _replace(source, target, **options)


def _locking(descriptor: int, mode: int, _bytes: int) -> None:
    assert os.lseek(descriptor, 0, os.SEEK_CUR) > os.fstat(descriptor).st_size, "others could not read what is locked"
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB if mode else fcntl.LOCK_UN)
    except BlockingIOError:
        raise PermissionError(errno.EACCES, "Permission denied") from None


def _create_file(name: str, _access: int, share: int, _security: int, _how: int, _flags: int, _template: int) -> int:
    if os.path.isdir(name):
        raise PermissionError(errno.EACCES, "Access is denied", name)
    descriptor = _open(name, os.O_RDONLY)
    if share & _SHARES_DELETE:
        _shared.add(descriptor)
    return descriptor


def _module(name: str, **content: object) -> None:
    module = ModuleType(name)
    vars(module).update(content)
    sys.modules[name] = module


def _begin() -> None:
    _module("msvcrt", LK_UNLCK=0, LK_NBLCK=2, locking=_locking, open_osfhandle=lambda handle, _: handle)
    _module("_winapi", GENERIC_READ=1 << 31, OPEN_EXISTING=3, NULL=0, CreateFile=_create_file)
    for name in ("fcntl", "grp", "pwd"):
        sys.modules[name] = None  # importing it raises
    for name in ("fork", "register_at_fork", "geteuid", "getegid", "getgroups", "mkfifo", "O_DIRECTORY", "O_NOFOLLOW"):
        delattr(os, name)
    del signal.SIGKILL
    os.O_BINARY = os.O_NOINHERIT = 0
    os.open, os.close, os.fsync, os.mkdir, os.chmod = open_, close, fsync, mkdir, chmod
    os.unlink = os.remove = unlink
    os.rename, os.replace, os.rmdir = rename, replace, rmdir
    shutil._use_fd_functions = False
    shutil._rmtree_impl = getattr(shutil, "_rmtree_unsafe", None)  # of Python 3.14, which asks while it is imported
    tempfile.TemporaryFile = capture.TemporaryFile = tempfile.NamedTemporaryFile  # as Windows has it
    system, sys.platform = sys.platform, "win32"
    try:
        for name in ("files", "folders", "forks"):
            import_module(f"deniable.platform.{name}")
    finally:
        sys.platform = system


assert "deniable.platform" not in sys.modules, "the stand-in comes first: pytest -p windows"
_begin()
