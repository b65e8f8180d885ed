"""Tallies whose columns are the values themselves: a report names one, or has a bit for each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from deniable.mechanisms.base import FrequencyOracle
from deniable_aggregator.decode.families.family import Counted, topped
from deniable_aggregator.decode.families.law import Law, ListedCells, OwnBits
from deniable_aggregator.decode.families.pairs import independent, sets

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from deniable_aggregator.decode.families.pairs import PairSupport
    from deniable_aggregator.tally import Tally


class Named(Counted[FrequencyOracle]):
    """A report names a value."""

    def supports(self, tally: Tally) -> NDArray[np.int64]:
        """Return the columns."""
        return tally.counts[0, : self.mechanism.domain_size]

    def pairs(self, p: float, q: float) -> PairSupport:
        """Compute for sets of one size."""
        return sets(p, q, self.mechanism.domain_size)

    def law(self, values: Sequence[int] | None) -> Law:
        """Return the law of cells, of which each value has one."""
        return ListedCells(self.mechanism, values, np.arange(self.mechanism.domain_size)[:, None])


class Marked(Named):
    """A report has an independent bit for each value."""

    def pairs(self, p: float, q: float) -> PairSupport:
        """Compute for independent bits."""
        return independent(p, q)

    def likelihood(self, table: NDArray[np.uint8], values: NDArray[Any]) -> NDArray[np.float32]:
        """Read the bit of each value."""
        bits = np.unpackbits(table, axis=1, count=self.mechanism.layout.width, bitorder="little")[:, values.astype(np.int64)]
        return topped(np.where(bits, np.float32(1), np.float32(1 / self.mechanism.ratio)))

    def law(self, values: Sequence[int] | None) -> Law:
        """Return the law of bits, of which each value has one."""
        return OwnBits(self.mechanism, values)
