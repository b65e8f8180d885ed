"""Estimates of numbers, ordered answers and sets, as they are shown."""

from __future__ import annotations

from itertools import combinations, islice
from math import ceil
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace
from scipy.special import ndtri

from deniable.errors import ParameterError
from deniable.mechanisms.base import FrequencyOracle
from deniable.mechanisms.sampled_option import SampledPair
from deniable.mechanisms.window import Window
from deniable_aggregator.answer.measurement import (
    Chosen,
    NumberEstimate,
    OrderEstimate,
    PairEstimate,
    Part,
    QuantileEstimate,
    ValuesBelow,
    ValueShare,
)
from deniable_aggregator.answer.remembered import once
from deniable_aggregator.decode import options
from deniable_aggregator.decode.estimate import finite
from deniable_aggregator.decode.multiple_testing import tail
from deniable_aggregator.decode.order import order
from deniable_aggregator.decode.pairs import pairs
from deniable_aggregator.decode.profile import cell_chances, value_shares
from deniable_aggregator.decode.strict import strict_quantile
from deniable_aggregator.inference.slope import Course

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from deniable.registry import Metric
    from deniable_aggregator.answer.reading import Reading
    from deniable_aggregator.decode.distribution import Distribution

QUANTILES = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)
_MOST_ORDERED = 1024  # values; with more, their covariance takes too long for a page
_MOST_PAIRS = 500
MOST_VALUES = 21
"""Values of a number with a step whose shares are told one by one. Of more, single shares would have large errors."""


def course_of(times: Sequence[int], readings: Sequence[Reading]) -> Course:
    """Return the course of a mean, from what was read at each time."""
    centres = [each.centre for each in readings]
    columns = (np.array([[getattr(centre, name)] for centre in centres]) for name in ("place", "stderr", "spread"))
    return Course(times, [each.n for each in readings], [each.repeats for each in readings], *columns)


def number_of(reading: Reading, level: float) -> NumberEstimate | None:
    """Estimate a number, or the mean of an ordinal; None for other metrics."""
    metric, n = reading.declared.metric, reading.n
    if not metric.estimate:
        return None
    number = to_number(metric)
    low, high = (float(metric.axis.low), float(metric.axis.high)) if metric.axis else (1.0, float(len(metric.values)))
    spread = reading.spread if metric.estimate == "distribution" else None
    found = reading.centre
    linear = metric.scale == "linear"
    each = tuple(number(end) for end in found.respondents(level))
    ends = found.interval(level)
    return NumberEstimate(
        unit=metric.unit,
        range=(low, high),
        scale=metric.scale,
        mean=number(found.place),
        stderr=found.stderr * (high - low) if linear else float("nan"),
        interval=(number(ends[0]), number(ends[1])),
        respondents=(each[0], each[1]),
        sum=(n * number(found.place), (n * each[0], n * each[1])) if linear and n else None,
        quantiles=[] if spread is None else _quantiles(spread, number, level),
        bands="approximate",
        values=_values(reading, level),
        parts=[] if spread is None else _parts(spread.grouped(), number),
    )


def with_strict_bands(
    reading: Reading,
    found: NumberEstimate,  # what `number_of` says of it
    level: float,
) -> NumberEstimate:
    """Return a number with strict bands of its quantiles, if it has any. They are slow, so they are remembered."""
    declared, mechanism = reading.declared, reading.declared.mechanism
    if not found.quantiles or not isinstance(mechanism, Window):
        return found
    # How many other reports a device can have made, at most.
    repeats = ceil(len(reading.periods) * declared.metric.per_period * declared.metric.together) - 1

    def bands() -> list[tuple[float, float]]:
        return [strict_quantile(mechanism, reading.counted, each.share, level, repeats=repeats) for each in found.quantiles]

    number, strict = to_number(declared.metric), once(("strict", declared.fingerprint, repeats, level), reading.counted, bands)
    ends = [(number(low), number(high)) for low, high in strict]
    quantiles = [replace(each, interval=interval) for each, interval in zip(found.quantiles, ends, strict=True)]
    return replace(found, quantiles=quantiles, bands="strict")


def to_number(metric: Metric) -> Callable[[float], float]:
    """Return the function from places on the axis to numbers in the metric's unit, or to positions of an ordinal from 1 on."""
    return metric.axis.number if metric.axis else lambda place: 1 + place * (len(metric.values) - 1)


def _quantiles(spread: Distribution, number: Callable[[float], float], level: float) -> list[QuantileEstimate]:
    found = (spread.quantile(share, level) for share in QUANTILES)
    return [
        QuantileEstimate(each.share, number(each.place), (number(each.low), number(each.high)), each.resolved) for each in found
    ]


def _values(reading: Reading, level: float) -> list[ValueShare]:
    """Return the shares of the values of a number with a step; of many values, neighbours are joined."""
    metric, mechanism = reading.declared.metric, reading.declared.mechanism
    values = metric.step_values
    if not values or not reading.n or metric.axis is None or not isinstance(mechanism, Window):
        return []
    size = ceil(len(values) / MOST_VALUES)
    starts = range(0, len(values), size)
    chances = cell_chances(mechanism, [metric.axis.share(value) for value in values])
    shares, stderr = value_shares(chances, reading.counted.counts[0].astype(np.float64), starts, reading.repeats)
    reaches = [-float(ndtri(tail(each))) * stderr for each in (level, 1 - (1 - level) / len(starts))]
    columns = (shares, stderr, *(end for reach in reaches for end in (shares - reach, shares + reach)))
    rows = zip(starts, *(column.tolist() for column in columns), strict=True)
    return [
        ValueShare(
            value=f"{values[start]:.12g}",
            label=" to ".join(f"{end:.12g}" for end in dict.fromkeys((values[start], values[start : start + size][-1]))),
            n=reading.n,
            frequency=share,
            stderr=error,
            interval=(low, high),
            simultaneous=(lowest, highest),
        )
        for start, share, error, low, high, lowest, highest in rows
    ]


def _parts(spread: Distribution, number: Callable[[float], float]) -> list[Part]:
    edges = [number(edge) for edge in spread.edges.tolist()]
    return [Part(*part) for part in zip(edges, edges[1:], spread.mass.tolist(), spread.cumulative[1:].tolist(), strict=False)]


def order_of(reading: Reading, level: float) -> OrderEstimate | None:
    """Estimate mean, median and cumulative shares of an ordinal; None for other metrics, and where they are not known."""
    metric, mechanism, shares = reading.declared.metric, reading.declared.mechanism, reading.shares
    if metric.type != "ordinal" or not isinstance(mechanism, FrequencyOracle) or len(metric.values) > _MOST_ORDERED:
        return None
    if shares is None:
        return None
    try:
        found = order(mechanism, shares, repeats=reading.repeats, kept=metric.kept)
    except ParameterError:  # the mechanism declared has no covariance
        return None
    if found is None:
        return None
    middle, first, last = (metric.label(place) for place in found.median(level))
    below = zip(found.below.tolist(), found.below_stderr.tolist(), strict=True)
    return OrderEstimate(
        mean=found.mean,
        stderr=found.stderr,
        interval=found.interval(level),
        median=middle,
        median_between=(first, last),
        below=[ValuesBelow(metric.label(place), share, stderr) for place, (share, stderr) in enumerate(below)],
    )


def chosen_of(reading: Reading, level: float) -> Chosen | None:
    """Estimate how many options people choose, and which together; None for other metrics than sets."""
    mechanism = reading.declared.mechanism
    if reading.declared.metric.type != "set":
        return None
    average, stderr = options.chosen(mechanism, reading.counted, repeats=reading.repeats)
    reach = -float(ndtri(tail(level))) * stderr
    together = _pairs(reading, level) if isinstance(mechanism, SampledPair) else []
    return Chosen(average, stderr, (average - reach, average + reach), together)


def _pairs(reading: Reading, level: float) -> list[PairEstimate]:
    found = pairs(reading.declared.mechanism, reading.counted, repeats=reading.repeats)
    columns = (found.n, found.both, found.stderr, *found.interval(level), found.p_value)
    rows = zip(combinations(reading.declared.metric.values, 2), *(column.tolist() for column in columns), strict=True)
    return [
        PairEstimate((str(first), str(second)), n, both, stderr, (low, high), finite(p_value))
        for (first, second), n, both, stderr, low, high, p_value in islice(rows, _MOST_PAIRS)
    ]
