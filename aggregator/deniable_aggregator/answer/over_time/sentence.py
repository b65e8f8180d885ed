"""What is said of a series: what changed since the period before, and which trend it has.

Beside the verdict of a test of several values together stands the interval that holds for all of them at once. Holm's test
finds a little more than these intervals exclude. What is found then is said to have moved by up to so much.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from deniable.messages.plural import plural
from deniable_aggregator.answer import figures
from deniable_aggregator.answer.figures import Measure, distance
from deniable_aggregator.answer.model.series import PeriodChange, Trend
from deniable_aggregator.inference.slope import LEAST

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from deniable_aggregator.answer.model.series import Line, Series

NAMES = {"mean": "Mean", "geometric_mean": "Geometric mean", "median": "Median"}
"""What lines of numbers are called."""
FEWEST = 5
"""Closed periods of which it is worth saying that they show no trend: fewer hardly can."""
NOT_FOLLOWED = "Answers that are searched for are not followed over time"
"""Why nothing is said of what changed, however many periods there are: each finds its own answers."""
_MOST_NAMED = 3
_ALONE = "This metric is tested alone; the list tests all metrics together, and may not find this."

Result = TypeVar("Result", PeriodChange, Trend)


def measure_of(line: Line, series: Series) -> Measure:
    """Return what the estimates of a line are of."""
    return Measure(line.kind == "share", series.unit, series.scale, series.range, line.kind == "median")


def closed_periods(series: Series) -> int:
    """Count the closed periods of the version described."""
    return sum(each.state == "published" and each.closed and each.version == series.version for each in series.periods)


def changes_of(series: Series) -> list[tuple[Line, PeriodChange]]:
    """Return the lines whose last closed period can be compared, each with its change: of yes and no only yes."""
    return [(line, line.change) for line in series.lines if line.change and line.value is not False]


def trends_of(series: Series) -> list[tuple[Line, Trend]]:
    """Return the lines with enough closed periods, each with its trend: of yes and no only yes."""
    return [(line, line.trend) for line in series.lines if line.trend and line.value is not False]


def rises(result: PeriodChange | Trend, scale: str) -> bool:
    """Whether a line went up."""
    return _size(result, scale) > 0


def size(result: PeriodChange | Trend, series: Series) -> float:
    """Return how far a line moved in all, whatever the direction; of numbers in their unit, or as a logarithm."""
    return abs(_size(result, series.scale)) * (_steps(result, series) if isinstance(result, Trend) else 1)


def change_of(line: Line, change: PeriodChange, series: Series) -> str:
    """Say by how much a line changed since the period before."""
    is_rise = rises(change, series.scale)
    return f"{_subject(line)} {_verb(is_rise)} by {measure_of(line, series).size(change.simultaneous, is_rise=is_rise)}"


def trend_of(line: Line, trend: Trend, series: Series) -> str:
    """Say by how much a line rose or fell on average in a period, and in all."""
    measure, is_rise = measure_of(line, series), rises(trend, series.scale)
    rate, total = measure.rate(trend.simultaneous, is_rise=is_rise), measure.size(_in_all(trend, series), is_rise=is_rise)
    return f"{_subject(line)} {_verb(is_rise)} by {rate} a {series.period_length}, in all {total}"


def change_in_words(series: Series) -> str:
    """Say what changed most, if anything changed beyond chance; empty if fewer than two periods are published."""
    changes, length = changes_of(series), series.period_length
    if not changes:
        published = sum(each.state == "published" for each in series.periods)
        if not series.lines:
            return f"{NOT_FOLLOWED}." if published else ""
        return f"What changed is said once two {length}s of one version are closed." if published > 1 else ""
    since, last = changes[0][1].since, changes[0][1].last
    if not any(change.differs for _, change in changes):
        unmoved = _unmoved(changes, series)
        return f"No change beyond chance {_when(since, last, length)}: {unmoved}."
    when = f", {_when(since, last, length)}"
    return f"{_all_found(changes, series, change_of, when, 'changed')} {_ALONE}"


def trend_in_words(series: Series) -> str:
    """Say which lines rise or fall, if any does beyond chance; empty where too few periods are closed."""
    trends, length = trends_of(series), series.period_length
    if any(trend.differs for _, trend in trends):
        interval = figures.interval(series.level, together=len(trends) > 1).replace("interval", "intervals")
        since, last = trends[0][1].since, trends[0][1].last
        when = f", {_when(since, last, length)}"
        words = _all_found(trends, series, trend_of, when, "have a trend", "has a trend")
        return f"On average {figures.within(words)} Sizes are {interval}. {_ALONE}"
    closed = closed_periods(series)
    if not trends:
        if not series.lines:
            return ""
        return f"A trend takes {LEAST} closed periods or more, and there are {closed}." if 1 < closed < LEAST else ""
    if closed < FEWEST:
        return f"No trend beyond chance through {plural(closed, length)}: so few show only a steep one."
    since, last = trends[0][1].since, trends[0][1].last
    first = f"No trend beyond chance {_when(since, last, length)}: {_unmoved(trends, series)} a {length}"
    return f"{first}. In all {_possible(trends, series)} {'is' if series.scale == 'log' else 'are'} possible."


def _all_found(
    pairs: Sequence[tuple[Line, Result]],
    series: Series,
    words: Callable[[Line, Result, Series], str],
    when: str,  # stands behind the first
    many: str,
    one: str = "",
) -> str:
    """Name up to three lines that moved, the one that moved most first, and count the others."""
    moved = sorted((pair for pair in pairs if pair[1].differs), key=lambda pair: -size(pair[1], series))
    first, *others = [words(*pair, series) for pair in moved[:_MOST_NAMED]]
    more = len(moved) - _MOST_NAMED
    count = f"{more} more {one or many if more == 1 else many}" if more > 0 else ""
    return " ".join(f"{figures.beginning(each)}." for each in (f"{first}{when}", *others, count) if each)


def _unmoved(pairs: Sequence[tuple[Line, Result]], series: Series) -> str:
    """Say by how much lines may have moved that did not move beyond chance."""
    line, result = pairs[0]
    if len(pairs) == 1:
        return measure_of(line, series).signed(result.simultaneous)
    if line.kind == "share":
        most = measure_of(line, series).most([each.simultaneous for _, each in pairs])
        none = f"none of the {len(pairs)} most frequent answers" if series.left_out else "no answer"
        return f"{none} rose or fell by more than {most}"
    return figures.listed([f"{_subject(line)} {measure_of(line, series).signed(each.simultaneous)}" for line, each in pairs])


def _possible(trends: Sequence[tuple[Line, Trend]], series: Series) -> str:
    """Say how far lines may have moved in all that show no trend."""
    line, trend = trends[0]
    if len(trends) == 1:
        return measure_of(line, series).signed(_in_all(trend, series))
    return f"up to {measure_of(line, series).most([_in_all(trend, series) for _, trend in trends])}"


def _in_all(trend: Trend, series: Series) -> tuple[float, float]:
    """Return between which ends a line moved from the first period of its trend to the last."""
    steps = _steps(trend, series)
    low, high = ((end**steps if series.scale == "log" else steps * end) for end in trend.simultaneous)
    return low, high


def _subject(line: Line) -> str:
    return figures.quoted(line.label) if line.kind == "share" else f"the {NAMES[line.kind].lower()}"


def _steps(trend: Trend, series: Series) -> int:
    """Count the periods from the first of a trend to its last."""
    names = [each.period for each in series.periods]
    return names.index(trend.last) - names.index(trend.since)


def _when(since: str, last: str, length: str) -> str:
    """Write from which period to which something moved."""
    return f"from {figures.moments(since, last, length)}"


def _verb(is_rise: bool) -> str:  # noqa: FBT001
    return "rose" if is_rise else "fell"


def _size(result: PeriodChange | Trend, scale: str) -> float:
    return distance(result.slope if isinstance(result, Trend) else result.difference, scale)
