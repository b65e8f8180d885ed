"""Sketches: hash the value to a place in one of many rows, and answer for that row alone."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import isqrt
from typing import TYPE_CHECKING, Any, ClassVar

from deniable.errors import ParameterError
from deniable.exact.epsilon import UNIT, weight
from deniable.exact.hashing import LinearFamily, LineFamily, PoolFamily, key
from deniable.mechanisms.base import Bounds, Mechanism
from deniable.mechanisms.direct import shifts
from deniable.mechanisms.local_hash import best_family
from deniable.wire.layout import MAX_CELLS, Layout

if TYPE_CHECKING:
    from deniable.source import Source

__all__ = ["Cms", "FastLocalHash", "Hcms", "Sketch", "best_width"]

Family = LinearFamily | LineFamily | PoolFamily

_POOL_ROWS = 16_384
_SKETCH_ROWS = 1024
_SKETCH_WIDTH = 1024
_WIDE = 5  # bits of a hash that make confusion rare enough
_MAX_LINES = 10  # bits of a hash, beyond which lines have more cells than a tally may


@dataclass(frozen=True, kw_only=True)
class Sketch(Mechanism):
    """What sketches share: a family of hash functions, one of which is drawn for each report.

    A report of row r supports the values that r hashes to its cells: the true one's cell with probability p, any other cell
    with probability `other`. Two values that collide in a share c of the rows are then confused with probability
    c p + (1 - c) `other`.

    Parameters
    ----------
    rows
        Hash functions; 0 takes the default.
    width
        Places that each hashes to; 0 takes the default.

    Attributes
    ----------
    family : LinearFamily, LineFamily or PoolFamily
        Complete where the domain is small enough and neither rows nor width were chosen: then any two values collide in
        exactly as many rows, the estimates are unbiased whatever the data, and no error outlasts the number of reports. Else a
        pool, which leaves an error of variance (sum of f^2) / (rows (width - 1)).
    other : Fraction
        Probability that a payload supports a given value that does not collide with the true one.

    References
    ----------
    Apple Differential Privacy Team: Learning with privacy at scale. Apple Machine Learning Journal 1(8), 2017.
    """

    options: ClassVar[tuple[str, ...]] = ("rows", "width")

    rows: int = 0
    width: int = 0
    family: Family = None  # type: ignore[assignment] # set with the other parameters
    other: Fraction = None  # type: ignore[assignment]

    def _pool(self, rows: int, width: int) -> PoolFamily:
        for name, given, least in (("rows", self.rows, 1), ("width", self.width, 2)):
            if isinstance(given, bool) or not isinstance(given, int) or (given and given < least):
                raise ParameterError(f"{name} is a whole number of at least {least}", given)
        if self.rows or self.width or rows * width <= MAX_CELLS:
            return PoolFamily(self.name, self.rows or rows, self.width or width)
        return PoolFamily(self.name, MAX_CELLS // width, width)

    def _family(self) -> Family:
        bits = (self.domain_size - 1).bit_length()
        # Lines that just hold the domain would do, but where values are few wider ones confuse them less, for a byte or four.
        order = max(-(-bits // 2), min(bits, _WIDE))
        if order > _MAX_LINES or self.rows or self.width:
            return self._pool(_SKETCH_ROWS, _SKETCH_WIDTH)
        return LineFamily(self.domain_size, order)

    def _claims(self, p: Fraction, other: Fraction, family: Family) -> dict[str, Any]:
        """Compute what follows from the cells' probabilities: two values collide in one row of `rows`, or one of `width`."""
        collide = Fraction(1, family.rows if isinstance(family, LineFamily) else family.width)
        return {
            "p": p,
            "q": collide * p + (1 - collide) * other,
            "other": other,
            "family": family,
            "rows": family.rows,
            "width": family.width,
        }

    def place(self, row: int, value: int) -> int:
        """Hash a value to its place in a row."""
        return self.family.hash(row, key(value, self.domain_size) if isinstance(self.family, PoolFamily) else value)

    def support(self, value: int, true: int) -> Fraction:
        """Compute the probability that a payload of somebody who holds `true` supports `value`."""
        collisions = sum(self.place(row, value) == self.place(row, true) for row in range(self.family.rows))
        collide = Fraction(collisions, self.family.rows)
        return collide * self.p + (1 - collide) * self.other

    def confusion(self, squares: float) -> float:
        """Compute what the pool adds to the variance of a frequency: nothing, where the family is complete."""
        return squares / (self.rows * (self.width - 1)) if isinstance(self.family, PoolFamily) else 0.0

    @property
    def chosen(self) -> dict[str, Any]:
        """The options that give this mechanism; the default ones where its family is complete."""
        return {"rows": self.rows, "width": self.width} if isinstance(self.family, PoolFamily) else {}


class Cms(Sketch):
    """Count mean sketch: a random row's hash of the value as one bit of `width`, every bit flipped with odds e^(eps/2).

    References
    ----------
    Apple Differential Privacy Team, 2017, section 4 (CMS).
    M. Pan: Revisiting the count mean sketch. arXiv 2406.03785, 2024 (its bias and variance corrected).
    """

    name = "cms"
    summary = "set one bit by a random public hash of the value, flip every bit with the same small probability"

    def _parameters(self) -> dict[str, Any]:
        kept = weight(self.requested / 2)
        family = self._family()
        return self._claims(Fraction(kept, kept + UNIT), Fraction(UNIT, kept + UNIT), family) | {
            "ratio": Fraction(kept, UNIT) ** 2,
            "layout": Layout(family.rows, family.width, "bits"),
        }

    @property
    def constants(self) -> dict[str, Any]:
        """The hash functions, and the probability of a flip."""
        return {"family": self.family.constants, "flip": self.other}

    def noise(self, source: Source, count: int) -> list[Any]:
        """Draw each report's row, and which of its bits are flipped."""
        flips = source.words(self.other.numerator, self.other.denominator, self.width, count)
        return list(zip(source.indices(self.rows, count), flips, strict=True))

    def respond(self, value: int, noise: Any) -> bytes:
        """Set the value's bit and flip those drawn."""
        row, flips = noise
        return self.layout.pack(row, flips ^ 1 << self.place(row, value))

    def supported(self, payload: bytes) -> set[int]:
        """Return the values whose bit is 1."""
        row, bits = self.layout.unpack(payload)
        return {value for value in range(self.domain_size) if bits >> self.place(row, value) & 1}

    def bounds(self) -> Bounds:
        """Bound the probability of a bit of a row."""
        return Bounds.of_bits(self.other, self.p, self.width)


class Hcms(Sketch):
    """Hadamard count mean sketch: one random coefficient of the row's Hadamard transform, its sign kept with odds e^eps.

    A report is one bit beside the public row and coefficient. It supports the values whose place has that sign there.

    References
    ----------
    Apple Differential Privacy Team, 2017, section 5 (HCMS).
    """

    name = "hcms"
    summary = "hash the value by a random public function, send one random sign of its Hadamard transform"

    _kept: int = 0

    def _parameters(self) -> dict[str, Any]:
        kept = weight(self.requested)
        family = self._family()
        if family.width & (family.width - 1):
            raise ParameterError("a Hadamard transform has a power of two for its width", family.width)
        return self._claims(Fraction(kept, kept + UNIT), Fraction(1, 2), family) | {
            "ratio": Fraction(kept, UNIT),
            "layout": Layout(family.rows, 2 * family.width, "index"),
            "_kept": kept,
        }

    @property
    def constants(self) -> dict[str, Any]:
        """The hash functions, and the probability that the sign is flipped."""
        return {"family": self.family.constants, "flip": Fraction(UNIT, self._kept + UNIT)}

    def noise(self, source: Source, count: int) -> list[Any]:
        """Draw each report's row, its coefficient, and whether its sign is flipped."""
        flips = source.bits(UNIT, self._kept + UNIT, count)
        rows, coefficients = source.indices(self.rows, count), source.indices(self.width, count)
        return [(row, coefficient, flip & 1) for row, coefficient, flip in zip(rows, coefficients, flips, strict=True)]

    def respond(self, value: int, noise: Any) -> bytes:
        """Read the sign off the value's place, and flip it if so drawn."""
        row, coefficient, flip = noise
        sign = (coefficient & self.place(row, value)).bit_count() & 1
        return self.layout.pack(row, 2 * coefficient + (sign ^ flip))

    def supported(self, payload: bytes) -> set[int]:
        """Return the values whose place has the sign sent."""
        row, cell = self.layout.unpack(payload)
        coefficient, sign = divmod(cell, 2)
        return {value for value in range(self.domain_size) if (coefficient & self.place(row, value)).bit_count() & 1 == sign}

    def bounds(self) -> Bounds:
        """Bound the probability of a sign of a coefficient, all of which are alike."""
        return Bounds((1 - self.p) / self.width, self.p / self.width)


class FastLocalHash(Sketch):
    """Local hashing with a pool of functions: hash the value to one of g cells and answer with GRR over them.

    The most exact of the sketches, at any epsilon, and a few bytes; the price is one look-up for each function and candidate
    when it is decoded. g is the whole number of least variance, near e^eps + 1.

    References
    ----------
    G. Cormode, S. Maddock, C. Maple: Frequency estimation under local differential privacy. VLDB 14(11), 2021, section 3.2.
    """

    name = "fast_local_hash"
    summary = "hash the value into a few cells by one of a pool of public functions, name the cell with odds e^epsilon"

    _kept: int = 0

    def _parameters(self) -> dict[str, Any]:
        kept = weight(self.requested)
        complete = None if self.rows or self.width else best_family(self.domain_size, kept)
        family = complete or self._pool(_POOL_ROWS, best_width(kept, isqrt(MAX_CELLS)))
        total = kept + (family.width - 1) * UNIT
        return self._claims(Fraction(kept, total), Fraction(UNIT, total), family) | {
            "ratio": Fraction(kept, UNIT),
            "layout": Layout(family.rows, family.width, "index"),
            "_kept": kept,
        }

    @property
    def constants(self) -> dict[str, Any]:
        """The hash functions, and the probability of the true cell."""
        return {"family": self.family.constants, "keep": self.p}

    def noise(self, source: Source, count: int) -> list[Any]:
        """Draw each report's function, and by how much its cell is shifted."""
        rows = source.indices(self.rows, count)
        return list(zip(rows, shifts(source, self._kept, self.width, count), strict=True))

    def respond(self, value: int, noise: Any) -> bytes:
        """Hash the value and shift its cell."""
        row, shift = noise
        return self.layout.pack(row, (self.place(row, value) + shift) % self.width)

    def supported(self, payload: bytes) -> set[int]:
        """Return the values whose hash is the cell named."""
        row, cell = self.layout.unpack(payload)
        return {value for value in range(self.domain_size) if self.place(row, value) == cell}

    def bounds(self) -> Bounds:
        """Bound the probability of a cell."""
        return Bounds(self.other, self.p)


def best_width(kept: int, most: int) -> int:
    """Find the number of cells, near e^eps + 1 and about `most`, of least variance for an absent value.

    Of one report's estimate that is ``(e^eps + g - 1)^2 / ((g - 1) (e^eps - 1)^2)``; `kept` is the integer weight of e^eps.
    """
    best = min(kept // UNIT + 1, most)
    return min((g for g in (best, best + 1) if g > 1), key=lambda g: Fraction((kept + (g - 1) * UNIT) ** 2, g - 1))
