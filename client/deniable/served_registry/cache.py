"""The served registries that a device has had.

The revision is in the file's name. So even a damaged file shows which revisions are outdated. No process can replace a newer
registry by an older one. Older ones stay, because they tell what was turned off before.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from typing import TYPE_CHECKING

from deniable.errors import ServedRegistryError
from deniable.platform.files import remove, rename_onto, write_new
from deniable.served_registry.signature import MAX_BYTES, Envelope
from deniable.source import OS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_KEPT = 32  # revisions
_NAME = re.compile(r"registry-([1-9][0-9]{0,15})\.json")


class Cache:
    """Keeps the envelope of the highest revision."""

    def __init__(
        self,
        # The app's own directory. It is never made here; without it nothing is kept on disk. None for memory.
        directory: Path | None,
    ) -> None:
        self._directory = directory
        self.revision = 0  # the highest revision that was ever kept here or by this process; 0 for none
        # The envelope of `revision`, if it can be read. The caller must check its signature.
        self.envelope: Envelope | None = None

    def refresh(self) -> bool:
        """Read the newest envelope that this or another process kept; return False if it cannot be read."""
        newest = max(self._revisions(), default=0)
        if newest <= self.revision:
            return True
        self.revision, self.envelope = newest, self._read(newest)
        return self.envelope is not None

    def keep(self, revision: int, envelope: Envelope) -> bool:
        """Keep an envelope whose revision is not below `revision`; return whether it could be written."""
        self.revision, self.envelope = revision, envelope
        if self._directory is None:
            return True
        fresh = self._directory / f".registry-{OS.below(1 << 64):016x}"
        try:
            # It is not written as it was received: a server could mark devices by what it puts around the signed text.
            write_new(fresh, envelope.write())
            rename_onto(fresh, self._file(revision))  # in one step, so that no process reads a part of it
        except OSError:
            self._remove(fresh)
            return False
        for older in sorted(self._revisions())[:-_KEPT]:
            self._remove(self._file(older))
        return True

    def earlier(self) -> Iterator[Envelope]:
        """Read the envelopes of older revisions. The caller must check their signatures. Damaged ones are left out."""
        for revision in self._revisions():
            if revision < self.revision and (envelope := self._read(revision)):
                yield envelope

    def _read(self, revision: int) -> Envelope | None:
        try:
            with self._file(revision).open("rb") as file:
                return Envelope.read(file.read(MAX_BYTES + 1))
        except (OSError, ServedRegistryError):
            return None

    def _revisions(self) -> list[int]:
        try:
            names = [] if self._directory is None else os.listdir(self._directory)  # noqa: PTH208 - only names are needed
        except OSError:
            return []
        return [int(match[1]) for name in names if (match := _NAME.fullmatch(name))]

    def _file(self, revision: int) -> Path:
        assert self._directory is not None  # noqa: S101 - without a directory there are no files
        return self._directory / f"registry-{revision}.json"

    @staticmethod
    def _remove(file: Path) -> None:
        with suppress(OSError):  # an old file is harmless
            remove(file)
