"""Estimates of numbers, ordered answers and sets, as they are shown."""

from __future__ import annotations

from functools import partial
from itertools import combinations, islice
from math import ceil
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from msgspec.structs import replace
from scipy.special import ndtri

from deniable.errors import ParameterError
from deniable.mechanisms.window import Window
from deniable_aggregator import decode
from deniable_aggregator.decode import options
from deniable_aggregator.decode.distribution import distribution
from deniable_aggregator.decode.estimate import finite
from deniable_aggregator.decode.mean import mean
from deniable_aggregator.decode.multiple_testing import tail
from deniable_aggregator.decode.order import order
from deniable_aggregator.decode.pairs import pairs
from deniable_aggregator.decode.profile import cell_chances, value_shares
from deniable_aggregator.decode.strict import strict_quantile
from deniable_aggregator.inference.slope import Course
from deniable_aggregator.measure.measurement import (
    Chosen,
    NumberEstimate,
    OrderEstimate,
    PairEstimate,
    Part,
    QuantileEstimate,
    ValuesBelow,
    ValueShare,
)
from deniable_aggregator.measure.remembered import once

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from deniable.declared import Declared
    from deniable.registry import Metric
    from deniable_aggregator.decode.distribution import Distribution
    from deniable_aggregator.decode.estimate import Estimate
    from deniable_aggregator.tally import Tally

QUANTILES = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)
_MOST_ORDERED = 1024  # values; with more, their covariance takes too long for a page
_MOST_PAIRS = 500
MOST_VALUES = 21
"""Values of a number with a step whose shares are told one by one. Of more, single shares would have large errors."""


class Centre(NamedTuple):
    """A mean place on the axis."""

    # place, stderr: the mean, and its standard error
    place: float
    stderr: float
    spread: float  # greatest plausible variance that all reports of a person share
    # interval, respondents: compute the interval at a level: for the population, and for the answers that came
    interval: Callable[[float], tuple[float, float]]
    respondents: Callable[[float], tuple[float, float]]


def course_of(times: Sequence[int], reports: Sequence[int], repeats: Sequence[float], centres: Sequence[Centre]) -> Course:
    """Return the course of a mean: its times, reports and repeats as of `Course`, and what was estimated at each time."""
    columns = (np.array([[getattr(centre, name)] for centre in centres]) for name in ("place", "stderr", "spread"))
    return Course(times, reports, repeats, *columns)


def number_of(declared: Declared, counted: Tally, repeats: float, level: float) -> NumberEstimate | None:
    """Estimate a number, or the mean of an ordinal; None for other metrics."""
    metric = declared.metric
    if not metric.estimate:
        return None
    number = to_number(metric)
    low, high = (float(metric.axis.low), float(metric.axis.high)) if metric.axis else (1.0, float(len(metric.values)))
    spread = None
    if metric.estimate == "distribution":
        spread = spread_of(declared, counted, repeats)
    found = centre_of(declared, counted, repeats)
    linear = metric.scale == "linear"
    each = tuple(number(end) for end in found.respondents(level))
    ends, n = found.interval(level), counted.n
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
        values=_values(declared, counted, repeats, level),
        parts=[] if spread is None else _parts(spread.grouped(), number),
    )


def with_strict_bands(
    # declared, counted, level: as for `number_of`
    declared: Declared,
    counted: Tally,
    found: NumberEstimate,  # what it estimates
    repeats: int,  # how many other reports a device can have made, at most
    level: float,
) -> NumberEstimate:
    """Return a number with strict bands of its quantiles, if it has any. They are slow, so they are remembered."""
    mechanism = declared.mechanism
    if not found.quantiles or declared.metric.binned:
        return found

    def bands() -> list[tuple[float, float]]:
        return [strict_quantile(mechanism, counted, each.share, level, repeats=repeats) for each in found.quantiles]

    number, strict = to_number(declared.metric), once(("strict", declared.fingerprint, repeats, level), counted, bands)
    ends = [(number(low), number(high)) for low, high in strict]
    quantiles = [replace(each, interval=interval) for each, interval in zip(found.quantiles, ends, strict=True)]
    return replace(found, quantiles=quantiles, bands="strict")


def spread_of(declared: Declared, counted: Tally, repeats: float) -> Distribution | None:
    """Estimate the distribution of a number; None without reports. The fit is slow, so it is remembered."""

    def fit() -> Distribution | None:
        return distribution(declared.mechanism, counted, repeats=repeats, kept=metric.kept, values=places)

    metric = declared.metric
    places = [metric.axis.share(value) for value in metric.step_values] if metric.axis else []
    # A step is in no fingerprint.
    return once(("distribution", declared.fingerprint, repeats, metric.step), counted, fit)


def to_number(metric: Metric) -> Callable[[float], float]:
    """Return the function from places on the axis to numbers in the metric's unit, or to positions of an ordinal from 1 on."""
    return metric.axis.number if metric.axis else lambda place: 1 + place * (len(metric.values) - 1)


def centre_of(declared: Declared, counted: Tally, repeats: float) -> Centre:
    """Estimate the mean place of a number, or of an ordinal of which only the mean is asked."""
    metric = declared.metric
    if metric.binned:
        return _of_parts(declared, counted, repeats)
    found = mean(declared.mechanism, counted, repeats=repeats, kept=metric.kept)
    return Centre(found.place, found.stderr, found.spread, found.interval, partial(found.interval, target="respondents"))


def _of_parts(declared: Declared, counted: Tally, repeats: float) -> Centre:
    """Estimate the mean from the shares of equal parts of the axis, each at its middle: by at most half a part it is wrong."""
    mechanism, kept, nan = declared.mechanism, declared.metric.kept, float("nan")
    shares = decode.estimate(mechanism, counted, repeats=repeats, kept=kept)
    found = order(mechanism, shares, repeats=repeats, kept=kept)
    if found is None:
        return Centre(nan, nan, nan, lambda _: (nan, nan), lambda _: (nan, nan))
    size = mechanism.domain_size

    def interval(level: float) -> tuple[float, float]:
        low, high = found.interval(level)
        return (low - 1) / size, high / size

    stderr = found.stderr / size
    shared = stderr**2 * counted.n / (1 + repeats)  # responses are kept: at most all of it
    return Centre((found.mean - 0.5) / size, stderr, shared, interval, interval)


def _quantiles(spread: Distribution, number: Callable[[float], float], level: float) -> list[QuantileEstimate]:
    found = (spread.quantile(share, level) for share in QUANTILES)
    return [
        QuantileEstimate(each.share, number(each.place), (number(each.low), number(each.high)), each.resolved) for each in found
    ]


def _values(declared: Declared, counted: Tally, repeats: float, level: float) -> list[ValueShare]:
    """Return the shares of the values of a number with a step; of many values, neighbours are joined."""
    metric, mechanism = declared.metric, declared.mechanism
    values = metric.step_values
    if not values or not counted.n or metric.axis is None or not isinstance(mechanism, Window):
        return []
    size = ceil(len(values) / MOST_VALUES)
    starts = range(0, len(values), size)
    chances = cell_chances(mechanism, [metric.axis.share(value) for value in values])
    shares, stderr = value_shares(chances, counted.counts[0].astype(np.float64), starts, repeats)
    reaches = [-float(ndtri(tail(each))) * stderr for each in (level, 1 - (1 - level) / len(starts))]
    columns = (shares, stderr, *(end for reach in reaches for end in (shares - reach, shares + reach)))
    rows = zip(starts, *(column.tolist() for column in columns), strict=True)
    return [
        ValueShare(
            value=f"{values[start]:.12g}",
            label=" to ".join(f"{end:.12g}" for end in dict.fromkeys((values[start], values[start : start + size][-1]))),
            n=counted.n,
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


def order_of(declared: Declared, estimate: Estimate, repeats: float, level: float) -> OrderEstimate | None:
    """Estimate mean, median and cumulative shares of an ordinal; None for other metrics, and where they are not known."""
    metric, mechanism = declared.metric, declared.mechanism
    if metric.type != "ordinal" or len(metric.values) > _MOST_ORDERED:
        return None
    try:
        found = order(mechanism, estimate, repeats=repeats, kept=metric.kept)
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


def chosen_of(declared: Declared, counted: Tally, repeats: float, level: float) -> Chosen | None:
    """Estimate how many options people choose, and which together; None for other metrics than sets."""
    metric, mechanism = declared.metric, declared.mechanism
    if metric.type != "set":
        return None
    average, stderr = options.chosen(mechanism, counted, repeats=repeats)
    reach = -float(ndtri(tail(level))) * stderr
    together = _pairs(declared, counted, repeats, level) if metric.joint else []
    return Chosen(average, stderr, (average - reach, average + reach), together)


def _pairs(declared: Declared, counted: Tally, repeats: float, level: float) -> list[PairEstimate]:
    found = pairs(declared.mechanism, counted, repeats=repeats)
    columns = (found.n, found.both, found.stderr, *found.interval(level), found.p_value)
    rows = zip(combinations(declared.metric.values, 2), *(column.tolist() for column in columns), strict=True)
    return [
        PairEstimate((str(first), str(second)), n, both, stderr, (low, high), finite(p_value))
        for (first, second), n, both, stderr, low, high, p_value in islice(rows, _MOST_PAIRS)
    ]
