"""The compiled counting of weights: eight bytes at a time, with one popcount instruction for each word."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from deniable_aggregator.tally.compiled import _compile, _word

if TYPE_CHECKING:
    from deniable_aggregator.tally.compiled import Bytes, Counts, Number

_U = np.uint64


@_compile
def _ones(word: Number) -> Number:
    """Count the ones of a word. LLVM turns this idiom into one instruction (Hacker's Delight, 2012, section 5-1)."""
    word -= word >> _U(1) & _U(0x5555555555555555)
    word = (word & _U(0x3333333333333333)) + (word >> _U(2) & _U(0x3333333333333333))
    word = word + (word >> _U(4)) & _U(0x0F0F0F0F0F0F0F0F)
    return word * _U(0x0101010101010101) >> _U(56)


@_compile
def count(payloads: Bytes, row_size: Number, size: Number, cells: Counts) -> None:
    """Add 1, for each report, to the cell of its number of ones; see `deniable_aggregator.tally.set_bits.count`."""
    step = _U(size)
    for begin in range(_U(row_size), _U(len(payloads)), step):
        end = begin + step - _U(row_size)
        at, weight = _U(begin), _U(0)
        while at + _U(8) <= end:
            weight += _ones(_word(payloads, at))
            at += _U(8)
        word, shift = _U(0), _U(0)
        while at < end:
            word |= _U(payloads[at]) << shift
            shift += _U(8)
            at += _U(1)
        cells[weight + _ones(word)] += 1
