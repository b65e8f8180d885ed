"""Deltas: cells to add to a tally, as the store's scripts take them."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from deniable.forecast import space
from deniable.wire.report import Stratum
from deniable_aggregator.store.sums import tallies
from deniable_aggregator.store.sums.staging import Piece

if TYPE_CHECKING:
    from collections.abc import Iterator

_MANY, _SPARSE = 32, 8  # from so many cells on, and one change in so many, adding to all cells is faster
_NAMED = 6  # cells added in a row that take as long as one named cell
AT_ONCE = 3 << 15
"""Cells in a row that a script may add at once. The store answers nobody meanwhile, for about 30 ms at most."""
_PIECE = 1 << 15  # cells of a piece of a larger commit


class Weights(NamedTuple):
    """The weight tally of a stratum."""

    stratum: Stratum  # the stratum of the reports


class Additions(NamedTuple):
    """Cells to add, of which most are 0."""

    cells: NDArray[np.int64]  # numbers of those that are not, in order; shape (n,)
    deltas: NDArray[np.int64]  # what to add to each of them; shape (n,)


Deltas = dict[Stratum | Weights, NDArray[np.int64] | Additions]
"""Cells to add, to the tallies and the weight tallies of strata: all of them, or those that are not 0."""


def fit(deltas: Deltas) -> bool:
    """Return whether a script may add deltas at once."""
    # If every cell changed; the exact cost takes longer.
    most = _NAMED * sum(len(each.cells) if isinstance(each, Additions) else len(each) for each in deltas.values())
    return most <= AT_ONCE or sum(map(_cost, map(_additions, deltas.values()))) <= AT_ONCE


def growth(deltas: Deltas) -> int:
    """Return how many bytes deltas take in the store at most, as if there was nothing yet to add them to."""
    return sum(space.STRATUM + space.text(8 * len(_additions(each).cells), grows=True) for each in deltas.values())


def pieces(deltas: Deltas, hour: int) -> list[Piece]:
    """Cut deltas into pieces, each to be added by a script of its own, with the Unix time of the commit's hour."""
    return [piece for of, each in deltas.items() for piece in _pieces(of, _additions(each), hour)]


def changes(delta: NDArray[np.int64] | Additions) -> tuple[int | str, bytes]:
    """Encode a delta for ``add.lua``: as additions, or, if many cells changed or by much, all from the first to the last."""
    cells, deltas = _additions(delta)
    some = None if _in_a_row(cells) else tallies.additions(cells, deltas)
    if some is not None:
        return "", some
    first = int(cells[0])
    run = np.zeros(int(cells[-1]) + 1 - first, ">i8")
    run[cells - first] = deltas
    return first, run.tobytes()


def _additions(delta: NDArray[np.int64] | Additions) -> Additions:
    if isinstance(delta, Additions):
        return delta
    changed = np.flatnonzero(delta)
    return Additions(changed, delta[changed])


def _pieces(of: Stratum | Weights, delta: Additions, hour: int) -> Iterator[Piece]:
    """Cut a delta into pieces: first the last cell, which makes room for all of it, then the rest from the end backwards."""
    stratum, word = (of.stratum, "weights") if isinstance(of, Weights) else (of, "tally")
    name, (cells, deltas) = tallies.name(stratum), delta
    if not len(cells):
        return
    yield Piece(word, name, hour, "", cast("bytes", tallies.additions(cells[-1:], np.zeros(1, np.int64))))
    ends = np.searchsorted(cells, range(0, int(cells[-1]) + _PIECE + 1, _PIECE))
    for first, end in reversed(list(pairwise(ends.tolist()))):
        if first < end:
            yield Piece(word, name, hour, *changes(Additions(cells[first:end], deltas[first:end])))


def _cost(delta: Additions) -> int:
    """Return how long a commit takes to add a delta, in cells that are added in a row."""
    cells = delta.cells
    return int(cells[-1]) + 1 - int(cells[0]) if _in_a_row(cells) else _NAMED * len(cells)


def _in_a_row(cells: NDArray[np.int64]) -> bool:
    """Return whether adding to all cells from the first to the last changed one is faster than naming these."""
    return len(cells) >= _MANY and int(cells[-1]) + 1 - int(cells[0]) <= _SPARSE * len(cells)
