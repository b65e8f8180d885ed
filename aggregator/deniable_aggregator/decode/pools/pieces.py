"""Rows of a large table in pieces, so that what is computed of a piece stays in the cache."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_CELLS = 1 << 13
"""Cells of a piece: with 8 bytes each, an array of them is also too small to be fetched from the system and given back."""


def pieces(rows: int, width: int) -> Iterator[slice]:
    """Cut the rows of a table of some width."""
    step = max(1, _CELLS // width)
    for begin in range(0, rows, step):
        yield slice(begin, min(begin + step, rows))
