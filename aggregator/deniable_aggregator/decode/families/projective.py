"""Tallies whose columns are the points of a finite geometry."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from deniable.mechanisms.listed.projective import Projective
from deniable_aggregator.decode.families.family import Counted
from deniable_aggregator.decode.families.law import Law, ListedCells, listed
from deniable_aggregator.decode.families.pairs import digits, lines, sets
from deniable_aggregator.decode.families.transforms import hyperplane_sums

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from deniable_aggregator.decode.families.pairs import PairSupport
    from deniable_aggregator.tally import Tally


class Points(Counted[Projective]):
    """A value is supported by the points of its hyperplane."""

    @property
    def mixed(self) -> bool:
        """A hyperplane has many points."""
        return True

    def supports(self, tally: Tally) -> NDArray[np.int64]:
        """Sum, for each value, the points of its hyperplane."""
        return self._sums(tally, self.mechanism.domain_size)

    def unused(self, tally: Tally) -> NDArray[np.int64]:
        """Sum the points of the other hyperplanes."""
        return self._sums(tally, self.mechanism.layout.width)[self.mechanism.domain_size :]

    def _sums(self, tally: Tally, hyperplanes: int) -> NDArray[np.int64]:
        return hyperplane_sums(self.mechanism.field.order, self.mechanism.dimension, tally.counts[0], hyperplanes)

    def pairs(self, p: float, q: float) -> PairSupport:
        """Compute for hyperplanes, which are sets of one size, too. A line has a point more than the field has elements."""
        field, dimension = self.mechanism.field, self.mechanism.dimension
        vectors = np.concatenate([np.arange(field.order**length, 2 * field.order**length) for length in range(dimension)])
        products = np.array([[field.mul(a, b) for b in range(field.order)] for a in range(field.order)])
        through = lines(products, digits(vectors[: self.mechanism.domain_size], field.order, dimension))
        return sets(p, q, self.mechanism.layout.width, field.order, through)

    def law(self, values: Sequence[int] | None) -> Law:
        """List the points of each hyperplane."""
        return ListedCells(self.mechanism, values, listed(self._hyperplanes()))

    def _hyperplanes(self) -> NDArray[np.bool_]:
        """Return which points lie on each value's hyperplane; (values, points)."""
        mechanism = self.mechanism
        q, t = mechanism.field.order, mechanism.dimension
        vectors = np.array([mechanism.vector(point) for point in range(mechanism.layout.width)])
        table = np.array([[mechanism.field.dot([a], [b]) for b in range(q)] for a in range(q)])
        coordinates = [vectors // q**i % q for i in range(t)]
        total = np.zeros((mechanism.domain_size, len(vectors)), np.int64)
        for i in range(t):
            product = table[coordinates[t - 1 - i][: mechanism.domain_size, None], coordinates[i]]
            total = (total + product) % q if q & 1 else total ^ product
        return np.asarray(total == 0)
