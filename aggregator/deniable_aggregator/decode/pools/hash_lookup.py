"""Look-ups in the rows of a sketch: for many keys, the counts of the cells they hash to, summed over a pool of functions."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from deniable.exact.hashing import key
from deniable_aggregator.decode.pools.pieces import pieces

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from deniable.exact.hashing import PoolFamily

_HALF = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)


@lru_cache(maxsize=64)
def multipliers(family: PoolFamily) -> NDArray[np.uint64]:
    """Return the numbers (a, b, c) of every function; uint64 array (rows, 3)."""
    return np.array([family.multipliers(row) for row in range(family.rows)], np.uint64)


def keys(values: Sequence[int], domain_size: int) -> NDArray[np.uint64]:
    """Convert values of any domain to the keys that pools hash; uint64 array (values,)."""
    return np.fromiter((key(value, domain_size) for value in values), np.uint64, len(values))


def hashes(family: PoolFamily, row: int | NDArray[np.intp], keys: NDArray[np.uint64]) -> NDArray[np.intp]:
    """Hash keys with one function, or with several that broadcast with the keys; int array, in [0, width)."""
    a, b, c = np.moveaxis(multipliers(family)[row], -1, 0)
    high = (a * (keys >> _HALF) + b * (keys & _LOW) + c) >> _HALF
    return np.asarray(high * np.uint64(family.width) >> _HALF, np.intp)


def lookup(
    family: PoolFamily,  # the functions
    table: NDArray[Any],  # (rows, width): the cells of row `first` and the following rows
    keys: NDArray[np.uint64],
    first: int = 0,  # number of the function of the table's first row
) -> NDArray[np.float64]:
    """Sum, over rows of a table, the cell that each key hashes to, (keys,)."""
    return lookup_by_row(family, table, np.zeros(table.shape, np.int64), keys, first)[0]


def lookup_by_row(
    family: PoolFamily, table: NDArray[Any], counts: NDArray[np.int64], keys: NDArray[np.uint64], first: int = 0
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Sum the cells that keys hash to: of a table for each key over all rows, of counts for each row over all keys."""
    by_key, by_row = np.zeros(len(keys)), np.zeros(len(table), np.int64)
    used = np.flatnonzero(table.any(axis=1) | counts.any(axis=1))  # with few reports most rows of a large pool are empty
    kernel = _kernel()
    if kernel is not None:
        numbers = multipliers(family)
        for piece in pieces(len(used), table.shape[1]):
            rows = used[piece]
            sums = np.zeros(len(rows), np.int64)
            kernel(numbers[first + rows], np.ascontiguousarray(table[rows], np.float64), counts[rows], keys, by_key, sums)
            by_row[rows] = sums
        return by_key, by_row
    for row in used.tolist():
        places = hashes(family, first + row, keys)
        by_key += table[row][places]
        by_row[row] = counts[row][places].sum()
    return by_key, by_row


@cache
def _kernel() -> Callable[..., None] | None:
    """Compile the loop at the first use. Without numba, numpy goes row by row."""
    try:
        import numba  # noqa: PLC0415 - a server that only ingests does not need it
    except ImportError:
        return None

    def look_up(numbers: Any, table: Any, counts: Any, keys: Any, by_key: Any, by_row: Any) -> None:
        half, low, width = np.uint64(32), np.uint64(0xFFFFFFFF), np.uint64(table.shape[1])
        for row in range(len(table)):
            a, b, c = numbers[row]
            total = 0  # in a register
            for at in range(len(keys)):
                word = keys[at]
                high = (a * (word >> half) + b * (word & low) + c) >> half
                place = (high * width) >> half
                by_key[at] += table[row, place]
                total += counts[row, place]
            by_row[row] = total

    try:
        return numba.njit(nogil=True, error_model="numpy", cache=True)(look_up)
    except RuntimeError:  # numba finds no directory that it can write to
        return numba.njit(nogil=True, error_model="numpy")(look_up)
