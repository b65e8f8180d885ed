"""The compiled counting kernels: an index histogram, and positional popcounts of one row and of many.

Bits are never unpacked. Reports of *one row* are counted by carry-save addition, 64 columns to a word. A full adder (`_csa`)
turns three words of one weight into one word of that weight and one of twice the weight. A tree of adders (Harley and Seal) takes
16 lines of words at a time into four running planes, of weights 1, 2, 4 and 8. It carries one line of weight 16 out, which is
added to the planes above. So the planes hold each column's count as a binary number. They are read out before they can overflow.
The same byte of eight planes makes a matrix of 8 x 8 bits, and its transpose holds the counts of eight columns.

A line is `LANES` words. Several narrow reports share a line, so that the loop over the lanes is long enough to vectorise. Their
counts are added together when they are read. Wide reports take several passes, each over the next `LANES` words. The state is a
flat array of `INPUTS` input lines followed by the planes. Its distances are constants and its indices unsigned. Otherwise LLVM
must assume that lines overlap, or that an index is negative and counts from the end. Then the loop goes word by word, which was
four times slower.

Reports of *many rows* come in any order. Sorting them, by copies or by a list of places, takes longer than counting them. So each
is added at once to its row's one-byte counters, which are moved to the cells after 255 reports. Byte ``i`` of lane ``j`` of a
word counts bit ``8 i + j``. A report's word is copied to 8 lanes, shifted right by the number of the lane, masked and added, in
four vector instructions.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numba
import numpy as np
from llvmlite import ir
from numba.extending import intrinsic

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Bytes = NDArray[np.uint8]
    Words = NDArray[np.uint64]
    Counts = NDArray[np.int64]
    Number = Any  # an int or an np.uint64: numba distinguishes them, mypy cannot through a range

_Function = TypeVar("_Function")

LANES = 32  # fewer are slower; more make reading out slow for small batches
SPAN = 8 * LANES
INPUTS = 16
PLANES = 16  # the carries reach 12; the others complete the transpose by eights
BLOCK = INPUTS * LANES
STATE = (INPUTS + PLANES) * LANES
FULL = (1 << 12) - INPUTS
"""Lines that 12 planes can count, in whole trees."""

AHEAD = 7
"""Bytes that may be read past the last report of many rows."""

_PREFETCH = 1024
"""Bytes ahead that reports of many rows are prefetched: writing counters disturbs the processor's own prefetching."""

_U = np.uint64
_1, _2, _3, _4, _8 = (_U(line * LANES) for line in (1, 2, 3, 4, 8))
_ONES, _TWOS, _FOURS, _EIGHTS, _16S = (_U((INPUTS + plane) * LANES) for plane in range(5))
_256S = _16S + _4
_FULL = np.uint8(255)


def _compile(function: _Function) -> _Function:
    """Compile at the first call, to run without the GIL. Cache the machine code on disk if some directory allows it."""
    compile_: Any = partial(numba.njit, nogil=True, error_model="numpy")
    try:
        compiled: _Function = compile_(cache=True)(function)
    except RuntimeError:  # numba finds no directory that it can write to
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
def _ripple(state: Words, at: Number, carry: Number) -> Number:
    """Add `carry` to the four planes from `at` up; return the carry out of them."""
    a, b, c, d = state[at], state[at + _1], state[at + _2], state[at + _3]
    ab = carry & a
    abc = ab & b
    abcd = abc & c
    state[at], state[at + _1], state[at + _2], state[at + _3] = a ^ carry, b ^ ab, c ^ abc, d ^ abcd
    return abcd & d


@_compile
def _add16(state: Words) -> None:
    """Add the inputs to the planes."""
    for at in range(_U(LANES)):
        ones, twos, fours, eights = state[at + _ONES], state[at + _TWOS], state[at + _FOURS], state[at + _EIGHTS]
        ones, twos, fours, a = _add8(state, at, ones, twos, fours)
        ones, twos, fours, b = _add8(state, at + _8, ones, twos, fours)
        state[at + _ONES], state[at + _TWOS], state[at + _FOURS] = ones, twos, fours
        state[at + _EIGHTS], carry = _csa(eights, a, b)
        carry = _ripple(state, at + _16S, carry)
        _ripple(state, at + _256S, carry)


@_compile
def _clear(array: NDArray[Any], begin: Number, end: Number) -> None:
    for at in range(_U(begin), _U(end)):  # compiles faster than an assignment to a slice
        array[at] = 0


@_compile
def _transpose(planes: Bytes, begin: Number, counts: Words) -> None:
    """Turn the eight planes from `begin` up into counts of one byte each (Warren, Hacker's Delight, 2012, section 7-3)."""
    for at in range(_U(SPAN)):
        word = _U(0)
        for plane in range(_U(8)):
            word |= _U(planes[begin + plane * _U(SPAN) + at]) << (_U(8) * plane)
        swap = (word ^ word >> _U(7)) & _U(0x00AA00AA00AA00AA)
        word ^= swap ^ swap << _U(7)
        swap = (word ^ word >> _U(14)) & _U(0x0000CCCC0000CCCC)
        word ^= swap ^ swap << _U(14)
        swap = (word ^ word >> _U(28)) & _U(0x00000000F0F0F0F0)
        counts[at] = word ^ swap ^ swap << _U(28)


@_compile
def _read(state: Words, period: Number, cells: Counts) -> None:
    """Move each column's count from the planes to its cell. Columns `period` apart share a cell."""
    counts = np.empty(SPAN, np.uint64)
    small = counts.view(np.uint8)
    for shift in range(0, PLANES, 8):
        _transpose(state.view(np.uint8), _U((INPUTS + shift) * SPAN), counts)
        for begin in range(_U(0), _U(64 * LANES - len(cells) + 1), _U(period)):
            for cell in range(_U(len(cells))):
                cells[cell] += np.int64(small[begin + cell]) << shift
    _clear(state, BLOCK, STATE)


@_compile
def _copy(source: Bytes, begin: Number, target: Bytes, at: Number, size: Number) -> None:
    for byte in range(_U(size)):
        target[_U(at) + byte] = source[_U(begin) + byte]


@_compile
def _popcount_one_row(payloads: Bytes, size: Number, cells: Counts) -> None:
    stride = max(1, SPAN // size) * size
    for skip in range(0, size, SPAN):
        own = cells[8 * skip : 8 * (skip + SPAN)]
        line = min(stride - skip, SPAN)
        state = np.zeros(STATE, np.uint64)
        target = state.view(np.uint8)
        lines = 0
        for begin in range(skip, len(payloads), stride):
            at = lines % INPUTS * SPAN
            present = min(line, len(payloads) - begin)
            _copy(payloads, begin, target, at, present)
            _clear(target, at + present, at + line)
            lines += 1
            if lines % INPUTS == 0:
                _add16(state)
                if lines == FULL:
                    _read(state, 8 * size, own)
                    lines = 0
        _clear(state, lines % INPUTS * LANES, BLOCK)
        _add16(state)
        _read(state, 8 * size, own)


@_compile
def _word(payloads: Bytes, at: Number) -> Number:
    """Read 8 bytes as a word. LLVM makes this a single load."""
    word = _U(0)
    for byte in range(_U(8)):
        word |= _U(payloads[at + byte]) << (_U(8) * byte)
    return word


def _typed_count_word(_: Any, counters: Any, _at: Any, payloads: Any, _bits: Any) -> tuple[Any, Callable[..., Any]]:
    """Add the 64 bits that begin at a byte of `payloads` to the counters that begin at word `at`."""
    # LLVM does not vectorise so short a loop, so the vectors are written by hand.

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        byte, number, word = ir.IntType(8), ir.IntType(32), ir.IntType(64)
        lanes, order = ir.VectorType(word, 8), ir.VectorType(number, 8)

        def pointer(argument: int, offset: Any, type_: Any) -> Any:
            array = context.make_array(signature.args[argument])(context, builder, arguments[argument])
            return builder.bitcast(builder.gep(array.data, [offset]), type_.as_pointer())

        fetch = ir.FunctionType(ir.VoidType(), [byte.as_pointer(), number, number, number])
        ahead = pointer(2, builder.add(arguments[3], word(_PREFETCH)), byte)
        builder.call(
            builder.module.declare_intrinsic("llvm.prefetch", (byte.as_pointer(),), fetch),
            [ahead, number(0), number(3), number(1)],  # to read, to keep near, data
        )
        bits = builder.load(pointer(2, arguments[3], word))
        bits.align = 1
        bits = builder.insert_element(lanes(ir.Undefined), bits, number(0))
        bits = builder.shuffle_vector(bits, lanes(ir.Undefined), order([0] * 8))
        bits = builder.and_(builder.lshr(bits, lanes(list(range(8)))), lanes([0x0101010101010101] * 8))
        target = pointer(0, arguments[1], lanes)
        before = builder.load(target)
        before.align = 8
        builder.store(builder.add(before, bits), target).align = 8
        return context.get_dummy_value()

    return numba.void(counters, numba.uint64, payloads, numba.uint64), build


_count_word: Any = intrinsic(_typed_count_word)


@_compile
def _count_reports(
    payloads: Bytes,
    at: Number,
    end: Number,
    row_size: Number,
    size: Number,
    counters: Words,
    own: Number,
    seen: Bytes,
) -> tuple[Number, Number]:
    """Count reports until one row's counters (`own` words) are full; return where that report ends, and the row."""
    row_mask = (_U(1) << (_U(8) * row_size)) - _U(1)
    row = _U(0)
    while at < end:
        row = _word(payloads, at) & row_mask
        bits = at + row_size
        target = row * own
        stop = target + own
        if own & _U(8):
            _count_word(counters, target, payloads, bits)
            bits += _U(8)
            target += _U(8)
        while target < stop:  # two at a time is a quarter faster
            _count_word(counters, target, payloads, bits)
            _count_word(counters, target + _U(8), payloads, bits + _U(8))
            bits += _U(16)
            target += _U(16)
        at += size
        seen[row] = after = np.uint8(seen[row] + np.uint8(1))
        if after == _FULL:
            break
    return at, row


@_compile
def _empty(counters: Words, begin: Number, own: Number, cells: Counts, row: Number) -> None:
    """Move the counters of `row` to its cells."""
    width = _U(cells.shape[1])
    for cell in range(width):
        lane = begin + ((cell >> _U(6)) << _U(3) | cell & _U(7))
        cells[row, cell] += np.int64(counters[lane] >> (cell & _U(56)) & _U(255))
    _clear(counters, begin, begin + own)


@_compile
def _popcount_rows(payloads: Bytes, tail: Bytes, row_size: Number, size: Number, cells: Counts, reports: Counts) -> None:
    rows, width = cells.shape
    own = _U((width + 63) // 64 * 8)
    memory = np.zeros(rows * own + 8, np.uint64)
    counters = memory[(64 - memory.ctypes.data % 64) // 8 :]  # a vector across two cache lines takes twice as long
    seen = np.zeros(rows, np.uint8)
    for part in (payloads, tail):
        at, end = _U(0), _U(max(0, len(part) - AHEAD) // size * size)
        while at < end:
            at, row = _count_reports(part, at, end, _U(row_size), _U(size), counters, own, seen)
            if seen[row] == _FULL:
                _empty(counters, row * own, own, cells, row)
                reports[row] += 255
                seen[row] = 0
    for row in range(_U(rows)):
        if seen[row]:
            _empty(counters, row * own, own, cells, row)
            reports[row] += seen[row]


@_compile
def popcount(payloads: Bytes, tail: Bytes, row_size: Number, size: Number, cells: Counts, reports: Counts) -> None:
    """Add the bits and the reports of `payloads`; see `deniable_aggregator.tally.kernels.popcount`."""
    # With many rows, only reports of `payloads` with `AHEAD` bytes after them are counted, and then those of `tail`.
    if row_size == 0:
        reports[0] += len(payloads) // size
        _popcount_one_row(payloads, size, cells[0])
    else:
        _popcount_rows(payloads, tail, row_size, size, cells, reports)


@_compile
def histogram(numbers: NDArray[Any], cells: Counts) -> None:
    """Add 1 to ``cells[number]`` for each of `numbers`, an array of an unsigned type."""
    pairs = len(numbers) // 2 if len(numbers) > len(cells) else 0
    if pairs:
        # An increment waits for the last one of the same cell. Two tables in turn halve the wait if one value is common. Narrow
        # counters keep them in the cache. Neither table gets 2**32 numbers.
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
    """Like `histogram`, for numbers of three bytes: four of them in each three `words`, the last few in `tail`."""
    low = np.uint32(0xFFFFFF)
    for at in range(_U(0), _U(len(words)), _U(3)):
        first, second, third = words[at], words[at + _U(1)], words[at + _U(2)]
        counts[first & low] += 1
        counts[(first >> np.uint32(24) | second << np.uint32(8)) & low] += 1
        counts[(second >> np.uint32(16) | third << np.uint32(16)) & low] += 1
        counts[third >> np.uint32(8)] += 1
    for at in range(_U(0), _U(len(tail)), _U(3)):
        counts[_U(tail[at]) | _U(tail[at + _U(1)]) << _U(8) | _U(tail[at + _U(2)]) << _U(16)] += 1
