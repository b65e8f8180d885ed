"""What is said of a series: what changed most between its last two periods that are alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deniable.messages.plural import plural
from deniable_aggregator.answer import figures
from deniable_aggregator.answer.figures import Measure, distance

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deniable_aggregator.answer.model.series import Line, PeriodChange, Series

NAMES = {"mean": "Mean", "geometric_mean": "Geometric mean", "median": "Median"}
"""What lines of numbers are called."""


def measure_of(line: Line, series: Series) -> Measure:
    """Return what the estimates of a line are of."""
    return Measure(line.kind == "share", series.unit, series.scale)


def changes_of(series: Series) -> list[tuple[Line, PeriodChange]]:
    """Return the lines whose last closed period can be compared, each with its change: of yes and no only yes."""
    return [(line, line.change) for line in series.lines if line.change and line.value is not False]


def largest(changes: Sequence[tuple[Line, PeriodChange]], scale: str) -> tuple[Line, PeriodChange]:
    """Return the line that changed most, with its change."""
    return max(changes, key=lambda pair: abs(distance(pair[1].difference, scale)))


def change_in_words(series: Series) -> str:
    """Say what changed most, if anything changed beyond chance; empty if fewer than two periods are published."""
    changes, length = changes_of(series), series.period_length
    if not changes:
        published = sum(each.state == "published" for each in series.periods)
        return f"What changed is said once two {length}s of one version are closed." if published > 1 else ""
    moved = [pair for pair in changes if pair[1].differs]
    since, last = changes[0][1].since, changes[0][1].last
    if not moved:
        return f"No change beyond chance since {figures.moment(since, length)}."
    line, change = largest(moved, series.scale)
    verb = "rose" if distance(change.difference, series.scale) > 0 else "fell"
    measure = measure_of(line, series)
    # Holm's test finds more than intervals of all values together, so these may hold 0 still.
    sizes = [distance(end, series.scale) for end in change.simultaneous]
    ends = change.simultaneous if sizes[0] * sizes[1] > 0 else change.interval
    subject = figures.quoted(line.label) if measure.is_share else f"The {NAMES[line.kind].lower()}"
    other = "other value" if measure.is_share else "other figure"
    others = f" {plural(len(moved) - 1, other)} changed, too." if len(moved) > 1 else ""
    return f"{subject} {verb} by {measure.size(ends, change.interval)}, {figures.moments(since, last, length)}.{others}"
