"""Tallies of sets: rows of a few options, or a bit for each option."""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from deniable_aggregator import tally as tallies
from deniable_aggregator.decode.families.family import Family, topped
from deniable_aggregator.decode.families.law import spread

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from deniable.mechanisms.sets import OfSets
    from deniable_aggregator.decode.sets.option_estimate import OptionShares
    from deniable_aggregator.tally import Tally

    Integers = NDArray[np.int64]
    Floats = NDArray[np.float64]


class Options(Family[Any]):
    """Of a mechanism for sets."""

    mechanism: OfSets

    @abstractmethod
    def count_options(self, tally: Tally) -> tuple[Integers, Integers]:
        """Count, for each option, the reports that say that it is chosen, and those that are about it."""

    @abstractmethod
    def common(self, tally: Tally, places: NDArray[np.intp]) -> Integers:
        """Count the reports that are about an option of these places and another one, (places, options)."""

    @abstractmethod
    def total_variance(self, tally: Tally, shares: OptionShares) -> float:
        """Estimate the variance of the sum of all shares."""

    @abstractmethod
    def draw_sets(self, n: int, shares: Floats, rng: np.random.Generator) -> Tally:
        """Draw the tally of n people. Some share of them has each option in their answer once it is cut, whatever the others."""


class Rows(Options):
    """Each row is about a few options."""

    mechanism: Any

    @cached_property
    def _groups(self) -> NDArray[np.intp]:
        """The options of each row, (rows, options)."""
        return np.array(self.mechanism.groups)

    def count_options(self, tally: Tally) -> tuple[Integers, Integers]:
        """Add up the rows with an option, and the cells that say yes."""
        support, covering = (np.zeros(self.mechanism.options_listed, np.int64) for _ in range(2))
        for place, named in enumerate(self._groups.T):
            np.add.at(support, named, tally.counts[:, self._with(place)].sum(axis=1))
            np.add.at(covering, named, tally.reports)
        return support, covering

    def _with(self, *places: int) -> NDArray[np.intp]:
        """Return the cells that say yes of these places of a row."""
        bits = sum(1 << place for place in places)
        return np.flatnonzero((np.arange(self.mechanism.layout.width) & bits) == bits)

    def common(self, tally: Tally, places: NDArray[np.intp]) -> Integers:
        """Add up the rows with both options."""
        reports = np.zeros((self.mechanism.options_listed,) * 2, np.int64)
        for first, second in combinations(self._groups.T, 2):
            np.add.at(reports, (first, second), tally.reports)
            np.add.at(reports, (second, first), tally.reports)
        return reports[places]

    def total_variance(self, tally: Tally, shares: OptionShares) -> float:
        """Add to the variances of all options the covariances that reports about several show, if they are above 0 together."""
        # Few reports about an option may all say the same by chance. So two of each kind are added for the variance.
        # A. Agresti, B. Coull: Approximate is better than "exact" for binomial proportions. American Statistician 52(2), 1998.
        smoothed, together = (shares.support + 2) / (shares.covering + 4), 0.0
        alone = shares.support / shares.covering
        for a, b in combinations(range(self._groups.shape[1]), 2):
            first, second = self._groups[:, a], self._groups[:, b]
            excess = tally.counts[:, self._with(a, b)].sum(axis=1) - tally.reports * alone[first] * alone[second]
            together += 2 * float((excess / shares.covering[first] / shares.covering[second]).sum())
        variance = float((smoothed * (1 - smoothed) / shares.covering).sum()) + max(together, 0.0)
        return variance / shares.channel.gain**2

    def likelihood(self, table: NDArray[np.uint8], values: NDArray[Any]) -> NDArray[np.float32]:
        """Compute the probability of what each report says, given its row, under each set."""
        payloads, places = self.distinct(table, len(values))
        cells = [self.mechanism.layout.unpack(payload) for payload in payloads]
        true = np.array([[self.mechanism.index(value, row) == named for value in values.tolist()] for row, named in cells])
        return topped(np.where(true, float(self.mechanism.keep), float(self.mechanism.other)))[places]

    def draw_sets(self, n: int, shares: Floats, rng: np.random.Generator) -> Tally:
        """Draw what people choose of the options of their row alone."""
        mechanism, layout = self.mechanism, self.mechanism.layout
        chances = np.ones((layout.rows, 1))
        for share in np.asarray(shares)[self._groups].T:  # bit k of an index is the row's option k
            chances = np.hstack([chances * (1 - share[:, None]), chances * share[:, None]])
        held = rng.multinomial(spread(n, layout.rows, rng), chances)
        named = rng.binomial(held, float(mechanism.keep - mechanism.other))
        named += rng.multinomial((held - named).sum(axis=1), np.full(layout.width, 1 / layout.width))
        return tallies.from_cells(layout, named.ravel())


class Padded(Options):
    """A report has a bit for each option, and is about all of them."""

    mechanism: Any

    def count_options(self, tally: Tally) -> tuple[Integers, Integers]:
        """Return the bits."""
        return tally.counts[0], np.full(self.mechanism.options_listed, tally.n)

    def common(self, tally: Tally, places: NDArray[np.intp]) -> Integers:
        """Every report is about all options."""
        return np.full((len(places), self.mechanism.options_listed), tally.n)

    def total_variance(self, tally: Tally, shares: OptionShares) -> float:
        """Bound it by the number of options that a report names."""
        # A report names k options, or less by as many blanks as it has. A number between a and b with the mean x has a variance
        # of (b - x) (x - a) at most. Two reports of a and two of b are added for it, so that few reports of one number do not
        # make it 0.
        # R. Bhatia, C. Davis: A better bound on the variance. The American Mathematical Monthly 107(4), 2000.
        high = self.mechanism.size
        low = high - min(self.mechanism.most, high)
        mean = (int(tally.counts.sum()) + 2 * (low + high)) / (tally.n + 4)
        return float((high - mean) * (mean - low) / shares.channel.gain**2 / tally.n)

    def likelihood(self, table: NDArray[np.uint8], values: NDArray[Any]) -> NDArray[np.float32]:
        """Ask the mechanism."""
        payloads, places = self.distinct(table, len(values))
        rows = [[float(self.mechanism.likelihood(payload, value)) for value in values.tolist()] for payload in payloads]
        return topped(np.array(rows))[places]

    def draw_sets(self, n: int, shares: Floats, rng: np.random.Generator) -> Tally:
        """Draw how many reports name each option, one by one. What a report says of two options at once is not simulated."""
        chosen, other = (float(each) for each in self.mechanism.yes)
        counts = rng.binomial(n, other + np.asarray(shares) * (chosen - other))
        return tallies.Tally(self.mechanism.layout, counts[None, :].astype(np.int64), np.array([n]))
