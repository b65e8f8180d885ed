"""Errors of the archive. This module needs none of its libraries, as a worker without an archive has none."""

from __future__ import annotations

from deniable.errors import DeniableError


class ArchiveError(DeniableError):
    """The archive, or a file of it, cannot be used. Its text is logged, so it contains no path, no password and no count."""


class MissingFileError(ArchiveError):
    """A file is not there."""


class DamagedFileError(ArchiveError):
    """The content of a file is not what a worker wrote there."""


class RecountDiffersError(ArchiveError):
    """The files of a stratum do not have the reports that were counted."""
