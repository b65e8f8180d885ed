"""The span of cells: what can be computed from them by adding and subtracting their rows of zeros and ones, one column to a leaf.

Arithmetic is exact, modulo a prime. A rational combination of cells is a multiple of one in whole numbers without a common
divisor. Modulo the prime, this one is not 0 and covers no more leaves. So if the prime does not lower the rank, and no
combination of few reports exists modulo the prime, none exists (`Span.sound`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

PRIME = 33_554_393
"""The largest prime below 2^25: sums of 2^13 products stay below 2^63."""


def clear(rows: NDArray[np.int64], row: int, column: int) -> None:
    """Make one entry 1 and the others in its column 0, by row operations, in place."""
    rows[row] = rows[row] * pow(int(rows[row, column]), -1, PRIME) % PRIME
    others = np.flatnonzero(rows[:, column])
    others = others[others != row]
    if others.size:
        # Only where the row is not 0, which is rare.
        inside = np.flatnonzero(rows[row])
        block = np.ix_(others, inside)
        rows[block] = (rows[block] - np.outer(rows[others, column], rows[row, inside])) % PRIME


class Span:
    """The span of cells that are added one by one, in reduced echelon form.

    Columns are the leaves, from the one with most reports to the one with fewest. If the first entry of a row belongs to a leaf
    with few reports, the row is 0 at every leaf with many. These rows span all such combinations.
    """

    def __init__(
        self,
        leaves: int,  # number of leaves
        heavy: int,  # number of leaves, from the first on, with so many reports that any combination with one of them is harmless
    ) -> None:
        self._rows = np.zeros((leaves, leaves), np.int64)
        self._pivots = np.zeros(leaves, np.intp)
        self._heavy = heavy
        self.rank = 0

    def remainder(self, members: NDArray[np.intp]) -> NDArray[np.int64]:
        """Return a cell's row reduced by the span: 0 everywhere if the cell lies in the span."""
        row = np.zeros(self._rows.shape[1], np.int64)
        row[members] = 1
        row -= self._rows[: self.rank][row[self._pivots[: self.rank]] == 1].sum(axis=0)
        row %= PRIME
        return row

    def harmless(self, remainder: NDArray[np.int64]) -> bool:
        """Return whether a cell adds no combination of leaves with few reports only."""
        return not remainder.any() or bool(remainder[: self._heavy].any())

    def light(self) -> tuple[NDArray[np.int64], NDArray[np.intp]]:
        """Return the rows of leaves with few reports only, without the other columns, and the columns of their pivots."""
        chosen = np.flatnonzero(self._pivots[: self.rank] >= self._heavy)
        return self._rows[chosen, self._heavy :], self._pivots[chosen] - self._heavy

    def add(self, remainder: NDArray[np.int64]) -> None:
        """Add a cell, by its remainder."""
        first = np.flatnonzero(remainder)[:1]
        if not first.size:
            return
        self._rows[self.rank] = remainder
        self._pivots[self.rank] = first[0]
        self.rank += 1
        clear(self._rows[: self.rank], self.rank - 1, int(first[0]))

    def sound(self, cells: Sequence[NDArray[np.intp]]) -> bool:
        """Return whether the added cells have the same rank over the rationals as modulo the prime."""
        rows = np.zeros((len(cells), self._rows.shape[1]))
        for row, members in zip(rows, cells, strict=True):
            row[members] = 1
        return not cells or int(np.linalg.matrix_rank(rows)) == self.rank
