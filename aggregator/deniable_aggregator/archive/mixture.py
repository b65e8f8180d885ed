"""The mixture: the reports of some files in new ones, which tell nothing of their order.

Commits are mixed by the hour, and all reports of a period when it is closed.
"""

from __future__ import annotations

import math
from contextlib import ExitStack
from secrets import randbits
from tempfile import SpooledTemporaryFile
from typing import IO, TYPE_CHECKING

import numpy as np

from deniable_aggregator import tally
from deniable_aggregator.archive.errors import RecountDiffersError
from deniable_aggregator.archive.folder import HOURS, PERIOD

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from deniable.wire.layout import Layout
    from deniable.wire.report import Stratum
    from deniable_aggregator.archive.folder import Folder
    from deniable_aggregator.tally import Tally

_BYTES = 64 << 20  # of payloads in a file, and of what waits in memory
_FILES = 256  # written at once, at most
_SOME = 1 << 20  # bytes that wait in memory for each of these, and reports that are read at once


def write(
    folder: Folder,  # where the files are
    stratum: Stratum,  # as it was counted
    names: Sequence[str],  # of the files, at least one
    counted: Tally | None = None,  # if they are all files of a closed period, its tally, which their recount must equal
) -> list[str]:
    """Write the reports of some files to new ones, each report to a random one. Inside a file they are sorted.

    Returns
    -------
    list of str
        Names of the new files.

    Raises
    ------
    RecountDiffersError
        If it does not, or the files have several layouts. Nothing was written then.
    ArchiveError
        If the archive cannot be used.
    """
    with SpooledTemporaryFile(_BYTES) as joined:
        found = _read(folder, stratum, names, joined)
        if counted is not None and found != counted:
            raise RecountDiffersError
        kind = HOURS if counted is None else PERIOD
        return [folder.write(stratum, found.layout, part, kind) for part in _parted(joined, found.layout, found.n)]


def _read(folder: Folder, stratum: Stratum, names: Sequence[str], joined: IO[bytes]) -> Tally:
    """Join the payloads of files; return their tally."""
    found: Tally | None = None
    for name in names:
        with folder.read(stratum, name) as (head, groups):
            found = found or tally.empty(head.layout)
            if head.layout != found.layout:
                raise RecountDiffersError
            for payloads in groups:
                found = tally.merge(found, tally.count(head.layout, payloads))
                joined.write(payloads)
    if found is None:
        raise RecountDiffersError
    return found


def _parted(joined: IO[bytes], layout: Layout, reports: int) -> Iterator[bytes]:
    """Part reports at random, so that each part fits into memory."""
    size = layout.payload_size
    number = min(math.ceil(reports * size / _BYTES), _FILES)
    joined.seek(0)
    if number == 1:
        yield joined.read()
        return
    chance = np.random.default_rng(randbits(128))
    with ExitStack() as opened:
        parts = [opened.enter_context(SpooledTemporaryFile(_SOME)) for _ in range(number)]
        while some := joined.read(_SOME * size):
            table = np.frombuffer(some, np.uint8).reshape(-1, size)
            drawn = chance.integers(number, size=len(table))
            for index, part in enumerate(parts):
                part.write(table[drawn == index].tobytes())
        for part in parts:
            part.seek(0)
            if payloads := part.read():
                yield payloads
