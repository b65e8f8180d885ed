"""Lines: what is estimated from one tally, line by line, as rows of a table show it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from deniable.registry.period import CYCLES
from deniable_aggregator.answer.model.number import mean_name
from deniable_aggregator.answer.readings.differing import between
from deniable_aggregator.answer.readings.number import NumberReading, course_of, moved
from deniable_aggregator.inference.slope import LEAST, Course, slope

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
) -> NDArray[np.float64] | str:
    """Compare each line with that of another tally: difference, low end, high end and p-value, (4, lines). Or say why not."""
    # nan of quantiles. On a logarithmic scale differences are ratios.
    columns = np.full((4, len(lines.labels)), _UNKNOWN)
    if lines.side is None or base.side is None:
        return _mean_alone(lines, _COMPARED)
    if lines.alike != base.alike:
        return "the base has other answers"
    difference, distance = between(base.side, lines.side, planned), moved(lines.reading.declared.metric)
    lengths = [difference.estimates, *difference.interval(options.level)]
    compared = len(difference.estimates)  # of a number the mean alone, which comes first
    columns[:, :compared] = *([distance(each) for each in column.tolist()] for column in lengths), difference.p_value
    return columns


def beside_mean(lines: Lines) -> tuple[list[str], list[str]]:
    """Say of each line of a number beside its mean why it is not compared, and why it has no trend; empty of all others."""
    mean = mean_name(lines.reading.declared.metric)
    of_number = isinstance(lines.reading, NumberReading)
    compared, followed = (
        [_mean_alone(lines, what) if of_number and label != mean else "" for label in lines.labels]
        for what in (_COMPARED, _FOLLOWED)
    )
    return compared, followed


def _mean_alone(lines: Lines, what: str) -> str:
    return f"of a number the {mean_name(lines.reading.declared.metric).replace('_', ' ')} {what}"


_COMPARED, _FOLLOWED = "is compared", "has a trend"


def trends(
    course: Sequence[tuple[int, Lines]],  # the times, which are rising whole numbers, each with its lines
    level: float,  # of the intervals
) -> NDArray[np.float64] | str:
    """Fit a line through estimates of one definition: the rise in a period, and its interval's low and high end, (3, lines)."""
    # nan of quantiles. On a logarithmic scale a rise is a factor. Where there is no line, the answer says why.
    lines = [each for _, each in course]
    if why := _without_line(lines):
        return why
    times, means = [at for at, _ in course], [each.reading for each in lines if isinstance(each.reading, NumberReading)]
    shares, repeats = [each.shares for each in lines if each.shares], [each.reading.repeats for each in lines]
    metric = lines[-1].reading.declared.metric
    line = slope(course_of(times, means) if means else Course.of_shares(times, shares, repeats), CYCLES[metric.period])
    if line is None:
        return _too_few(len(lines))
    if not means:
        return np.array([line.estimate, *line.interval(level)])
    rises, distance = np.full((3, len(lines[-1].labels)), _UNKNOWN), moved(metric)
    # No mean moves by more than the range in a period. Through few periods the interval may be wider.
    rises[:, 0] = [distance(min(max(float(each[0]), -1.0), 1.0)) for each in (line.estimate, *line.interval(level))]
    return rises


def _too_few(periods: int) -> str:
    return f"a trend takes {LEAST} closed periods or more, and there {'is' if periods == 1 else 'are'} {periods}"


def _without_line(lines: Sequence[Lines]) -> str:
    """Say why no line is drawn through some times, however many there are; empty if one is."""
    if not lines:
        return _too_few(0)
    if lines[-1].reading.declared.metric.discover:
        return "answers that are searched for have no trend: each period finds its own"
    if lines[-1].side is None:
        return _mean_alone(lines[-1], _FOLLOWED)
    return "" if all(each.alike == lines[-1].alike for each in lines) else "the periods have other answers"
