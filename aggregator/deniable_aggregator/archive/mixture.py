"""The mixture: all reports of a closed period in new files, which tell neither order nor time."""

from __future__ import annotations

import math
from contextlib import ExitStack
from secrets import randbits
from tempfile import SpooledTemporaryFile
from typing import TYPE_CHECKING

import numpy as np

from deniable_aggregator import tally
from deniable_aggregator.archive.errors import RecountDiffersError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deniable.wire.report import Stratum
    from deniable_aggregator.archive.folder import Folder
    from deniable_aggregator.tally import Tally

__all__ = ["write"]

_BYTES = 64 << 20  # of payloads in a file
_FILES = 256  # written at once, at most
_IN_MEMORY = 1 << 20  # bytes of a file's payloads


def write(folder: Folder, stratum: Stratum, names: Sequence[str], counted: Tally) -> list[str]:
    """Write the reports of some files to new ones, each report to a random one. Inside a file they are sorted.

    Parameters
    ----------
    folder
        Where the files are.
    stratum
        As it was counted.
    names
        Of the files.
    counted
        The tally that their recount must equal.

    Returns
    -------
    list of str
        Names of the new files.

    Raises
    ------
    RecountDiffersError
        If it does not. Nothing was written then.
    ArchiveError
        If the archive cannot be used.
    """
    layout, recounted = counted.layout, tally.empty(counted.layout)
    parts = min(max(1, math.ceil(counted.n * layout.payload_size / _BYTES)), _FILES)
    chance = np.random.default_rng(randbits(128))
    with ExitStack() as opened:
        spools = [opened.enter_context(SpooledTemporaryFile(_IN_MEMORY)) for _ in range(parts)]
        for name in names:
            with folder.read(folder.path(stratum, name)) as (head, groups):
                if head.layout != layout:
                    raise RecountDiffersError(name)
                for payloads in groups:
                    recounted = tally.merge(recounted, tally.count(layout, payloads))
                    table = np.frombuffer(payloads, np.uint8).reshape(-1, layout.payload_size)
                    part = chance.integers(parts, size=len(table))
                    for index, spool in enumerate(spools):
                        spool.write(table[part == index].tobytes())
        if recounted != counted:
            raise RecountDiffersError(f"{recounted.n} reports instead of {counted.n}")
        written = []
        for spool in spools:
            spool.seek(0)
            if payloads := spool.read():
                written.append(folder.write(stratum, layout, payloads, mixed=True))
        return written
