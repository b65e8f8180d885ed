"""What is said of the straight lines through a series: which is steepest."""

from __future__ import annotations

from math import expm1
from typing import TYPE_CHECKING

from deniable_aggregator.answer import figures
from deniable_aggregator.answer.figures import distance, moment
from deniable_aggregator.answer.over_time.sentence import NAMES, measure_of

if TYPE_CHECKING:
    from deniable_aggregator.answer.model.series import Series


def trend_in_words(series: Series) -> str:
    """Say which straight line is steepest, if any rises or falls beyond chance; empty where too few periods are closed."""
    trends = [(line, line.trend) for line in series.lines if line.trend and line.value is not False]
    if not trends:
        return ""
    is_log = series.scale == "log"
    since, last = (moment(name, series.period_length) for name in (trends[0][1].since, trends[0][1].last))
    steep = [pair for pair in trends if pair[1].simultaneous[0] > is_log or pair[1].simultaneous[1] < is_log]
    if not steep:
        return f"No trend beyond chance from {since} to {last}."
    line, trend = max(steep, key=lambda pair: abs(distance(pair[1].slope, series.scale)))
    ends = [distance(end, series.scale) for end in trend.simultaneous]
    low, high = sorted(map(abs, ends))
    measure = measure_of(line, series)
    by = f"{100 * expm1(low):.2g} to {100 * expm1(high):.2g}%" if is_log else measure.difference((low, high), (low, high))
    subject = figures.quoted(line.label) if measure.is_share else f"the {NAMES[line.kind].lower()}"
    others = f" {len(steep) - 1} more {'has' if len(steep) == 2 else 'have'} a trend." if len(steep) > 1 else ""  # noqa: PLR2004
    verb = "rose" if ends[0] > 0 else "fell"
    interval = figures.interval(series.level, together=len(trends) > 1)
    return f"On average {subject} {verb} by {by} a {series.period_length} ({interval}) from {since} to {last}.{others}"
