"""The environment of a running ``deniable serve``, kept in its data folder: other commands find its store and apps there."""

from __future__ import annotations

import json
import logging
import os
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from deniable.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["FOLDER", "keep", "read", "runs"]

log = logging.getLogger("deniable.serve")

FOLDER = Path(".deniable")
"""The data folder, unless ``--data`` names another."""

_NAME = "serving.json"


@contextmanager
def keep(environment: Mapping[str, str], folder: Path) -> Iterator[None]:
    """Keep an environment in a file that only its owner can read, while the block runs.

    Parameters
    ----------
    environment
        Of the server, with its store.
    folder
        As given with ``--data``.
    """
    path = folder / _NAME
    text = json.dumps(dict(environment), indent=2)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        with open(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w", encoding="utf-8") as file:  # noqa: PTH123
            file.write(f"{text}\n")
    except OSError as error:  # no reason not to serve
        log.warning("%s cannot be written (%s): commands with --data will not find this server", path, error.strerror)
    try:
        yield
    finally:
        with suppress(OSError):
            if path.read_text("utf-8") == f"{text}\n":  # else it is of another server
                path.unlink()


def runs(folder: Path) -> bool:
    """Tell whether a ``deniable serve`` keeps its environment in a folder."""
    return (folder / _NAME).is_file()


def read(folder: Path) -> dict[str, str]:
    """Read the environment of the ``deniable serve`` that runs with a folder.

    Raises
    ------
    ConfigurationError
        If none runs.
    """
    try:
        environment = json.loads((folder / _NAME).read_text("utf-8"))
    except FileNotFoundError:
        raise ConfigurationError(f"no `deniable serve` runs with --data {folder}: start one, or leave --data out") from None
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{folder / _NAME} cannot be read: {error}") from None
    if not isinstance(environment, dict) or not all(isinstance(value, str) for value in environment.values()):
        raise ConfigurationError(f"{folder / _NAME} is no environment of a `deniable serve`: stop that, and start it again")
    return environment
