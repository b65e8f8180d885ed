"""Files of the archive: they are mixed, and those that the store does not name are deleted.

Each commit has its own file, whose time tells when its reports were counted. When an hour of the clock is over, its files are
mixed: their reports are written to new files, in which the order is lost, and the former files are deleted. When a period is
closed, all of its files are mixed, but only if their recount equals the tally.

The store names the files that count. Others remain if a worker died before its commit, or if data were deleted. They are deleted
a day later, or at once if their metric was erased.
"""

from __future__ import annotations

import time
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from deniable.registry import period
from deniable_aggregator import tally
from deniable_aggregator.archive import mixture, recount
from deniable_aggregator.archive.errors import ArchiveError, MissingFileError, RecountDiffersError
from deniable_aggregator.archive.folder import COMMITS, HOURS
from deniable_aggregator.counting.faults import Faults
from deniable_aggregator.deletion.erase import Erased
from deniable_aggregator.deletion.retention import longest_graces

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from deniable.registry import Registry
    from deniable.wire.report import Stratum
    from deniable_aggregator.archive.folder import ArchiveFile, Folder
    from deniable_aggregator.publish.publisher import Publisher
    from deniable_aggregator.store import Partition, Store
    from deniable_aggregator.tally import Tally

EVERY_SECONDS = 3600.0
"""Seconds between searches."""

_HOUR = 3600
_NOTED_SECONDS = 300  # from the end of an hour until its files are mixed: by then commits have noted them
_LOST_SECONDS = 10.0  # until former files are deleted: a store that dies may lose two seconds, and then names them again
_PAUSE = 0.01  # between looks whether these seconds have passed
_ORPHAN_SECONDS = 86_400  # until a file without a name is deleted; no commit notes one that is older than an hour


class _Listed(NamedTuple):
    """The files of a partition."""

    partition: Partition
    folder: Folder  # where they are
    files: dict[str, list[ArchiveFile]]  # by metric


class _Former(NamedTuple):
    """Files of a stratum that mixed files replace."""

    partition: Partition
    folder: Folder
    stratum: Stratum
    names: list[str]

    @property
    def paths(self) -> list[str]:
        """Their paths in the folder."""
        return [self.folder.path(self.stratum, name) for name in self.names]

    def noted(self) -> set[str]:
        """Return the names that the store still has."""
        return self.partition.archived.names([self.stratum]).get(self.stratum, set()) & set(self.names)


class ArchivedFiles:
    """Mixes and deletes files of one app."""

    def __init__(
        self,
        store: Store,  # where the app is counted
        registry: Registry,  # its metrics
        publisher: Publisher,  # knows from when on no batch waits
        archive: Folder,
        *,
        faults: Faults | None = None,  # records a metric that fails, while the others continue
    ) -> None:
        self._store, self._publisher, self._faults = store, publisher, faults or Faults(store)
        self._graces, self._archive = longest_graces(registry), archive
        self._left: Iterator[None] | None = None  # the remaining work of the present search
        # Files whose recount differs, by partition and stratum. They are not counted again while they are the same.
        self._differing: dict[tuple[str, Stratum], list[str]] = {}
        self._former: list[tuple[float, _Former]] = []  # files to delete, from a time of the monotonic clock on

    def run(self) -> bool:
        """Do the due work of the next period; return whether there is more to do. Other chores wait for one period only."""
        left, self._left = self._left, None
        left = left or self._due(self._store.now())
        for _ in left:
            self._left = left
            return True
        return False

    def tidy(
        self,
        now: float,  # Unix time in seconds
    ) -> None:
        """Do all due work."""
        for _ in self._due(now):
            pass

    def _due(self, now: float) -> Iterator[None]:
        """Do the due work, metric by metric and period by period."""
        # Files are listed before the names are read, so that one that is noted meanwhile is not deleted.
        folders = [_listed(partition, folder) for partition, folder in folders_of(self._store, self._archive)]
        drained = self._publisher.drained(now)
        erased = Erased(self._store.erased.all())
        for metric in sorted({metric for folder in folders for metric in folder.files}):
            with self._faults.alone("mixture", metric):
                yield from self._mixed(folders, metric, now, drained - self._graces[metric].total_seconds())
            replaced = {path for _, former in self._former for path in former.paths}
            for listed in folders:
                _sweep(listed, metric, now - _ORPHAN_SECONDS, erased, replaced)
            yield
        while self._former:
            self._delete_former()
            time.sleep(_PAUSE)
            yield

    def _mixed(self, folders: Sequence[_Listed], metric: str, now: float, closed: float) -> Iterator[None]:
        """Mix the commits of full hours, and the files of each closed period. A stratum that fails does not stop the others."""
        # Only files before a full hour of the clock are mixed. So however many workers look, and whenever they start, the time of
        # a mixed file tells nothing finer than the hour.
        failed, hour = None, (now - _NOTED_SECONDS) // _HOUR * _HOUR
        for partition, folder, files in folders:
            due = {each.name for each in files.get(metric, ()) if each.name.startswith(COMMITS) and each.changed < hour}
            for stratum, names in _noted(partition, metric).items():
                end = period.end(stratum.period)
                try:
                    if commits := sorted(due & names):
                        self._mix_commits(_Former(partition, folder, stratum, commits))
                    if end and end.timestamp() < closed and any(name.startswith((COMMITS, HOURS)) for name in names):
                        self._mix(partition, folder, stratum)
                except ArchiveError as error:
                    failed = error
                yield
        if failed:
            raise failed

    def _mix_commits(self, former: _Former) -> None:
        """Mix commits. One that is damaged stays, and the others are mixed without it."""
        try:
            self._exchange(former)
        except ArchiveError:
            # Otherwise one damaged file would let every later commit of its stratum show when it was counted.
            failed = recount.count_files(former.folder.url, former.folder.number, former.stratum, former.names).failed
            readable = [name for name in former.names if name not in failed]
            if failed and readable:
                self._exchange(former._replace(names=readable))
            raise

    def _mix(self, partition: Partition, folder: Folder, stratum: Stratum) -> None:
        """Mix all files of a closed period."""
        commits = partition.staging.settled(stratum.metric)
        names, cells = partition.archived.read(stratum)
        # Large commits are added in pieces. Names and cells belong together only if none was being added while they were read.
        if commits is None or commits != partition.staging.settled(stratum.metric) or not names:
            return
        if self._differing.get((partition.name, stratum)) == names:
            raise RecountDiffersError
        with folder.read(stratum, names[0]) as (head, _):
            counted = tally.from_cells(head.layout, cells)
        try:
            self._exchange(_Former(partition, folder, stratum, names), counted)
        except RecountDiffersError:
            self._differing[partition.name, stratum] = names
            raise

    def _exchange(self, former: _Former, counted: Tally | None = None) -> None:
        """Have the store name mixed files in place of others, unless another worker was faster."""
        partition, folder, stratum, names = former
        try:
            mixed = mixture.write(folder, stratum, names, counted)
        except MissingFileError:  # another worker has mixed and deleted them, unless the store names them still
            if former.noted() == set(names):
                raise
            return
        if partition.archived.exchange(stratum, names, mixed):
            self._former.append((time.monotonic() + _LOST_SECONDS, former))
        else:
            folder.delete(folder.path(stratum, name) for name in mixed)

    def _delete_former(self) -> None:
        """Delete files that mixed ones have replaced for some seconds, unless the store names them again."""
        now = time.monotonic()
        due, self._former = (
            [each for at, each in self._former if at <= now],
            [(at, each) for at, each in self._former if at > now],
        )
        for former in due:
            noted = former.noted()
            former.folder.delete(path for name, path in zip(former.names, former.paths, strict=True) if name not in noted)


def folders_of(store: Store, archive: Folder) -> Iterator[tuple[Partition, Folder]]:
    """Yield the partitions that have files in an archive, and the folder of each."""
    for partition in store.partitions:
        if number := partition.archived.number():
            yield partition, archive.of(number)


def _listed(partition: Partition, folder: Folder) -> _Listed:
    return _Listed(partition, folder, {metric: list(files) for metric, files in groupby(folder.find(), attrgetter("metric"))})


def _sweep(listed: _Listed, metric: str, before: float, erased: Erased, former: set[str]) -> None:
    """Delete files that the store does not name: old ones that no mixed file replaces just now, and all of erased versions."""
    partition, folder, files = listed
    if partition.staging.settled(metric) is None:
        return  # a commit is decided whose files are not noted yet
    noted = {folder.path(stratum, name) for stratum, names in _noted(partition, metric).items() for name in names}
    orphans = [each for each in files.get(metric, ()) if each.path not in noted]
    old = {each.path for each in orphans if each.changed < before} - former
    folder.delete(each.path for each in orphans if each.path in old or erased.has(metric, each.version))


def _noted(partition: Partition, metric: str) -> dict[Stratum, set[str]]:
    return partition.archived.names(list(partition.strata(metric)))


def erase(
    store: Store,  # where it is marked as erased
    archive: Folder,
    # metric, version: as in `Removal`; without a metric, the files of all
    metric: str = "",
    version: int | None = None,
) -> int:
    """Delete the files of an app, of a metric, or of a version of it; return how many there were."""
    deleted = 0
    for _, folder in folders_of(store, archive):
        paths = [each.path for each in folder.find(metric) if version in (None, each.version)]
        folder.delete(paths)
        deleted += len(paths)
    return deleted
