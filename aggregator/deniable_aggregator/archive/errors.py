"""What the archive raises. A worker without an archive needs none of its libraries."""

from __future__ import annotations

from deniable.errors import DeniableError


class ArchiveError(DeniableError):
    """The archive, or a file of it, cannot be used. All others are kinds of it.

    Whoever runs the service sees its text, so this has no path, no password and no count.
    """


class MissingFileError(ArchiveError):
    """A file is not there."""


class DamagedFileError(ArchiveError):
    """A file is not what a worker wrote there."""


class RecountDiffersError(ArchiveError):
    """Files do not have the reports that were counted."""
