"""The settings of a running ``deniable serve``, kept beside its store for ``deniable doctor --data``."""

from __future__ import annotations

import json
import logging
import os
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from deniable.errors import ConfigurationError
from deniable_server.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["keep", "read"]

log = logging.getLogger("deniable.serve")

_NAME = "serving.json"


@contextmanager
def keep(settings: Settings, store_url: str, directory: Path) -> Iterator[None]:
    """Keep the settings in a file that only its owner can read, while the block runs.

    Parameters
    ----------
    settings
        Of the server.
    store_url
        URL of its store.
    directory
        As given with ``--data``.
    """
    path = directory / _NAME
    absolute = os.pathsep.join(os.path.abspath(each) for each in settings.registry.split(os.pathsep))  # noqa: PTH100
    text = json.dumps(replace(settings, redis_url=store_url, registry=absolute).environment(), indent=2)
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        with open(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w", encoding="utf-8") as file:  # noqa: PTH123
            file.write(f"{text}\n")
    except OSError as error:  # no reason not to serve
        log.warning("%s cannot be written (%s): deniable doctor --data will not find this server", path, error.strerror)
    try:
        yield
    finally:
        with suppress(OSError):
            if path.read_text("utf-8") == f"{text}\n":  # else it is of another server
                path.unlink()


def read(directory: Path) -> Settings:
    """Read the settings of the server that runs with a directory.

    Raises
    ------
    ConfigurationError
        If no server runs.
    """
    try:
        environment = json.loads((directory / _NAME).read_text("utf-8"))
        return Settings.from_environment(environment)
    except FileNotFoundError:
        raise ConfigurationError(
            f"no `deniable serve` runs with --data {directory}: start one, or leave --data out to look by the environment"
        ) from None
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise ConfigurationError(f"{directory / _NAME} cannot be read: {error}") from None
