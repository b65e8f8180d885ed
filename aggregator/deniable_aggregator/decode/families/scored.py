"""Tallies of what is scored: the cells of a window."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from deniable.mechanisms.window import Window
from deniable_aggregator.decode.families.family import Family, topped
from deniable_aggregator.decode.families.law import CellLaw, Law

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from deniable_aggregator.tally import Tally

    Integers = NDArray[np.int64]


class Cells(Family[Window]):
    """The cells are in order."""

    def likelihood(self, table: NDArray[np.uint8], values: NDArray[Any]) -> NDArray[np.float32]:
        """Compute the probability of each cell under each value, which is rounded to one of two points."""
        mechanism = self.mechanism
        payloads, places = self.distinct(table, len(values))
        cells = np.array([mechanism.layout.unpack(payload)[1] for payload in payloads])
        positions = np.array(values.tolist(), np.int64)
        points, parts = np.divmod(positions * (mechanism.points - 1), mechanism.domain_size - 1)
        beyond = cells[:, None] - points  # cells past the first of the lower point's window
        lower, upper = ((shift <= beyond) & (beyond < shift + mechanism.length) for shift in (0, 1))
        part = parts / (mechanism.domain_size - 1)
        mixed = (1 - part) * lower + part * upper
        return topped(float(mechanism.outside) + float(mechanism.inside - mechanism.outside) * mixed)[places]

    def law(self, values: Sequence[int] | None) -> Law:
        """Numbers are rounded to points before."""
        return _WindowLaw(self.mechanism, values)


class _WindowLaw(CellLaw):
    @property
    def own_cells(self) -> int:
        """As many as a window has."""
        return int(self.mechanism.length)

    def cells(self, number: int, picks: Integers) -> Integers:
        """Return cells of the window of a point."""
        return np.asarray(number + picks, np.int64)

    def draw(self, held: Integers, rng: np.random.Generator) -> Tally:
        """Round numbers to points at random, then draw the cells of the people at each point."""
        steps, positions = self.mechanism.points - 1, self.mechanism.domain_size - 1
        points, parts = np.divmod(self.values.astype(np.int64) * steps, positions)
        upwards = rng.binomial(held, parts / positions)
        people = np.zeros(steps + 2, np.int64)  # one more: nobody at the greatest point is rounded upwards
        np.add.at(people, points, held - upwards)
        np.add.at(people, points + 1, upwards)
        return super().draw(people[:-1], rng)
