"""Populations whose tallies are drawn without devices; see `deniable_aggregator.planning.simulation`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from deniable import mechanisms
from deniable_aggregator.planning.simulation import Simulation

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from deniable_aggregator.tally import Tally

KEYS = 1 << 64


class Population:
    """Draws the tally of people who hold given values.

    Parameters
    ----------
    mechanism
        Of a domain whose values are all estimated; or of all 64-bit keys, of which `values` are drawn anew for each tally.
    values
        How many values are estimated.
    """

    def __init__(self, mechanism: Any, values: int) -> None:
        self.mechanism, self.values, self.pool = mechanism, values, mechanism.domain_size == KEYS
        self.simulation = None if self.pool else Simulation(mechanism)

    def draw(self, held: NDArray[np.int64], rng: np.random.Generator) -> tuple[Tally, list[int] | None]:
        """Draw a tally, and the candidates with which it is decoded; None for the whole domain."""
        if self.simulation:
            return self.simulation.draw(held, rng), None
        keys = rng.integers(0, KEYS, self.values, np.uint64, endpoint=False).tolist()
        return Simulation(self.mechanism, keys).draw(held, rng), keys


def make(name: str, d: int, epsilon: float) -> Population:
    """Make the population of a mechanism by name; with `-pool`, of its random functions over all 64-bit keys."""
    base, pool, _ = name.partition("-pool")
    options = {} if base == "coin" else {"epsilon": epsilon}
    return Population(mechanisms.make(base, domain_size=KEYS if pool else d, **options), d)
