"""The lines of a number: its mean, and its median."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deniable.messages.plural import plural
from deniable_aggregator.answer.model.number import mean_name
from deniable_aggregator.answer.model.series import Line, Point
from deniable_aggregator.answer.over_time.changes import ClosedPeriods, changes_of
from deniable_aggregator.answer.over_time.periods import of_kind
from deniable_aggregator.answer.readings.number import NumberReading, course_of, to_number
from deniable_aggregator.answer.readings.numbers_differing import MEDIAN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deniable.declared import Declared
    from deniable.registry import Metric
    from deniable_aggregator.answer.over_time.changes import Look
    from deniable_aggregator.answer.over_time.periods import Estimated
    from deniable_aggregator.answer.reading import Reading

_MOST_MEDIANS = 12  # more would take longer than a page may


def number_lines(
    current: Declared,
    past: Sequence[Estimated[Reading]],
    estimated: Sequence[Estimated[Reading]],
    names: Sequence[str],
    level: float,
    *,
    length: str,  # of a period of the series
    look: Look = "all",  # for which changes is looked
) -> tuple[list[Line], int]:
    """Return the lines of the mean and the median, and that no value is left out."""
    metric = current.metric
    number, narrow = to_number(metric), 1 - (1 - level) / max(len(estimated), 1)
    readings = of_kind(estimated, NumberReading)
    means: list[Point | None] = [None] * len(names)
    medians: list[Point | None] = [None] * len(names)
    closed: list[Estimated[NumberReading]] = []
    for left, period in zip(range(len(readings), 0, -1), readings, strict=True):
        own, centre = period.reading.declared, period.reading.centre
        if _axis(own.metric) != _axis(metric):
            continue  # another axis
        ends = [tuple(number(end) for end in centre.interval(confidence)) for confidence in (level, narrow)]
        means[period.at] = Point(number(centre.place), (ends[0][0], ends[0][1]), (ends[1][0], ends[1][1]), period.reading.n)
        if own.metric.estimate == "distribution" and left <= _MOST_MEDIANS:
            medians[period.at] = _median(period.reading, level, narrow)
        if own is current and period.closed:
            closed.append(period)
    earlier, recent = of_kind(past, NumberReading), _closed_periods(current, length, closed)
    remembered = _closed_periods(current, length, [*earlier, *closed]) if earlier else recent
    of_mean, of_median = changes_of(recent, remembered, 2, 1, level, look=look)
    name = mean_name(current.metric)
    lines = [Line(name, None, name, means, *of_mean)]
    if any(medians):
        lines.append(Line(MEDIAN, None, MEDIAN, medians, *of_median, left_out=_left_out(medians, means, length)))
    return lines if estimated else [], 0


def _left_out(medians: Sequence[Point | None], means: Sequence[Point | None], length: str) -> str:
    """Say that only the last periods have a median, if others have a mean."""
    own, others = (sum(each is not None for each in points) for points in (medians, means))
    if own == others:
        return ""
    only = f"The median is estimated for the last {own} of {plural(others, length)} only, because each takes a while."
    return f"{only} A query for p50 by time has all."


def _axis(metric: Metric) -> tuple[object, ...]:
    return metric.range, metric.unit, metric.scale, metric.values


def _median(reading: NumberReading, level: float, narrow: float) -> Point | None:
    spread, number = reading.spread, to_number(reading.declared.metric)
    if spread is None:
        return None
    middle, wide = (spread.quantile(0.5, confidence) for confidence in (level, narrow))
    ends = [(number(band.low), number(band.high)) for band in (middle, wide)]
    return Point(number(middle.place), ends[0], ends[1], reading.n)


def _closed_periods(current: Declared, length: str, periods: Sequence[Estimated[NumberReading]]) -> ClosedPeriods:
    readings = [each.reading for each in periods]
    course = course_of([each.at for each in periods], readings)
    return ClosedPeriods(current, length, periods, [each.centre.side for each in readings], course)
