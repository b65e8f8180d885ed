"""Lines: what is estimated from one tally, line by line, as rows of a table show it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import isnan
from typing import TYPE_CHECKING

import numpy as np

from deniable.messages.plural import plural
from deniable.registry.period import CYCLES
from deniable_aggregator.answer.model.number import mean_name
from deniable_aggregator.answer.question.number_range import is_range
from deniable_aggregator.answer.readings.differing import between
from deniable_aggregator.answer.readings.number import NumberReading, course_of, moved
from deniable_aggregator.answer.readings.number_range import rounding, side
from deniable_aggregator.answer.readings.numbers_differing import alone, of_quantile, share_of
from deniable_aggregator.inference.difference import Difference
from deniable_aggregator.inference.slope import LEAST, Course, slope

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from deniable.registry import Metric
    from deniable_aggregator.answer.reading import Lines
    from deniable_aggregator.inference.difference import Differences, Ends

_UNKNOWN = float("nan")


@dataclass(frozen=True, eq=False)
class LineDifferences:
    """How lines differ from those of another tally."""

    # those that are compared, each with the place of its first line, and how its differences are written, as from `moved`
    parts: Sequence[tuple[int, Differences, Callable[[float], float]]]
    lines: int  # how many there are

    @cached_property
    def p_value(self) -> NDArray[np.float64]:
        """Of each line; nan where it is not compared."""
        return self._joined([(at, part.p_value) for at, part, _ in self.parts])

    @cached_property
    def estimates(self) -> NDArray[np.float64]:
        """Of each line; nan where it is not compared. On a logarithmic scale it is a ratio."""
        return self._joined([(at, _written(part.estimates, distance)) for at, part, distance in self.parts])

    def interval(self, level: float) -> Ends:
        """Compute the interval of each line alone."""
        ends = [(at, part.interval(level), distance) for at, part, distance in self.parts]
        low, high = (self._joined([(at, _written(each[end], distance)) for at, each, distance in ends]) for end in (0, 1))
        return low, high

    def _joined(self, columns: Sequence[tuple[int, NDArray[np.float64]]]) -> NDArray[np.float64]:
        column = np.full(self.lines, _UNKNOWN)
        for at, own in columns:
            column[at : at + len(own)] = own
        return column


def _written(column: NDArray[np.float64], distance: Callable[[float], float]) -> NDArray[np.float64]:
    return np.array([distance(each) for each in column.tolist()])


def differences(
    base: Lines,
    lines: Lines,
    planned: float | None,  # the difference for which an experiment was planned
) -> LineDifferences | str:
    """Compare each line with that of another tally, or say why not: no arithmetic mean on a logarithmic scale is compared."""
    if lines.alike != base.alike:
        return "the base has other answers"
    metric, sides = lines.reading.declared.metric, (base.side, lines.side)
    compared: list[tuple[int, Differences, Callable[[float], float]]] = []
    if sides[0] and sides[1]:  # of a number the mean, which comes first
        compared.append((0, between(sides[0], sides[1], planned), moved(metric)))
    if isinstance(base.reading, NumberReading) and isinstance(lines.reading, NumberReading):
        readings, labels = (base.reading, lines.reading), list(enumerate(lines.labels))
        shares = [(at, share) for at, label in labels if not alone(metric, planned) and (share := share_of(label))]
        quantiles = [(at, of_quantile(*readings, share)) for at, share in shares]
        compared += [(at, difference, moved(metric)) for at, difference in quantiles if difference]
        ranges = [(at, label) for at, label in labels if planned is None and is_range(label)]
        compared += [(at, Difference(*(side(each, label) for each in readings)), float) for at, label in ranges]
    return LineDifferences(compared, len(lines.labels))


def notes_of(lines: Lines) -> list[str]:
    """Say of each line of a number what to consider: to what a range was rounded, and that a quantile is not resolved."""
    reading = lines.reading
    if not isinstance(reading, NumberReading):
        return [""] * len(lines.labels)
    known = zip(lines.labels, lines.estimates.tolist(), strict=True)
    return ["" if isnan(estimate) else _note(reading, label) for label, estimate in known]


def _note(reading: NumberReading, label: str) -> str:
    if is_range(label):
        return rounding(reading, label)
    if reading.resolves(label) is not False:
        return ""
    return (
        f"{plural(reading.n, 'report')} do not resolve it, so its interval may miss: collect more, or ask with a larger epsilon"
    )


def why_alone(
    lines: Lines,
    planned: float | None,  # as of `differences`
) -> tuple[list[str], list[str]]:
    """Say of each line of a number beside its mean why it is not compared, and why it has no trend; empty of all others."""
    metric = lines.reading.declared.metric
    others = [label if isinstance(lines.reading, NumberReading) and label != mean_name(metric) else "" for label in lines.labels]
    compared = [_why_not_compared(lines, each, planned) for each in others]
    followed = [
        _no_trend(metric, each) if share_of(each) or is_range(each) else each and _mean_alone(lines, _FOLLOWED) for each in others
    ]
    return compared, followed


def _why_not_compared(lines: Lines, label: str, planned: float | None) -> str:
    metric = lines.reading.declared.metric
    if is_range(label):
        return "" if planned is None else _ranges_alone(metric)
    return alone(metric, planned) if share_of(label) else label and _mean_alone(lines, _COMPARED)


def _ranges_alone(metric: Metric) -> str:
    mean = mean_name(metric).replace("_", " ")
    return f"ranges of arms are not compared, for no interval of theirs holds at every look: compare the {mean}"


def _no_trend(metric: Metric, label: str) -> str:
    mean, noun = mean_name(metric).replace("_", " "), "range" if is_range(label) else "quantile"
    return f"a {noun} has no trend: ask for that of the {mean}, or compare the {noun} with the time before"


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
