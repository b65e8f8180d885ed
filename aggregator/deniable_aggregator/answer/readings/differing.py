"""Whether two sides differ, as it is answered: in the share of each value, or in a mean."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from deniable_aggregator.answer.model.comparison import Differing
from deniable_aggregator.answer.readings.number import moved, to_number
from deniable_aggregator.decode.multiple_testing import holm
from deniable_aggregator.inference.always_valid import AlwaysValid
from deniable_aggregator.inference.difference import Difference, Side

if TYPE_CHECKING:
    from collections.abc import Callable

    from deniable.registry import Metric
    from deniable_aggregator.answer.reading import Centre


def differing(first: Side, second: Side, level: float, planned: float | None = None) -> list[Differing]:
    """Compare the share of each value; of an experiment with its `planned` difference, so that it holds at all looks."""
    return _rows(between(first, second, planned), level, lambda place: place, lambda distance: distance)


def differing_means(metric: Metric, first: Centre, second: Centre, level: float, planned: float | None = None) -> list[Differing]:
    """Compare the means of a number: one row; `planned` is a share of the range."""
    return _rows(between(_side(first), _side(second), planned), level, to_number(metric), moved(metric))


def between(first: Side, second: Side, planned: float | None) -> Difference:
    """Return how two sides differ; of an experiment with its `planned` difference, so that it holds at all looks."""
    return Difference(first, second) if planned is None else AlwaysValid(first, second, planned)


def _side(centre: Centre) -> Side:
    def interval(level: float) -> tuple[np.ndarray, np.ndarray]:
        low, high = centre.interval(level)
        return np.array([low]), np.array([high])

    return Side(np.array([centre.place]), interval)


def _rows(
    found: Difference, level: float, number: Callable[[float], float], distance: Callable[[float], float]
) -> list[Differing]:
    p_value = found.p_value
    numbers = zip(found.first.estimates.tolist(), found.second.estimates.tolist(), strict=True)
    distances = (found.estimates, *found.interval(level), *found.interval(level, simultaneous=True))
    lengths = zip(*([distance(each) for each in column.tolist()] for column in distances), strict=True)
    rejected = holm(p_value[: found.hypotheses], 1 - level)
    tests = zip(p_value.tolist(), np.resize(rejected, len(p_value)).tolist(), strict=True)
    return [
        Differing(number(one), number(other), apart, (low, high), (lowest, highest), p, differs)
        for (one, other), (apart, low, high, lowest, highest), (p, differs) in zip(numbers, lengths, tests, strict=True)
    ]
