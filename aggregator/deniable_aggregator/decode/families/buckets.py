"""Tallies of noisy bits about a few of the values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from deniable.mechanisms.permanent.dbitflip import DBitFlip
from deniable_aggregator.decode import bucket_estimate
from deniable_aggregator.decode.families.family import Counted, topped
from deniable_aggregator.decode.families.law import BitLaw, Law
from deniable_aggregator.decode.families.pairs import independent_bits
from deniable_aggregator.tally import kernels

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from deniable_aggregator.decode.estimate import Estimate
    from deniable_aggregator.decode.families.pairs import PairSupport
    from deniable_aggregator.tally import Tally

    Integers = NDArray[np.int64]


class Buckets(Counted[DBitFlip]):
    """A report covers the values of its set."""

    def independent_estimate(self, tally: Tally, values: Sequence[int] | None) -> Estimate:
        """Count the reports that support each value, and those that cover it."""
        if self.mechanism.layout.rows == 1:  # every report covers all values
            return super().independent_estimate(tally, values)
        return bucket_estimate.of(self.mechanism, tally, values)

    def supports(self, tally: Tally) -> NDArray[np.int64]:
        """Return the columns, if every report covers all values."""
        return tally.counts[0] if self.mechanism.layout.rows == 1 else super().supports(tally)

    def pairs(self, p: float, q: float) -> PairSupport:
        """Compute for independent bits."""
        return independent_bits(p, q)

    def likelihood(self, table: NDArray[np.uint8], values: NDArray[Any]) -> NDArray[np.float32]:
        """Compute how much more likely each report is under each value than under a value outside of its set."""
        mechanism = self.mechanism
        d, row_size = mechanism.buckets, mechanism.layout.row_size
        firsts = np.fromiter(map(mechanism.first, range(mechanism.layout.rows)), np.int64)
        rows = kernels.widen(table[:, :row_size]).astype(np.int64)
        places = (values.astype(np.int64) - firsts[rows, None]) % mechanism.domain_size
        bits = np.unpackbits(table[:, row_size:], axis=1, count=d, bitorder="little")
        odds = np.float32(mechanism.one / mechanism.other)
        held = np.where(np.take_along_axis(bits, np.minimum(places, d - 1), axis=1), odds, 1 / odds)
        return topped(np.where(places < d, held, np.float32(1)))

    def law(self, values: Sequence[int] | None) -> Law:
        """Return the law of bits of the sets that have a value."""
        return _BucketLaw(self.mechanism, values)

    def nobody(self, values: int, n: int) -> Estimate:
        """Return what covers them on average."""
        if self.mechanism.layout.rows == 1:
            return super().nobody(values, n)
        covering = round(n * self.mechanism.buckets / self.mechanism.domain_size)
        return bucket_estimate.Partial(self.mechanism, n, np.zeros(values, np.int64), np.full(values, covering))


class _BucketLaw(BitLaw):
    def bits(self, number: int) -> tuple[Integers, Integers]:
        """Return one in each set that has the value."""
        rows = np.arange(self.layout.rows)
        first = np.array([self.mechanism.first(row) for row in range(len(rows))])
        places = (int(self.values[number]) - first) % self.mechanism.domain_size
        return rows[places < self.mechanism.buckets], places[places < self.mechanism.buckets]
