"""The recount: files are counted again, some at a time, wherever an executor has it done."""

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
"""Bytes, and files, that are counted at once at most, but at least one file."""


class Counted(NamedTuple):
    """What files have."""

    tally: Tally | None  # of those that could be counted; None if none could
    failed: dict[str, str]  # names of the others, and why
    missing: bool  # whether some of these are not there


def cut(
    files: Iterable[tuple[str, int]],  # the name and the size of each
) -> Iterator[list[str]]:
    """Cut files into lots that are counted at once."""
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
    """Count the reports of some files."""
    folder, found = Folder(url, number), Counted(None, {}, missing=False)
    for name in names:
        try:
            with folder.read(stratum, name) as (head, payloads):
                counted = tally.merge(tally.empty(head.layout), *(tally.count(head.layout, some) for some in payloads))
                if found.tally is not None and found.tally.layout != head.layout:
                    raise DamagedFileError("its layout is not that of the others")
        except ArchiveError as error:
            found = _added(found, Counted(None, {name: str(error)}, isinstance(error, MissingFileError)))
        else:
            found = _added(found, Counted(counted, {}, missing=False))
    return found


def count(
    folder: Folder,  # where they are
    lots: Mapping[Stratum, Sequence[Sequence[str]]],  # the names of each stratum, as `cut` returns them
    executor: Executor,  # counts each lot
    advance: Callable[[], None] = lambda: None,  # called after each lot
) -> dict[Stratum, Counted]:
    """Count files.

    Returns
    -------
    dict
        What the files of each stratum have.

    Raises
    ------
    ConfigurationError
        If the executor fails.
    """
    found: dict[Stratum, Counted] = {}
    waiting = {
        executor.submit(count_files, folder.url, folder.number, stratum, lot): stratum
        for stratum, some in lots.items()
        for lot in some
    }
    for done in as_completed(waiting):
        stratum, more = waiting.pop(done), _result(done)
        found[stratum] = _added(found[stratum], more) if stratum in found else more
        advance()
    return found


def _result(done: Future[Counted]) -> Counted:
    try:
        return done.result()
    except DeniableError:
        raise
    except Exception as error:  # clusters have errors of their own
        told = f"--executor: files could not be counted ({type(error).__name__})"
        raise ConfigurationError(f"{told}; did its processes end, or do they lack this package?") from error


def _added(before: Counted, more: Counted) -> Counted:
    tallies = [each for each in (before.tally, more.tally) if each is not None]
    return Counted(tally.merge(*tallies) if tallies else None, before.failed | more.failed, before.missing or more.missing)
