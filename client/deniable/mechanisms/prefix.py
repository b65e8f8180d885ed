"""Prefix trees: how answers that nobody listed are found, a few bits at a time.

Each device tells of a prefix of its answer, of a length drawn at random whatever the answer is. Short prefixes are few enough to
try all of them; those that turn out common are lengthened by all of the next few bits, tried on the devices that told of that
length, and so on to the whole answer. `deniable_aggregator.decode.discovery` does this.

The people are split among the lengths, not the epsilon: a device sends a single report, about a single prefix, with all of it.
Half the epsilon would cost far more than half of the people. So the epsilon of a report is exactly the one declared.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from fractions import Fraction
from math import isqrt
from typing import Any, ClassVar

from deniable.errors import ParameterError
from deniable.exact.epsilon import UNIT, weight
from deniable.exact.hashing import PoolFamily
from deniable.mechanisms.sketch import FastLocalHash, best_width
from deniable.wire.layout import Layout

__all__ = ["GOLDEN", "MAX_STEP", "MULTIPLIERS", "Pem", "PrefixTree", "TreeHist", "extend"]

MAX_CELLS = 1 << 20
"""Cells of the largest tally, which must be small enough to be fetched whenever somebody reads."""

MAX_STEP = 20
"""Most bits that a level adds: for each of the prefixes kept, the search tries every way to go on."""

_ROWS = 4096
_WORD = (1 << 64) - 1

GOLDEN = 0x9E3779B97F4A7C15
MULTIPLIERS = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
"""Constants of `extend`: part of what device and decoder share, never to change."""


def extend(key: int, chunk: int) -> int:
    """Return the 64-bit key of a prefix that goes on with `chunk` after one that has `key`.

    A bijection of the chunk, below 2^64 - 1, for any key: prefixes of one parent never collide, and others do only by chance of
    2^-64. The mixing is the finaliser of splitmix64.

    References
    ----------
    G. L. Steele, D. Lea, C. H. Flood: Fast splittable pseudorandom number generators. OOPSLA 2014, figure 17.
    """
    word = key + (chunk + 1) * GOLDEN & _WORD
    word = (word ^ word >> 30) * MULTIPLIERS[0] & _WORD
    word = (word ^ word >> 27) * MULTIPLIERS[1] & _WORD
    return word ^ word >> 31


@dataclass(frozen=True, kw_only=True)
class PrefixTree(FastLocalHash):
    """What searches by prefix share: the reports.

    A device draws a row. The row belongs to a *level*, which says how long a prefix to tell of, and is a random hash function, of
    which it answers one of `width` cells: fast local hashing, of prefixes. The last level is the *confirmation*: the whole
    answer of devices that had no part in the search, so that what is published of a value found is not what made it be found.

    Parameters
    ----------
    domain_size
        Values are numbers of B bits, the least number of them that holds the domain; a prefix is the highest bits.
    step
        Bits by which a level's prefixes are longer than those of the level before; by default 8.
    start
        Bits of the shortest prefixes; by default 16 (``pem``) or 8 (``tree_hist``).
    rows
        Hash functions of all levels together; by default 4,096, or as many as make a tally of 2^20 cells.
    confirm
        Share of the devices whose reports confirm what those of the others show, in (0, 1); by default 1/4 (``pem``) or 1/2.

    Notes
    -----
    Each of L levels has (1 - confirm) / L of the devices, and a value passes it whose frequency is above z standard errors there,
    where noise of as many of the keep * 2^step candidates as are kept reaches z. So longer steps find rarer values, but hardly:
    by a twentieth from 8 bits to 12, where the search tries sixteen times as many prefixes.

    Attributes
    ----------
    bits : int
        B.
    lengths : tuple of int
        Bits of the prefix that each level tells of; the last two levels have all B, one for the search and one to confirm.
    first_rows : tuple of int
        First row of each level, then `rows`. Each row is equally likely.
    width : int
        Cells: the whole number of least variance, near e^eps + 1.
    other : Fraction
        Probability that a payload supports a given value whose prefix does not collide with the true one's.
    """

    options = ("step", "start", "rows", "confirm")

    _STEP: ClassVar[int] = 8
    _START: ClassVar[int]
    _CONFIRM: ClassVar[str]

    family: PoolFamily = None  # type: ignore[assignment] # never another, and set with the other parameters
    step: int = 0
    start: int = 0
    confirm: float | str | Fraction = 0
    bits: int = 0
    lengths: tuple[int, ...] = ()
    first_rows: tuple[int, ...] = ()
    _chunks: tuple[tuple[tuple[int, int], ...], ...] = ()

    def _parameters(self) -> dict[str, Any]:
        kept = weight(self.requested)
        width = best_width(kept, isqrt(MAX_CELLS))
        lengths, first_rows = self._levels(width)
        bits, rows = lengths[-1], first_rows[-1]
        parts = tuple((bits - to, (1 << to - since) - 1) for since, to in zip((0, *lengths), lengths[:-1], strict=False))
        total = kept + (width - 1) * UNIT
        return {
            "ratio": Fraction(kept, UNIT),
            "p": Fraction(kept, total),
            "q": Fraction(1, width),  # for a value of no common prefix, on average over random functions
            "other": Fraction(UNIT, total),
            "layout": Layout(rows, width, "index"),
            "family": PoolFamily(self.name, rows, width),
            "bits": bits,
            "lengths": lengths,
            "first_rows": first_rows,
            "width": width,
            "rows": rows,
            "_kept": kept,
            "_chunks": (*(parts[: level + 1] for level in range(len(parts))), parts),
        }

    def _levels(self, width: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Cut the bits into levels, and the rows among them."""
        bits = (self.domain_size - 1).bit_length()
        for name, default in (("step", self._STEP), ("start", self._START)):
            given = getattr(self, name)
            if isinstance(given, bool) or not isinstance(given, int) or not 0 <= given <= MAX_STEP:
                raise ParameterError(f"{name} is a whole number of bits from 1 to {MAX_STEP}", given)
            self._set(**{name: given or default})
        if isinstance(self.rows, bool) or not isinstance(self.rows, int) or self.rows < 0:
            raise ParameterError("rows is a whole number of at least 2", self.rows)
        rows = self.rows or min(_ROWS, MAX_CELLS // width)
        if rows * width > MAX_CELLS:
            raise ParameterError(f"the tally of a search has at most {MAX_CELLS} cells", f"{rows} x {width}")
        lengths = (*range(min(self.start, bits), bits, self.step), bits)
        if rows <= len(lengths):
            raise ParameterError(f"each of {len(lengths)} levels, and the confirmation, has a row at least", rows)
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
            raise ParameterError("confirm is a share of the devices, between 0 and 1", self.confirm)
        return share

    @property
    def constants(self) -> dict[str, Any]:
        """The same as of fast local hashing, and what each level tells of."""
        return super().constants | {"bits": self.bits, "lengths": self.lengths, "bounds": self.first_rows}

    @property
    def canonical(self) -> str:
        """All that device and decoder must agree on."""
        levels = " ".join(f"{length}:{row}" for length, row in zip(self.lengths, self.first_rows, strict=False))
        return f"{super().canonical} {levels}"

    @property
    def chosen(self) -> dict[str, Any]:
        """The options with the values they have."""
        return {name: getattr(self, name) for name in self.options}

    @property
    def confirming(self) -> Fraction:
        """Share of the devices whose reports confirm."""
        return Fraction(self.rows - self.first_rows[-2], self.rows)

    def level(self, row: int) -> int:
        """Return the level that a row belongs to."""
        return bisect_right(self.first_rows, row) - 1

    def key(self, level: int, value: int) -> int:
        """Return the 64-bit key of the prefix of a value that a level tells of."""
        made = 0
        for shift, mask in self._chunks[level]:
            made = extend(made, value >> shift & mask)
        return made

    def place(self, row: int, value: int) -> int:
        """Hash the prefix that a row's level tells of."""
        return self.family.hash(row, self.key(bisect_right(self.first_rows, row) - 1, value))

    def variance(self, frequency: float, n: int) -> float:
        """Compute the variance of the estimated frequency of a value found, to first order in 1 / n.

        Only the devices that confirm are asked: n times their share of reports, a random sample of the n respondents.
        """
        share = float(self.confirming)
        return (super().variance(frequency, 1) + (1 - share) * frequency * (1 - frequency)) / (n * share)

    def confusion(self, squares: float) -> float:
        """Compute what the pool adds to the variance of a confirmed frequency, if no other value were accounted for."""
        return squares / ((self.rows - self.first_rows[-2]) * (self.width - 1))


class Pem(PrefixTree):
    """Prefix extending method: at each level the search keeps a fixed number of prefixes, the most frequent ones.

    References
    ----------
    T. Wang, N. Li, S. Jha: Locally differentially private heavy hitter identification. IEEE TDSC 18(2), 2021 (online 2019);
    arXiv 1708.06674, section 4.
    """

    name = "pem"
    summary = "hash the value up to a random place into a few cells by a public function, name the cell with odds e^epsilon"

    _START = 16
    _CONFIRM = "0.25"


class TreeHist(PrefixTree):
    """TreeHist: at each level the search keeps the prefixes that stand out of the noise, and half of the devices confirm.

    It finds less than ``pem``, and what it finds is there. The paper's tree is binary, which is ``step = 1``: the level that each
    device tells of is then one of very many. There a device sends two reports, of a prefix and of its whole answer, each with
    half of the epsilon; here half of the devices send the one and half the other, each with all of it.

    References
    ----------
    R. Bassily, K. Nissim, U. Stemmer, A. Thakurta: Practical locally private heavy hitters. NeurIPS 2017, section 3; JMLR 21(16),
    2020.
    """

    name = "tree_hist"
    summary = "hash the value, or half of the time its beginning, into a few cells, name the cell with odds e^epsilon"

    _START = 8
    _CONFIRM = "0.5"
