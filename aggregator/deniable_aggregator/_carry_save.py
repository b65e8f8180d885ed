"""The compiled counting kernels: an index histogram, and positional popcounts by carry-save addition.

Bits are counted 64 columns to a word, without ever being unpacked. A full adder (`_csa`) takes three words of one weight
to one word of that weight and one of twice the weight, so a tree of them (Harley and Seal's) takes the next 16 lines of
words into four running planes, of weights 1, 2, 4 and 8, and carries one line of weight 16 out. Sixteen such carries are
16 lines again: they go through the same tree a *tier* up, whose weights are 16 times as large. So a column's count stands
in the planes as a binary number, and is read out once, at the end.

A line is `LANES` words. Narrow reports fill it side by side, so that the loop over the lanes is long enough to vectorise,
and their counts are folded together at the end; wide reports go through in passes, each over the next `LANES` words.

The state is a flat array, for each tier `INPUTS` lines to add, `PLANES` planes and the carry. Its distances are constants
and its indices unsigned for a reason: otherwise LLVM cannot rule out that lines overlap, or that an index is negative and
counts from the end, and the loop goes a word at a time, which was four times slower.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numba
import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Bytes = NDArray[np.uint8]
    Words = NDArray[np.uint64]
    Counts = NDArray[np.int64]
    Number = Any  # an int or an np.uint64: numba tells them apart, and mypy cannot, through a range

__all__ = ["histogram", "histogram3", "popcount"]

_Function = TypeVar("_Function")

LANES = 32  # fewer are slower; more make reading out dearer, which small batches feel
SPAN = 8 * LANES
INPUTS = 16
PLANES = 4
BLOCK = INPUTS * LANES
TIER = (INPUTS + PLANES + 1) * LANES

_U = np.uint64
_1, _2, _3, _4, _8 = (_U(line * LANES) for line in (1, 2, 3, 4, 8))
_ONES, _TWOS, _FOURS, _EIGHTS, _CARRY = (_U((INPUTS + plane) * LANES) for plane in range(PLANES + 1))


def _compile(function: _Function) -> _Function:
    """Compile at the first call, to run without the GIL; keep the machine code on disk where some directory allows."""
    compile_: Any = partial(numba.njit, nogil=True, error_model="numpy")
    try:
        compiled: _Function = compile_(cache=True)(function)
    except RuntimeError:  # numba finds no directory that it may write to
        compiled = compile_()(function)
    return compiled


@_compile
def _csa(a: Number, b: Number, c: Number) -> tuple[Number, Number]:
    half = a ^ b
    return half ^ c, (a & b) | (half & c)


@_compile
def _add4(state: Words, at: Number, ones: Number, twos: Number) -> tuple[Number, Number, Number]:
    ones, a = _csa(ones, state[at], state[at + _1])
    ones, b = _csa(ones, state[at + _2], state[at + _3])
    twos, carry = _csa(twos, a, b)
    return ones, twos, carry


@_compile
def _add8(state: Words, at: Number, ones: Number, twos: Number, fours: Number) -> tuple[Number, Number, Number, Number]:
    ones, twos, a = _add4(state, at, ones, twos)
    ones, twos, b = _add4(state, at + _4, ones, twos)
    fours, carry = _csa(fours, a, b)
    return ones, twos, fours, carry


@_compile
def _add16(state: Words, tier: Number, line: Number) -> None:
    """Add the inputs of `tier` to its planes; the carry becomes input `line` of the next tier."""
    begin, target = _U(tier * TIER), _U((tier + 1) * TIER + line * LANES)
    for at in range(begin, begin + _U(LANES)):
        ones, twos, fours, eights = state[at + _ONES], state[at + _TWOS], state[at + _FOURS], state[at + _EIGHTS]
        ones, twos, fours, a = _add8(state, at, ones, twos, fours)
        ones, twos, fours, b = _add8(state, at + _8, ones, twos, fours)
        state[at + _ONES], state[at + _TWOS], state[at + _FOURS] = ones, twos, fours
        state[at + _EIGHTS], state[at + _CARRY] = _csa(eights, a, b)
    for lane in range(_U(LANES)):  # apart, since the target's distance is no constant
        state[target + lane] = state[begin + _CARRY + lane]


@_compile
def _clear(array: NDArray[Any], begin: Number, end: Number) -> None:
    for at in range(begin, end):  # which compiles sooner than an assignment to a slice
        array[at] = 0


@_compile
def _carry(state: Words, filled: Counts) -> None:
    """Empty each tier whose inputs are full into the next, from the lowest up."""
    for tier in range(len(filled) - 1):
        if filled[tier] < INPUTS:
            break
        _add16(state, tier, filled[tier + 1])
        filled[tier] = 0
        filled[tier + 1] += 1


@_compile
def _tiers(lines: Number) -> Number:
    """Tiers whose planes hold a count of `lines`."""
    tiers = 1
    while lines >> (PLANES * tiers):
        tiers += 1
    return tiers


@_compile
def _read(state: Words, filled: Counts, period: Number, cells: Counts) -> None:
    """Add every input left, and each column's count to its cell; columns `period` apart share a cell."""
    counts = np.zeros(64 * LANES, np.int64)
    for tier in range(len(filled) - 1):
        _clear(state, tier * TIER + filled[tier] * LANES, tier * TIER + BLOCK)
        _add16(state, tier, filled[tier + 1])
        filled[tier + 1] += 1
        for plane in range(PLANES):
            for lane in range(LANES):
                word = state[tier * TIER + (INPUTS + plane) * LANES + lane]
                for bit in range(64):
                    counts[64 * lane + bit] += np.int64((word >> _U(bit)) & _U(1)) << (PLANES * tier + plane)
    for begin in range(0, 64 * LANES - len(cells) + 1, period):
        for cell in range(len(cells)):
            cells[cell] += counts[begin + cell]


@_compile
def _copy(source: Bytes, begin: Number, target: Bytes, at: Number, size: Number) -> None:
    for byte in range(_U(size)):
        target[_U(at) + byte] = source[_U(begin) + byte]


@_compile
def _popcount_one_row(payloads: Bytes, size: Number, cells: Counts) -> None:
    stride = max(1, SPAN // size) * size
    tiers = _tiers(-(-len(payloads) // stride))
    for skip in range(0, size, SPAN):
        line = min(stride - skip, SPAN)
        state = np.zeros(tiers * TIER + LANES, np.uint64)
        filled = np.zeros(tiers + 1, np.int64)
        target = state.view(np.uint8)
        for begin in range(skip, len(payloads), stride):
            at = filled[0] * SPAN
            whole = min(line, len(payloads) - begin)
            _copy(payloads, begin, target, at, whole)
            _clear(target, at + whole, at + line)
            filled[0] += 1
            if filled[0] == INPUTS:
                _carry(state, filled)
        _read(state, filled, 8 * size, cells[8 * skip : 8 * (skip + SPAN)])


@_compile
def _word(payloads: Bytes, at: Number) -> Number:
    """Read 8 bytes as a word; LLVM makes a single load of it."""
    word = _U(0)
    for byte in range(_U(8)):
        word |= _U(payloads[at + byte]) << (_U(8) * byte)
    return word


@_compile
def _place(
    payloads: Bytes,
    bits: Bytes,
    at: Number,
    end: Number,
    size: Number,
    row_mask: Number,
    words: Number,
    across: Number,
    state: Words,
    stride: Number,
    placed: Words,
) -> tuple[Number, Number]:
    """Copy reports to their rows' inputs, up to the first that fills them; return where it ends, and its row.

    The inputs are emptied elsewhere so that the registers are free for this loop, which takes most of the time. All
    numbers are unsigned. `bits` is `payloads` from the first report's first bit to copy.
    """
    row = _U(0)
    while at < end:
        row = _word(payloads, at) & row_mask
        before = placed[row]
        placed[row] = after = before + across
        target = row * stride + before % _U(BLOCK)
        state[target], state[target + _U(1)] = _word(bits, at), _word(bits, at + _U(8))
        for word in range(_U(2), words, _U(2)):  # by twos: a pair costs little more than one
            state[target + word] = _word(bits, at + _U(8) * word)
            state[target + word + _U(1)] = _word(bits, at + _U(8) * word + _U(8))
        at += size
        if after % _U(BLOCK) == _U(0):
            break
    return at, row


@_compile
def _popcount_rows(payloads: Bytes, number: Number, row_size: Number, size: Number, cells: Counts, reports: Counts) -> None:
    """Count the first `number` reports with a state for each row, reading up to 15 bytes past the last of them."""
    rows, width = cells.shape
    row_mask = (_U(1) << _U(8 * row_size)) - _U(1)
    for skip in range(0, width, 64 * LANES):
        words = min((width - skip + 63) // 64, LANES)
        across = 2  # a power of two, so that lines fill up; what follows a report there is counted, and never read
        while across < words:
            across *= 2
        tiers = _tiers(number * across // LANES + 1)
        stride = tiers * TIER + LANES
        state = np.zeros(rows * stride, np.uint64)
        filled = np.zeros((rows, tiers + 1), np.int64)
        placed = np.zeros(rows, np.uint64)
        bits = payloads[row_size + skip // 8 :]
        at, end = _U(0), _U(number * size)
        while at < end:
            at, row = _place(payloads, bits, at, end, _U(size), row_mask, _U(words), _U(across), state, _U(stride), placed)
            if placed[row] % _U(BLOCK) == _U(0):
                filled[row, 0] = INPUTS
                _carry(state[row * _U(stride) : (row + _U(1)) * _U(stride)], filled[row])
        for row in range(rows):
            own, words_placed = state[row * stride : (row + 1) * stride], np.int64(placed[row])
            _clear(own, words_placed % BLOCK, BLOCK)
            filled[row, 0] = INPUTS
            _read(own, filled[row], 64 * across, cells[row, skip : skip + 64 * LANES])
            if skip == 0:
                reports[row] += words_placed // across


@_compile
def _popcount_few(payloads: Bytes, row_size: Number, size: Number, cells: Counts, reports: Counts) -> None:
    """Count reports a bit at a time."""
    width = _U(cells.shape[1])
    whole = width // _U(8)
    for begin in range(_U(0), _U(len(payloads)), _U(size)):
        row = _U(0)
        for byte in range(_U(row_size)):
            row |= _U(payloads[begin + byte]) << (_U(8) * byte)
        reports[row] += 1
        first = begin + _U(row_size)
        for byte in range(whole):
            bits = _U(payloads[first + byte])
            for bit in range(_U(8)):
                cells[row, _U(8) * byte + bit] += np.int64((bits >> bit) & _U(1))
        for bit in range(width % _U(8)):
            cells[row, _U(8) * whole + bit] += np.int64((_U(payloads[first + whole]) >> bit) & _U(1))


@_compile
def popcount(payloads: Bytes, row_size: Number, size: Number, cells: Counts, reports: Counts) -> None:
    """Add the bits and the reports of `payloads`; see `deniable_aggregator.kernels.popcount`."""
    if row_size == 0:
        reports[0] += len(payloads) // size
        _popcount_one_row(payloads, size, cells[0])
        return
    rows, width = cells.shape
    number = max(0, len(payloads) - 15) // size
    if number * min(width, 64 * LANES) < rows * 64 * BLOCK:  # to set up and read out the states would take longer
        number = 0
    else:
        _popcount_rows(payloads, number, row_size, size, cells, reports)
    _popcount_few(payloads[number * size :], row_size, size, cells, reports)


@_compile
def histogram(numbers: NDArray[Any], cells: Counts) -> None:
    """Add 1 to ``cells[number]`` for each of `numbers`, an array of an unsigned type."""
    pairs = len(numbers) // 2 if len(numbers) > len(cells) else 0
    if pairs:
        # An increment waits for the last one of its cell: two tables in turn halve the wait when one value is common.
        # Narrow counters keep them in cache; neither table sees 2**32 numbers.
        even, odd = np.zeros(len(cells), np.uint32), np.zeros(len(cells), np.uint32)
        for pair in range(pairs):
            even[numbers[2 * pair]] += np.uint32(1)
            odd[numbers[2 * pair + 1]] += np.uint32(1)
        for cell in range(len(cells)):
            cells[cell] += np.int64(even[cell]) + np.int64(odd[cell])
    for at in range(2 * pairs, len(numbers)):
        cells[numbers[at]] += 1


@_compile
def histogram3(words: NDArray[np.uint32], tail: Bytes, counts: NDArray[Any]) -> None:
    """Do as `histogram` does, for numbers of three bytes: four of them in each three `words`, the last few in `tail`."""
    low = np.uint32(0xFFFFFF)
    for at in range(_U(0), _U(len(words)), _U(3)):
        first, second, third = words[at], words[at + _U(1)], words[at + _U(2)]
        counts[first & low] += 1
        counts[(first >> np.uint32(24) | second << np.uint32(8)) & low] += 1
        counts[(second >> np.uint32(16) | third << np.uint32(16)) & low] += 1
        counts[third >> np.uint32(8)] += 1
    for at in range(_U(0), _U(len(tail)), _U(3)):
        counts[_U(tail[at]) | _U(tail[at + _U(1)]) << _U(8) | _U(tail[at + _U(2)]) << _U(16)] += 1
