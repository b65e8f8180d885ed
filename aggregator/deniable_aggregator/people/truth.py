"""What simulated people truly answered: shares, means and quantiles, by metric, period and cell."""

from __future__ import annotations

from collections import defaultdict
from math import exp
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from deniable.registry.text import visible
from deniable_aggregator.answer.model.number import mean_name
from deniable_aggregator.people.crowd import NOTHING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from deniable.registry import Metric, Registry
    from deniable_aggregator.people.crowd import Answers, Crowd

    Integers = NDArray[np.int64]

QUANTILES = {"p50": 0.5, "p90": 0.9}
"""Those that are told of a number's distribution, by their names in rows of a table."""


class Figure(NamedTuple):
    """A true figure."""

    metric: str
    period: str  # empty: all of them together
    segment: str  # the cell; empty for everybody
    value: str  # an answer as it is shown, or `mean`, `p50` or `p90`
    people: int  # how many answered; of all periods together, how many answers there were
    truth: float  # the share of those who gave the answer, or the mean or quantile


class Truth:
    """Counts the answers of a crowd."""

    def __init__(self, registry: Registry, crowd: Crowd) -> None:
        self._registry, self._crowd = registry, crowd
        # by metric and period, then by cell, how many people gave each answer
        self._counts: dict[str, dict[str, dict[str, Integers]]] = defaultdict(dict)

    def add(self, metric: Metric, period: str, held: Integers) -> None:
        """Count the answers of a period."""
        answering = held != NOTHING
        places, size = held[answering], len(self._crowd.answers[metric.id].values)
        cells = {"": np.bincount(places, minlength=size)}
        for name in metric.segments:
            values = self._registry.segments[name]
            of = self._crowd.segments[name][answering]
            counts = np.bincount(of * size + places, minlength=len(values) * size).reshape(len(values), size)
            cells |= {f"{name}={value}": row for value, row in zip(values, counts, strict=True) if row.any()}
        self._counts[metric.id][period] = cells

    def by_period(self) -> Iterator[Figure]:
        """Yield the figures of each period."""
        for id_, periods in self._counts.items():
            for period, cells in periods.items():
                yield from self._figures(id_, period, cells)

    def in_all(self) -> Iterator[Figure]:
        """Yield the figures of all periods together."""
        for id_, periods in self._counts.items():
            sums: dict[str, Integers] = {}
            for cells in periods.values():
                sums |= {cell: sums.get(cell, np.zeros(1, np.int64)) + counts for cell, counts in cells.items()}
            yield from self._figures(id_, "", sums)

    def _figures(self, id_: str, period: str, cells: Mapping[str, Integers]) -> Iterator[Figure]:
        answers = self._crowd.answers[id_]
        for cell, counts in cells.items():
            people = int(counts.sum())
            for answer, truth in _figures(answers, counts).items():
                yield Figure(id_, period, cell, answer, people, truth)


def _figures(answers: Answers, counts: Integers) -> dict[str, float]:
    """Return the true figures of a metric, of which each answer was given so often."""
    metric, people = answers.metric, max(int(counts.sum()), 1)
    if metric.axis is not None:
        return _of_numbers(metric, answers, counts)
    if metric.estimate:  # the mean position in an order, from 1
        return {mean_name(metric): float(counts @ (np.array(answers.positions) + 1)) / people}
    if metric.kind.options:
        of = defaultdict[str, float](float)
        for position, n in zip(answers.positions, counts.tolist(), strict=True):
            chance = metric.most / max(position.bit_count(), metric.most) if metric.most else 1.0  # of each option
            for bit, option in enumerate(metric.values):
                of[visible(str(option))] += n * (position >> bit & 1) * chance
        return {option: n / people for option, n in of.items()}
    shares = defaultdict[str, float](float)
    for position, n in zip(answers.positions, counts.tolist(), strict=True):
        shares[metric.label(position)] += n / people
    return dict(shares)


def _of_numbers(metric: Metric, answers: Answers, counts: Integers) -> dict[str, float]:
    axis = metric.axis
    assert axis is not None  # noqa: S101 - the caller checks it
    low, high = float(axis.low), float(axis.high)
    numbers = np.array([min(max(float(number), low), high) for number in answers.values])  # type: ignore[arg-type] # of a number
    people = max(int(counts.sum()), 1)
    logarithmic = metric.scale == "log"
    mean = float(counts @ (np.log(numbers) if logarithmic else numbers)) / people
    figures: dict[str, float] = {mean_name(metric): exp(mean) if logarithmic else mean}
    figures.setdefault("mean", float(counts @ numbers) / people)
    if metric.estimate == "distribution":
        order = np.argsort(numbers)
        below = np.cumsum(counts[order])
        for name, share in QUANTILES.items():
            figures[name] = float(numbers[order][np.searchsorted(below, share * people)])
    return figures
