"""The keys that `deniable serve` draws, in a file of its data directory, so that they stay the same.

`deniable keys` stores hashes of keys; this file has the keys themselves. A developer expects yesterday's address to be printed,
and to work, today. The ingest key is in every app and not secret. The read key opens only data that lie beside the file, in the
store of the same user. So only that user can read the file.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from deniable.errors import ConfigurationError
from deniable_aggregator.process import running
from deniable_server.access.roles import ROLES, draw

if TYPE_CHECKING:
    from collections.abc import Iterable

_STORED = ("ingest", "read")
_OTHERS = 0o077


class KeyFile:
    """An ingest key and a read key for each app."""

    def __init__(
        self,
        directory: Path,  # created if missing, private to this user and hidden from git
    ) -> None:
        self.path = directory / running.KEYS

    def keys(self, apps: Iterable[str]) -> dict[str, dict[str, str]]:
        """Return the keys of some apps by role. Missing ones are drawn and stored."""
        try:
            stored = self._read()
            new = {app: {role: draw(role) for role in _STORED} for app in apps if app not in stored}
            if new:
                stored |= new
                self._write(stored)
        except OSError as error:
            raise ConfigurationError(f"keys cannot be kept in {self.path}: {error.strerror}") from None
        return {app: stored[app] for app in apps}

    def _read(self) -> dict[str, dict[str, str]]:
        try:
            file = self.path.open(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return {}
        with file:
            stat = os.fstat(file.fileno())
            if stat.st_mode & _OTHERS or stat.st_uid != os.geteuid():
                raise ConfigurationError(
                    f"{self.path} holds keys, and is open to other users; chmod 600 it, or remove it to have new ones drawn"
                )
            try:
                stored = json.load(file)
            except ValueError:
                stored = None
        if not isinstance(stored, dict) or not all(map(_well_formed, stored.values())):
            raise ConfigurationError(
                f"{self.path} is not as it was written: by app, an ingest and a read key; remove it to have new ones drawn"
            )
        return stored

    def _write(self, stored: dict[str, dict[str, str]]) -> None:
        folder = self.path.parent
        try:
            folder.mkdir(mode=0o700, parents=True)
        except FileExistsError:
            pass  # a foreign folder, perhaps a home: its files stay visible
        else:
            (folder / ".gitignore").write_text("*\n", "utf-8")
        descriptor, name = tempfile.mkstemp(dir=folder, prefix=".keys-")  # only this user can read it
        try:
            with open(descriptor, "w", encoding="utf-8") as file:  # noqa: PTH123 - it is a descriptor
                json.dump(stored, file, indent=2)
                file.write("\n")
            Path(name).replace(self.path)  # at once, so that no reader sees half a file
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise


def _well_formed(keys: object) -> bool:
    """Return whether an app's keys are well formed, so that a setting can contain them."""
    return (
        isinstance(keys, dict)
        and set(keys) == set(_STORED)
        and all(
            isinstance(keys[role], str) and re.fullmatch(rf"{ROLES[role]}_[\w-]{{20,}}", keys[role], re.ASCII) for role in _STORED
        )
    )
