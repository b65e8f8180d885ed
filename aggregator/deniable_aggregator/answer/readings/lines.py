"""Lines: what is estimated from one tally, line by line, as rows of a table show it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from deniable.registry.period import CYCLES
from deniable_aggregator.answer.readings.differing import between
from deniable_aggregator.answer.readings.number import NumberReading, course_of, moved
from deniable_aggregator.inference.slope import Course, slope

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from deniable_aggregator.answer.reading import LineOptions, Lines

_UNKNOWN = float("nan")


def differences(
    base: Lines,
    lines: Lines,
    options: LineOptions,
    planned: float | None,  # the difference for which an experiment was planned
) -> NDArray[np.float64]:
    """Compare each line with that of another tally: difference, low end, high end and p-value, (4, lines)."""
    # nan of quantiles, and where the other tally is of another definition or its search found other values. On a logarithmic
    # scale differences are ratios.
    columns = np.full((4, len(lines.labels)), _UNKNOWN)
    if lines.alike == base.alike and lines.n and base.n and lines.side and base.side:
        difference, distance = between(base.side, lines.side, planned), moved(lines.reading.declared.metric)
        lengths = [difference.estimates, *difference.interval(options.level)]
        compared = len(difference.estimates)  # of a number the mean alone, which comes first
        columns[:, :compared] = *([distance(each) for each in column.tolist()] for column in lengths), difference.p_value
    return columns


def trends(
    course: Sequence[tuple[int, Lines]],  # the times, which are rising whole numbers, each with its lines
    level: float,  # of the intervals
) -> NDArray[np.float64] | None:
    """Fit a line through estimates of one definition: the rise in a period, and its interval's low and high end, (3, lines)."""
    # nan of quantiles; None if there are too few times, or if a search found other values each time. On a logarithmic scale a
    # rise is a factor.
    if not course:
        return None
    (*_, (_, last)) = course
    times, lines, metric = [at for at, _ in course], [each for _, each in course], last.reading.declared.metric
    if any(each.alike != last.alike for each in lines) or metric.discover:
        return None
    if last.centre is None:
        shares = Course.of_shares(times, [each.shares for each in lines if each.shares], [each.reading.repeats for each in lines])
        line = slope(shares, CYCLES[metric.period])
        return None if line is None else np.array([line.estimate, *line.interval(level)])
    means = [each.reading for each in lines if isinstance(each.reading, NumberReading)]
    line = slope(course_of(times, means), CYCLES[metric.period])
    if line is None:
        return None
    rises = np.full((3, len(last.labels)), _UNKNOWN)
    if last.is_centred:
        distance = moved(metric)
        # No mean moves by more than the range in a period. Through few periods the interval may be wider.
        rises[:, 0] = [distance(min(max(float(each[0]), -1.0), 1.0)) for each in (line.estimate, *line.interval(level))]
    return rises
