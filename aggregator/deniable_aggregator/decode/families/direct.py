"""Tallies whose columns are the values themselves: a report names one, names several, or has a bit for each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from deniable.mechanisms.base import FrequencyOracle
from deniable_aggregator import tally as tallies
from deniable_aggregator.decode.families.family import Counted, topped
from deniable_aggregator.decode.families.law import Law, ListedCells, OwnBits
from deniable_aggregator.decode.families.pairs import independent, sets

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from deniable_aggregator.decode.families.pairs import PairSupport
    from deniable_aggregator.tally import Tally

    Integers = NDArray[np.int64]


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


class Sets(Named):
    """A report names a fixed number of values."""

    def law(self, values: Sequence[int] | None) -> Law:
        """Return the law of sets."""
        return _SetLaw(self.mechanism, values)


class _SetLaw(Law):
    """The values are passed in order.

    Of the reports with r picks left among m values, Bin(., r / m) name this one. Those whose own value it is are drawn
    hypergeometrically.
    """

    def draw(self, held: Integers, rng: np.random.Generator) -> Tally:
        """Draw who names each value."""
        d, size, n = self.mechanism.domain_size, self.mechanism.size, int(held.sum())
        naming = rng.binomial(held, float(self.mechanism.p))  # reports that name their own value
        leaving = [held - naming, naming]
        # Reports by the picks left among the others: those whose own value is still to come, by whether they name it; the rest.
        ahead = np.zeros((2, size + 1), np.int64)
        ahead[0, size], ahead[1, size - 1] = leaving[0].sum(), leaving[1].sum()
        behind, picks, counts = np.zeros(size + 1, np.int64), np.arange(size + 1), naming.copy()
        for value in range(d):
            at = np.flatnonzero(ahead.any(axis=0) | (behind > 0))
            near = slice(at[0], at[-1] + 1)  # picks left are spread over a few numbers
            left = picks[near]
            moved = np.zeros(len(left), np.int64)
            for kind in (0, 1):
                if leaving[kind][value]:
                    gone = rng.multivariate_hypergeometric(ahead[kind, near], leaving[kind][value], method="marginals")
                    ahead[kind, near] -= gone
                    moved += gone
            groups = [(behind, d - value)] + [(ahead[kind], d - value - 1) for kind in (0, 1)]
            for group, values in groups:
                if values and group[near].any():
                    named = rng.binomial(group[near], np.minimum(left / values, 1.0))
                    counts[value] += named.sum()
                    group[near] -= named
                    group[near.start - 1 if near.start else 0 : near.stop - 1] += named if near.start else named[1:]
            behind[near] += moved
        return tallies.Tally(self.mechanism.layout, counts[None, :], np.array([n]))
