"""Lines: what is estimated from one tally, line by line, as rows of a table show it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from deniable.registry.period import CYCLES
from deniable_aggregator.answer.model.number import MEAN
from deniable_aggregator.answer.readings.differing import between, differing_means
from deniable_aggregator.answer.readings.number import NumberReading, course_of, moved
from deniable_aggregator.inference.difference import Side
from deniable_aggregator.inference.slope import Course, slope

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from deniable_aggregator.answer.reading import Lines, Wanted

_UNKNOWN = float("nan")


def differences(base: Lines, lines: Lines, wanted: Wanted, planned: float | None) -> NDArray[np.float64]:
    """Compare each line with that of another tally; of an experiment with its `planned` difference.

    Returns
    -------
    ndarray of float
        (4, lines): difference, its interval's low and high end, and p-value. nan of quantiles, and where the other tally is of
        another definition or its search found other values. On a logarithmic scale differences are ratios.
    """
    found = np.full((4, len(lines.labels)), _UNKNOWN)
    if lines.alike != base.alike or not (lines.n and base.n):
        return found
    if lines.centre is None or base.centre is None:
        sides = [Side(each.shares.frequency, each.interval, each.shares.mirrored) for each in (base, lines) if each.shares]
        apart = between(sides[0], sides[1], planned)
        return np.array([apart.estimates, *apart.interval(wanted.level), apart.p_value])
    if MEAN in lines.labels:
        (mean,) = differing_means(lines.reading.declared.metric, base.centre, lines.centre, wanted.level, planned)
        found[:, 0] = mean.difference, *mean.interval, mean.p_value
    return found


def trends(
    course: Sequence[tuple[int, Lines]],  # the times, which are rising whole numbers, each with its lines
    level: float,  # of the intervals
) -> NDArray[np.float64] | None:
    """Fit a line through the estimates of some times, all of one definition.

    Returns
    -------
    ndarray of float
        (3, lines): the rise in a period, and its interval's low and high end; nan of quantiles. On a logarithmic scale it is a
        factor. None if there are too few times, or if a search found other values each time.
    """
    if not course:
        return None
    (*_, (_, last)) = course
    times, lines, metric = [at for at, _ in course], [each for _, each in course], last.reading.declared.metric
    if any(each.alike != last.alike for each in lines) or metric.discover:
        return None
    if last.centre is None:
        shares = Course.of_shares(times, [each.shares for each in lines if each.shares], [each.reading.repeats for each in lines])
        found = slope(shares, CYCLES[metric.period])
        return None if found is None else np.array([found.estimate, *found.interval(level)])
    means = [each.reading for each in lines if isinstance(each.reading, NumberReading)]
    found = slope(course_of(times, means), CYCLES[metric.period])
    if found is None:
        return None
    rises = np.full((3, len(last.labels)), _UNKNOWN)
    if MEAN in last.labels:
        distance = moved(metric)
        # No mean moves by more than the range in a period. Through few periods the interval may be wider.
        rises[:, 0] = [distance(min(max(float(each[0]), -1.0), 1.0)) for each in (found.estimate, *found.interval(level))]
    return rises
