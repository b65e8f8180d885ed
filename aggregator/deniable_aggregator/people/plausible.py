"""People whom nobody described: plausible answers, with a trend over the days and differences between segments.

Listed answers follow Zipf's law, the first one the most frequent. Half of the people choose the first option of a set. Numbers
are spread around the lower half of their range. Texts and keys without candidates are 1 to 9.

Then people move to another answer, which is the second one in a list, the last one in an order, the second option of a set, and
two thirds of a range: nobody at first, and `RISE` of them at the end of the days; up to `APART` more in the last value of a
segment than in the first; and in each arm of an experiment as many more than in its base as it is planned for.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from deniable_aggregator.people.crowd import Crowd, Drawn
from deniable_aggregator.planning.population import falling, of_options, of_values

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from deniable.registry import Metric, Registry

    Integers = NDArray[np.int64]
    Floats = NDArray[np.float64]

RISE = 0.1
"""The share of people who move to another answer in the course of the days."""
APART = 0.1
"""How many more have moved in the last value of a segment than in the first."""
_PLACES = 100  # a range has so many parts and one number more
_CHOICES = 4096  # people whose choices stand for those of all, where a set has more combinations than that
_MADE_UP = 9  # texts or keys


def crowd(
    registry: Registry,
    people: int,
    # By metric, the share of each answer, or numbers of people, as `planning.population.read_shares` reads them. These hold in
    # all periods and segments.
    stated: Mapping[str, Mapping[str, float]],
    chance: np.random.SeedSequence,  # who answers what follows from it
) -> Crowd:
    """Make people who answer all metrics of a registry."""
    # Each metric has its own stream of random numbers, so what one of them draws does not change the others.
    first, *others = chance.spawn(1 + len(registry.metrics))
    segments = members(registry, people, np.random.default_rng(first))
    answers = {
        metric.id: _answers(registry, metric, stated.get(metric.id), segments, people, np.random.default_rng(own))
        for metric, own in zip(registry.metrics.values(), others, strict=True)
    }
    description = "answers are made up: one of them becomes more frequent over the days, and is more frequent in some segments"
    if stated:
        description = f"{len(stated)} of {len(answers)} metrics have the stated shares; other {description}"
    return Crowd(people, segments, answers, description)


def members(registry: Registry, people: int, rng: np.random.Generator) -> dict[str, Integers]:
    """Draw the segments that people belong to: the arms of an experiment as declared, others by Zipf's law."""
    places = {}
    for name, values in registry.segments.items():
        experiment = registry.experiments.get(name)
        shares = np.array([*experiment.shares(values).values()]) if experiment else falling(len(values))
        places[name] = rng.choice(len(values), people, p=shares)
    return places


def _answers(
    registry: Registry,
    metric: Metric,
    stated: Mapping[str, float] | None,
    segments: Mapping[str, Integers],
    people: int,
    rng: np.random.Generator,
) -> Drawn:
    values: Sequence[object]
    if metric.kind.options:
        values, shares, target = _choices(metric, of_options(metric, stated), rng)
    elif stated is not None:
        held = of_values(metric, stated)
        by_position = {metric.position(value): value for value in map(metric.kind.parse, stated)}
        values, shares = [by_position[place] for place in held], np.array([*held.values()])
        target = np.arange(len(values))
    else:
        values = listed(registry, metric)
        numbers = metric.axis is not None
        shares = _around(len(values)) if numbers else falling(len(values))
        last = len(values) - 1
        target = np.full(len(values), 2 * last // 3 if numbers else last if metric.kind.ordered else min(1, last))
    moved, rise = np.zeros(people), 0.0
    if stated is None:
        rise = (
            0.0 if metric.permanent and metric.answers_per_month == 1 else RISE
        )  # such a device would tell no change for a month
        for name in metric.segments:
            moved += _effects(registry, name)[segments[name]]
    return Drawn(metric, values, shares, target, moved, rise, rng)


def _effects(registry: Registry, name: str) -> Floats:
    """Return how many more people have moved in each value of a segment than in the first, or than in the base."""
    values, experiment = registry.segments[name], registry.experiments.get(name)
    if experiment:
        return np.array([0.0 if value == experiment.base else experiment.planned for value in values])
    return np.linspace(0, APART, len(values))


def listed(registry: Registry, metric: Metric) -> Sequence[object]:
    """List the answers that people may give to a metric, but not the numbers between them."""
    axis = metric.axis
    if axis is not None:
        if metric.step is None:
            return [axis.number(place / _PLACES) for place in range(_PLACES + 1)]
        step = Fraction(metric.step)
        most = int((axis.high - axis.low) / step)
        return [float(axis.low + step * number) for number in sorted({place * most // _PLACES for place in range(_PLACES + 1)})]
    if not metric.open:
        return metric.values
    if metric.candidates:
        return [metric.value(position) for position in registry.candidates(metric)]
    return [metric.kind.parse(str(number)) for number in range(1, _MADE_UP + 1)]


def _around(values: int) -> Floats:
    """Return shares of numbers from the low to the high end of a range, most frequent at a quarter of it."""
    place = (np.arange(values) + 0.5) / values
    return np.asarray(place * (1 - place) ** 3)


def _choices(metric: Metric, shares: Floats, rng: np.random.Generator) -> tuple[list[object], Floats, Integers]:
    """Return combinations of options, the share of each, and for each the one with the second option in it."""
    options = len(metric.values)
    if 1 << options <= _CHOICES:
        chosen = (np.arange(1 << options)[:, None] >> np.arange(options) & 1).astype(bool)
        weights = np.where(chosen, shares, 1 - shares).prod(axis=1)
    else:
        chosen, counts = np.unique(rng.random((_CHOICES, options)) < shares, axis=0, return_counts=True)
        weights = counts.astype(np.float64)
    moved = chosen.copy()
    moved[:, min(1, options - 1)] = True
    every, place = np.unique(np.vstack([chosen, moved]), axis=0, return_inverse=True)
    before, after = place.reshape(2, -1)
    shares_of = np.zeros(len(every))
    shares_of[before] = weights
    target = np.arange(len(every))
    target[before] = after
    values = [[option for option, there in zip(metric.values, row, strict=True) if there] for row in every.tolist()]
    return list(values), shares_of, target
