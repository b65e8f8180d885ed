"""The lines of a metric of shares: one for each value."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deniable_aggregator.answer.model.series import Line, Point
from deniable_aggregator.answer.over_time.changes import ClosedPeriods, changes_of
from deniable_aggregator.answer.over_time.periods import of_kind
from deniable_aggregator.answer.pool import Meaning, meaning_of
from deniable_aggregator.answer.readings import ShareReading, together
from deniable_aggregator.decode.some_values import some_values
from deniable_aggregator.inference.difference import Side
from deniable_aggregator.inference.slope import Course

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deniable.declared import Declared
    from deniable_aggregator.answer.over_time.changes import Look
    from deniable_aggregator.answer.over_time.periods import Estimated
    from deniable_aggregator.answer.reading import Reading
    from deniable_aggregator.decode.estimate import Estimate

    Dated = tuple[Estimated[ShareReading], Estimate]  # the estimate is of the values that have lines


def share_lines(
    current: Declared,
    past: Sequence[Estimated[Reading]],
    estimated: Sequence[Estimated[Reading]],
    names: Sequence[str],
    level: float,
    *,
    length: str,  # of a period of the series
    look: Look = "all",  # for which changes is looked
) -> tuple[list[Line], int]:
    """Return a line for each of the most frequent values, and how many values have none."""
    metric, readings = current.metric, of_kind(estimated, ShareReading)
    if metric.discover or not readings:
        return [], 0
    all_periods = together([period.reading for period in readings if period.reading.declared is current])
    values, shares = all_periods.values, all_periods.shares
    places = all_periods.most_frequent()
    meanings = {meaning_of(metric, values[place]): values[place] for place in places}
    points: dict[Meaning, list[Point | None]] = {meaning: [None] * len(names) for meaning in meanings}
    closed = [(each, some_values(each.reading.shares, places)) for each in of_kind(past, ShareReading)]
    earlier = len(closed)
    for period in readings:
        own, estimate = period.reading.declared.metric, period.reading.shares
        if own.discover:
            continue
        known = {meaning_of(own, position): place for place, position in enumerate(period.reading.values)}
        there = [meaning for meaning in meanings if meaning in known]
        of_values = some_values(estimate, [known[meaning] for meaning in there])
        for meaning, point in zip(there, _points(of_values, level, len(estimated)), strict=True):
            points[meaning][period.at] = point
        if period.reading.declared is current and period.closed:
            closed.append((period, of_values))
    recent = _closed_periods(current, length, closed[earlier:])
    remembered = _closed_periods(current, length, closed) if earlier else recent
    changes = changes_of(recent, remembered, len(places), shares.hypotheses, level, look=look)
    lines = [
        Line("share", metric.value(position), metric.label(position), points[meaning], *changes[at])
        for at, (meaning, position) in enumerate(meanings.items())
    ]
    return lines, len(values) - len(lines)


def _points(estimate: Estimate, level: float, periods: int) -> list[Point]:
    columns = (estimate.frequency, *estimate.interval(level), *estimate.interval(1 - (1 - level) / periods), estimate.reports)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return [Point(share, (low, high), (lowest, highest), n) for share, low, high, lowest, highest, n in rows]


def _closed_periods(current: Declared, length: str, dated: Sequence[Dated]) -> ClosedPeriods:
    periods, estimates = [each for each, _ in dated], [each for _, each in dated]
    course = Course.of_shares([each.at for each in periods], estimates, [each.reading.repeats for each in periods])
    return ClosedPeriods(current, length, periods, [Side.of(each) for each in estimates], course)
