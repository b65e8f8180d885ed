"""Tallies of sets of one size: the bits of a report depend on each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from deniable_aggregator import tally
from deniable_aggregator.decode.families.direct import Named
from deniable_aggregator.decode.families.law import Law

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Integers = NDArray[np.int64]


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

    def draw(self, held: Integers, rng: np.random.Generator) -> tally.Tally:
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
        return tally.Tally(self.mechanism.layout, counts[None, :], np.array([n]))
