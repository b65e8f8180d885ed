"""Courses of metrics whose days differ by more than chance, drawn without devices."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from deniable import mechanisms
from deniable_aggregator.inference.slope import Course

Days = Callable[[np.random.Generator, int, int], NDArray[np.float64]]
"""Draws by how much each of so many days differs, of so many metrics."""


def correlated(rho: float, sd: float) -> Days:
    """Return days that differ by so many points, with a correlation from one to the next."""

    def draw(rng: np.random.Generator, days: int, metrics: int) -> NDArray[np.float64]:
        fresh, noise = rng.standard_normal((days, metrics)), np.zeros((days, metrics))
        for day in range(days):
            noise[day] = fresh[day] if day == 0 else rho * noise[day - 1] + np.sqrt(1 - rho**2) * fresh[day]
        return sd * noise

    return draw


def course(
    rng: np.random.Generator, days: int, metrics: int, epsilon: str, sizes: NDArray[np.int64], of: Days, level: float = 0.3
) -> Course:
    """Draw the course of so many metrics of yes or no."""
    mechanism = mechanisms.make("binary", domain_size=2, epsilon=epsilon)
    p, q = float(mechanism.p), float(mechanism.q)
    true, n = np.clip(level + of(rng, days, metrics), 0.001, 0.999), sizes[:, None]
    shares = (rng.binomial(n, q + true * (p - q)) / n - q) / (p - q)
    held = np.clip(shares, 0, 1)
    chances = q + held * (p - q)
    stderr = np.sqrt(chances * (1 - chances) / n) / (p - q)
    return Course(list(range(days)), sizes.tolist(), [0.0] * days, shares, stderr, held * (1 - held))
