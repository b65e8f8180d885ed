"""Sketches: draw one of many rows, hash the value to a place of that row, and report about that row only."""

from __future__ import annotations

from fractions import Fraction
from math import isqrt
from typing import TYPE_CHECKING, Any, ClassVar

from deniable.errors import ParameterError
from deniable.exact.epsilon import UNIT, weight
from deniable.exact.hashing import LinearFamily, LineFamily, PoolFamily, key
from deniable.frozen import dataclass
from deniable.mechanisms.base import FrequencyOracle
from deniable.mechanisms.bounds import Bounds
from deniable.mechanisms.listed.direct import shifts
from deniable.mechanisms.listed.local_hash import best_family
from deniable.wire.layout import MAX_CELLS, Layout

if TYPE_CHECKING:
    from deniable.source import Source

Family = LinearFamily | LineFamily | PoolFamily

_POOL_ROWS = 16_384
_SKETCH_ROWS = 1024
_SKETCH_WIDTH = 1024
_WIDE = 5  # bits of a hash that make collisions rare enough
_MAX_LINES = 10  # most bits of a hash for which the tally of a line family fits


@dataclass(frozen=True, kw_only=True)
class Sketch(FrequencyOracle):
    """The base of sketches: a family of hash functions, one of which is drawn for each report.

    A report of row r supports the values that r hashes to its cells. It has the true value's cell with probability p, and any
    other cell with probability `other`. If two values collide in a share c of the rows, a report of one supports the other with
    probability c p + (1 - c) `other`.
    """

    # Apple Differential Privacy Team: Learning with privacy at scale. Apple Machine Learning Journal 1(8), 2017.
    options: ClassVar[tuple[str, ...]] = ("rows", "width")

    rows: int = 0  # number of hash functions; 0 for the default
    width: int = 0  # number of places to which each of them hashes; 0 for the default
    # Complete where the domain is small enough and neither rows nor width were chosen: then any two values collide in exactly as
    # many rows, the estimates are unbiased whatever the data, and no error outlasts the number of reports. Else a pool. It leaves
    # an error of variance (sum of f^2) / (rows (width - 1)), the sum being over values that the decoder did not clear.
    family: Family = None  # type: ignore[assignment] # set with the other parameters
    # Probability that a payload supports a given value that does not collide with the true one.
    other: Fraction = None  # type: ignore[assignment]

    def _pool(self, rows: int, width: int) -> PoolFamily:
        for name, number, least in (("rows", self.rows, 1), ("width", self.width, 2)):
            if isinstance(number, bool) or not isinstance(number, int) or (number and number < least):
                raise ParameterError(f"{name}: write a whole number of at least {least}", number)
        if self.rows or self.width or rows * width <= MAX_CELLS:
            return PoolFamily(self.name, self.rows or rows, self.width or width)
        return PoolFamily(self.name, MAX_CELLS // width, width)

    def _family(self) -> Family:
        bits = (self.domain_size - 1).bit_length()
        # Lines that just hold the domain would be enough. For few values wider ones have fewer collisions, for one to four bytes.
        order = max(-(-bits // 2), min(bits, _WIDE))
        if order > _MAX_LINES or self.rows or self.width:
            return self._pool(_SKETCH_ROWS, _SKETCH_WIDTH)
        return LineFamily(self.domain_size, order)

    def _claims(self, p: Fraction, other: Fraction, family: Family) -> dict[str, Any]:
        """Compute p, q and the sizes. Two values collide in one row of `rows` for lines, else in one of `width`."""
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
        """Return the place to which a row hashes a value."""
        return self.family.hash(row, key(value, self.domain_size) if isinstance(self.family, PoolFamily) else value)

    def support(self, value: int, true: int) -> Fraction:
        """Compute the probability that a payload for `true` supports `value`."""
        collisions = sum(self.place(row, value) == self.place(row, true) for row in range(self.family.rows))
        collide = Fraction(collisions, self.family.rows)
        return collide * self.p + (1 - collide) * self.other

    @property
    def chosen(self) -> dict[str, Any]:
        """The options with which this mechanism is made; the defaults if its family is complete."""
        return {"rows": self.rows, "width": self.width} if isinstance(self.family, PoolFamily) else {}


class Cms(Sketch):
    """Count mean sketch: a random row hashes the value to one bit of `width`, and every bit keeps the truth with odds e^(eps/2).

    References
    ----------
    Apple Differential Privacy Team: Learning with privacy at scale. 2017, section 4 (CMS).
    M. Pan: Revisiting the count mean sketch. arXiv 2406.03785, 2024 (its bias and variance corrected).
    """

    name = "cms"
    summary = "set one bit by a random public hash of the value, flip every bit with the same small probability"

    def _parameters(self) -> dict[str, Any]:
        true_weight = weight(self.requested / 2)
        family = self._family()
        return self._claims(Fraction(true_weight, true_weight + UNIT), Fraction(UNIT, true_weight + UNIT), family) | {
            "ratio": Fraction(true_weight, UNIT) ** 2,
            "layout": Layout(family.rows, family.width, "bits"),
        }

    @property
    def constants(self) -> dict[str, Any]:
        """The hash functions, and the probability of a flip."""
        return {"family": self.family.constants, "flip": self.other}

    def noise(self, source: Source, count: int) -> list[Any]:
        """Draw each report's row, and the bits to be flipped."""
        flips = source.words(self.other.numerator, self.other.denominator, self.width, count)
        return list(zip(source.indices(self.rows, count), flips, strict=True))

    def respond(self, value: int, noise: Any) -> bytes:
        """Set the value's bit, and flip the drawn bits."""
        row, flips = noise
        return self.layout.pack(row, flips ^ 1 << self.place(row, value))

    def supported(self, payload: bytes) -> set[int]:
        """Return the values whose bit is 1."""
        row, bits = self.layout.unpack(payload)
        return {value for value in range(self.domain_size) if bits >> self.place(row, value) & 1}

    @property
    def telling(self) -> Fraction:
        """The probability that a report has just one of two bits as for one of two answers. Two that collide have one bit."""
        return self.p**2 + self.other**2

    def bounds(self) -> Bounds:
        """Return the bounds of the probability of a bit of a row."""
        return Bounds.of_bits(self.other, self.p, self.width)


class Hcms(Sketch):
    """Hadamard count mean sketch: a random row, a random coefficient of its Hadamard transform, and the sign with odds e^eps.

    Row and coefficient do not depend on the value; only the sign does, which is one bit. A report supports the values whose place
    has this sign at this coefficient.

    References
    ----------
    Apple Differential Privacy Team: Learning with privacy at scale. 2017, section 5 (HCMS).
    """

    name = "hcms"
    summary = "hash the value by a random public function, send one random sign of its Hadamard transform"

    _true_weight: int = 0

    def _parameters(self) -> dict[str, Any]:
        true_weight = weight(self.requested)
        family = self._family()
        if family.width & (family.width - 1):
            raise ParameterError("width: write a power of two for a Hadamard transform", family.width)
        return self._claims(Fraction(true_weight, true_weight + UNIT), Fraction(1, 2), family) | {
            "ratio": Fraction(true_weight, UNIT),
            "layout": Layout(family.rows, 2 * family.width, "index"),
            "_true_weight": true_weight,
        }

    @property
    def constants(self) -> dict[str, Any]:
        """The hash functions, and the probability that the sign is flipped."""
        return {"family": self.family.constants, "flip": Fraction(UNIT, self._true_weight + UNIT)}

    def noise(self, source: Source, count: int) -> list[Any]:
        """Draw each report's row and coefficient, and whether the sign is flipped."""
        flips = source.bits(UNIT, self._true_weight + UNIT, count)
        rows, coefficients = source.indices(self.rows, count), source.indices(self.width, count)
        return [(row, coefficient, flip & 1) for row, coefficient, flip in zip(rows, coefficients, flips, strict=True)]

    def respond(self, value: int, noise: Any) -> bytes:
        """Take the sign at the value's place, and flip it if so drawn."""
        row, coefficient, flip = noise
        sign = (coefficient & self.place(row, value)).bit_count() & 1
        return self.layout.pack(row, 2 * coefficient + (sign ^ flip))

    def supported(self, payload: bytes) -> set[int]:
        """Return the values whose place has the reported sign."""
        row, cell = self.layout.unpack(payload)
        coefficient, sign = divmod(cell, 2)
        return {value for value in range(self.domain_size) if (coefficient & self.place(row, value)).bit_count() & 1 == sign}

    @property
    def telling(self) -> Fraction:
        """The probability of a coefficient that has different signs at two places."""
        return Fraction(1, 2)

    def bounds(self) -> Bounds:
        """Return the bounds of the probability of a coefficient and a sign; they are the same for all."""
        return Bounds((1 - self.p) / self.width, self.p / self.width)


class FastLocalHash(Sketch):
    """Local hashing with a pool of functions: hash the value to one of g cells and answer with GRR over them.

    It is the most exact sketch at any epsilon, and a report has a few bytes. Decoding needs one look-up for each function and
    candidate. g is the whole number of least variance, near e^eps + 1.

    References
    ----------
    G. Cormode, S. Maddock, C. Maple: Frequency estimation under local differential privacy. VLDB 14(11), 2021, section 3.2.
    """

    name = "fast_local_hash"
    summary = "hash the value into a few cells by one of a pool of public functions, name the cell with odds e^epsilon"

    _true_weight: int = 0

    def _parameters(self) -> dict[str, Any]:
        true_weight = weight(self.requested)
        complete = None if self.rows or self.width else best_family(self.domain_size, true_weight)
        family = complete or self._pool(_POOL_ROWS, best_width(true_weight, isqrt(MAX_CELLS)))
        total = true_weight + (family.width - 1) * UNIT
        return self._claims(Fraction(true_weight, total), Fraction(UNIT, total), family) | {
            "ratio": Fraction(true_weight, UNIT),
            "layout": Layout(family.rows, family.width, "index"),
            "_true_weight": true_weight,
        }

    @property
    def constants(self) -> dict[str, Any]:
        """The hash functions, and the probability of the true cell."""
        return {"family": self.family.constants, "keep": self.p}

    def noise(self, source: Source, count: int) -> list[Any]:
        """Draw each report's function, and the shift of its cell."""
        rows = source.indices(self.rows, count)
        return list(zip(rows, shifts(source, self._true_weight, self.width, count), strict=True))

    def respond(self, value: int, noise: Any) -> bytes:
        """Hash the value and shift its cell."""
        row, shift = noise
        return self.layout.pack(row, (self.place(row, value) + shift) % self.width)

    def supported(self, payload: bytes) -> set[int]:
        """Return the values whose hash is the reported cell."""
        row, cell = self.layout.unpack(payload)
        return {value for value in range(self.domain_size) if self.place(row, value) == cell}

    @property
    def telling(self) -> Fraction:
        """The probability that a report favours one of two answers. It names a cell, and says nothing about two that collide."""
        return min(Fraction(1), (self.ratio + 1) / (self.ratio + self.width - 1))

    def bounds(self) -> Bounds:
        """Return the bounds of a cell's probability."""
        return Bounds(self.other, self.p)


def best_width(
    true_weight: int,  # the integer weight of e^eps
    most: int,
) -> int:
    """Return the number of cells of least variance for a value of frequency 0: near e^eps + 1, and at most ``most + 1``."""
    # The variance of one report's estimate is `(e^eps + g - 1)^2 / ((g - 1) (e^eps - 1)^2)`.
    best = min(true_weight // UNIT + 1, most)
    return min((g for g in (best, best + 1) if g > 1), key=lambda g: Fraction((true_weight + (g - 1) * UNIT) ** 2, g - 1))
