"""Deltas: cells to add to a tally, as the store's scripts take them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from deniable.wire.report import Stratum
from deniable_aggregator.store import tallies
from deniable_aggregator.store.staging import Piece

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["AT_ONCE", "Deltas", "Weights", "changes", "fit", "pieces"]

_MANY, _SPARSE = 32, 8  # from so many cells on, and one change in so many, adding to all cells is faster
_NAMED, _ROOM = 6, 64  # cells added in a row that take as long as one named cell, and as making room for a cell
AT_ONCE = 3 << 15
"""Cells in a row that a script may add at once. The store answers nobody meanwhile, for about 30 ms at most."""
_PIECE = 1 << 15  # cells of a piece of a larger commit


class Weights(NamedTuple):
    """The weight tally of a stratum.

    Parameters
    ----------
    stratum
        The stratum of the reports.
    """

    stratum: Stratum


Deltas = dict[Stratum | Weights, NDArray[np.int64]]
"""Cells to add, to the tallies and the weight tallies of strata."""


def fit(deltas: Deltas) -> bool:
    """Return whether a script may add deltas at once."""
    most = (_NAMED + 1) * sum(map(len, deltas.values()))  # if every cell changed; the exact cost takes longer
    return most <= AT_ONCE or sum(map(_cost, deltas.values())) <= AT_ONCE


def pieces(deltas: Deltas, hour: int) -> list[Piece]:
    """Cut deltas into pieces, each to be added by a script of its own, with the Unix time of the commit's hour."""
    return [piece for of, cells in deltas.items() for piece in _pieces(of, cells, hour)]


def changes(cells: NDArray[np.int64], start: int = 0) -> tuple[int | str, bytes]:
    """Encode a delta for ``add.lua``: as additions, or, if many cells changed or by much, all from the first to the last."""
    changed = np.flatnonzero(cells)
    some = None if _in_a_row(changed) else tallies.additions(start + changed, cells[changed])
    if some is not None:
        return "", some
    first, end = int(changed[0]), int(changed[-1]) + 1
    return start + first, cells[first:end].astype(">i8").tobytes()


def _pieces(of: Stratum | Weights, cells: NDArray[np.int64], hour: int) -> Iterator[Piece]:
    """Cut a delta into pieces: first the last cells, which make room for all of it, then the rest from the end backwards."""
    stratum, word = (of.stratum, "weights") if isinstance(of, Weights) else (of, "tally")
    name, changed = tallies.name(stratum), np.flatnonzero(cells)
    if not len(changed):
        return
    last = changed[-1:]
    yield Piece(word, name, hour, "", cast("bytes", tallies.additions(last, np.zeros(1, np.int64))))
    for start in reversed(range(0, int(changed[-1]) + 1, _PIECE)):
        some = cells[start : start + _PIECE]
        if some.any():
            yield Piece(word, name, hour, *changes(some, start))


def _cost(cells: NDArray[np.int64]) -> int:
    """Return how long a commit takes to add a delta, in cells that are added in a row."""
    changed = np.flatnonzero(cells)
    if not len(changed):
        return 0
    first, end = int(changed[0]), int(changed[-1]) + 1
    return (end - first if _in_a_row(changed) else _NAMED * len(changed)) + end // _ROOM


def _in_a_row(changed: NDArray[np.intp]) -> bool:
    """Return whether adding to all cells from the first to the last changed one is faster than naming these."""
    return len(changed) >= _MANY and int(changed[-1]) + 1 - int(changed[0]) <= _SPARSE * len(changed)
