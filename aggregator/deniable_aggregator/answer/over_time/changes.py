"""What changed between periods: which two are compared, slopes, and shifts."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import numpy as np

from deniable.registry import period
from deniable_aggregator.answer.model.comparison import Differing
from deniable_aggregator.answer.model.series import BetweenPeriods, PeriodChange, Shift, Trend
from deniable_aggregator.answer.readings.number import moved
from deniable_aggregator.inference import shift
from deniable_aggregator.inference.between import FEWEST_PAIRS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from deniable.declared import Declared
    from deniable_aggregator.answer.over_time.periods import Estimated
    from deniable_aggregator.answer.reading import Reading
    from deniable_aggregator.inference.slope import Course, Slope

COMPARED = {"hour": timedelta(days=1), "day": timedelta(weeks=1)}
"""How far before a period the one that it is compared with lies: people do other things at night, and on Sundays."""
_REFERENCE = 56  # last periods that tell by how much periods differ


def compared(length: str, closed: Sequence[Estimated[Reading]]) -> int | None:
    """Return which closed period the last is compared with: of days a week before, of hours a day before, else the one before."""
    if len(closed) < 2:  # noqa: PLR2004
        return None
    begins, _ = period.bounds(closed[-1].selection.last, length)
    before = period.of(begins - COMPARED[length], length) if length in COMPARED else ""
    names = [each.selection.last for each in closed]
    return names.index(before) if before in names else len(closed) - 2


def change(first: Estimated[Reading], second: Estimated[Reading], difference: Differing) -> PeriodChange:
    """Say between which periods a difference was found."""
    since, last = first.selection.last, second.selection.last
    return PeriodChange(**{name: getattr(difference, name) for name in Differing.__struct_fields__}, since=since, last=last)


def through(line: Slope | None, closed: Sequence[Estimated[Reading]], level: float) -> list[Trend]:
    """Return the slope of each line with its intervals; none without a slope."""
    if line is None:
        return []
    columns = (line.estimate, *line.interval(level), *line.interval(level, simultaneous=True))
    since, last = (closed[at].selection.last for at in (0, -1))
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return [Trend(since, last, rise, (low, high), (lowest, highest)) for rise, low, high, lowest, highest in rows]


def usual_differences(current: Declared, course: Course) -> list[BetweenPeriods | None]:
    """Return of each line by how much its last periods differ beyond chance; None where too few tell it."""
    metric = current.metric
    rows = slice(max(len(course.times) - _REFERENCE, 0), len(course.times))
    usual = shift.usual(course, rows, period.CYCLES[metric.period])
    distance = moved(metric) if metric.estimate else float
    deviations = [BetweenPeriods(distance(sd), usual.pairs) for sd in np.sqrt(usual.variance).tolist()]
    return [each if usual.pairs >= FEWEST_PAIRS else None for each in deviations]


def seen_shifts(
    current: Declared,
    gathered: Sequence[Estimated[Reading]],
    course: Course,
    ends: Sequence[tuple[NDArray[np.float64], NDArray[np.float64]]],
    level: float,
) -> dict[int, list[Shift]]:
    """Return the shifts that were seen in the periods shown, of each value."""
    metric, permanent, by_value = current.metric, current.permanent, dict[int, list[Shift]]()
    distance = moved(metric) if metric.estimate else float
    low, high = (np.array(each) for each in zip(*ends, strict=True))
    p, q = permanent.permanent_support if permanent else (1, 0)
    detected = shift.shifts(
        course,
        (low, high),
        level,
        cycle=period.CYCLES[metric.period],
        least=float(metric.least_shift or 0),
        apart=1 / float(p - q),
    )
    for change in detected:
        begins, seen = (gathered[at].selection for at in (change.begins, change.seen))
        if gathered[change.seen].at >= 0:
            seen_shift = Shift(
                direction="rose" if change.size > 0 else "fell",
                single=change.single,
                begins=begins.spans[0].first or begins.last,
                seen=seen.last,
                size=distance(change.size),
                interval=(distance(change.low), distance(change.high)),
            )
            by_value.setdefault(change.value, []).append(seen_shift)
    return by_value
