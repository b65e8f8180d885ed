"""Randomness, from the operating system's generator only.

A mechanism never asks for a random float. It asks a `Source` for events of exact rational probability. So the same code draws
from the operating system's generator in production, and from a tape with every possible draw in a proof.
"""

from __future__ import annotations

import mmap
import os
import sys
from abc import ABC, abstractmethod
from array import array
from functools import lru_cache
from itertools import chain, combinations, zip_longest
from math import comb, isqrt
from typing import TYPE_CHECKING

from deniable.platform.forks import at_fork

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = ["OS", "OsSource", "Source", "jitter", "mark_process", "process_mark"]

ONE, ZERO, TIE = b"1", b"0", b"?"
"""How `Source.bits` writes a drawn bit; ``int(digits, 2)`` reads them all at once."""

_BYTE = 256
_HIGHER = 1 if sys.byteorder == "little" else 0  # position of the higher byte of a 16-bit number in memory


class Source(ABC):
    """A source of exact randomness.

    A subclass defines `bernoulli` and `below`. All other methods use these two, one draw at a time. A subclass may override
    them with faster ones of the same distribution.
    """

    @abstractmethod
    def bernoulli(self, num: int, den: int) -> bool:
        """Draw an event of probability ``num / den``, exactly.

        Parameters
        ----------
        num, den
            Integers with ``0 <= num <= den`` and ``den >= 1``.
        """

    @abstractmethod
    def below(self, n: int) -> int:
        """Draw an integer uniformly from [0, n), exactly; ``n >= 1``."""

    def bits(self, num: int, den: int, count: int) -> bytes:
        """Draw `count` independent events of probability ``num / den``.

        Returns
        -------
        bytes
            `count` digits, each ``b"1"`` where the event happened and ``b"0"`` where it did not.
        """
        return b"".join(ONE if self.bernoulli(num, den) else ZERO for _ in range(count))

    def words(self, num: int, den: int, width: int, count: int) -> list[int]:
        """Draw `count` integers of `width` independent bits, each 1 with probability ``num / den``.

        Returns
        -------
        list of int
            The first draw of an integer is its highest bit.
        """
        digits = self.bits(num, den, width * count)
        return [int(digits[start : start + width], 2) for start in range(0, width * count, width)]

    def indices(self, n: int, count: int) -> list[int]:
        """Draw `count` independent integers uniformly from [0, n)."""
        return [self.below(n) for _ in range(count)]

    def subsets(self, n: int, sizes: Sequence[int]) -> list[int]:
        """Draw independent subsets of {0, ..., n - 1}, each uniformly among those of its size.

        Parameters
        ----------
        n
            Number of elements.
        sizes
            The size of each subset, in [0, n].

        Returns
        -------
        list of int
            Each subset as an integer. Its bit i is 1 if the subset has element i.

        References
        ----------
        R. W. Floyd, J. Bentley: A sample of brilliance. Communications of the ACM 30(9), 1987.
        """
        subsets = []
        for size in sizes:
            chosen = 0
            for last in range(n - size, n):
                pick = self.below(last + 1)
                chosen |= 1 << (last if chosen >> pick & 1 else pick)
            subsets.append(chosen)
        return subsets


@lru_cache(maxsize=256)
def _threshold(num: int, den: int) -> tuple[bytes, int]:
    """Return the table that decides an event of probability num / den by one uniform byte, and the numerator of the rest."""
    # The byte is compared with the first base-256 digit of the fraction. A smaller byte means that the event happened, a larger
    # one that it did not. An equal byte is a tie: the rest of the fraction decides.
    digit, remainder = divmod(_BYTE * num, den)
    return ONE * digit + (TIE + ZERO * (_BYTE - 1 - digit) if digit < _BYTE else b""), remainder


@lru_cache(maxsize=8)
def _low_bits(width: int) -> bytes:
    """Return the table that keeps the `width` lowest bits of a byte."""
    return bytes(byte & ((1 << width) - 1) for byte in range(_BYTE))


@lru_cache(maxsize=256)
def _modulo(n: int) -> tuple[bytes, bytes]:
    """Return what turns a uniform byte into a uniform number below n: the table of remainders, and the bytes to reject."""
    limit = _BYTE - _BYTE % n
    return bytes(byte % n for byte in range(_BYTE)), bytes(range(limit, _BYTE))


_LISTED = 2048  # with at most so many subsets, drawing from a list of all is faster than drawing elements
_SPARSE = 5  # if at most one in so many elements is chosen, drawing them is faster than tossing a coin for each element


@lru_cache(maxsize=256)
def _few(n: int, size: int) -> bool:
    return comb(n, size) <= _LISTED


@lru_cache(maxsize=64)
def _all_subsets(n: int, size: int) -> list[int]:
    return [sum(1 << element for element in elements) for elements in combinations(range(n), size)]


_COIN_DIGITS = 6  # more digits would come closer to the best bias, but cost more than they save


@lru_cache(maxsize=256)
def _subset_coins(n: int, size: int) -> tuple[int, int]:
    """Return the bias of the coins of a subset, in sixty-fourths, and about how many picks correct its size."""
    # Let the subset have the share f of n elements. Adding an element takes 1 / (1 - f) picks on average, removing one takes 1 /
    # f. So the fewest picks are needed if the coins choose too many elements with probability f. By the normal quantile, their
    # mean is then about 2.65 (1/2 - f) standard deviations below the size. For sparse subsets picks alone are faster: the bias is
    # 0.
    if _SPARSE * size <= n:
        return 0, size + size * size // n + 1
    deviation = isqrt(size * (n - size) // n)
    target = size - 53 * (n - 2 * size) * deviation // (40 * n)
    sides = 1 << _COIN_DIGITS
    return min(max((sides * target + n // 2) // n, 1), sides - 1), 2 * deviation + n // sides + 2


def _first_distinct(n: int, size: int, picks: Iterator[int]) -> int:
    """Return the set of the first `size` distinct elements of a sequence of uniform ones."""
    digits, (zero, one) = bytearray(ZERO * n), ZERO + ONE
    if size:
        for pick in picks:
            if digits[~pick] == zero:
                digits[~pick] = one
                size -= 1
                if not size:
                    break
    return int(digits, 2)


class OsSource(Source):
    """The operating system's cryptographic generator (`os.urandom`), with exact probabilities.

    A byte decides an event 255 times in 256. Otherwise it ties with a digit of the probability, and the next byte is compared
    with the next digit. So no probability is ever rounded. If the operating system gives no randomness, its error is raised, and
    no report is made.
    """

    def bernoulli(self, num: int, den: int) -> bool:
        """Draw an event of probability ``num / den``, exactly."""
        return self.bits(num, den, 1) == ONE

    def below(self, n: int) -> int:
        """Draw an integer uniformly from [0, n), by rejection."""
        width = (n - 1).bit_length()
        size = (width + 7) // 8
        excess = 8 * size - width
        while True:
            number = int.from_bytes(os.urandom(size), "little") >> excess
            if number < n:
                return number

    def bits(self, num: int, den: int, count: int) -> bytes:
        """Draw `count` independent events, with about one random byte for each."""
        table, remainder = _threshold(num, den)
        digits = os.urandom(count).translate(table)
        if TIE not in digits:
            return digits
        if not remainder:  # the fraction ends with this digit, so an equal byte is not below it
            return digits.replace(TIE, ZERO)
        pieces = digits.split(TIE)
        ties = self.bits(remainder, den, len(pieces) - 1)
        return b"".join(chain.from_iterable(zip_longest(pieces, (ties[i : i + 1] for i in range(len(ties))), fillvalue=b"")))

    def indices(self, n: int, count: int) -> list[int]:
        """Draw `count` uniform integers with few calls to the operating system."""
        if n == 1:
            return [0] * count
        numbers: list[int] = []
        if n <= _BYTE:
            remainder, rejected = _modulo(n)
            while len(numbers) < count:  # `translate` deletes rejected bytes and takes the others modulo n, all in C
                numbers += os.urandom(count - len(numbers)).translate(remainder, rejected)
            return numbers
        if n <= _BYTE * _BYTE:
            low_bits = _low_bits((n - 1).bit_length() - 8)
            while len(numbers) < count:  # pairs of bytes; the higher one keeps as many bits as n needs
                pairs = bytearray(os.urandom(2 * (count - len(numbers))))
                pairs[_HIGHER::2] = pairs[_HIGHER::2].translate(low_bits)
                numbers += [pair for pair in memoryview(pairs).cast("H") if pair < n]
            return numbers
        span = 1 << 64
        if n > span:
            return [self.below(n) for _ in range(count)]
        limit = span - span % n
        while len(numbers) < count:
            words = array("Q", os.urandom(8 * (count - len(numbers))))
            numbers += [word % n for word in words if word < limit]
        return numbers

    def subsets(self, n: int, sizes: Sequence[int]) -> list[int]:
        """Draw uniform subsets by the fastest of three ways."""
        # - If there are few subsets: from a list of all.
        # - If the subsets are sparse: element by element.
        # - Otherwise: a coin for each element; then elements are added or removed until the size is right.
        #
        # The last way is exact, whatever the bias of the coins. Given its size, a set of independent, equally likely elements is
        # uniform among the sets of that size. Adding a uniform element from outside, or removing a uniform one from inside, keeps
        # it uniform. The bias only decides how many elements must be added or removed.
        if all(_few(n, size) for size in set(sizes)):
            listed = {size: _all_subsets(n, size) for size in set(sizes)}
            chosen_of = {size: iter(self.indices(len(all_), sizes.count(size))) for size, all_ in listed.items()}
            return [listed[size][next(chosen_of[size])] for size in sizes]
        largest = max(sizes)
        coins, mends = _subset_coins(n, largest)
        picks = chain.from_iterable(iter(lambda: self.indices(n, mends * len(sizes)), None))
        if not coins:
            return [_first_distinct(n, size, picks) for size in sizes]
        stride = (n + 7) // 8
        tossed = self._toss(coins, stride * len(sizes))
        everything = (1 << n) - 1
        subsets = []
        for number, size in enumerate(sizes):
            chosen = int.from_bytes(tossed[number * stride : (number + 1) * stride], "little") & everything
            missing = size - chosen.bit_count()
            old, missing = (0, missing) if missing > 0 else (1, -missing)
            if missing:
                for pick in picks:
                    if chosen >> pick & 1 == old:
                        chosen ^= 1 << pick
                        missing -= 1
                        if not missing:
                            break
            subsets.append(chosen)
        return subsets

    def _toss(self, coins: int, size: int) -> bytes:
        """Draw `size` bytes of independent bits; each bit is 1 with probability ``coins / 64``."""
        bits = 0
        # The probability has six binary digits. Go from the last digit to the first. An "and" with random bits halves the
        # probability so far. An "or" halves it and adds a half; it is used if the digit is 1.
        for digit in range((coins & -coins).bit_length() - 1, _COIN_DIGITS):
            plane = int.from_bytes(os.urandom(size), "little")
            bits = bits | plane if coins >> digit & 1 else bits & plane
        return bits.to_bytes(size, "little")


OS = OsSource()
"""The source that devices use."""


def jitter(longest: float) -> float:
    """Draw a time from [0, longest) seconds."""
    return longest * OS.below(1 << 16) / (1 << 16)


# Noise is drawn ahead. A forked copy of this process must not use the same noise. So each process has its own mark.

_WIPE_ON_FORK = 18  # MADV_WIPEONFORK of Linux 4.14 and later; `mmap` has no name for it
_BLANK = bytes(16)


def _wiped_by_forks() -> memoryview | None:
    """Return memory that the kernel clears in every forked child, also after a fork by C code; None if it cannot do so."""
    if sys.platform != "linux":
        return None
    try:
        page = mmap.mmap(-1, mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        page.madvise(_WIPE_ON_FORK)
    except (OSError, ValueError):
        return None
    return memoryview(page)[: len(_BLANK)]


_page = _wiped_by_forks()

process_mark: Callable[[], object] = os.getpid if _page is None else _page.tobytes
"""Return the mark of this process. The processes that it was forked from have other marks, and so have their other children.

It is a random number on a page of memory that the kernel clears in a forked child. It needs no system call and no hook of Python,
which a fork by C code does not call. Without such a page, the mark is the process id.
"""


def mark_process() -> object:
    """Return the mark of this process; draw one if it has none yet."""
    while (mark := process_mark()) == _BLANK and _page is not None:
        _page[:] = os.urandom(len(_BLANK))
    return mark


def _clear_mark() -> None:
    """Clear the mark in a forked child. The kernel does this, but an emulator may not."""
    if _page is not None:
        _page[:] = _BLANK


at_fork(in_child=_clear_mark)
