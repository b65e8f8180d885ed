"""What changed between periods: which two are compared, slopes, and shifts."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Literal

import numpy as np

from deniable.registry import period
from deniable_aggregator.answer.model.comparison import Differing
from deniable_aggregator.answer.model.series import BetweenPeriods, PeriodChange, Shift, Trend
from deniable_aggregator.answer.readings.differing import differing
from deniable_aggregator.answer.readings.number import NumberReading, moved, to_number
from deniable_aggregator.answer.readings.numbers_differing import of_mean_and_median
from deniable_aggregator.decode.multiple_testing import holm
from deniable_aggregator.inference import shift
from deniable_aggregator.inference.between import FEWEST_PAIRS
from deniable_aggregator.inference.difference import Difference
from deniable_aggregator.inference.slope import slope

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deniable.declared import Declared
    from deniable_aggregator.answer.over_time.periods import Estimated
    from deniable_aggregator.answer.reading import Reading
    from deniable_aggregator.inference.difference import Differences, Side
    from deniable_aggregator.inference.slope import Course

    Changes = tuple[PeriodChange | None, Trend | None, list[Shift], BetweenPeriods | None]

Look = Literal["all", "unshifted", "none"]
"""For which changes is looked: for all; for all but shifts; or for none."""
COMPARED = {"hour": timedelta(days=1), "day": timedelta(weeks=1)}
"""How far before a period the one that it is compared with lies: people do other things at night, and on Sundays."""
_REFERENCE = 56  # last periods that tell by how much periods differ


@dataclass(frozen=True, eq=False)
class ClosedPeriods:
    """What some closed periods say of each line. All are of one version, so that their estimates can be compared."""

    declared: Declared  # the version
    length: str  # of a period: that of the metric, or a longer one in which its periods are joined
    periods: Sequence[Estimated[Reading]]  # in order
    sides: Sequence[Side]  # of each period the estimates of the lines
    course: Course  # the same estimates, with what slopes and shifts need

    @property
    def _names(self) -> list[str]:
        lasts = (each.selection.last for each in self.periods)
        return [period.of(period.bounds(last, self.declared.metric.period)[0], self.length) for last in lasts]

    def changes(self, level: float) -> list[PeriodChange]:
        """Compare the last period with an earlier one, line by line, of a number also the medians; nothing if there is none."""
        at = self._compared()
        if at is None:
            return []
        metric, since, last = self.declared.metric, self._names[at], self._names[-1]
        difference: Differences = Difference(self.sides[at], self.sides[-1])
        readings = [self.periods[place].reading for place in (at, -1)]
        if isinstance(readings[0], NumberReading) and isinstance(readings[1], NumberReading):
            _, difference = of_mean_and_median(readings[0], readings[1])
        return [
            PeriodChange(**{name: getattr(row, name) for name in Differing.__struct_fields__}, since=since, last=last)
            for row in differing(difference, level, number=to_number(metric), distance=moved(metric))
        ]

    def _compared(self) -> int | None:
        """Return which period the last is compared with: of days a week before, of hours a day before, else the one before."""
        if len(self.periods) < 2:  # noqa: PLR2004
            return None
        names, length = self._names, self.length
        begins, _ = period.bounds(names[-1], length)
        before = period.of(begins - COMPARED[length], length) if length in COMPARED else ""
        return names.index(before) if before in names else len(names) - 2

    def trends(self, level: float) -> list[Trend]:
        """Fit a line through the estimates of each line; nothing through too few periods."""
        metric = self.declared.metric
        fit, distance = slope(self.course, period.CYCLES[self.length]), moved(metric)
        if fit is None:
            return []
        # No mean moves by more than the range in a period. Through few periods the interval may be wider.
        most = 1.0 if metric.estimate else float("inf")
        intervals = (fit.interval(level), fit.interval(level, simultaneous=True))
        ends = (end for low, high in intervals for end in (np.maximum(low, -most), np.minimum(high, most)))
        columns = ([distance(each) for each in column.tolist()] for column in (fit.estimate, *ends))
        since, last = (self._names[at] for at in (0, -1))
        p_value = fit.p_value
        differs = np.resize(holm(p_value[: fit.hypotheses], 1 - level), len(p_value))
        rows = zip(*columns, p_value.tolist(), differs.tolist(), strict=True)
        return [
            Trend(since, last, rise, (low, high), (lowest, highest), p, verdict)
            for rise, low, high, lowest, highest, p, verdict in rows
        ]

    def shifts(self, hypotheses: int) -> dict[int, list[Shift]]:
        """Return the shifts that were seen in the periods shown, by line."""
        metric, permanent, by_line = self.declared.metric, self.declared.permanent, dict[int, list[Shift]]()
        distance, level = moved(metric), shift.confidence(hypotheses)
        low, high = (np.array(ends) for ends in zip(*(side.interval(level) for side in self.sides), strict=True))
        p, q = permanent.permanent_support if permanent else (1, 0)
        changes = shift.shifts(
            self.course,
            (low, high),
            level,
            cycle=period.CYCLES[metric.period],
            least=float(metric.least_shift or 0),
            distance=1 / float(p - q),
        )
        for change in changes:
            begins, seen = (self.periods[at].selection for at in (change.begins, change.seen))
            # Periods before those shown have negative places. A shift that was seen there is not shown any more.
            if self.periods[change.seen].at >= 0:
                answer = Shift(
                    direction="rose" if change.size > 0 else "fell",
                    single=change.single,
                    begins=begins.spans[0].first or begins.last,
                    seen=seen.last,
                    size=distance(change.size),
                    interval=(distance(change.low), distance(change.high)),
                )
                by_line.setdefault(change.value, []).append(answer)
        return by_line

    def usual_differences(self) -> list[BetweenPeriods | None]:
        """Return of each line by how much its last periods differ beyond chance; None where too few tell it."""
        metric, number = self.declared.metric, len(self.course.times)
        usual = shift.usual(self.course, slice(max(number - _REFERENCE, 0), number), period.CYCLES[metric.period])
        deviations = [BetweenPeriods(moved(metric)(sd), usual.pairs) for sd in np.sqrt(usual.variance).tolist()]
        return [each if usual.pairs >= FEWEST_PAIRS else None for each in deviations]


def changes_of(
    current: ClosedPeriods,  # those among the periods of the series
    remembered: ClosedPeriods,  # these, after the earlier ones on which shifts depend
    lines: int,  # how many there are
    hypotheses: int,  # how many estimates are tested for shifts
    level: float,
    *,
    look: Look = "all",  # for what is looked
) -> list[Changes]:
    """Return what changed in each line: between two periods, on average, and for good."""
    if look == "none":
        return [(None, None, [], None)] * lines
    changes, trends = current.changes(level), current.trends(level)
    looks = current.declared.metric.least_shift is not None and bool(remembered.periods) and look == "all"
    shifts, usual = (remembered.shifts(hypotheses), remembered.usual_differences()) if looks else ({}, [])
    return [
        (
            changes[at] if at < len(changes) else None,
            trends[at] if at < len(trends) else None,
            shifts.get(at, []),
            usual[at] if at < len(usual) else None,
        )
        for at in range(lines)
    ]
