"""A running ``deniable serve``: a file in its data folder, by which other commands find its store and apps.

The file is locked while the server runs. The system ends the lock with the process, so the file of a server that was killed is
ignored.
"""

from __future__ import annotations

import json
import logging
import os
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING

from deniable.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator

log = logging.getLogger("deniable.serve")

FOLDER = Path(".deniable")
"""The data folder, unless ``--data`` names another."""

KEYS = "keys.json"
"""File of the data folder with the keys that ``deniable serve`` has drawn. They are not in its store."""
_NAME = "serving.json"


@dataclass(frozen=True, slots=True)
class Running:
    """A running ``deniable serve``."""

    url: str  # the address of its pages
    process: int  # its process id
    environment: dict[str, str]  # the variables of the server, with its store


@contextmanager
def keep(
    running: Running,  # the server
    folder: Path,  # of `--data`
) -> Iterator[None]:
    """Write a server's file, which only its owner can read, and remove it at the end of the block."""
    path = folder / _NAME
    with ExitStack() as undo:
        try:
            file = undo.enter_context(_locked(folder / f"{_NAME}.{os.getpid()}"))
            json.dump(asdict(running), file, indent=2)
            file.flush()
            Path(file.name).replace(path)  # whoever sees the file sees all of it, locked
            undo.callback(_remove, path, file)
        except OSError as error:  # the server runs without it
            log.warning("%s cannot be written (%s): commands with --data will not find this server", path, error.strerror)
        yield


def find(folder: Path) -> Running | None:
    """Return the ``deniable serve`` that runs with a folder; None if none runs."""
    path = folder / _NAME
    try:
        with path.open(encoding="utf-8") as file:
            return Running(**json.load(file)) if _is_locked(file) else None
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from None


def _locked(path: Path) -> IO[str]:
    """Open a new file that only its owner can read, locked until it is closed."""
    import fcntl  # noqa: PLC0415 - not on Windows, where nothing is served

    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    file = open(path, "x", encoding="utf-8", opener=partial(os.open, mode=0o600))  # noqa: SIM115 - it stays open
    fcntl.flock(file, fcntl.LOCK_EX)
    return file


def _is_locked(file: IO[str]) -> bool:
    import fcntl  # noqa: PLC0415 - as above

    try:  # a shared lock, so that two commands that look at once do not take each other for the server
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def _remove(path: Path, file: IO[str]) -> None:
    """Remove a file, unless a server that started meanwhile has replaced it."""
    with suppress(OSError):
        if os.path.samestat(path.stat(), os.fstat(file.fileno())):
            path.unlink()
