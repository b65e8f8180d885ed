"""Tallies without devices: drawn by the exact probabilities of cells and bits, in a time that does not grow with the people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deniable_aggregator import tally
from deniable_aggregator.decode.families import family_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from deniable.mechanisms import Mechanism

    Integers = NDArray[np.int64]

_MOST = 500_000_000
"""People drawn at once: the hypergeometric draws of numpy take fewer than 10^9. The tallies of more are added up."""


class Simulation:
    """Draws the tally of people who hold given values, each of whom sends one report."""

    def __init__(
        self,
        mechanism: Mechanism,  # what the devices run
        values: Sequence[int] | None = None,  # the values that people hold, each in [0, domain_size); None for the whole domain
    ) -> None:
        self.law = family_of(mechanism).law(values)

    def draw(self, held: Integers, rng: np.random.Generator) -> tally.Tally:
        """Draw a tally of so many people for each value."""
        if held.sum() > _MOST:
            half = held // 2
            return tally.merge(self.draw(half, rng), self.draw(held - half, rng))
        return self.law.draw(held, rng)
