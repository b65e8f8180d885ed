"""Finite fields of prime or of even order, with integers as elements.

An element is an integer from 0 to q - 1. In a field of prime order it is a residue. In a field of 2^k elements its bits are the
coefficients of a polynomial over the field of two elements, modulo the least primitive polynomial of degree k. Sums are exclusive
ors. Products use tables of logarithms, which are made when a field is first used.

References
----------
R. Lidl, H. Niederreiter: Finite fields. Cambridge University Press, 2nd ed. 1997, chapters 1, 2 and 9.1.
"""

from __future__ import annotations

from functools import lru_cache
from math import isqrt
from operator import mul
from typing import TYPE_CHECKING

from deniable.errors import ParameterError
from deniable.exact.hashing import is_prime
from deniable.frozen import dataclass, field

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_DEGREE = 12
"""Largest k of a field of 2^k elements. Its tables have some 20,000 entries."""


def is_order(n: int) -> bool:
    """Return whether `Field` has a field of n elements."""
    return is_prime(n) or (n > 1 and n.bit_count() == 1 and n.bit_length() <= MAX_DEGREE + 1)


def orders(limit: int) -> list[int]:
    """Return each number of elements below `limit` that a `Field` may have, the smallest first."""
    none = bytearray(limit)  # by a sieve, since the start of a program cannot ask `is_order` so often
    for n in range(2, isqrt(limit) + 1):
        if not none[n]:
            none[n * n :: n] = b"\1" * len(range(n * n, limit, n))
    for degree in range(2, min(MAX_DEGREE + 1, (limit - 1).bit_length())):
        none[1 << degree] = 0
    return [n for n in range(2, limit) if not none[n]]


@dataclass(frozen=True, slots=True)
class Field:
    """A finite field; raise `ParameterError` if there is no such field."""

    order: int  # number of elements: a prime, or a power of two up to `2**MAX_DEGREE`
    # powers, logarithms: tables of an even order above 2; else empty. `powers[logarithms[a] + logarithms[b]]` is the product of a
    # and b, also if one is 0.
    powers: tuple[int, ...] = field(init=False, repr=False, compare=False)
    logarithms: tuple[int, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not is_order(self.order):
            rule = f"order: write a prime number, or a power of two up to 2^{MAX_DEGREE}"
            raise ParameterError(rule, self.order)
        even = self.order > 2 and not self.order & 1  # noqa: PLR2004
        powers, logarithms = _tables(self.order.bit_length() - 1) if even else ((), ())
        object.__setattr__(self, "powers", powers)
        object.__setattr__(self, "logarithms", logarithms)

    @property
    def polynomial(self) -> int:
        """The polynomial modulus of an even order above 2, as bits; 0 if products are taken modulo the order."""
        return self.order ^ self.powers[self.order.bit_length() - 1] if self.powers else 0

    def neg(self, a: int) -> int:
        """Return the negative of an element. In even order it is the element itself."""
        return a if self.powers else -a % self.order

    def mul(self, a: int, b: int) -> int:
        """Multiply two elements."""
        return self.powers[self.logarithms[a] + self.logarithms[b]] if self.powers else a * b % self.order

    def dot(self, first: Iterable[int], second: Iterable[int]) -> int:
        """Compute the inner product of two vectors of one length."""
        if self.powers:
            total, powers, logarithms = 0, self.powers, self.logarithms
            for a, b in zip(first, second, strict=True):
                total ^= powers[logarithms[a] + logarithms[b]]
            return total
        total = sum(map(mul, first, second))
        return total % self.order


@lru_cache(maxsize=MAX_DEGREE)
def _tables(degree: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the powers of the polynomial x, twice and then zeros, and the logarithms."""
    order = 1 << degree
    powers: list[int] = []
    modulus = order - 1
    while len(powers) < order - 1:  # x has fewer powers unless the modulus is primitive
        modulus += 2
        powers, power = [1], 2
        while power != 1:
            powers.append(power)
            power <<= 1
            power ^= modulus & -(power >> degree)
    # 0 has a logarithm so large that any sum with it is the place of a zero. So a product with 0 needs no special case.
    logarithms = [2 * order] * order
    for exponent, power in enumerate(powers):
        logarithms[power] = exponent
    return tuple(powers * 2 + [0] * (2 * order + 3)), tuple(logarithms)
