"""Tallies whose columns are those of a Hadamard matrix, or of several."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from deniable.mechanisms.listed.general_hadamard import GeneralHadamard
from deniable.mechanisms.listed.hadamard import Hadamard
from deniable_aggregator.decode.families.family import Counted
from deniable_aggregator.decode.families.law import Law, ListedCells, listed, parity
from deniable_aggregator.decode.families.pairs import PairSupport, digits, lines
from deniable_aggregator.decode.families.transforms import walsh_hadamard
from deniable_aggregator.decode.support_estimate import Supported

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from deniable_aggregator.decode.estimate import Estimate
    from deniable_aggregator.tally import Tally


class OneMatrix(Counted[Hadamard]):
    """Value v is supported by the columns where row v + 1 of the matrix is +1."""

    @property
    def mixed(self) -> bool:
        """A value is supported by half of the columns."""
        return True

    def supports(self, tally: Tally) -> NDArray[np.int64]:
        """Take half of (n + transform), which is the sum of the columns with +1."""
        transform = walsh_hadamard(tally.counts[0])
        return (tally.n + transform[1 : self.mechanism.domain_size + 1]) // 2

    def unused(self, tally: Tally) -> NDArray[np.int64]:
        """Take the rows after those of the values."""
        return (tally.n + walsh_hadamard(tally.counts[0])[self.mechanism.domain_size + 1 :]) // 2

    def pairs(self, p: float, q: float) -> PairSupport:
        """Compute for rows of which two are independent, and the product of two is a third."""
        size = self.mechanism.domain_size
        vectors = digits(np.arange(1, size + 1), 2, size.bit_length())
        return PairSupport(p, q, held=p * q, aligned=p * q, unrelated=q * q, lines=lines(np.diag([0, 1]), vectors))

    def law(self, values: Sequence[int] | None) -> Law:
        """List the columns of each value."""
        numbers, columns = np.arange(self.mechanism.domain_size)[:, None], np.arange(self.mechanism.layout.width)
        return ListedCells(self.mechanism, values, listed(parity(numbers + 1 & columns) == 0))


class Blocks(Counted[GeneralHadamard]):
    """Each value has a row of the matrix of its block. Reports that missed the set of its block oppose it."""

    def independent_estimate(self, tally: Tally, values: Sequence[int] | None) -> Estimate:
        """Count the reports that support each value, less those that oppose it."""
        blocks, rows = self.mechanism.slots(np.arange(self.mechanism.domain_size))
        table = tally.counts.reshape(self.mechanism.blocks, -1)
        transform = walsh_hadamard(table)
        return self.of(tally, values, transform[blocks, rows], table.sum(axis=1)[blocks])

    def nobody(self, values: int, n: int) -> Estimate:
        """Return what touches them by chance: the variance at 0 is the share of reports that touch a value, over p^2."""
        touched = round(n * self.mechanism.variance(0.0, 1) * float(self.mechanism.p) ** 2)
        return Supported(self.mechanism, n, np.zeros(values, np.int64), np.full(values, touched))

    def law(self, values: Sequence[int] | None) -> Law:
        """List the columns of each value."""
        size, columns = self.mechanism.size, np.arange(self.mechanism.layout.width)
        blocks, own = self.mechanism.slots(np.arange(self.mechanism.domain_size)[:, None])
        supports = (blocks == columns // size) & (parity(own & columns % size) == 0)
        return ListedCells(self.mechanism, values, listed(supports))
