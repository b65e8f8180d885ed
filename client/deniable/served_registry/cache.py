"""The last served registry, kept on the device.

Its revision stands in the file's name. So a damaged file still tells which revisions are over, and no process can put an older
registry in the place of a newer one.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from typing import TYPE_CHECKING

from deniable.device.files import write_new
from deniable.errors import ServedRegistryError
from deniable.served_registry.signature import MAX_BYTES, Envelope
from deniable.source import OS

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Cache"]

_NAME = re.compile(r"registry-([1-9][0-9]{0,15})\.json")


class Cache:
    """Envelopes by revision, of which the highest is kept.

    Parameters
    ----------
    directory
        The app's own directory. It is never made here: without it nothing is kept. None for memory.

    Attributes
    ----------
    revision : int
        The highest ever kept here, or by this process; 0 for none.
    envelope : Envelope or None
        That of `revision`, as far as it can be read. Its signature is for the reader to check.
    """

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory
        self.revision = 0
        self.envelope: Envelope | None = None

    def refresh(self) -> bool:
        """Read the newest registry that this or another process kept; return False if there is one that cannot be read."""
        found = max(self._revisions(), default=0)
        if found <= self.revision:
            return True
        self.revision, self.envelope = found, None
        try:
            with self._file(found).open("rb") as file:
                self.envelope = Envelope.read(file.read(MAX_BYTES + 1))
        except (OSError, ServedRegistryError):
            return False
        return self.envelope is not None

    def keep(self, revision: int, envelope: Envelope) -> bool:
        """Keep an envelope of a revision not below `revision`; return whether it could be written.

        It is written anew rather than as it was received: what a server puts around the signed text could tell devices apart.
        """
        self.revision, self.envelope = revision, envelope
        if self._directory is None:
            return True
        fresh = self._directory / f".registry-{OS.below(1 << 64):016x}"
        try:
            write_new(fresh, envelope.write())
            fresh.replace(self._file(revision))
        except OSError:
            self._remove(fresh)
            return False
        for older in self._revisions():
            if older < revision:
                self._remove(self._file(older))
        return True

    def _revisions(self) -> list[int]:
        try:
            names = [] if self._directory is None else os.listdir(self._directory)  # noqa: PTH208 - names are all it takes
        except OSError:
            return []
        return [int(match[1]) for name in names if (match := _NAME.fullmatch(name))]

    def _file(self, revision: int) -> Path:
        assert self._directory is not None  # noqa: S101 - without one there are no files
        return self._directory / f"registry-{revision}.json"

    @staticmethod
    def _remove(file: Path) -> None:
        with suppress(OSError):  # an old file does no harm
            file.unlink(missing_ok=True)
