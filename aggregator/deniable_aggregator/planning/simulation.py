"""Tallies without devices: drawn by the exact probabilities of cells and bits, in a time that does not grow with the people."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from deniable.mechanisms.sampled_option import Sampled
from deniable_aggregator import tally
from deniable_aggregator.decode.families import family_of
from deniable_aggregator.decode.families.law import spread

if TYPE_CHECKING:
    from collections.abc import Sequence

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


def draw_sets(
    mechanism: Mechanism,  # `Sampled`
    n: int,  # people, each of whom sends one report
    shares: NDArray[np.float64],  # (options,), the share of people who choose each option
    rng: np.random.Generator,  # where chance comes from
) -> tally.Tally:
    """Draw the tally of n people from a population in which some share chooses each option, independently of the others."""
    # A report is about the options of one row, drawn at random. So what people choose is drawn of these alone.
    assert isinstance(mechanism, Sampled)  # noqa: S101 - no other mechanism is for sets
    layout, chances = mechanism.layout, np.ones((mechanism.layout.rows, 1))
    for share in np.asarray(shares)[np.array(mechanism.groups)].T:  # bit k of an index is the row's option k
        chances = np.hstack([chances * (1 - share[:, None]), chances * share[:, None]])
    held = rng.multinomial(spread(n, layout.rows, rng), chances)
    named = rng.binomial(held, float(mechanism.keep - mechanism.other))
    named += rng.multinomial((held - named).sum(axis=1), np.full(layout.width, 1 / layout.width))
    return tally.from_cells(layout, named.ravel())
