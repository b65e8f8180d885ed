"""The subcommand ``recount``: count the reports of an archive again, and compare them with the live tallies."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, NamedTuple

from deniable.errors import ConfigurationError
from deniable_aggregator.commands import options

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence
    from concurrent.futures import Executor

    import numpy as np
    from numpy.typing import NDArray

    from deniable.commands.parser import Run
    from deniable.wire.report import Stratum
    from deniable_aggregator.archive.folder import Folder
    from deniable_aggregator.store import Store
    from deniable_aggregator.tally import Tally

__all__ = ["recount"]

_TRIES = 3
_NONE = "nothing of {} is archived: of an index layout the tally is the archive, and what was counted before is not archived"


class _Read(NamedTuple):
    """What the store had of a stratum at one moment: names of files, and the cells of its tally."""

    names: list[str]
    cells: NDArray[np.int64]


def recount(parser: argparse.ArgumentParser) -> Run:
    """``deniable recount --redis-url URL --app NAME --archive URL [--metric ID] [--executor NAME] [--files]``.

    Exit status: 0 if every recount equals its live tally; 1 if one differs, or nothing is archived; 2 for a wrong configuration,
    or an archive that cannot be read; 3 if the store cannot be used.
    """
    options.add(parser)
    options.add_archive(parser, "where the files are")
    parser.add_argument("--metric", default="", metavar="ID", help="only this metric (default: all)")
    parser.add_argument("--files", action="store_true", help="count nothing; print where the files are that count, one a line")
    parser.add_argument(
        "--executor", default="process", metavar="NAME", help="process, or dask://HOST:PORT of a scheduler (default: process)"
    )

    @options.answered
    def run(arguments: argparse.Namespace) -> int:
        from deniable_aggregator.archive import executor
        from deniable_aggregator.archive.errors import ArchiveError

        stores = options.stores(options.environment(arguments), arguments.app)
        if len(stores) > 1:
            raise ConfigurationError("recount takes one --app at a time")
        archive = options.archive(arguments)
        if archive is None:
            raise ConfigurationError("this needs --archive, or DENIABLE_ARCHIVE: where the worker's files are")
        store, folder = stores[0], archive.of(stores[0].archived.number() or "")
        try:
            found = dict(_archived(store, folder, arguments.metric))
            if not found:
                print(_NONE.format(arguments.metric or store.app), file=sys.stderr)
                return 1
            if arguments.files:
                return _list(folder, found)
            with executor.start(arguments.executor) as workers:
                return _recount(store, folder, found, workers)
        except ArchiveError as error:
            raise ConfigurationError(f"--archive: its files cannot be read ({error})") from None

    return run


def _list(folder: Folder, found: dict[Stratum, _Read]) -> int:
    for stratum, read in found.items():
        for name in read.names:
            print(folder.address(folder.path(stratum, name)))
    return 0


def _archived(store: Store, folder: Folder, metric: str) -> Iterator[tuple[Stratum, _Read]]:
    """Read what is archived, by stratum."""
    if not folder.number:
        return
    metrics = {metric} if metric else store.metrics.all() | {each.metric for each in folder.find()}
    for each in sorted(metrics):
        for stratum in sorted(store.archived.names(sorted(store.strata(each)))):
            yield stratum, _read(store, stratum)


def _read(store: Store, stratum: Stratum) -> _Read:
    """Read a stratum while no part of a commit is being added."""
    while True:
        commits = store.staging.settled(stratum.metric)
        read = _Read(*store.archived.read(stratum))
        if commits is not None and commits == store.staging.settled(stratum.metric):
            return read
        time.sleep(0.05)


def _recount(store: Store, folder: Folder, found: dict[Stratum, _Read], workers: Executor) -> int:
    """Count all files, and tell of each stratum; return the exit status."""
    wrong = 0
    for left in reversed(range(_TRIES)):
        counted = _count(folder, found, workers)
        now = {stratum: _read(store, stratum) for stratum, each in counted.items() if each is None and left}
        # Files that made way for others while they were counted are counted again.
        again = {stratum: read for stratum, read in now.items() if read.names and read.names != found[stratum].names}
        wrong += sum(_tell(stratum, found[stratum], counted[stratum]) for stratum in sorted(counted.keys() - again.keys()))
        found = again
        if not found:
            break
    return int(wrong > 0)


def _count(folder: Folder, found: dict[Stratum, _Read], workers: Executor) -> dict[Stratum, Tally | None]:
    from deniable_aggregator.archive import recount as files

    sizes = {each.path: each.size for metric in {stratum.metric for stratum in found} for each in folder.find(metric)}
    lots: dict[Stratum, Sequence[list[str]]] = {}
    for stratum, read in found.items():
        paths = [folder.path(stratum, name) for name in read.names]
        lots[stratum] = list(files.cut((path, sizes.get(path, 0)) for path in paths))
    return files.count(folder, lots, workers, options.progress(sum(map(len, lots.values())), "lots of files"))


def _tell(stratum: Stratum, read: _Read, counted: Tally | None) -> bool:
    """Print whether a recount equals the tally; return whether it does not."""
    from deniable_aggregator import tally

    told = f"{stratum.metric} version {stratum.version}, {stratum.period}, segment {stratum.segment or 'none'}"
    if counted is None:
        print(f"{told}: of {len(read.names):,} files some are missing")
        return True
    live = tally.from_cells(counted.layout, read.cells)
    verdict = "equal to the live tally" if counted == live else f"the live tally has {live.n:,}, and differs"
    print(f"{told}: {counted.n:,} reports in {len(read.names):,} files, {verdict}")
    return counted != live
