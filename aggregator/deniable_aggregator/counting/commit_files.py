"""Commit files: the reports of a commit, in the archive before they count.

The commit notes the names of its files if and only if it counts. So the noted files have exactly the reports that were counted,
even if a worker dies. While the archive cannot be written, nothing is counted, and the reports wait in the stream.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from itertools import starmap
from typing import TYPE_CHECKING

from deniable_aggregator.archive.errors import ArchiveError
from deniable_aggregator.counting.pauses import Pauses

if TYPE_CHECKING:
    from collections.abc import Callable
    from threading import Event

    from deniable.wire.report import Stratum
    from deniable_aggregator.archive.folder import Folder
    from deniable_aggregator.counting.batch_sums import Joined
    from deniable_aggregator.store import Partition

log = logging.getLogger("deniable.worker")

LIFE_SECONDS = 3600.0
"""Seconds after which a commit that is tried again needs new files: those that are not noted are deleted after a day."""


class CommitFiles:
    """Writes the files of a worker's commits."""

    def __init__(
        self,
        archive: Folder | None,  # where they are written; None for nowhere
        listener: Callable[[ArchiveError | None], None],  # called after each try with its error, or with None
    ) -> None:
        self._archive, self._listener = archive, listener

    def wait(self, stop: Event) -> None:
        """Wait until the archive can be written, or for the stop."""
        pauses = Pauses()
        while self._archive and not stop.is_set():
            try:
                self._archive.check()
            except ArchiveError as error:
                self._pause(pauses, error, stop)
            else:
                self._listener(None)
                return

    def write(
        self,
        partition: Partition,  # where they are counted
        joined: Joined,  # the payloads, by stratum and layout
        stop: Event,  # when set, it gives up
    ) -> dict[Stratum, str]:
        """Write a file for each stratum of a ``bits`` layout; return their names. ArchiveError if stopped before it succeeds."""
        of_bits = {stratum: (layout, payloads) for (stratum, layout), payloads in joined.items() if layout.kind == "bits"}
        if not self._archive or not of_bits:
            return {}
        # The number is read each time: a store that was emptied has a new one, which another worker may have drawn.
        folder, pauses = self._archive.of(partition.archived.begin()), Pauses()
        while True:
            written: dict[Stratum, str] = {}
            try:
                for stratum, (layout, payloads) in of_bits.items():
                    written[stratum] = folder.write(stratum, layout, payloads)
            except ArchiveError as error:
                with suppress(ArchiveError):
                    folder.delete(starmap(folder.path, written.items()))
                if self._pause(pauses, error, stop):
                    raise
            else:
                self._listener(None)
                return written

    def _pause(self, pauses: Pauses, error: ArchiveError, stop: Event) -> bool:
        log.error("the archive cannot be used (%s), so nothing is counted; trying again in %.1f s", error, pauses.next)
        self._listener(error)
        return pauses.take(stop)
