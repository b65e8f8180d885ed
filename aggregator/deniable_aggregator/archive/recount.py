"""The recount: files are counted again, some at a time, wherever an executor has it done."""

from __future__ import annotations

from concurrent.futures import as_completed
from typing import TYPE_CHECKING

from deniable.errors import ConfigurationError, DeniableError
from deniable_aggregator import tally
from deniable_aggregator.archive.errors import MissingFileError
from deniable_aggregator.archive.folder import Folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from concurrent.futures import Executor, Future

    from deniable.wire.report import Stratum
    from deniable_aggregator.tally import Tally

_BYTES, _FILES = 64 << 20, 256
"""Bytes, and files, that are counted at once at most, but at least one file."""


def cut(
    files: Iterable[tuple[str, int]],  # the path and the size of each
) -> Iterator[list[str]]:
    """Cut files into lots that are counted at once."""
    lot: list[str] = []
    held = 0
    for path, size in files:
        if lot and (held + size > _BYTES or len(lot) == _FILES):
            yield lot
            lot, held = [], 0
        lot.append(path)
        held += size
    if lot:
        yield lot


def count_files(
    # url, number: as `Folder` takes them
    url: str,
    number: str,
    paths: Sequence[str],  # at least one
) -> Tally | None:
    """Count the reports of some files of one layout.

    Returns
    -------
    Tally or None
        None if a file is missing.
    """
    folder, found = Folder(url, number), []
    try:
        for path in paths:
            with folder.read(path) as (head, payloads):
                found.append(tally.merge(tally.empty(head.layout), *(tally.count(head.layout, some) for some in payloads)))
    except MissingFileError:
        return None
    return tally.merge(*found)


def count(
    folder: Folder,  # where they are
    lots: Mapping[Stratum, Sequence[Sequence[str]]],  # the paths of each stratum, as `cut` returns them
    executor: Executor,  # counts each lot
    advance: Callable[[], None] = lambda: None,  # called after each lot
) -> dict[Stratum, Tally | None]:
    """Count files.

    Returns
    -------
    dict
        The tally of each stratum, or None if a file of it is missing.

    Raises
    ------
    ArchiveError
        If a file cannot be read.
    ConfigurationError
        If the executor fails.
    """
    found: dict[Stratum, Tally | None] = {}
    waiting = {
        executor.submit(count_files, folder.url, folder.number, lot): stratum for stratum, some in lots.items() for lot in some
    }
    for done in as_completed(waiting):
        stratum, more = waiting.pop(done), _result(done)
        found[stratum] = _added(found[stratum], more) if stratum in found else more
        advance()
    return found


def _result(done: Future[Tally | None]) -> Tally | None:
    try:
        return done.result()
    except DeniableError:
        raise
    except Exception as error:  # clusters have errors of their own
        told = f"--executor: files could not be counted ({type(error).__name__})"
        raise ConfigurationError(f"{told}; did its processes end, or do they lack this package?") from error


def _added(before: Tally | None, more: Tally | None) -> Tally | None:
    return None if before is None or more is None else tally.merge(before, more)
