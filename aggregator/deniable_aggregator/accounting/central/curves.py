"""Curves of noise: the Renyi divergence over its order, and the epsilon over the number of queries by every method."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np

from deniable.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from deniable_aggregator.accounting.central.noise import Noise

_ORDERS = 1 + np.geomspace(0.01, 1000, 101)


@dataclass(frozen=True, slots=True)
class Curves:
    """The curves of noise."""

    noise: Noise
    delta: float
    orders: Sequence[float]  # ascending
    divergences: Sequence[float]  # of all queries together, in nats, one for each order
    queries: Sequence[int]  # ascending
    totals: Sequence[dict[str, float]]  # epsilon in nats, by key of `METHODS`, one for each number of queries

    @classmethod
    def of(
        cls,
        noise: Noise,
        delta: float,
        queries: Sequence[int],  # places on the axis of queries, ascending
        order: float | None = None,  # of the Renyi total; by default the best one of each number of queries
    ) -> Self:
        """Compute the curves."""
        totals = [noise.times(number).totals(delta, order) for number in queries]
        return cls(noise, delta, _ORDERS.tolist(), noise.divergence(_ORDERS).tolist(), queries, totals)

    def rows(self) -> Iterator[tuple[str, str, float, float]]:
        """Yield what a file has: the curve, the method, the order or the number of queries, and the value in nats."""
        for order, divergence in zip(self.orders, self.divergences, strict=True):
            yield "divergence", "renyi", order, divergence
        for queries, totals in zip(self.queries, self.totals, strict=True):
            for key, total in totals.items():
                yield "epsilon", key, queries, total

    def write(self, path: str) -> None:
        """Write the curves as CSV; raise `ConfigurationError` if the file cannot be written."""
        try:
            with Path(path).open("w", encoding="utf-8", newline="") as file:
                lines = csv.writer(file, lineterminator="\n")
                lines.writerow(("curve", "method", "at", "nats"))
                lines.writerows(self.rows())
        except OSError as error:
            raise ConfigurationError(f"--csv cannot be written: {error}") from None
