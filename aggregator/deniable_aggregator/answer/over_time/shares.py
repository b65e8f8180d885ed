"""The lines of a metric of shares: one for each value."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deniable.registry.period import CYCLES
from deniable_aggregator.answer.model.series import BetweenPeriods, Change, Line, Point, Shift, Trend
from deniable_aggregator.answer.over_time.changes import change, compared, seen_shifts, through, usual_differences
from deniable_aggregator.answer.over_time.periods import of_kind
from deniable_aggregator.answer.pool import Meaning, meaning_of
from deniable_aggregator.answer.readings import ShareReading, together
from deniable_aggregator.answer.readings.differing import differing
from deniable_aggregator.decode.some_values import some_values
from deniable_aggregator.inference import shift
from deniable_aggregator.inference.difference import Side
from deniable_aggregator.inference.slope import Course, slope

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deniable.declared import Declared
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
) -> tuple[list[Line], int]:
    """Return a line for each of the most frequent values, and how many values have none."""
    metric, readings = current.metric, of_kind(estimated, ShareReading)
    if metric.discover or not readings:
        return [], 0
    whole = together([each.reading for each in readings if each.reading.declared is current])
    values, shares = whole.values, whole.shares
    places = whole.most_frequent()
    meanings = {meaning_of(metric, values[place]): values[place] for place in places}
    points: dict[Meaning, list[Point | None]] = {meaning: [None] * len(names) for meaning in meanings}
    kept: list[Dated] = []
    for each in readings:
        own, estimate = each.reading.declared.metric, each.reading.shares
        if own.discover:
            continue
        known = {meaning_of(own, position): place for place, position in enumerate(each.reading.values)}
        there = [meaning for meaning in meanings if meaning in known]
        some = some_values(estimate, [known[meaning] for meaning in there])
        for meaning, point in zip(there, _points(some, level, len(estimated)), strict=True):
            points[meaning][each.at] = point
        if each.reading.declared is current and each.selection.closed:
            kept.append((each, some))
    changes, trends = _changes(metric.period, kept, level), _trends(metric.period, kept, level)
    shifted, between = _shifted(current, [*_earlier(past, places), *kept], shares.hypotheses)
    lines = [
        Line(
            kind="share",
            value=metric.value(position),
            label=metric.label(position),
            points=points[meaning],
            change=changes[at] if changes else None,
            trend=trends[at] if trends else None,
            shifts=shifted.get(at, []),
            between=between[at] if between else None,
        )
        for at, (meaning, position) in enumerate(meanings.items())
    ]
    return lines, len(values) - len(lines)


def _points(some: Estimate, level: float, periods: int) -> list[Point]:
    columns = (some.frequency, *some.interval(level), *some.interval(1 - (1 - level) / periods), some.reports)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return [Point(share, (low, high), (lowest, highest), n) for share, low, high, lowest, highest, n in rows]


def _changes(length: str, kept: Sequence[Dated], level: float) -> list[Change]:
    pair = compared(length, [each for each, _ in kept])
    if pair is None:
        return []
    first, second = kept[pair][1], kept[-1][1]
    return [change(kept[pair][0], kept[-1][0], each) for each in differing(Side.of(first), Side.of(second), level)]


def _trends(length: str, kept: Sequence[Dated], level: float) -> list[Trend]:
    times, estimates = [each.at for each, _ in kept], [each for _, each in kept]
    course = Course.of_shares(times, estimates, [each.reading.repeats for each, _ in kept])
    found = slope(course, CYCLES[length])
    return through(found, [each for each, _ in kept], level)


def _earlier(past: Sequence[Estimated[Reading]], places: list[int]) -> list[Dated]:
    """Estimate some values in earlier periods."""
    return [(each, some_values(each.reading.shares, places)) for each in of_kind(past, ShareReading)]


def _shifted(
    current: Declared, kept: Sequence[Dated], hypotheses: int
) -> tuple[dict[int, list[Shift]], list[BetweenPeriods | None]]:
    """Find the shifts of each line, and by how much its periods differ."""
    if current.metric.least_shift is None or not kept:
        return {}, []
    gathered, estimates = [each for each, _ in kept], [each for _, each in kept]
    course = Course.of_shares([each.at for each in gathered], estimates, [each.reading.repeats for each in gathered])
    level = shift.confidence(hypotheses)
    found = seen_shifts(current, gathered, course, [each.interval(level) for each in estimates], level)
    return found, usual_differences(current, course)
