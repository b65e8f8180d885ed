"""How many reports each cell of a metric has, in one period."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from operator import contains
from typing import TYPE_CHECKING

import numpy as np

from deniable.errors import ParameterError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from deniable_aggregator.publish.breakdown import Breakdown, Words


@dataclass(frozen=True, slots=True, eq=False)
class Cube:
    """Reports by every combination of a metric's segments."""

    breakdown: Breakdown  # the metric's segments
    leaves: tuple[Words, ...]  # the combinations with reports, each of a declared value of every segment
    reports: NDArray[np.int64]  # (leaves,): how many reports each has, above 0

    def __repr__(self) -> str:
        """Show only the size: numbers of reports are not for logs."""
        return f"Cube({', '.join(self.breakdown.names)}; {len(self.leaves)} leaves)"

    @classmethod
    def of(
        cls,
        breakdown: Breakdown,  # the metric's segments
        reports: Mapping[str, int],  # Raw number of reports of each stratum, by its segment text. Empty strata are left out.
    ) -> Cube:
        """Return the cube of counted strata; raise ParameterError if a text is no leaf, or two are the same leaf."""
        numbers = {breakdown.leaf(segment): int(n) for segment, n in reports.items() if n > 0}
        if len(numbers) != sum(n > 0 for n in reports.values()):
            raise ParameterError("two strata are the same leaf of the cube: give each once")
        ordered = sorted(numbers, key=breakdown.text)
        return cls(breakdown, tuple(ordered), np.array([numbers[words] for words in ordered], np.int64))

    def members(self, cell: str) -> NDArray[np.intp]:
        """Return the places of the leaves in a cell."""
        box = self.breakdown.box(cell)
        inside = np.fromiter((all(map(contains, box, leaf)) for leaf in self.leaves), bool, len(self.leaves))
        return np.flatnonzero(inside)

    def total(self, cell: str) -> int:
        """Return the number of reports in a cell."""
        return int(self.reports[self.members(cell)].sum())

    @property
    def memberships(self) -> int:
        """Number of pairs of a cell and a leaf in it, which determines the cost of `cells`."""
        lineage = self.breakdown.lineage
        names = self.breakdown.names
        return sum(
            prod(len(lineage(name, str(word))) + 1 for name, word in zip(names, leaf, strict=True)) for leaf in self.leaves
        )

    def cells(self) -> dict[Words, NDArray[np.intp]]:
        """Return every cell that has reports, with the places of its leaves."""
        members: dict[Words, list[int]] = {}
        for place, leaf in enumerate(self.leaves):
            for words in self.breakdown.above(leaf):
                members.setdefault(words, []).append(place)
        return {words: np.array(places, np.intp) for words, places in members.items()}
