"""What changed between periods: which two are compared, slopes, and shifts."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import numpy as np

from deniable.registry import period
from deniable_aggregator.answer.model.comparison import Differing
from deniable_aggregator.answer.model.series import BetweenPeriods, Change, Shift, Trend
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


def compared(length: str, kept: Sequence[Estimated[Reading]]) -> int | None:
    """Return which closed period the last is compared with: of days a week before, of hours a day before, else the one before."""
    if len(kept) < 2:  # noqa: PLR2004
        return None
    begins, _ = period.bounds(kept[-1].selection.last, length)
    wanted = period.of(begins - COMPARED[length], length) if length in COMPARED else ""
    names = [each.selection.last for each in kept]
    return names.index(wanted) if wanted in names else len(kept) - 2


def change(first: Estimated[Reading], second: Estimated[Reading], found: Differing) -> Change:
    """Say between which periods a difference was found."""
    since, last = first.selection.last, second.selection.last
    return Change(**{name: getattr(found, name) for name in Differing.__struct_fields__}, since=since, last=last)


def through(found: Slope | None, kept: Sequence[Estimated[Reading]], level: float) -> list[Trend]:
    """Return the slope of each line with its intervals; none without a slope."""
    if found is None:
        return []
    columns = (found.estimate, *found.interval(level), *found.interval(level, simultaneous=True))
    since, last = (kept[at].selection.last for at in (0, -1))
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return [Trend(since, last, rise, (low, high), (lowest, highest)) for rise, low, high, lowest, highest in rows]


def usual_differences(current: Declared, course: Course) -> list[BetweenPeriods | None]:
    """Return of each line by how much its last periods differ beyond chance; None where too few tell it."""
    metric = current.metric
    rows = slice(max(len(course.times) - _REFERENCE, 0), len(course.times))
    found = shift.usual(course, rows, period.CYCLES[metric.period])
    distance = moved(metric) if metric.estimate else float
    told = [BetweenPeriods(distance(sd), found.pairs) for sd in np.sqrt(found.variance).tolist()]
    return [each if found.pairs >= FEWEST_PAIRS else None for each in told]


def seen_shifts(
    current: Declared,
    gathered: Sequence[Estimated[Reading]],
    course: Course,
    ends: Sequence[tuple[NDArray[np.float64], NDArray[np.float64]]],
    level: float,
) -> dict[int, list[Shift]]:
    """Return the shifts that were seen in the periods shown, of each value."""
    metric, permanent, told = current.metric, current.permanent, dict[int, list[Shift]]()
    distance = moved(metric) if metric.estimate else float
    low, high = (np.array(each) for each in zip(*ends, strict=True))
    p, q = permanent.permanent_support if permanent else (1, 0)
    found = shift.shifts(
        course,
        (low, high),
        level,
        cycle=period.CYCLES[metric.period],
        least=float(metric.least_shift or 0),
        apart=1 / float(p - q),
    )
    for each in found:
        begins, seen = (gathered[at].selection for at in (each.begins, each.seen))
        if gathered[each.seen].at >= 0:
            one = Shift(
                direction="rose" if each.size > 0 else "fell",
                single=each.single,
                begins=begins.spans[0].first or begins.last,
                seen=seen.last,
                size=distance(each.size),
                interval=(distance(each.low), distance(each.high)),
            )
            told.setdefault(each.value, []).append(one)
    return told
