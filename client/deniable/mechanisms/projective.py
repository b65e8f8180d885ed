"""Projective geometry response: name a point of a finite geometry, likelier one on the value's hyperplane."""

from __future__ import annotations

from bisect import bisect
from fractions import Fraction
from functools import lru_cache
from itertools import islice
from math import isqrt
from typing import TYPE_CHECKING, Any

from deniable.errors import ParameterError
from deniable.exact.epsilon import UNIT, weight
from deniable.exact.finite_field import Field, is_order
from deniable.mechanisms.base import Bounds, Mechanism, mean_variance
from deniable.source import ONE, ZERO
from deniable.wire.layout import MAX_CELLS, Layout

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deniable.source import Source

__all__ = ["Projective", "points"]

_LISTED = 1024  # answers in all, up to which listing them takes a few milliseconds


class Projective(Mechanism):
    """Projective geometry response: a point of the value's own hyperplane is e^eps times as likely as any other point.

    The K = (q^t - 1) / (q - 1) points of the geometry are the vectors of t coordinates over a field of q elements, of which
    the first that is not 0 is 1. A vector is written as the number whose base-q digits are its coordinates, the first one
    highest, and the points are numbered in the order of their vectors. So those with at most m digits after their 1 come
    first, (q^(m+1) - 1) / (q - 1) of them, and a point's number is its vector less what m alone decides.

    Point x supports value v, which is point v, where x_1 v_t + x_2 v_(t-1) + ... + x_t v_1 = 0. A share of about 1/q of all
    points supports a value, and 1/q^2 any two. Order and dimension are those of least exact variance that have a point for
    each value and a cell for each point; q is near e^eps + 1.

    The standard error is within 2.5 percent of the subset mechanism's, the best there is, for domains of 32 e^eps to 65,536
    values, and within 2 percent from 64 e^eps, in 1 to 3 bytes. In smaller ones it is up to 40 percent larger, unless a geometry
    happens to fit. In larger ones it depends on whether a field of nearly e^eps + 1 elements leaves no more points than a tally
    has cells.

    References
    ----------
    V. Feldman, J. Nelson, H. Nguyen, K. Talwar: Private frequency estimation via projective geometry. ICML 2022.
    """

    name = "pgr"
    summary = "name a point of a finite geometry, with odds e^epsilon one on a hyperplane of the value's own"

    field: Field
    dimension: int

    _firsts: tuple[int, ...]  # the number of the first point with m digits after its 1, for each m
    _powers: tuple[int, ...]  # its vector, 1 and m zeros
    _gaps: tuple[int, ...]  # vector less number, by how many of either are not greater; first, the zero vector less -1
    _pairs: tuple[tuple[int, int], ...]  # the weights of the digits that meet in a product
    _listed: tuple[tuple[tuple[bytes, ...], tuple[bytes, ...]], ...] | None = (
        None  # of a small domain, every value's points, beside and on
    )

    def _parameters(self) -> dict[str, Any]:
        kept, d = weight(self.requested), self.domain_size
        fitting = list(_geometries(d))
        if not fitting:
            raise ParameterError(f"a geometry with a point for each value has at most {MAX_CELLS} points", d)
        # Floats leave a few to be compared exactly, which takes longer than all else.
        rough = [_roughly(order, dimension, kept / UNIT, d) for order, dimension in fitting]
        least = min(rough) * (1 + 1e-6)
        few = [each for each, variance in zip(fitting, rough, strict=True) if variance <= least]
        order, dimension = min(few, key=lambda g: mean_variance(*_support(g[0], g[1], kept), d))
        p, q = _support(order, dimension, kept)
        firsts = tuple(points(order, digits) for digits in range(dimension))
        powers = tuple(order**digits for digits in range(dimension))
        return {
            "ratio": Fraction(kept, UNIT),
            "p": p,
            "q": q,
            "layout": Layout(1, points(order, dimension), "index"),
            "field": Field(order),
            "dimension": dimension,
            "_firsts": firsts,
            "_powers": powers,
            "_gaps": (1, *(power - first for power, first in zip(powers, firsts, strict=True))),
            "_pairs": tuple(zip(powers, reversed(powers), strict=True)),
        }

    @property
    def constants(self) -> dict[str, Any]:
        """The geometry, and the probability of a point on the hyperplane."""
        return {"order": self.field.order, "dimension": self.dimension, "polynomial": self.field.polynomial, "keep": self.p}

    def _list(self) -> None:
        """List what a small domain can answer: all of it, so that a report is looked up, whatever the value."""
        every, on = self.layout.width, points(self.field.order, self.dimension - 1)
        listed = []
        if self.domain_size * every <= _LISTED:
            listed = [
                (
                    tuple(self._find(value, (ZERO[0], 0, beside)) for beside in range(every - on)),
                    tuple(self._find(value, (ONE[0], point, 0)) for point in range(on)),
                )
                for value in range(self.domain_size)
            ]
        self._set(_listed=tuple(listed))

    def noise(self, source: Source, count: int) -> list[Any]:
        """Draw whether each report is on the hyperplane, and which point it is of those that are on it, and of the others."""
        every, on = self.layout.width, points(self.field.order, self.dimension - 1)
        sides = source.bits(self.p.numerator, self.p.denominator, count)
        return list(zip(sides, source.indices(on, count), source.indices(every - on, count), strict=True))

    def respond(self, value: int, noise: Any) -> bytes:
        """Find the drawn point on the drawn side."""
        if self._listed is None:  # at the first report, since most metrics that could have this mechanism take another
            self._list()
        if not self._listed:
            return self._find(value, noise)
        side, on, beside = noise
        off, inside = self._listed[value]
        return (off[beside], inside[on])[side & 1]  # type: ignore[no-any-return]

    def _find(self, value: int, noise: Any) -> bytes:
        """Find the drawn point on the drawn side.

        The first digit of the value that is not 0 is 1. The digit of x that it is multiplied by is the hinge: whatever the
        others, it can be set so that the product is any residue wanted, 0 on the hyperplane. The digits above the hinge
        (`high`) and below it (`low`, which have no part in the product) are drawn such that x needs no division to be a point:

        * on the hyperplane, high and low together are a point of one dimension less. Where high is zero, so is the hinge;
        * beside it, high is a point and the residue is any but 0; or high is zero, and the residue and so the hinge are 1.
        """
        side, on, beside = noise
        firsts, powers, gaps, q = self._firsts, self._powers, self._gaps, self.field.order
        place = bisect(firsts, value)
        vector, hinge = value + gaps[place], powers[-place]
        # Both sides are made, and one is taken: as many steps for either.
        rest, below = divmod(beside, hinge)
        point, residue = divmod(rest - 1, q - 1)  # from 0, number -1 and residue 1
        off = point + gaps[bisect(firsts, point)], below, q - 1 - residue
        high, low, residue = (off, (*divmod(on + gaps[bisect(firsts, on)], hinge), 0))[side & 1]  # ord("1") is odd
        drawn = high * q * hinge + low
        exponentials, logarithms = self.field.powers, self.field.logarithms
        if exponentials:  # the residue less the product, written out: this is most of what a report costs
            for power, other in self._pairs:
                residue ^= exponentials[logarithms[drawn // power % q] + logarithms[vector // other % q]]
        else:
            for power, other in self._pairs:
                residue -= drawn // power % q * (vector // other % q)
            residue %= q
        found = drawn + residue * hinge
        return (found - gaps[bisect(powers, found)]).to_bytes(self.layout.payload_size, "little")  # type: ignore[no-any-return]

    def supported(self, payload: bytes) -> set[int]:
        """Return the values whose hyperplane has the point named."""
        point = self._vector(self.layout.unpack(payload)[1])
        return {value for value in range(self.domain_size) if not self._product(point, self._vector(value))}

    def bounds(self) -> Bounds:
        """Bound the probability of a point."""
        every, on = self.layout.width, points(self.field.order, self.dimension - 1)
        return Bounds((1 - self.p) / (every - on), self.p / on)

    def _vector(self, point: int) -> int:
        return point + self._gaps[bisect(self._firsts, point)]

    def _product(self, point: int, vector: int) -> int:
        q, powers = self.field.order, self._powers
        return self.field.dot([point // power % q for power in powers], [vector // power % q for power in reversed(powers)])


def points(order: int, dimension: int) -> int:
    """Count the points of the geometry of vectors of `dimension` coordinates over a field of `order` elements."""
    vectors: int = order**dimension - 1
    return vectors // (order - 1)


def _support(order: int, dimension: int, kept: int) -> tuple[Fraction, Fraction]:
    """Compute p and q from the points that support a value, and from those that support two."""
    one, both = points(order, dimension - 1), points(order, dimension - 2)
    total = one * kept + (points(order, dimension) - one) * UNIT
    return Fraction(one * kept, total), Fraction(both * kept + (one - both) * UNIT, total)


def _roughly(order: int, dimension: int, ratio: float, domain_size: int) -> float:
    """Compute the mean variance of a geometry as a float: as the exact one is, to about nine digits."""
    every, one, both = (_points(order, dimension - less) for less in range(3))
    total = one * ratio + every - one
    p, q = one * ratio / total, (both * ratio + one - both) / total
    # p - q is written out: it is small beside both of them in large geometries.
    return (p * (1 - p) + (domain_size - 1) * q * (1 - q)) / (domain_size * ((one - both) * (ratio - 1) / total) ** 2)


def _geometries(domain_size: int) -> Iterator[tuple[int, int]]:
    """Give the order and the dimension of each geometry worth considering, for a domain of this size.

    In two dimensions a hyperplane is one point, as in randomized response, so no order but the least that fits can be best.
    """
    lines = (order for order in range(max(2, domain_size - 1), MAX_CELLS) if is_order(order))
    yield from ((order, 2) for order in islice(lines, 1))
    yield from ((order, dimension) for order, dimension, number in _spaces() if number >= domain_size)


@lru_cache(maxsize=1)
def _spaces() -> tuple[tuple[int, int, int], ...]:
    """Return order, dimension and number of points of each geometry of three or more dimensions that a tally has cells for."""
    return tuple(
        (order, dimension, points(order, dimension))
        for dimension in range(3, MAX_CELLS.bit_length() + 1)
        for order in _orders()
        if points(order, dimension) <= MAX_CELLS
    )


_points = lru_cache(maxsize=None)(points)


@lru_cache(maxsize=1)
def _orders() -> tuple[int, ...]:
    """Return the orders, smallest first, of the fields whose plane may have no more points than a tally has cells."""
    return tuple(order for order in range(2, isqrt(MAX_CELLS)) if is_order(order))
