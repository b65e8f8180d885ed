"""Public hash families: complete families for small domains, and pools of random functions for large ones.

`LinearFamily` is complete over a prime field. The t base-g digits of a value v below g^t are a vector over the field F_g. A row
a is another such vector. It hashes v to the inner product <a, v> mod g. Over *all* g^t rows, two different values u and v
collide in exactly one row of g. This is because a -> <a, u - v> is a linear map onto F_g, so it takes each value equally often.

`LineFamily` is complete, too, with fewer functions: the lines of a plane over a field of 2^s elements.

`PoolFamily` is a pool of random functions, for domains that no complete family fits, such as all texts. In a pool two values
collide equally often only on average. The difference stays in the estimates as an error, and more reports do not reduce it.

References
----------
J. L. Carter, M. N. Wegman: Universal classes of hash functions. JCSS 18(2), 1979.
D. R. Stinson: Universal hashing and authentication codes. Designs, Codes and Cryptography 4, 1994 (families as lines of a plane).
M. Dietzfelbinger: Universal hashing and k-wise independent random variables via integer arithmetic without primes. STACS 1996.
"""

from __future__ import annotations

from math import isqrt
from struct import unpack
from typing import Any

from deniable.errors import ParameterError
from deniable.exact.sha import sha256
from deniable.frozen import dataclass, field

KEY_SPACE = 1 << 64
"""Number of keys that a pool's functions hash."""


def data(value: int, domain_size: int) -> bytes:
    """Return a value's big-endian bytes without the zeros at their end. For a text these are its UTF-8."""
    return value.to_bytes(((domain_size - 1).bit_length() + 7) // 8, "big").rstrip(b"\0")


def key(value: int, domain_size: int) -> int:
    """Return the 64-bit key of a value: the value itself in a small domain, else the first 64 bits of its bytes' SHA-256."""
    if domain_size <= KEY_SPACE:
        return value
    return int.from_bytes(sha256(data(value, domain_size)).digest()[:8], "big")


def is_prime(n: int) -> bool:
    """Return whether n is a prime number, by trial division."""
    for k in range(2, isqrt(n) + 1 if n > 1 else 0):  # without a generator, since the start of a program has many of these
        if not n % k:
            return False
    return n > 1


@dataclass(frozen=True, slots=True)
class LinearFamily:
    """All linear functionals on the vectors that hold a domain."""

    domain_size: int  # values 0 to `domain_size - 1` are hashed; at least 2
    range_size: int  # hashes are 0 to `range_size - 1`; a prime
    digits: int = field(init=False)  # number of base-`range_size` digits of a value, as few as hold the domain
    rows: int = field(init=False)  # number of functions, `range_size ** digits`

    def __post_init__(self) -> None:
        if not is_prime(self.range_size):
            raise ParameterError("range_size: write a prime number", self.range_size)
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
        """What the functions are made from, by the names of docs/reference/wire."""
        return {"kind": "linear", "rows": self.rows, "width": self.range_size, "digits": self.digits}

    def hash(self, row: int, value: int) -> int:
        """Hash `value` in [0, domain_size) with member `row` in [0, rows): <row, value> mod range_size."""
        g = self.range_size
        total = 0
        for _ in range(self.digits):  # all digits, so that any value takes the same number of steps
            row, a = divmod(row, g)
            value, v = divmod(value, g)
            total += a * v
        return total % g


_MODULI = {1: 0b11, 2: 0b111, 3: 0b1011, 4: 0b10011, 5: 0b100101, 6: 0b1000011, 7: 0b10000011, 8: 0b100011011}
_MODULI |= {9: 0b1000010001, 10: 0b10000001001, 11: 0b100000000101}
"""An irreducible polynomial over the field of two elements for each degree, as bits."""


@dataclass(frozen=True, slots=True)
class LineFamily:
    """All parallel classes of lines of a plane over the field of ``2**order`` elements.

    A value is a point (x, y) of the plane. For each element a of the field there is a row that hashes it to x + a y. One more row
    hashes it to y. Two points lie on exactly one common line, so any two different values collide in exactly one row.
    """

    domain_size: int  # values 0 to `domain_size - 1` are hashed; at most `4**order`
    order: int  # bits of a hash, 1 to 11
    width: int = field(init=False)  # hashes are 0 to `width - 1`; `2**order`
    rows: int = field(init=False)  # number of functions, `width + 1`

    def __post_init__(self) -> None:
        if self.order not in _MODULI:
            raise ParameterError(f"order: write 1 to {max(_MODULI)}, the bits of a hash", self.order)
        if self.domain_size > 1 << 2 * self.order:
            raise ParameterError(
                f"domain_size: write {1 << 2 * self.order} at most, which lines of {self.order} bits hash", self.domain_size
            )
        object.__setattr__(self, "width", 1 << self.order)
        object.__setattr__(self, "rows", self.width + 1)

    @property
    def constants(self) -> dict[str, Any]:
        """What the functions are made from, by the names of docs/reference/wire."""
        return {"kind": "line", "rows": self.rows, "width": self.width, "polynomial": _MODULI[self.order]}

    def hash(self, row: int, value: int) -> int:
        """Hash `value` in [0, domain_size) with member `row` in [0, rows)."""
        y, x = divmod(value, self.width)
        if row == self.width:
            return y
        product = 0
        for bit in range(self.order):  # carry-less product over all bits, so that any value takes the same number of steps
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
    """A pool of hash functions of 64-bit keys, made from digests of a public label.

    Function r hashes a key of halves (x, y) to the highest 32 bits of a x + b y + c modulo 2^64, scaled to [0, width). For random
    a, b, c two keys collide with probability 1 / width. The functions of one pool are fixed, so the share of functions in which
    two keys collide is also fixed. It differs from 1 / width by an error of the order 1 / sqrt(rows).
    """

    label: str  # The pool's name. Each label gives another pool.
    rows: int  # number of functions
    width: int  # hashes are 0 to `width - 1`; at most 2^32

    @property
    def constants(self) -> dict[str, Any]:
        """What the functions are made from, by the names of docs/reference/wire."""
        return {"kind": "pool", "rows": self.rows, "width": self.width, "label": self.label}

    def multipliers(self, row: int) -> tuple[int, int, int]:
        """Return the numbers (a, b, c) of member `row`. They are computed each time, which is cheaper than keeping them all."""
        return unpack(">QQQ", sha256(f"deniable {self.label} {row}".encode()).digest()[:24])

    def hash(self, row: int, key: int) -> int:
        """Hash `key` in [0, 2**64) with member `row` in [0, rows)."""
        # The highest bits are taken: the lower ones of a product depend on the lower bits of the key alone.
        a, b, c = self.multipliers(row)
        return (((a * (key >> _HALF) + b * (key & _LOW) + c & _WORD) >> _HALF) * self.width) >> _HALF
