"""Public hash families: complete ones where a domain is small enough, a pool of random functions where it is not.

`LinearFamily` is complete over a prime field. A value v below g^t is read as its t base-g digits, a vector over the field F_g;
row a, another such vector, hashes it to the inner product <a, v> mod g. Over *all* g^t rows any two different values collide in
exactly one row of g: for u != v, a -> <a, u - v> is a linear map onto F_g, so each of its values is taken equally often. A
random pool of hash seeds has this only on average, and what it lacks stays in the estimates as an error that no number of
reports removes. `LineFamily` has the same virtue with fewer functions: the lines of a plane over a field of 2^s elements.

`PoolFamily` is such a pool, for domains that no complete family fits, such as all texts.

References
----------
J. L. Carter, M. N. Wegman: Universal classes of hash functions. JCSS 18(2), 1979.
D. R. Stinson: Universal hashing and authentication codes. Designs, Codes and Cryptography 4, 1994 (families as lines of a plane).
M. Dietzfelbinger: Universal hashing and k-wise independent random variables via integer arithmetic without primes. STACS 1996.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import sha256
from struct import unpack
from typing import Any

from deniable.errors import ParameterError

__all__ = ["KEY_SPACE", "LineFamily", "LinearFamily", "PoolFamily", "data", "is_prime", "key"]

KEY_SPACE = 1 << 64
"""Number of keys that a pool's functions hash."""


def data(value: int, domain_size: int) -> bytes:
    """Return a value's big-endian bytes without the zeros at their end: of a text, its UTF-8, however long texts may be."""
    return value.to_bytes(((domain_size - 1).bit_length() + 7) // 8, "big").rstrip(b"\0")


def key(value: int, domain_size: int) -> int:
    """Bring a value of any domain into the keys: as it is where it fits, else by the first 64 bits of its bytes' SHA-256."""
    if domain_size <= KEY_SPACE:
        return value
    return int.from_bytes(sha256(data(value, domain_size)).digest()[:8], "big")


def is_prime(n: int) -> bool:
    """Tell whether n is a prime number, by trial division."""
    return n > 1 and all(n % k for k in range(2, int(n**0.5) + 1))


@dataclass(frozen=True, slots=True)
class LinearFamily:
    """All linear functionals on the vectors that hold a domain.

    Parameters
    ----------
    domain_size
        Values 0 to ``domain_size - 1`` are hashed; at least 2.
    range_size
        Hashes are 0 to ``range_size - 1``; a prime.

    Attributes
    ----------
    digits : int
        Base-`range_size` digits of a value, the least number that holds the domain.
    rows : int
        Members of the family, ``range_size ** digits``.
    """

    domain_size: int
    range_size: int
    digits: int = field(init=False)
    rows: int = field(init=False)

    def __post_init__(self) -> None:
        if not is_prime(self.range_size):
            raise ParameterError("the range of a linear family is a prime number", self.range_size)
        digits = 1
        while self.range_size**digits < self.domain_size:
            digits += 1
        object.__setattr__(self, "digits", digits)
        object.__setattr__(self, "rows", self.range_size**digits)

    @property
    def width(self) -> int:
        """Hashes are 0 to ``width - 1``."""
        return self.range_size

    @property
    def constants(self) -> dict[str, Any]:
        """What the functions are made from, by the names of docs/wire.md."""
        return {"kind": "linear", "rows": self.rows, "width": self.range_size, "digits": self.digits}

    def hash(self, row: int, value: int) -> int:
        """Hash `value` in [0, domain_size) with member `row` in [0, rows): <row, value> mod range_size."""
        g = self.range_size
        total = 0
        for _ in range(self.digits):  # all of them: as many steps for any value
            row, a = divmod(row, g)
            value, v = divmod(value, g)
            total += a * v
        return total % g


_MODULI = {1: 0b11, 2: 0b111, 3: 0b1011, 4: 0b10011, 5: 0b100101, 6: 0b1000011, 7: 0b10000011, 8: 0b100011011}
_MODULI |= {9: 0b1000010001, 10: 0b10000001001, 11: 0b100000000101}
"""Irreducible polynomials over the field of two elements, one for each degree, as bits."""


@dataclass(frozen=True, slots=True)
class LineFamily:
    """All parallel classes of lines of a plane over the field of ``2**order`` elements.

    A value is a point (x, y) of the plane. Row a, an element of the field, hashes it to x + a y, and the one row more to y. Two
    points lie on one common line, so any two different values collide in exactly one row.

    Parameters
    ----------
    domain_size
        Values 0 to ``domain_size - 1`` are hashed; at most ``4**order``.
    order
        Bits of a hash, 1 to 11.

    Attributes
    ----------
    width : int
        Hashes are 0 to ``width - 1``; ``2**order``.
    rows : int
        Members of the family, ``width + 1``.
    """

    domain_size: int
    order: int
    width: int = field(init=False)
    rows: int = field(init=False)

    def __post_init__(self) -> None:
        if self.order not in _MODULI:
            raise ParameterError(f"a hash of a line family has 1 to {max(_MODULI)} bits", self.order)
        if self.domain_size > 1 << 2 * self.order:
            raise ParameterError(f"lines of {self.order} bits hash at most {1 << 2 * self.order} values", self.domain_size)
        object.__setattr__(self, "width", 1 << self.order)
        object.__setattr__(self, "rows", self.width + 1)

    @property
    def constants(self) -> dict[str, Any]:
        """What the functions are made from, by the names of docs/wire.md."""
        return {"kind": "line", "rows": self.rows, "width": self.width, "polynomial": _MODULI[self.order]}

    def hash(self, row: int, value: int) -> int:
        """Hash `value` in [0, domain_size) with member `row` in [0, rows)."""
        y, x = divmod(value, self.width)
        if row == self.width:
            return y
        product = 0
        for bit in range(self.order):  # carry-less, all of the bits: as many steps for any value
            product ^= (row << bit) * (y >> bit & 1)
        modulus = _MODULI[self.order]
        for bit in range(2 * self.order - 2, self.order - 1, -1):
            product ^= (modulus << bit - self.order) * (product >> bit & 1)
        return x ^ product


_WORD = KEY_SPACE - 1
_HALF = 32
_LOW = (1 << _HALF) - 1


@dataclass(frozen=True, slots=True)
class PoolFamily:
    """A pool of functions from 64-bit keys, drawn once and for all from the digest of a public label.

    Function r hashes a key of halves (x, y) to the highest 32 bits of a x + b y + c modulo 2^64, scaled to [0, width). Over
    random a, b, c two keys collide with probability 1 / width; the functions of one pool are fixed, so what a value really
    collides with is fixed too, and differs from that by chance of the order 1 / sqrt(rows).

    Parameters
    ----------
    label
        Names the pool; another label is another pool.
    rows
        Functions.
    width
        Hashes are 0 to ``width - 1``; at most 2^32.
    """

    label: str
    rows: int
    width: int

    @property
    def constants(self) -> dict[str, Any]:
        """What the functions are made from, by the names of docs/wire.md."""
        return {"kind": "pool", "rows": self.rows, "width": self.width, "label": self.label}

    def multipliers(self, row: int) -> tuple[int, int, int]:
        """Return the numbers (a, b, c) of member `row`; a digest is cheaper to make than to keep one for each function."""
        return unpack(">QQQ", sha256(f"deniable {self.label} {row}".encode()).digest()[:24])

    def hash(self, row: int, key: int) -> int:
        """Hash `key` in [0, 2**64) with member `row` in [0, rows)."""
        a, b, c = self.multipliers(row)
        return (((a * (key >> _HALF) + b * (key & _LOW) + c & _WORD) >> _HALF) * self.width) >> _HALF
