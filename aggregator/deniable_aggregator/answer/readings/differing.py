"""Whether two sides differ, as it is answered: in the share of each value, or in a mean."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from deniable_aggregator.answer.model.comparison import Differing
from deniable_aggregator.decode.multiple_testing import holm_adjusted
from deniable_aggregator.inference.always_valid import AlwaysValid
from deniable_aggregator.inference.difference import Difference

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from numpy.typing import NDArray

    from deniable.registry import Metric, Registry
    from deniable_aggregator.inference.difference import Differences, Side


class Planned(NamedTuple):
    """What an experiment planned to compare."""

    difference: float | None = None  # that its arms have; None without an experiment
    comparisons: int = 1  # of arms, which all hold together

    @classmethod
    def of(cls, registry: Registry, segment: str, pair: Collection[str]) -> Planned:
        """Return what was planned for two values of a segment; `NOT_PLANNED` if they are no arms of an experiment."""
        experiment, arms = registry.experiments.get(segment), registry.segments.get(segment, ())
        if experiment is None or not set(pair) <= set(arms):
            return NOT_PLANNED
        return cls(experiment.planned, experiment.comparisons(arms, pair))

    def adjusted(self, p_values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the p-values of a comparison for all of its values, and for all comparisons together; nan of nan."""
        # The values are tested by Holm's steps, the comparisons of an experiment by Bonferroni's bound.
        return np.minimum(holm_adjusted(p_values) * self.comparisons, 1.0)

    def together(self, level: float) -> float:
        """Return the level of one comparison's intervals at which those of all comparisons hold at `level`."""
        return 1 - (1 - level) / self.comparisons


NOT_PLANNED = Planned()


def differing(
    difference: Differences,
    level: float,  # of the intervals, and of the test of all values together
    # number, distance: how a mean and a difference of means are written, from `to_number` and `moved`; shares stay as they are
    number: Callable[[float], float] = float,
    distance: Callable[[float], float] = float,
    planned: Planned = NOT_PLANNED,  # simultaneous intervals and tests hold for all of its comparisons together
) -> list[Differing]:
    """Say of each estimate how it differs between the two sides."""
    p_value = difference.p_value
    numbers = zip(*(each.tolist() for each in difference.sides), strict=True)
    together = difference.interval(planned.together(level), simultaneous=True)
    columns = (difference.estimates, *difference.interval(level), *together)
    distances = zip(*([distance(each) for each in column.tolist()] for column in columns), strict=True)
    adjusted = planned.adjusted(p_value[: difference.hypotheses])
    tests = zip(p_value.tolist(), np.resize(adjusted, len(p_value)).tolist(), strict=True)
    return [
        Differing(number(one), number(other), length, (low, high), (lowest, highest), p, p_holm, p_holm <= 1 - level)
        for (one, other), (length, low, high, lowest, highest), (p, p_holm) in zip(numbers, distances, tests, strict=True)
    ]


def incomparable(metric: Metric) -> str:
    """Say why no two sides of a metric are compared; empty if they are."""
    return "answers that are searched for are not compared: each side finds its own" if metric.discover else ""


def between(
    first: Side,
    second: Side,
    planned: float | None,  # the difference for which an experiment was planned; None without one
) -> Difference:
    """Return how two sides differ; of an experiment so that it holds at all looks."""
    return Difference(first, second) if planned is None else AlwaysValid(first, second, planned)
