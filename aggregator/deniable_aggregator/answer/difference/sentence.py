"""What is said of a comparison: what differs most between its sides."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deniable_aggregator.answer import figures
from deniable_aggregator.answer.figures import Measure, distance
from deniable_aggregator.answer.question.side import side_of

if TYPE_CHECKING:
    from deniable_aggregator.answer.model.comparison import Comparison, ValueDiffering


def sentence(
    comparison: Comparison,
    length: str,  # of the metric's periods
) -> str:
    """Say what differs most, if anything differs beyond chance."""
    a, b = sides_in_words(comparison, length)
    scale = comparison.scale
    rows = [row for row in comparison.differences if row.value is not False]  # the share of no mirrors that of yes
    if not rows:
        return f"{a} and {b} cannot be compared: {comparison.reason}."
    moved = [row for row in rows if row.differs]
    if not moved:
        return f"No difference beyond chance between {a} and {b}."
    most = max(moved, key=lambda row: abs(distance(row.difference, scale)))
    up, of_shares = distance(most.difference, scale) > 0, is_of_shares(comparison)
    first, second, by = (
        estimate(most.first, most, comparison),
        estimate(most.second, most, comparison),
        measure_of(most, comparison).size(most.simultaneous, most.interval),
    )
    subject = figures.quoted(most.label) if of_shares else f"The {name_of(most)}"
    others = f" {len(moved) - 1} more {'differs' if len(moved) == 2 else 'differ'}." if len(moved) > 1 else ""  # noqa: PLR2004
    if comparison.kind == "periods":
        return f"{subject} {'rose' if up else 'fell'} from {first} in {a} to {second} in {b}, by {by}.{others}"
    how = ("more" if up else "less") + " frequent" if of_shares else "higher" if up else "lower"
    return f"{subject} is {how} in {b} than in {a}: {second} against {first}, by {by}.{others}"


def sides_in_words(
    comparison: Comparison,
    length: str,  # of the metric's periods
) -> tuple[str, str]:
    """Write what the two sides are."""
    a, b = comparison.a.name, comparison.b.name
    if comparison.kind == "segments":
        return figures.segment(a), figures.segment(b)
    return side_of(a, length).words, side_of(b, length).words


def is_of_shares(comparison: Comparison) -> bool:
    """Tell whether the differences are of shares, and not of the means of a number."""
    return all(row.value is not None for row in comparison.differences)


def measure_of(row: ValueDiffering, comparison: Comparison) -> Measure:
    """Return what the estimates of a value are of."""
    return Measure(row.value is not None, comparison.unit, comparison.scale)


def estimate(value: float, row: ValueDiffering, comparison: Comparison) -> str:
    """Write an estimate of one side."""
    low, high = row.interval
    # The interval of a ratio times the value is one in the metric's unit.
    return measure_of(row, comparison).estimate(value, (value * low, value * high) if comparison.scale == "log" else (low, high))


def name_of(row: ValueDiffering) -> str:
    """Return what people call a value, or a mean."""
    return row.label.replace("_", " ") if row.value is None else row.label
