"""What the archive raises. A worker without an archive needs none of its libraries."""

from __future__ import annotations

from deniable.errors import DeniableError


class ArchiveError(DeniableError):
    """The archive cannot be used. All others are kinds of it."""


class MissingFileError(ArchiveError):
    """A file is not there."""


class RecountDiffersError(ArchiveError):
    """Files do not have the reports that were counted."""
