"""Hadamard response with blocks: name a block, and a column of a small Hadamard matrix."""

from __future__ import annotations

from fractions import Fraction
from math import gcd, isqrt
from typing import TYPE_CHECKING, Any, TypeVar

from deniable.errors import ParameterError
from deniable.exact.epsilon import UNIT, weight
from deniable.frozen import dataclass
from deniable.mechanisms.base import FrequencyOracle
from deniable.mechanisms.bounds import Bounds
from deniable.mechanisms.listed.hadamard import column
from deniable.wire.layout import Layout

if TYPE_CHECKING:
    from deniable.source import Source

_Number = TypeVar("_Number", int, Any)


@dataclass(frozen=True, kw_only=True)
class GeneralHadamard(FrequencyOracle):
    """Hadamard response with B blocks of b columns, near-optimal at every epsilon.

    A public permutation spreads the domain over the blocks. In its block a value owns a row of the b x b Hadamard matrix, but
    never the first row. Its set is the b / 2 columns where the row is +1. A column of the set is e^eps times as likely as any
    other of the K = B b columns. A report supports the values whose set has its column. It opposes the other values of that
    block. Support minus opposition has mean p f. This does not depend on the frequencies of other values.

    The variance grows with the mass of the value's block. The permutation puts neighbours in the domain, which are often the
    common values, into different blocks.

    Parameters
    ----------
    blocks
        A power of two. With 0 it is the one of least variance for a block of average mass.

    References
    ----------
    J. Acharya, Z. Sun, H. Zhang: Hadamard response. AISTATS 2019, section 4 (the general scheme).
    """

    name = "general_hadamard"
    summary = "name a column of one of several Hadamard matrices, with odds e^epsilon one where the value's row is +1"
    options = ("blocks",)

    blocks: int = 0
    size: int = 0
    _true_weight: int = 0
    _step: int = 0

    def _parameters(self) -> dict[str, Any]:
        number, true_weight, d = self.blocks, weight(self.requested), self.domain_size
        if isinstance(number, bool) or not isinstance(number, int) or number < 0 or number & (number - 1):
            raise ParameterError("blocks: write a power of two", number)
        choices = (number,) if number else tuple(1 << k for k in range(d.bit_length()))
        blocks = min(choices, key=lambda blocks: _variance(blocks, _size(d, blocks), true_weight))
        size = _size(d, blocks)
        total = size // 2 * (true_weight - UNIT) + blocks * size * UNIT
        return {
            "ratio": Fraction(true_weight, UNIT),
            "p": Fraction(size // 2 * (true_weight - UNIT), total),
            "q": Fraction(0),
            "layout": Layout(1, blocks * size, "index"),
            "blocks": blocks,
            "size": size,
            "_true_weight": true_weight,
            "_step": _scatter(blocks * (size - 1)),
        }

    @property
    def constants(self) -> dict[str, Any]:
        """The blocks, the step that spreads values over them, and the probability of a column of the set."""
        inside = self.size // 2 * self._true_weight
        beside = (self.layout.width - self.size // 2) * UNIT
        return {"blocks": self.blocks, "size": self.size, "step": self._step, "inside": Fraction(inside, inside + beside)}

    def slots(self, value: _Number) -> tuple[_Number, _Number]:
        """Return the block of a value, and its row of the block's matrix. This works for an array of values, too."""
        # The permutation multiplies by a step near the golden section of the number of slots. This keeps neighbours apart.
        slot = value * self._step % (self.blocks * (self.size - 1))
        return slot // (self.size - 1), slot % (self.size - 1) + 1

    def noise(self, source: Source, count: int) -> list[Any]:
        """Draw whether each report names a column of the set, one column of the set, and one of the others."""
        half, columns = self.size // 2, self.layout.width
        inside = half * self._true_weight
        # Both columns are drawn for every report, though one is used. So the time of the draw does not tell which.
        sides = source.bits(inside, inside + (columns - half) * UNIT, count)
        return list(zip(sides, source.indices(half, count), source.indices(columns - half, count), strict=True))

    def respond(self, value: int, noise: Any) -> bytes:
        """Return the drawn column: of the set, of the rest of the block, or of another block."""
        side, choice, other = noise
        block, row = self.slots(value)
        half, size = self.size // 2, self.size
        inside = side & 1
        away, place = divmod(other - half, size)  # columns of other blocks follow those of the own block
        outside = not inside and other >= half
        cell = column(row, choice if inside else other % half, inside)
        if outside:
            block, cell = (block + 1 + away) % self.blocks, place
        return (block * size + cell).to_bytes(self.layout.payload_size, "little")  # type: ignore[no-any-return]

    def _signs(self, payload: bytes, parity: int) -> set[int]:
        block, column = divmod(self.layout.unpack(payload)[1], self.size)
        return {
            value
            for value in range(self.domain_size)
            if self.slots(value)[0] == block and (self.slots(value)[1] & column).bit_count() & 1 == parity
        }

    def supported(self, payload: bytes) -> set[int]:
        """Return the values whose set has the reported column."""
        return self._signs(payload, 0)

    @property
    def telling(self) -> Fraction:
        """The probability of a column in just one of two sets. Sets of two blocks are apart; those of one share a half."""
        columns = self.size // (4 if self.blocks == 1 else 2)
        return columns * (self.ratio + 1) / (self.size // 2 * (self.ratio - 1) + self.layout.width)

    def bounds(self) -> Bounds:
        """Return the bounds of a column's probability."""
        low = 1 / (self.size // 2 * (self.ratio - 1) + self.layout.width)
        return Bounds(low, self.ratio * low)

    def opposed(self, payload: bytes) -> set[int]:
        """Return the other values of the column's block."""
        return self._signs(payload, 1)

    def variance(
        self,
        frequency: float,  # the share of the n respondents who hold the value, in [0, 1]
        n: int,  # reports
        # share of respondents in the same block, this value included; by default the others are spread evenly
        block_mass: float | None = None,
    ) -> float:
        """Compute the exact variance of an estimated frequency over the randomness of the devices."""
        others = (1 - frequency) / self.blocks
        mass = frequency + others if block_mass is None else block_mass
        ratio, half, columns = self._true_weight / UNIT, self.size // 2, self.layout.width
        total = half * (ratio - 1) + columns
        near, far = half * (ratio + 1) / total, self.size / total
        # The sign has mean p in the report of a person with this value, and mean 0 in all others.
        p = float(self.p)
        return (mass * near + (1 - mass) * far - frequency * p * p) / (n * p * p)

    @property
    def _variances(self) -> tuple[Fraction, Fraction]:
        # Other people's values are spread evenly over the blocks.
        half, columns = self.size // 2, self.layout.width
        total = half * (self._true_weight - UNIT) + columns * UNIT
        near, far = Fraction(half * (self._true_weight + UNIT), total), Fraction(self.size * UNIT, total)
        return near / self.p**2 - 1, (near + (self.blocks - 1) * far) / self.blocks / self.p**2

    @property
    def mean_variance(self) -> Fraction:
        """Variance of one report's frequency estimate, averaged over a domain that is spread evenly over the blocks."""
        return _variance(self.blocks, self.size, self._true_weight) - Fraction(1, self.domain_size)


def _size(d: int, blocks: int) -> int:
    """Return the number of columns of a block. It has a row for each of its values, and a constant row."""
    return 1 << max(1, (-(-d // blocks)).bit_length())


def _variance(blocks: int, size: int, true_weight: int) -> Fraction:
    """Return the variance of one report's estimate for a value of frequency 0 in a block of mass 1 / blocks."""
    half, columns = size // 2, blocks * size
    total = half * (true_weight - UNIT) + columns * UNIT
    mass = Fraction(1, blocks)
    square = (mass * half * (true_weight + UNIT) + (1 - mass) * size * UNIT) / total
    return square / Fraction(half * (true_weight - UNIT), total) ** 2


def _scatter(slots: int) -> int:
    """Return a multiplier that permutes the slots, near the golden section of their number."""
    step = max(1, (isqrt(5 * slots * slots) - slots) // 2)
    while gcd(step, slots) > 1:
        step += 1
    return step
