"""The lines of a number: its mean, and its median."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from deniable.registry.period import CYCLES
from deniable_aggregator.answer.model.series import BetweenPeriods, Change, Line, Point, Shift, Trend
from deniable_aggregator.answer.over_time.changes import change, compared, seen_shifts, through, usual_differences
from deniable_aggregator.answer.over_time.periods import of_kind
from deniable_aggregator.answer.readings.differing import differing_means
from deniable_aggregator.answer.readings.number import NumberReading, course_of, moved, to_number
from deniable_aggregator.inference import shift
from deniable_aggregator.inference.slope import slope

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deniable.declared import Declared
    from deniable.registry import Metric
    from deniable_aggregator.answer.over_time.periods import Estimated
    from deniable_aggregator.answer.reading import Reading
    from deniable_aggregator.inference.slope import Course

_MOST_MEDIANS = 12  # more would take longer than a page may


def number_lines(
    current: Declared,
    past: Sequence[Estimated[Reading]],
    estimated: Sequence[Estimated[Reading]],
    names: Sequence[str],
    level: float,
) -> tuple[list[Line], int]:
    """Return the lines of the mean and the median, and that no value is left out."""
    metric = current.metric
    number, narrow = to_number(metric), 1 - (1 - level) / max(len(estimated), 1)
    readings = of_kind(estimated, NumberReading)
    means: list[Point | None] = [None] * len(names)
    medians: list[Point | None] = [None] * len(names)
    kept: list[Estimated[NumberReading]] = []
    for left, each in zip(range(len(readings), 0, -1), readings, strict=True):
        own, centre = each.reading.declared, each.reading.centre
        if _axis(own.metric) != _axis(metric):
            continue  # another axis
        ends = [tuple(number(end) for end in centre.interval(wanted)) for wanted in (level, narrow)]
        means[each.at] = Point(number(centre.place), (ends[0][0], ends[0][1]), (ends[1][0], ends[1][1]), each.reading.n)
        if own.metric.estimate == "distribution" and left <= _MOST_MEDIANS:
            medians[each.at] = _median(each.reading, level, narrow)
        if own is current and each.selection.closed:
            kept.append(each)
    change, trend = _mean_change(current, kept, level), _mean_trend(current, kept, level)
    lines = [Line("mean", None, "mean", means, change, trend, *_mean_shifts(current, [*of_kind(past, NumberReading), *kept]))]
    if any(medians):
        lines.append(Line("median", None, "median", medians, None, None))
    return lines if estimated else [], 0


def _axis(metric: Metric) -> tuple[object, ...]:
    return metric.range, metric.unit, metric.scale, metric.values


def _median(reading: NumberReading, level: float, narrow: float) -> Point | None:
    spread, number = reading.spread, to_number(reading.declared.metric)
    if spread is None:
        return None
    middle, wide = (spread.quantile(0.5, wanted) for wanted in (level, narrow))
    ends = [(number(band.low), number(band.high)) for band in (middle, wide)]
    return Point(number(middle.place), ends[0], ends[1], reading.n)


def _mean_change(current: Declared, kept: Sequence[Estimated[NumberReading]], level: float) -> Change | None:
    pair = compared(current.metric.period, kept)
    if pair is None:
        return None
    found = differing_means(current.metric, kept[pair].reading.centre, kept[-1].reading.centre, level)
    return change(kept[pair], kept[-1], found[0])


def _mean_trend(current: Declared, kept: Sequence[Estimated[NumberReading]], level: float) -> Trend | None:
    found, distance = through(slope(_course(kept), CYCLES[current.metric.period]), kept, level), moved(current.metric)
    if not found:
        return None
    each = found[0]
    # No mean moves by more than the range in a period. Through few periods the interval may be wider.
    ends = [(distance(max(low, -1.0)), distance(min(high, 1.0))) for low, high in (each.interval, each.simultaneous)]
    return Trend(each.since, each.last, distance(each.slope), *ends)


def _course(kept: Sequence[Estimated[NumberReading]]) -> Course:
    return course_of([each.at for each in kept], [each.reading for each in kept])


def _mean_shifts(current: Declared, kept: Sequence[Estimated[NumberReading]]) -> tuple[list[Shift], BetweenPeriods | None]:
    if current.metric.least_shift is None or not kept:
        return [], None
    course, level = _course(kept), shift.confidence(1)
    each = (one.reading.centre.interval(level) for one in kept)
    ends = [(np.array([low]), np.array([high])) for low, high in each]
    return seen_shifts(current, kept, course, ends, level).get(0, []), usual_differences(current, course)[0]
