"""Hadamard response: name a column of a Hadamard matrix, more likely one where the true value's row is +1."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

from deniable.exact.epsilon import UNIT, weight
from deniable.mechanisms.base import TwoSided
from deniable.mechanisms.bounds import Bounds
from deniable.wire.layout import Layout

if TYPE_CHECKING:
    from deniable.source import Source


def column(row: int, choice: int, inside: int) -> int:
    """Return the column number `choice` of those where a row of the Hadamard matrix is +1 (`inside` is 1) or -1 (0)."""
    # The row's number and the column's number have common bits. Their parity decides the sign. The column's bit at the lowest bit
    # of the row is set so that the sign is right. The other bits of the column are `choice`.
    lowest = row & -row
    number = choice + (choice & -lowest)  # the bits of `choice`, with a 0 inserted at the lowest bit of the row
    return number | lowest if (number & row).bit_count() & 1 == inside else number


class Hadamard(TwoSided):
    """Hadamard response with one block: K = 2^ceil(log2(d + 1)) columns, half of them in the set of each value.

    Value v owns row v + 1 of the K x K Hadamard matrix; row 0 is constant. The set of v is the columns y with H[v + 1, y] = +1,
    that is, where v + 1 and y have an even number of common bits. Any two sets share exactly a quarter of the columns. A column
    of the set is e^eps times as likely as one outside. The mechanism is nearly optimal for eps up to 1. It has the smallest
    reports, and decoding takes K log K steps.

    References
    ----------
    J. Acharya, Z. Sun, H. Zhang: Hadamard response. AISTATS 2019, section 3.
    """

    name = "hadamard"
    summary = "name a column of a Hadamard matrix, with odds e^epsilon one where the value's row is +1"

    _true_weight: int

    def _parameters(self) -> dict[str, Any]:
        true_weight = weight(self.requested)
        return {
            "ratio": Fraction(true_weight, UNIT),
            "p": Fraction(true_weight, true_weight + UNIT),
            "q": Fraction(1, 2),
            "layout": Layout(1, 1 << self.domain_size.bit_length(), "index"),
            "_true_weight": true_weight,
        }

    @property
    def constants(self) -> dict[str, Any]:
        """The probability of a column of the set."""
        return {"keep": self.p}

    def noise(self, source: Source, count: int) -> list[Any]:
        """Draw whether each report names a column of the set, and which one of the K/2 columns on that side."""
        sides = source.bits(self._true_weight, self._true_weight + UNIT, count)
        return list(zip(sides, source.indices(self.layout.width // 2, count), strict=True))

    def respond(self, value: int, noise: Any) -> bytes:
        """Return the drawn column on the drawn side."""
        side, choice = noise
        return column(value + 1, choice, side & 1).to_bytes(self.layout.payload_size, "little")  # ord("1") is odd: inside

    def supported(self, payload: bytes) -> set[int]:
        """Return the values whose set has the reported column."""
        column = self.layout.unpack(payload)[1]
        return {value for value in range(self.domain_size) if not ((value + 1) & column).bit_count() & 1}

    @property
    def unused(self) -> int:
        """The rows that no value has, but for the constant one."""
        return self.layout.width - 1 - self.domain_size

    def bounds(self) -> Bounds:
        """Return the bounds of a column's probability."""
        half = self.layout.width // 2
        return Bounds((1 - self.p) / half, self.p / half)
