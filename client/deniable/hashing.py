"""The complete linear hash family over a prime field.

A value v below g^t is read as its t base-g digits, a vector over the field F_g; row a, another such vector, hashes it to
the inner product <a, v> mod g. Over *all* g^t rows any two different values collide in exactly one row of g: for u != v,
a -> <a, u - v> is a linear map onto F_g, so each of its values is taken equally often. A random pool of hash seeds has this
only on average, and what it lacks stays in the estimates as an error that no number of reports removes.

References
----------
J. L. Carter, M. N. Wegman: Universal classes of hash functions. JCSS 18(2), 1979.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from deniable.errors import ParameterError

__all__ = ["LinearFamily", "is_prime"]


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

    def hash(self, row: int, value: int) -> int:
        """Hash `value` in [0, domain_size) with member `row` in [0, rows): <row, value> mod range_size."""
        g = self.range_size
        total = 0
        for _ in range(self.digits):  # all of them, whatever the value, so that time does not tell it
            row, a = divmod(row, g)
            value, v = divmod(value, g)
            total += a * v
        return total % g
