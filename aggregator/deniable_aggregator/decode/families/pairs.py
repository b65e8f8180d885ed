"""The probabilities that a report supports both of two values, and the lines through values that decide them.

Hash functions, a Hadamard matrix and a finite geometry arrange the values in lines. If the sender holds a third value on the line
through two values, the probability for these two is another one than if the sender holds a value beside that line.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class PairSupport:
    """The probabilities that a report supports both of two values."""

    # p, q: probabilities that a report supports the value that its sender holds, and another one
    p: float
    q: float
    held: float  # probability that it supports both, if the sender holds one of them
    aligned: float  # the same, if the sender holds a third value on the line through both
    unrelated: float  # the same, if the sender holds any other value
    # Returns (values, values). Row u has, for each other value, the number of the line through it and u. None if no line has a
    # third value.
    lines: Callable[[], NDArray[np.uint16]] | None = None

    def covariance(self, f: NDArray[np.float64], n: float) -> NDArray[np.float64]:
        """Compute the covariance of all estimates from n reports, in a population with these shares."""
        s = self.q + f * (self.p - self.q)
        both = self.unrelated + (self.held - self.unrelated) * (f[:, None] + f)
        if self.lines is not None:
            third = np.array([np.bincount(line, f)[line] for line in self.lines()]) - f
            both += (self.aligned - self.unrelated) * third
        both[np.diag_indices(len(f))] = s
        return np.asarray((both - np.outer(s, s)) / (n * (self.p - self.q) ** 2), np.float64)

    def least_both(self, f: NDArray[np.float64], other: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the least probability that a report supports both of two values with these shares, wherever the others are."""
        # Whoever holds a third value on the line through both makes it greater, in all geometries that there are.
        return self.unrelated + (self.held - self.unrelated) * (f + other)


def independent_bits(p: float, q: float) -> PairSupport:
    """Compute for independent bits, one for each value."""
    return PairSupport(p, q, held=p * q, aligned=q * q, unrelated=q * q)


def sets(p: float, q: float, count: int, others: int = 1, through: Callable[[], NDArray[np.uint16]] | None = None) -> PairSupport:
    """Compute from the number of `count` values that every report supports."""
    # Of these pairs of values, those with the sender's own are equally likely. So are those with a given other value: of its
    # partners, the sender's and all on the line through both are `others`, and the rest lie apart.
    size = p + (count - 1) * q
    held = p * (size - 1) / (count - 1)
    unaligned = count - 1 - others
    unrelated = (q * (size - 1) - others * held) / unaligned if unaligned else 0.0
    return PairSupport(p, q, held, held, unrelated, through)


def affine(domain_size: int, order: int, length: int) -> NDArray[np.intp]:
    """Write values as vectors: a 1, then the digits."""
    return np.insert(digits(np.arange(domain_size), order, length), 0, 1, axis=1)


def digits(numbers: NDArray[np.intp], order: int, length: int) -> NDArray[np.intp]:
    """Write numbers in base `order`; (numbers, length), the highest digit first."""
    return numbers[:, None] // order ** np.arange(length)[::-1] % order


def lines(
    products: NDArray[np.intp],  # (q, q), of a field's elements; the order q is prime, or even: then a sum is an exclusive or
    vectors: NDArray[np.intp],  # (values, digits), the points; the first digit of each that is not 0 is 1
) -> Callable[[], NDArray[np.uint16]]:
    """Give each line through a point a number, once it is asked for: there are as many as pairs; see `PairSupport`."""
    return cache(partial(_lines, products, vectors))


def _lines(products: NDArray[np.intp], vectors: NDArray[np.intp]) -> NDArray[np.uint16]:
    # The line through u and v has all points that are sums of their multiples. Of these, exactly one has digit 0 where u has its
    # first 1: v less a multiple of u, divided by its own first digit. It identifies the line among those through u.
    q, coordinates = len(products), vectors.T
    divided = products[(products == 1).argmax(axis=1)]
    numbered = []
    for vector, one in zip(vectors, (vectors != 0).argmax(axis=1), strict=True):
        multiples = products[vector][:, coordinates[one]]
        residues = (coordinates - multiples) % q if q % 2 else coordinates ^ multiples
        first = np.take_along_axis(residues, (residues != 0).argmax(axis=0)[None], axis=0)
        numbers = q ** np.arange(len(residues)) @ divided[first, residues]
        numbered.append(np.unique(numbers, return_inverse=True)[1])
    return np.array(numbered, np.uint16)
