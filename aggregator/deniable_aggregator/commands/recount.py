"""The subcommand ``recount``: count the reports of an archive again, and compare the sums with the live tallies."""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, NamedTuple

from deniable.errors import ConfigurationError
from deniable.messages.plural import plural
from deniable_aggregator.commands import options

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator
    from concurrent.futures import Executor

    import numpy as np
    from numpy.typing import NDArray

    from deniable.commands.parser import Run
    from deniable.wire.report import Stratum
    from deniable_aggregator.archive.folder import Folder
    from deniable_aggregator.archive.recount import Counted
    from deniable_aggregator.store import Partition, Store

_TRIES = 3
_NAMED = 20  # files of a stratum that cannot be counted
_EQUAL, _DIFFERS, _FAILS = "equal", "differs", "fails"
_NONE = "nothing of {} is archived: of an index layout the tally is the archive, and what was counted before is not archived"


class _Read(NamedTuple):
    """A stratum of a partition at one moment."""

    names: list[str]  # of its files
    cells: NDArray[np.int64]  # of its tally


class _Recount(NamedTuple):
    """A stratum of a partition and its recount."""

    read: _Read
    counted: Counted  # with addresses in place of the names of files


def recount(parser: argparse.ArgumentParser) -> Run:
    """``deniable recount --redis-url URL --app NAME --archive URL [--metric ID] [--executor NAME] [--files]``."""
    # Exit status: 0 if every recount equals its live tally; 1 if one differs, a file cannot be counted, or nothing is archived; 2
    # for a wrong configuration, or an archive that is not there; 3 if the store cannot be used.
    options.add(parser)
    options.add_archive(parser, "where the files are")
    parser.add_argument("--metric", default="", metavar="ID", help="only this metric (default: all)")
    parser.add_argument("--files", action="store_true", help="count nothing; print where the files are that count, one a line")
    parser.add_argument(
        "--executor", default="process", metavar="NAME", help="process, or dask://HOST:PORT of a scheduler (default: process)"
    )

    @options.answered
    def run(arguments: argparse.Namespace) -> int:
        from deniable_aggregator.archive.errors import ArchiveError

        environment = options.environment(arguments)
        store = options.store(environment, arguments.app, "recount takes")
        archive = options.archive(arguments)
        if archive is None:
            raise ConfigurationError("this needs --archive, or DENIABLE_ARCHIVE: where the worker's files are")
        try:
            return _run(store, archive, arguments)
        except ArchiveError as error:
            raise ConfigurationError(f"--archive: its files cannot be read ({error})") from None

    return run


def _run(store: Store, archive: Folder, arguments: argparse.Namespace) -> int:
    from deniable_aggregator.archive import executor
    from deniable_aggregator.deletion.archived_files import folders_of

    parts = list(folders_of(store, archive))
    archived = [dict(_archived(store, partition, folder, arguments.metric)) for partition, folder in parts]
    if not any(archived):
        print(_NONE.format(arguments.metric or store.app), file=sys.stderr)
        return 1
    if arguments.files:
        for (_, folder), reads in zip(parts, archived, strict=True):
            for stratum, read in reads.items():
                for name in read.names:
                    print(folder.address(folder.path(stratum, name)))
        return 0
    recounts: defaultdict[Stratum, list[_Recount]] = defaultdict(list)
    with executor.start(arguments.executor) as workers:
        for (partition, folder), reads in zip(parts, archived, strict=True):
            for stratum, recounted in _recounts(partition, folder, reads, workers):
                recounts[stratum].append(recounted)
    verdicts = Counter(_tell(stratum, of_stratum, _left_out(store, stratum)) for stratum, of_stratum in sorted(recounts.items()))
    if not arguments.metric:
        _note(store, verdicts)
    return int(set(verdicts) != {_EQUAL})


def _archived(store: Store, partition: Partition, folder: Folder, metric: str) -> Iterator[tuple[Stratum, _Read]]:
    """Read the archived strata of a partition."""
    metrics = {metric} if metric else store.metrics.all() | {each.metric for each in folder.find()}
    for name in sorted(metrics):
        for stratum in partition.archived.names(sorted(partition.strata(name))):
            yield stratum, _read(partition, stratum)


def _read(partition: Partition, stratum: Stratum) -> _Read:
    """Read a stratum at a moment when no commit is half added."""
    while True:
        commits = partition.staging.settled(stratum.metric)
        read = _Read(*partition.archived.read(stratum))
        if commits is not None and commits == partition.staging.settled(stratum.metric):
            return read
        partition.staging.apply()  # add the pieces of a commit whose worker may have died


def _recounts(
    partition: Partition, folder: Folder, reads: dict[Stratum, _Read], workers: Executor
) -> Iterator[tuple[Stratum, _Recount]]:
    """Count the files of a partition, by stratum."""
    for left in reversed(range(_TRIES)):
        again: dict[Stratum, _Read] = {}
        for stratum, counted in _count(folder, reads, workers).items():
            # A worker may have mixed the files meanwhile, and deleted these: then the new ones are counted.
            now = _read(partition, stratum) if counted.missing and left else reads[stratum]
            if now.names and now.names != reads[stratum].names:
                again[stratum] = now
            else:
                failed = {folder.address(folder.path(stratum, name)): why for name, why in counted.failed.items()}
                yield stratum, _Recount(reads[stratum], counted._replace(failed=failed))
        if not again:
            return
        reads = again


def _count(folder: Folder, reads: dict[Stratum, _Read], workers: Executor) -> dict[Stratum, Counted]:
    from deniable_aggregator.archive import recount as files

    sizes = {each.path: each.size for metric in {stratum.metric for stratum in reads} for each in folder.find(metric)}
    lots: dict[Stratum, list[list[str]]] = {}
    for stratum, read in reads.items():
        lots[stratum] = list(files.cut((name, sizes.get(folder.path(stratum, name), 0)) for name in read.names))
    return files.count(folder, lots, workers, options.progress(sum(map(len, lots.values())), "lots of files"))


def _left_out(store: Store, stratum: Stratum) -> list[_Read]:
    """Return the stratum in partitions that counted reports of it and have no files of it."""
    reads = [_read(partition, stratum) for partition in store.partitions]
    return [each for each in reads if each.cells.size and not each.names]


def _tell(stratum: Stratum, recounts: list[_Recount], left_out: list[_Read]) -> str:
    """Print whether the recounts of a stratum equal the tallies of all partitions; return the verdict."""
    from deniable_aggregator import tally

    files = sum(len(each.read.names) for each in recounts)
    title = f"{stratum.metric} version {stratum.version}, {stratum.period}, segment {stratum.segment or 'none'}"
    failed = {address: why for each in recounts for address, why in each.counted.failed.items()}
    if failed:
        print(f"{title}: of {files:,} files {len(failed):,} cannot be counted")
        for address, why in sorted(failed.items())[:_NAMED]:
            print(f"  {address}: {why}")
        if len(failed) > _NAMED:
            print(f"  and {len(failed) - _NAMED:,} more")
        return _FAILS
    counted = [each.counted.tally for each in recounts if each.counted.tally is not None]
    # Each recount is compared with the tally of its own partition. A partition without files makes the lists differ in length.
    live = [tally.from_cells(counted[0].layout, each.cells) for each in (*(each.read for each in recounts), *left_out)]
    verdict = (
        "equal to the live tally" if counted == live else f"the live tally has {sum(each.n for each in live):,}, and differs"
    )
    print(f"{title}: {plural(sum(each.n for each in counted), 'report')} in {plural(files, 'file')}, {verdict}")
    return _EQUAL if counted == live else _DIFFERS


def _note(store: Store, verdicts: Counter[str]) -> None:
    """Store the verdicts for the doctor."""
    from deniable_aggregator.store.errors import CommandRefused
    from deniable_aggregator.store.uploads.archived import LastRecount

    last = LastRecount(int(store.now()), verdicts.total(), verdicts[_DIFFERS], verdicts[_FAILS])
    try:
        last.note(store)
    except CommandRefused as error:
        print(f"the store does not take this result ({type(error).__name__}), so doctor does not show it", file=sys.stderr)
