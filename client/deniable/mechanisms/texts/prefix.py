"""Prefix trees: they find common answers that nobody listed, a few bits at a time.

Each device reports about a prefix of its answer. The length of the prefix is drawn at random and does not depend on the answer.
There are few short prefixes, so the search tries all of them. It extends the common ones by a few bits in all ways, and tests
these on the devices that reported about that length. It goes on until it has whole answers. This search is
`deniable_aggregator.decode.search.discovery`.

The devices are split among the lengths, the epsilon is not: a device sends one report about one prefix with the whole epsilon.
Half of the epsilon would cost far more than half of the devices. So the epsilon of a report is exactly the declared one.
"""

from __future__ import annotations

from bisect import bisect_right
from fractions import Fraction
from itertools import pairwise
from math import isqrt
from typing import Any, ClassVar

from deniable.errors import ParameterError
from deniable.exact.epsilon import UNIT, weight
from deniable.exact.hashing import PoolFamily
from deniable.frozen import dataclass
from deniable.mechanisms.texts.sketch import FastLocalHash, best_width
from deniable.wire.layout import Layout

MAX_CELLS = 1 << 20
"""Most cells of a tally. It must be small enough to be read for each query."""

MAX_STEP = 20
"""Most bits that a level adds. The search extends each kept prefix by these bits in all ways."""

_ROWS = 4096
_WORD = (1 << 64) - 1

GOLDEN = 0x9E3779B97F4A7C15
MULTIPLIERS = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
"""Constants of `extend`. Device and decoder share them, so they must never change."""


def extend(key: int, chunk: int) -> int:
    """Return the 64-bit key of a prefix from the `key` of its parent and the `chunk` of bits that follow."""
    # For any key this is a bijection of chunks below 2^64 - 1. So prefixes of one parent never collide. Other prefixes collide
    # with probability 2^-64. The mixing is the finaliser of splitmix64.
    # G. L. Steele and others: Fast splittable pseudorandom number generators. OOPSLA 2014, figure 17.
    word = key + (chunk + 1) * GOLDEN & _WORD
    word = (word ^ word >> 30) * MULTIPLIERS[0] & _WORD
    word = (word ^ word >> 27) * MULTIPLIERS[1] & _WORD
    return word ^ word >> 31


@dataclass(frozen=True, kw_only=True)
class PrefixTree(FastLocalHash):
    """The base of searches by prefix: the reports.

    A device draws a row. The row belongs to a *level*, which has a length of prefixes. The row is also a random hash function,
    which hashes the prefix to one of `width` cells. The device reports this cell as in fast local hashing. The last level is the
    *confirmation*: its devices report about their whole answer and have no part in the search. So the reports that found a value
    are not those from which its frequency is estimated.
    """

    # Each of L levels has (1 - confirm) / L of the devices. A value passes a level if its frequency is above z standard errors.
    # There are keep * 2^step candidates, and z is such that noise lifts only `keep` of them above it. So longer steps find rarer
    # values, but not by much: 12 bits instead of 8 gain a twentieth and try sixteen times as many prefixes.

    part = "level of the search"
    searches = True
    stands_out: ClassVar[bool] = False
    """Whether the search keeps only prefixes that stand out of the noise."""
    options = ("step", "start", "rows", "confirm")

    _STEP: ClassVar[int] = 8
    _START: ClassVar[int]
    _CONFIRM: ClassVar[str]

    family: PoolFamily = None  # type: ignore[assignment] # always a pool; set with the other parameters
    step: int = 0  # bits that each level adds to the prefixes of the level before; by default 8
    start: int = 0  # bits of the shortest prefixes; by default 16 (`pem`) or 8 (`tree_hist`)
    confirm: float | str | Fraction = 0  # share of devices that confirm, in (0, 1); by default 1/4 (`pem`) or 1/2 (`tree_hist`)
    bits: int = 0  # of a value: as few as hold the domain; a prefix is the highest of them
    # Bits of each level's prefixes. The last two levels have all bits: one for the search and one for the confirmation.
    lengths: tuple[int, ...] = ()
    first_rows: tuple[int, ...] = ()  # first row of each level, then `rows`; all rows are equally likely
    _chunks: tuple[tuple[tuple[int, int], ...], ...] = ()

    def _parameters(self) -> dict[str, Any]:
        true_weight = weight(self.requested)
        width = best_width(true_weight, isqrt(MAX_CELLS))
        lengths, first_rows = self._levels(width)
        bits, rows = lengths[-1], first_rows[-1]
        parts = tuple((bits - to, (1 << to - since) - 1) for since, to in zip((0, *lengths), lengths[:-1], strict=False))
        total = true_weight + (width - 1) * UNIT
        return {
            "ratio": Fraction(true_weight, UNIT),
            "p": Fraction(true_weight, total),
            "q": Fraction(1, width),  # for a value with another prefix, on average over random functions
            "other": Fraction(UNIT, total),
            "layout": Layout(rows, width, "index"),
            "family": PoolFamily(self.name, rows, width),
            "bits": bits,
            "lengths": lengths,
            "first_rows": first_rows,
            "width": width,
            "rows": rows,
            "_true_weight": true_weight,
            "_chunks": (*(parts[: level + 1] for level in range(len(parts))), parts),
        }

    def _levels(self, width: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Divide the bits into levels, and the rows among the levels."""
        bits = (self.domain_size - 1).bit_length()
        for name, default in (("step", self._STEP), ("start", self._START)):
            number = getattr(self, name)
            if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= MAX_STEP:
                raise ParameterError(f"{name}: write a whole number of bits from 1 to {MAX_STEP}", number)
            self._set(**{name: number or default})
        if isinstance(self.rows, bool) or not isinstance(self.rows, int) or self.rows < 0:
            raise ParameterError("rows: write a whole number of at least 2", self.rows)
        rows = self.rows or min(_ROWS, MAX_CELLS // width)
        if rows * width > MAX_CELLS:
            raise ParameterError(
                f"the tally of this search would have {rows} x {width} cells: {MAX_CELLS} are possible at most", ...
            )
        lengths = (*range(min(self.start, bits), bits, self.step), bits)
        if rows <= len(lengths):
            raise ParameterError(
                f"rows: write {len(lengths) + 1} or more, one for each of {len(lengths)} levels and for the confirmation", rows
            )
        confirming = min(max(int(rows * self._share()), 1), rows - len(lengths))
        return (*lengths, bits), (*((rows - confirming) * i // len(lengths) for i in range(len(lengths) + 1)), rows)

    def _share(self) -> Fraction:
        if self.confirm == 0:
            self._set(confirm=self._CONFIRM)
        try:
            share = Fraction(str(self.confirm))
        except (ValueError, ZeroDivisionError):
            share = Fraction(-1)
        if isinstance(self.confirm, bool) or not 0 < share < 1:
            raise ParameterError("confirm: write a share of the devices, between 0 and 1", self.confirm)
        return share

    @property
    def parts(self) -> tuple[tuple[int, ...], ...]:
        """The rows of each level, and of the confirmation, which alone tells the shares."""
        return tuple(tuple(range(first, last)) for first, last in pairwise(self.first_rows))

    @property
    def constants(self) -> dict[str, Any]:
        """The constants of fast local hashing, and the levels."""
        return super().constants | {"bits": self.bits, "lengths": self.lengths, "bounds": self.first_rows}

    @property
    def canonical(self) -> str:
        """All that device and decoder must agree on."""
        levels = " ".join(f"{length}:{row}" for length, row in zip(self.lengths, self.first_rows, strict=False))
        return f"{super().canonical} {levels}"

    @property
    def chosen(self) -> dict[str, Any]:
        """The options with their values."""
        return {name: getattr(self, name) for name in self.options}

    @property
    def confirming(self) -> Fraction:
        """Share of the devices that confirm."""
        return Fraction(self.rows - self.first_rows[-2], self.rows)

    def level(self, row: int) -> int:
        """Return the level of a row."""
        return bisect_right(self.first_rows, row) - 1

    def key(self, level: int, value: int) -> int:
        """Return the 64-bit key of a value's prefix at a level."""
        key = 0
        for shift, mask in self._chunks[level]:
            key = extend(key, value >> shift & mask)
        return key

    def place(self, row: int, value: int) -> int:
        """Return the place to which a row hashes a value's prefix."""
        return self.family.hash(row, self.key(bisect_right(self.first_rows, row) - 1, value))

    def variance(self, frequency: float, n: int) -> float:
        """Compute the variance of the estimated frequency of a found value, to first order in 1 / n."""
        # Only the devices that confirm are used. They are a random sample of the n respondents.
        share = float(self.confirming)
        return (super().variance(frequency, 1) + (1 - share) * frequency * (1 - frequency)) / (n * share)

    @property
    def worst_variance(self) -> Fraction:
        """The largest variance of one report's estimate: only the devices that confirm count."""
        return super().worst_variance / self.confirming


class Pem(PrefixTree):
    """Prefix extending method: at each level the search keeps a fixed number of prefixes, the most frequent ones.

    References
    ----------
    T. Wang, N. Li, S. Jha: Locally differentially private heavy hitter identification. IEEE TDSC 18(2), 2021, section 4.
    """

    name = "pem"
    summary = "hash the value up to a random place into a few cells by a public function, name the cell with odds e^epsilon"

    _START = 16
    _CONFIRM = "0.25"


class TreeHist(PrefixTree):
    """TreeHist: at each level the search keeps the prefixes that stand out of the noise, and half of the devices confirm.

    It finds fewer values than ``pem``, but hardly any that is not there. The paper's tree is binary, which is ``step = 1`` and
    has very many levels. In the paper a device sends two reports, about a prefix and about its whole answer, each with half of
    the epsilon. Here half of the devices send one and half send the other, each with the whole epsilon.

    References
    ----------
    R. Bassily and others: Practical locally private heavy hitters. NeurIPS 2017, section 3; JMLR 21(16), 2020.
    """

    name = "tree_hist"
    summary = "hash the value, or half of the time its beginning, into a few cells, name the cell with odds e^epsilon"

    stands_out = True
    _START = 8
    _CONFIRM = "0.5"
