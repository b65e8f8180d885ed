"""Pair support: how likely a report supports both of two values. This gives the covariance of a mechanism's estimates.

Hash functions, a Hadamard matrix and a finite geometry arrange the values in lines. If the sender holds a third value on the line
through two values, the probability for these two is another one than if the sender holds a value beside that line.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache, singledispatch
from typing import TYPE_CHECKING

import numpy as np

from deniable.errors import ParameterError
from deniable.exact.hashing import LinearFamily, LineFamily
from deniable.mechanisms.coin import Coin
from deniable.mechanisms.dbitflip import DBitFlip
from deniable.mechanisms.direct import Grr
from deniable.mechanisms.hadamard import Hadamard
from deniable.mechanisms.local_hash import LocalHash
from deniable.mechanisms.projective import Projective
from deniable.mechanisms.rappor import Bloom
from deniable.mechanisms.sketch import Sketch
from deniable.mechanisms.subset import Subset
from deniable.mechanisms.unary import Oue, Sue

if TYPE_CHECKING:
    from fractions import Fraction

    from numpy.typing import NDArray

    from deniable.mechanisms.base import FrequencyOracle


@dataclass(frozen=True, slots=True, eq=False)
class PairSupport:
    """The probabilities that a report supports both of two values."""

    # p, q: probabilities that a report supports the value that its sender holds, and another one
    p: float
    q: float
    held: float  # probability that it supports both, if the sender holds one of them
    aligned: float  # the same, if the sender holds a third value on the line through both
    apart: float  # the same, if the sender holds any other value
    # (values, values). Row u has, for each other value, the number of the line through it and u. None if no line has a third
    # value.
    lines: NDArray[np.uint16] | None = None

    def covariance(self, f: NDArray[np.float64], n: float) -> NDArray[np.float64]:
        """Compute the covariance of all estimates from n reports, in a population with these shares."""
        s = self.q + f * (self.p - self.q)
        both = self.apart + (self.held - self.apart) * (f[:, None] + f)
        if self.lines is not None:
            third = np.array([np.bincount(line, f)[line] for line in self.lines]) - f
            both += (self.aligned - self.apart) * third
        both[np.diag_indices(len(f))] = s
        return np.asarray((both - np.outer(s, s)) / (n * (self.p - self.q) ** 2), np.float64)


def estimates_covariance(
    mechanism: FrequencyOracle, f: NDArray[np.float64], n: float, *, repeats: float = 0.0, kept: bool = False
) -> NDArray[np.float64]:
    """Compute the covariance of the estimates of all values, in the population that the respondents were drawn from.

    Parameters
    ----------
    mechanism
        What the devices ran; pure.
    f
        (values,), plausible shares.
    n
        Reports.
    repeats
        How many other reports the device of a report has made, on average, at most: see `deniable_aggregator.decode.panel`.
    kept
        Whether the devices keep their permanent responses.

    Returns
    -------
    ndarray of float
        (values, values).

    Raises
    ------
    ParameterError
        As `pair_support`.
    """
    apart = pair_support(mechanism).covariance(f, n)
    if not repeats:
        return apart
    # A person's reports share who the person is and, where it is kept, the permanent response.
    if kept and (permanent := mechanism.in_two_steps):
        return apart + pair_support(mechanism, permanent.permanent_support).covariance(f, n / repeats)
    return np.asarray(apart + (np.diag(f) - np.outer(f, f)) * repeats / n, np.float64)


@lru_cache(maxsize=4)
def pair_support(mechanism: FrequencyOracle, support: tuple[Fraction, Fraction] | None = None) -> PairSupport:
    """Compute the probabilities of pairs.

    Parameters
    ----------
    mechanism
        What the devices ran; pure, so if it sends bits, each value has one.
    support
        The p and q of what is asked about, such as a permanent response; by default those of a report.

    Raises
    ------
    ParameterError
        If no rule holds for all pairs, as with a pool of hash functions.
    """
    p, q = support or (mechanism.p, mechanism.q)
    return _pair_support(mechanism, float(p), float(q))


@singledispatch
def _pair_support(mechanism: FrequencyOracle, p: float, q: float) -> PairSupport:
    """Refuse: no rule is known."""
    del p, q
    raise ParameterError("pairs of values are counted in reports of a pure mechanism", mechanism.name)


@_pair_support.register(Sue)
@_pair_support.register(Oue)
@_pair_support.register(Bloom)
@_pair_support.register(DBitFlip)
def _(_: Sue | Oue | Bloom | DBitFlip, p: float, q: float) -> PairSupport:
    """Compute for independent bits, one for each value."""
    return PairSupport(p, q, held=p * q, aligned=q * q, apart=q * q)


@_pair_support.register(Coin)
@_pair_support.register(Grr)
@_pair_support.register(Subset)
def _(mechanism: Coin | Grr | Subset, p: float, q: float) -> PairSupport:
    """Compute for sets of one size."""
    return _sets(p, q, mechanism.domain_size)


@_pair_support.register(Projective)
def _(mechanism: Projective, p: float, q: float) -> PairSupport:
    """Compute for hyperplanes, all of one size, too. A line has a point more than the field has elements."""
    field, dimension = mechanism.field, mechanism.dimension
    vectors = np.concatenate([np.arange(field.order**digits, 2 * field.order**digits) for digits in range(dimension)])
    products = np.array([[field.mul(a, b) for b in range(field.order)] for a in range(field.order)])
    lines = _lines(products, _digits(vectors[: mechanism.domain_size], field.order, dimension))
    return _sets(p, q, mechanism.layout.width, field.order, lines)


def _sets(p: float, q: float, count: int, others: int = 1, lines: NDArray[np.uint16] | None = None) -> PairSupport:
    """Compute from the number of `count` values that every report supports.

    Of these pairs of values, those with the sender's own are equally likely. So are those with a given other value: of its
    partners, the sender's and all on the line through both are `others`, and the rest lie apart.
    """
    size = p + (count - 1) * q
    held = p * (size - 1) / (count - 1)
    rest = count - 1 - others
    apart = (q * (size - 1) - others * held) / rest if rest else 0.0
    return PairSupport(p, q, held, held, apart, lines)


@_pair_support.register(Hadamard)
def _(mechanism: Hadamard, p: float, q: float) -> PairSupport:
    """Compute for rows of which two are independent, and the product of two is a third."""
    vectors = _digits(np.arange(1, mechanism.domain_size + 1), 2, mechanism.domain_size.bit_length())
    return PairSupport(p, q, held=p * q, aligned=p * q, apart=q * q, lines=_lines(np.diag([0, 1]), vectors))


@_pair_support.register(LocalHash)
def _(mechanism: LocalHash, p: float, q: float) -> PairSupport:
    """Compute for the complete family that it always has."""
    return _hashed(mechanism.domain_size, mechanism.family, p, q)


@_pair_support.register(Sketch)
def _(mechanism: Sketch, p: float, q: float) -> PairSupport:
    """Compute for complete families. Each two values share a cell in one of the rows; in the others their cells differ."""
    family = mechanism.family
    if isinstance(family, LinearFamily):
        return _hashed(mechanism.domain_size, family, p, q)
    if not isinstance(family, LineFamily):
        raise ParameterError("pairs of values are counted with a complete family of hash functions", mechanism.name)
    elements = range(family.width)
    products = np.array([[family.hash(a, b * family.width) for b in elements] for a in elements])
    # Cells that differ are supported independently.
    other, one = float(mechanism.other), 1 / family.rows
    return PairSupport(
        p,
        q,
        held=one * p + (1 - one) * p * other,
        aligned=one * p + (1 - one) * other**2,
        apart=one * other + 2 * one * p * other + (1 - 3 * one) * other**2,
        lines=_lines(products, _affine(mechanism.domain_size, family.width, 2)),
    )


def _hashed(domain_size: int, family: LinearFamily, p: float, q: float) -> PairSupport:
    """Compute for a linear family. A function that gives two values one cell gives this cell to their whole line."""
    elements = np.arange(family.width)
    lines = _lines(np.outer(elements, elements) % family.width, _affine(domain_size, family.width, family.digits))
    return PairSupport(p, q, held=p * q, aligned=p * q, apart=q * q, lines=lines)


def _affine(domain_size: int, order: int, digits: int) -> NDArray[np.intp]:
    """Write values as vectors: a 1, then the digits."""
    return np.insert(_digits(np.arange(domain_size), order, digits), 0, 1, axis=1)


def _digits(numbers: NDArray[np.intp], order: int, digits: int) -> NDArray[np.intp]:
    return numbers[:, None] // order ** np.arange(digits)[::-1] % order


def _lines(products: NDArray[np.intp], vectors: NDArray[np.intp]) -> NDArray[np.uint16]:
    """Give each line through a point a number; see `PairSupport`.

    Parameters
    ----------
    products
        (q, q), the products of a field's elements. The order q is prime, or even; then a sum is an exclusive or.
    vectors
        (values, digits), the points. In each vector the first digit that is not 0 is 1.

    Notes
    -----
    The line through u and v has all points that are sums of their multiples. Of these, exactly one has digit 0 where u has its
    first 1: v less a multiple of u, divided by its own first digit. It identifies the line among those through u.
    """
    q, coordinates = len(products), vectors.T
    divided = products[(products == 1).argmax(axis=1)]
    lines = []
    for vector, one in zip(vectors, (vectors != 0).argmax(axis=1), strict=True):
        multiples = products[vector][:, coordinates[one]]
        rest = (coordinates - multiples) % q if q % 2 else coordinates ^ multiples
        first = np.take_along_axis(rest, (rest != 0).argmax(axis=0)[None], axis=0)
        numbers = q ** np.arange(len(rest)) @ divided[first, rest]
        lines.append(np.unique(numbers, return_inverse=True)[1])
    return np.array(lines, np.uint16)
