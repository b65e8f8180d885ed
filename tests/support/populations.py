"""Populations of numbers as they are: with defaults, zeros, whole numbers, constants, time-outs, and some that are smooth."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray


class Numbers(NamedTuple):
    """Answers to a question for a number.

    Parameters
    ----------
    draw
        Draws the answers of n people, in the range.
    low, high
        The range.
    values
        How many values answers can have, the ends among them; 0 if they may lie anywhere.
    """

    draw: Callable[[np.random.Generator, int], NDArray[np.float64]]
    low: float
    high: float
    values: int = 0

    def places(self, rng: np.random.Generator, n: int) -> NDArray[np.float64]:
        """Draw answers as places on the axis, in [0, 1]."""
        return (np.clip(self.draw(rng, n), self.low, self.high) - self.low) / (self.high - self.low)

    def quantiles(self, shares: tuple[float, ...]) -> NDArray[np.float64]:
        """Return the true quantiles as places on the axis, from a million answers."""
        return np.quantile(self.places(np.random.default_rng(0), 1_000_000), shares, method="inverted_cdf")


def _integers(draw: Callable[[np.random.Generator, int], NDArray[np.float64]]) -> Callable[..., NDArray[np.float64]]:
    return lambda rng, n: np.round(draw(rng, n))


def _or(
    share: float, value: float, draw: Callable[[np.random.Generator, int], NDArray[np.float64]]
) -> Callable[..., NDArray[np.float64]]:
    """Return how answers are drawn of which a share is one value."""
    return lambda rng, n: np.where(rng.random(n) < share, value, draw(rng, n))


def _two_humps(rng: np.random.Generator, n: int) -> NDArray[np.float64]:
    return np.where(rng.random(n) < 0.5, rng.normal(0.25, 0.06, n), rng.normal(0.7, 0.1, n))


NUMBERS = {
    "a constant": Numbers(lambda _, n: np.full(n, 37.0), 0, 100, 101),
    "60% keep a default": Numbers(_or(0.6, 50.0, lambda rng, n: rng.uniform(0, 100, n)), 0, 100),
    "doctor visits, to 100": Numbers(lambda rng, n: rng.negative_binomial(1, 0.25, n).astype(float), 0, 100, 101),
    "doctor visits, to 8": Numbers(lambda rng, n: rng.negative_binomial(1, 0.25, n).astype(float), 0, 8, 9),
    "stars": Numbers(lambda rng, n: rng.choice(np.arange(1.0, 6.0), n, p=[0.12, 0.06, 0.1, 0.22, 0.5]), 1, 5, 5),
    "80% zero": Numbers(_or(0.8, 0.0, lambda rng, n: rng.integers(1, 21, n).astype(float)), 0, 20, 21),
    "battery, a third full": Numbers(_integers(_or(0.33, 100.0, lambda rng, n: rng.triangular(1, 70, 100, n))), 0, 100, 101),
    "durations with a time-out": Numbers(_or(0.12, 30.0, lambda rng, n: rng.exponential(4.0, n)), 0, 30),
    "incomes": Numbers(lambda rng, n: rng.lognormal(np.log(45.0), 0.7, n), 0, 250),
    "uniform": Numbers(lambda rng, n: rng.uniform(0, 1, n), 0, 1),
    "logarithms of sizes": Numbers(lambda rng, n: rng.normal(4.0, 1.2, n), 0, 9),
    "two humps": Numbers(_two_humps, 0, 1),
}
"""By name. The last four are smooth."""
