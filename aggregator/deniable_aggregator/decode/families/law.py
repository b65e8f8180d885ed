"""The law of a tally: drawn by the exact probabilities of cells and bits, in a time that does not grow with the people.

Each of these laws holds for some mechanisms, and is exact, joint over all cells:

* a report names a cell: with one probability a cell that supports the value, with a lower one any other. So some reports name a
  cell of the value's own, and the others any cell at all;
* a report has a row, and independent bits in it: two binomials for each bit.

`subset` and `window` have laws of their own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np

from deniable_aggregator import tally

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from deniable.mechanisms import Mechanism

    Integers = NDArray[np.int64]


class Law(ABC):
    """Draws the tally of people who hold given values, each of whom sends one report."""

    def __init__(self, mechanism: Mechanism, values: Sequence[int] | None) -> None:
        self.mechanism: Any = mechanism
        self.layout = mechanism.layout
        self.values = np.arange(mechanism.domain_size) if values is None else np.array(values, object)
        bounds = mechanism.bounds()
        self.low, self.high = float(bounds.low), float(bounds.high)

    @abstractmethod
    def draw(
        self,
        held: Integers,  # (values,), how many people hold each
        rng: np.random.Generator,  # where chance comes from
    ) -> tally.Tally:
        """Draw their reports."""


class CellLaw(Law):
    """A report names a cell, and each value has cells of its own."""

    @property
    @abstractmethod
    def own_cells(self) -> int:
        """How many cells support a value."""

    @abstractmethod
    def cells(self, number: int, picks: Integers) -> Integers:
        """Return some of the cells that support the value of this number, each picked by its own number."""

    def draw(self, held: Integers, rng: np.random.Generator) -> tally.Tally:
        """Let some reports name a cell that supports their value, and the others any cell."""
        size, every = self.own_cells, self.layout.rows * self.layout.width
        supporting = rng.binomial(held, min((self.high - self.low) * size / self.layout.rows, 1.0))
        counts = spread(int(held.sum() - supporting.sum()), every, rng)
        few = np.flatnonzero((supporting > 0) & (supporting < size))
        picks = np.split(rng.integers(0, size, supporting[few].sum()), np.cumsum(supporting[few]))
        cells = [self.cells(number, own) for number, own in zip(few.tolist(), picks, strict=False)]  # the last has none
        if cells:
            counts += np.bincount(np.concatenate(cells), minlength=every)
        for number in np.flatnonzero(supporting >= size).tolist():
            counts[self.cells(number, np.arange(size))] += spread(int(supporting[number]), size, rng)
        return tally.from_cells(self.layout, counts)


class ListedCells(CellLaw):
    """The cells of each value are listed."""

    def __init__(
        self,
        mechanism: Mechanism,
        values: Sequence[int] | None,
        table: Integers,  # (values of the domain, cells): those that support each
    ) -> None:
        super().__init__(mechanism, values)
        self._table = table[self.values.astype(np.int64)]

    @property
    def own_cells(self) -> int:
        """How many cells support a value."""
        return int(self._table.shape[1])

    def cells(self, number: int, picks: Integers) -> Integers:
        """Look them up."""
        return np.asarray(self._table[number, picks], np.int64)


class BitLaw(Law):
    """A report has a row, and independent bits in it."""

    @abstractmethod
    def bits(self, number: int) -> tuple[Integers, Integers]:
        """Return the rows and the places of all bits that stand for the value of this number."""

    def draw(self, held: Integers, rng: np.random.Generator) -> tally.Tally:
        """Set each bit with the high probability where it is a report's own, else with the low one."""
        reports = np.zeros(self.layout.rows, np.int64)
        own = np.zeros((self.layout.rows, self.layout.width), np.int64)
        for number in np.flatnonzero(held).tolist():
            people = spread(int(held[number]), self.layout.rows, rng)
            rows, places = self.bits(number)
            own[rows, places] += people[rows]  # the bits of one value differ
            reports += people
        counts = rng.binomial(own, self.high) + rng.binomial(reports[:, None] - own, self.low)
        return tally.Tally(self.layout, counts, reports)


class OwnBits(BitLaw):
    """Each value has a bit of its own, in the only row."""

    def bits(self, number: int) -> tuple[Integers, Integers]:
        """Return it."""
        return np.arange(1), np.array([int(self.values[number])])


def spread(people: int, places: int, rng: np.random.Generator) -> Integers:
    """Spread people over places, all alike."""
    if people < places:
        return np.bincount(rng.integers(0, places, people), minlength=places)
    return rng.multinomial(people, np.full(places, 1 / places))


def parity(numbers: Any) -> Integers:
    """Return the parity of each number's bits."""
    return np.asarray(np.bitwise_count(numbers) & 1, np.int64)


def listed(supports: NDArray[np.bool_]) -> Integers:
    """List the cells that support each value, as many for each, of a table (values, cells)."""
    return np.nonzero(supports)[1].reshape(len(supports), -1)
