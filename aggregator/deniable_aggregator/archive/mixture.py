"""The mixture: the reports of several files are written to new ones, which tell nothing of their order.

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
_FILES = 256  # files written at once, at most
_CHUNK = 1 << 20  # bytes that wait in memory for each of these files; also reports that are read at once


def write(
    folder: Folder,  # where the files are
    stratum: Stratum,  # as it was counted
    names: Sequence[str],  # of the files, at least one
    counted: Tally | None = None,  # the tally of a closed period, if these are all its files
) -> list[str]:
    """Write the reports of files to new files, each report to a random one; return the names of the new files."""
    with SpooledTemporaryFile(_BYTES) as joined:
        recounted = _read(folder, stratum, names, joined)
        # Nothing is written before all was read: files that differ from the tally stay as they are, for whoever looks into it.
        if counted is not None and recounted != counted:
            raise RecountDiffersError
        kind = HOURS if counted is None else PERIOD
        return [folder.write(stratum, recounted.layout, part, kind) for part in _parted(joined, recounted.layout, recounted.n)]


def _read(folder: Folder, stratum: Stratum, names: Sequence[str], joined: IO[bytes]) -> Tally:
    """Join the payloads of files; return their tally. RecountDiffersError if the files have several layouts."""
    recounted: Tally | None = None
    for name in names:
        with folder.read(stratum, name) as (head, groups):
            recounted = recounted or tally.empty(head.layout)
            if head.layout != recounted.layout:
                raise RecountDiffersError
            for payloads in groups:
                recounted = tally.merge(recounted, tally.count(head.layout, payloads))
                joined.write(payloads)
    if recounted is None:
        raise RecountDiffersError
    return recounted


def _parted(joined: IO[bytes], layout: Layout, reports: int) -> Iterator[bytes]:
    """Divide reports at random into parts that fit into memory."""
    size = layout.payload_size
    number = min(math.ceil(reports * size / _BYTES), _FILES)
    joined.seek(0)
    if number == 1:
        yield joined.read()
        return
    chance = np.random.default_rng(randbits(128))
    with ExitStack() as opened:
        parts = [opened.enter_context(SpooledTemporaryFile(_CHUNK)) for _ in range(number)]
        while chunk := joined.read(_CHUNK * size):
            table = np.frombuffer(chunk, np.uint8).reshape(-1, size)
            places = chance.integers(number, size=len(table))
            for index, part in enumerate(parts):
                part.write(table[places == index].tobytes())
        for part in parts:
            part.seek(0)
            if payloads := part.read():
                yield payloads
