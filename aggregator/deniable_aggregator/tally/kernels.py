"""The counting kernels: they turn the payloads of many reports into the cells of a tally.

There is one kernel for each kind of `deniable.wire.layout.Layout`. Payloads lie end to end in one array of bytes, as they arrive.
They were validated before, so nothing is checked here. Counts are added in place. If numba is installed, the kernels run as
machine code without the GIL, near the speed of memory. Otherwise numpy gives the same counts; unary ones take 20 to 100 times as
long. Numba is loaded at the first count that is faster with it, and compiles then, for seconds, unless its cache has the machine
code. A process that is to answer meanwhile postpones that, and numpy counts (`deniable_aggregator.counting.compilation`).
"""

from __future__ import annotations

import sys
from functools import cache
from threading import Event
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

    from numpy.typing import NDArray

_PAIRED = 32  # cells above which the used part of the table of pairs does not fit the fastest cache
_WORTH_PAIRING = 1 << 20  # reports below which filling and folding the table takes longer than it saves
_COUNTERS = 1 << 25
"""Bytes of counters for many rows, each rounded up to a multiple of 64. Only rows of under 8 bits could need more."""
_CHUNK = 1 << 20
"""Bytes that numpy unpacks to bits, or numbers that it widens, at a time."""


_FEW = 10_000
"""Indices for which numba is not loaded: numpy takes some 50 us for them."""

_postponed = Event()


def postpone() -> None:
    """Count with numpy until `resume` is called."""
    _postponed.set()


def resume() -> None:
    """Count with the compiled kernels, if numba is installed."""
    _postponed.clear()


def _compiled() -> ModuleType | None:
    return None if _postponed.is_set() else _imported()


@cache
def _imported() -> ModuleType | None:
    """Import the compiled kernels at the first count, so that a server that only answers queries does not load numba."""
    if sys.byteorder == "big":  # they read the wire's little-endian numbers as native ones
        return None
    try:
        from deniable_aggregator.tally import compiled  # noqa: PLC0415
    except ImportError:
        return None
    return compiled


def backend() -> str:
    """Return which library counts: "numba" or "numpy"."""
    return "numpy" if _compiled() is None else "numba"


def histogram(
    payloads: NDArray[np.uint8],  # cell numbers below `len(cells)`, each `size` bytes, little-endian; shape (reports * size,)
    size: int,  # bytes of a payload, 1 to 4
    cells: NDArray[np.int64],  # Reports of each cell number; shape (rows * width,). Added to in place.
) -> None:
    """Count the reports of an ``index`` layout."""
    few = len(payloads) <= _FEW * size and not _imported.cache_info().currsize
    (_histogram_numpy if few or _compiled() is None else _histogram_numba)(payloads, size, cells)


def popcount(
    # row numbers of `row_size` bytes, little-endian, each followed by `width` bits, bit i being bit i % 8 of byte i // 8, with
    # padding of zeros; (reports * size,)
    payloads: NDArray[np.uint8],
    row_size: int,  # bytes of a row number; 0 where there is one row
    size: int,  # bytes of a payload
    width: int,  # bits of a report
    cells: NDArray[np.int64],  # (rows, width): reports of each row that set each bit; added to in place
    reports: NDArray[np.int64],  # (rows,): added to in place
) -> None:
    """Count the reports of a ``bits`` layout."""
    count = _popcount_numpy if _compiled() is None else _popcount_numba
    count(payloads, row_size, size, width, cells, reports)


def call() -> Iterator[None]:
    """Call the compiled kernels one after another, with each type of array: whatever is not compiled or loaded yet then is."""
    payloads, cells = np.zeros(3, np.uint8), np.zeros(8, np.int64)
    for size, table in ((1, cells), (2, cells), (3, cells), (3, cells[:2])):
        _histogram_numba(payloads[:size], size, table)
        yield
    _popcount_numba(payloads[:1], 0, 1, 8, cells.reshape(1, 8), cells[:1])
    yield


def _frozen(payloads: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return a read-only view of `payloads`, as most arrive: numba would compile again for a writable array."""
    view = np.ascontiguousarray(payloads).view()
    view.flags.writeable = False
    return view


def _histogram_numba(payloads: NDArray[np.uint8], size: int, cells: NDArray[np.int64]) -> None:
    from deniable_aggregator.tally import compiled  # noqa: PLC0415

    if size == 3:  # noqa: PLR2004  no machine has such a type
        aligned = len(payloads) // 12 * 12
        # A large table is half as large, and faster, with narrow counters. For few reports it is not worth it.
        counts = np.zeros(len(cells), np.uint32) if len(payloads) > len(cells) else cells
        compiled.histogram3(_frozen(payloads[:aligned]).view("u4"), _frozen(payloads[aligned:]), counts)
        if counts is not cells:
            cells += counts
    elif size == 1 and len(cells) <= _PAIRED and len(payloads) >= _WORTH_PAIRING:
        # Two reports are one number of two bytes. This halves the increments, and little of the table is used.
        even = len(payloads) & ~1
        pairs = np.zeros((256, 256), np.int64)
        compiled.histogram(_frozen(payloads[:even]).view("u2"), pairs.reshape(-1))
        cells += (pairs.sum(axis=0) + pairs.sum(axis=1))[: len(cells)]
        if even < len(payloads):
            cells[payloads[-1]] += 1
    else:
        compiled.histogram(_frozen(payloads).view(f"u{size}"), cells)


def _popcount_numba(
    payloads: NDArray[np.uint8],
    row_size: int,
    size: int,
    width: int,
    cells: NDArray[np.int64],
    reports: NDArray[np.int64],
) -> None:
    from deniable_aggregator.tally import compiled  # noqa: PLC0415

    if row_size and len(cells) * -(-width // 64) * 64 > _COUNTERS:
        _popcount_numpy(payloads, row_size, size, width, cells, reports)
        return
    tail = payloads[:0]
    if row_size:
        begin = max(0, len(payloads) - compiled.AHEAD) // size * size
        tail = np.concatenate([payloads[begin:], np.zeros(compiled.AHEAD, np.uint8)])
    compiled.popcount(_frozen(payloads), _frozen(tail), row_size, size, cells, reports)


def widen(content: NDArray[np.uint8]) -> NDArray[np.uint32]:
    """Widen little-endian numbers of up to 4 bytes, shape (reports, size), to 32 bits."""
    size = content.shape[1]
    if size in (1, 2, 4) and content.flags.c_contiguous:  # machines have such numbers
        return content.view(f"<u{size}")[:, 0].astype(np.uint32, copy=False)
    padded = np.zeros((len(content), 4), np.uint8)
    padded[:, :size] = content
    return padded.view("<u4")[:, 0]


def _histogram_numpy(payloads: NDArray[np.uint8], size: int, cells: NDArray[np.int64]) -> None:
    content = payloads.reshape(-1, size)
    for begin in range(0, len(content), _CHUNK):
        numbers = widen(content[begin : begin + _CHUNK])
        if len(numbers) < len(cells):  # a second table would cost more than it saves
            np.add.at(cells, numbers, 1)
        else:
            cells += np.bincount(numbers, minlength=len(cells))


def _popcount_numpy(
    payloads: NDArray[np.uint8],
    row_size: int,
    size: int,
    width: int,
    cells: NDArray[np.int64],
    reports: NDArray[np.int64],
) -> None:
    content = payloads.reshape(-1, size)
    step = max(1, _CHUNK // size // 8)
    if row_size == 0:
        reports[0] += len(content)
        step = min(step, 255)  # counts then fit into bytes, which numpy adds several times as fast as wider integers
    else:
        step = max(step, min(8 * len(cells), _CHUNK))  # several reports for each row that is added to
    for begin in range(0, len(content), step):
        chunk = content[begin : begin + step]
        if row_size == 0:
            bits = np.unpackbits(chunk, axis=1, count=width, bitorder="little")
            cells[0] += bits.sum(axis=0, dtype=np.uint8)
            continue
        rows = widen(chunk[:, :row_size])
        order = np.argsort(rows, kind="stable")
        present, first, number = np.unique(rows[order], return_index=True, return_counts=True)
        bits = np.unpackbits(chunk[order, row_size:], axis=1, count=width, bitorder="little")
        cells[present] += np.add.reduceat(bits, first, axis=0, dtype=np.int64)
        reports[present] += number
