"""The recount: files are counted again, in lots, by an executor."""

from __future__ import annotations

from concurrent.futures import as_completed
from typing import TYPE_CHECKING, NamedTuple

from deniable.errors import ConfigurationError, DeniableError
from deniable_aggregator import tally
from deniable_aggregator.archive.errors import ArchiveError, DamagedFileError, MissingFileError
from deniable_aggregator.archive.folder import Folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from concurrent.futures import Executor, Future

    from deniable.wire.report import Stratum
    from deniable_aggregator.tally import Tally

_BYTES, _FILES = 64 << 20, 256
"""Most bytes and files of a lot; a larger file is a lot of its own."""


class Counted(NamedTuple):
    """The recount of files."""

    tally: Tally | None  # of those that could be counted; None if none could
    failed: dict[str, str]  # why the others could not be counted, by name
    missing: bool  # whether one of these is not there


def cut(
    files: Iterable[tuple[str, int]],  # the name and the size of each
) -> Iterator[list[str]]:
    """Cut files into lots, each counted by one process."""
    lot: list[str] = []
    held = 0
    for name, size in files:
        if lot and (held + size > _BYTES or len(lot) == _FILES):
            yield lot
            lot, held = [], 0
        lot.append(name)
        held += size
    if lot:
        yield lot


def count_files(
    # url, number: as `Folder` takes them
    url: str,
    number: str,
    # stratum, names: as the store notes them
    stratum: Stratum,
    names: Sequence[str],
) -> Counted:
    """Count the reports of files. One that cannot be counted is named, and the others are counted."""
    folder, total = Folder(url, number), Counted(None, {}, missing=False)
    for name in names:
        try:
            with folder.read(stratum, name) as (head, payloads):
                counted = tally.merge(tally.empty(head.layout), *(tally.count(head.layout, chunk) for chunk in payloads))
                if total.tally is not None and total.tally.layout != head.layout:
                    raise DamagedFileError("its layout is not that of the others")
        except ArchiveError as error:
            total = _added(total, Counted(None, {name: str(error)}, isinstance(error, MissingFileError)))
        else:
            total = _added(total, Counted(counted, {}, missing=False))
    return total


def count(
    folder: Folder,  # where they are
    lots: Mapping[Stratum, Sequence[Sequence[str]]],  # the names of each stratum, as `cut` returns them
    executor: Executor,  # counts each lot
    advance: Callable[[], None] = lambda: None,  # called after each lot
) -> dict[Stratum, Counted]:
    """Count files, by stratum. ConfigurationError if the executor fails."""
    counted: dict[Stratum, Counted] = {}
    waiting = {
        executor.submit(count_files, folder.url, folder.number, stratum, lot): stratum
        for stratum, of_stratum in lots.items()
        for lot in of_stratum
    }
    for done in as_completed(waiting):
        stratum, more = waiting.pop(done), _result(done)
        counted[stratum] = _added(counted[stratum], more) if stratum in counted else more
        advance()
    return counted


def _result(done: Future[Counted]) -> Counted:
    try:
        return done.result()
    except DeniableError:
        raise
    except Exception as error:  # executors have their own types of errors
        fault = f"--executor: files could not be counted ({type(error).__name__})"
        raise ConfigurationError(f"{fault}; did its processes end, or do they lack this package?") from error


def _added(before: Counted, more: Counted) -> Counted:
    tallies = [each for each in (before.tally, more.tally) if each is not None]
    return Counted(tally.merge(*tallies) if tallies else None, before.failed | more.failed, before.missing or more.missing)
