"""Local hashing over a complete linear family: a few bytes for any domain."""

from __future__ import annotations

from fractions import Fraction
from math import isqrt
from typing import TYPE_CHECKING, Any

from deniable.errors import ParameterError
from deniable.exact.epsilon import UNIT, weight
from deniable.exact.hashing import LinearFamily, is_prime
from deniable.mechanisms.base import TwoSided, mean_variance
from deniable.mechanisms.bounds import Bounds
from deniable.mechanisms.listed.direct import shifts
from deniable.wire.layout import MAX_CELLS, Layout

if TYPE_CHECKING:
    from deniable.source import Source


class LocalHash(TwoSided):
    """Pick a hash function at random, hash the value to one of g cells, and answer with GRR over the cells.

    The functions are *all* linear functionals over F_g. Two values collide in exactly 1/g of them, so the estimator is unbiased
    for any data. The prime g has the least exact variance of those whose tally fits; it is near e^eps + 1.

    References
    ----------
    T. Wang, J. Blocki, N. Li, S. Jha. USENIX Security 2017, section 4.4 (OLH).
    V. Feldman and others: Private frequency estimation via projective geometry. ICML 2022 (linear families over a prime field).
    """

    name = "local_hash"
    summary = "hash the value into a few cells by a random public function, name the cell with odds e^epsilon"

    family: LinearFamily
    _true_weight: int

    def _parameters(self) -> dict[str, Any]:
        true_weight = weight(self.requested)
        family = self._family(true_weight)
        p, q = _support(family.range_size, true_weight)
        return {
            "ratio": Fraction(true_weight, UNIT),
            "p": p,
            "q": q,
            "layout": Layout(family.rows, family.range_size, "index"),
            "family": family,
            "_true_weight": true_weight,
        }

    @property
    def constants(self) -> dict[str, Any]:
        """The hash functions, and the probability of the true cell."""
        return {"family": self.family.constants, "keep": self.p}

    def _family(self, true_weight: int) -> LinearFamily:
        family = best_family(self.domain_size, true_weight)
        if family is None:
            raise ParameterError(
                f"domain_size: write less; no hash family for it has a tally of at most {MAX_CELLS} cells", self.domain_size
            )
        return family

    def noise(self, source: Source, count: int) -> list[Any]:
        """Draw each report's hash function, and the shift of its cell."""
        rows = source.indices(self.family.rows, count)
        return list(zip(rows, shifts(source, self._true_weight, self.family.range_size, count), strict=True))

    def respond(self, value: int, noise: Any) -> bytes:
        """Hash the value and shift its cell."""
        row, shift = noise
        g = self.family.range_size
        return (row * g + (self.family.hash(row, value) + shift) % g).to_bytes(self.layout.payload_size, "little")  # type: ignore[no-any-return]

    def supported(self, payload: bytes) -> set[int]:
        """Return the values whose hash is the reported cell."""
        row, cell = self.layout.unpack(payload)
        return {value for value in range(self.domain_size) if self.family.hash(row, value) == cell}

    def bounds(self) -> Bounds:
        """Return the bounds of a cell's probability."""
        return Bounds((1 - self.p) / (self.family.range_size - 1), self.p)


def best_family(
    domain_size: int,  # number of values
    true_weight: int,  # the integer weight of e^eps
    max_rows: int = MAX_CELLS,  # most functions of the family
) -> LinearFamily | None:
    """Return the complete family of least exact variance whose tally fits, or None."""
    if domain_size > MAX_CELLS:
        return None
    best = true_weight // UNIT + 1  # variance falls up to g = e^eps + 1 and rises from there
    # The width is at most the number of rows, so it is at most the root of the cells. At epsilon 16 this saves 17 million trials.
    primes = [g for g in range(2, min(2 * best + 4, isqrt(MAX_CELLS) + 1)) if is_prime(g)]
    families = (LinearFamily(domain_size, g) for g in primes)
    fitting = [family for family in families if family.rows <= min(max_rows, MAX_CELLS // family.range_size)]
    return min(fitting, key=lambda f: mean_variance(*_support(f.range_size, true_weight), domain_size), default=None)


def _support(g: int, true_weight: int) -> tuple[Fraction, Fraction]:
    return Fraction(true_weight, true_weight + (g - 1) * UNIT), Fraction(1, g)
