"""What rows say of trends: which answers rise or fall, and by how much in a period."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from deniable_query import digits
from deniable_query.sentences import prefix_of, segments_of, subject_of
from deniable_query.table import range_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from deniable_query import Query
    from deniable_query.answer import Answer, Row

_MOST = 8  # trends that are said


def trends(
    answer: Answer,
    at: Callable[[float], Answer],  # asks again at another level
) -> list[str]:
    """Say of each row that has a trend which way it goes, if there are few: what is said of all of them holds together."""
    rows = _distinct(answer)
    if not rows or len(rows) > _MOST:
        return []
    level = float(rows[0]["level"] or 0)
    own = 1 - (1 - level) / len(rows)
    metrics = {each["id"]: each for each in answer.metrics}
    segments = segments_of(answer)
    wider = rows if len(rows) == 1 else _distinct(at(own))
    end = f" ({100 * level:g}% interval)." if len(rows) == 1 else "."
    words = [f"{prefix_of(row, segments)}{_trend(row, metrics[str(row['metric'])])}{end}" for row in wider]
    return [*words, *_together(len(rows), level, own)]


def trends_by_segment(
    reports: Query,  # without a breakdown
    answer: Answer,
) -> list[str]:
    """Say what the page of each segment says of its trend, if there are few: what is said of all of them holds together."""
    names = segments_of(answer)
    cells = dict.fromkeys(tuple(str(row[name]) for name in names) for row in answer.rows if row.get("trend") is not None)
    if not names or not cells or len(cells) > _MOST:
        return []
    level = float(next(row["level"] for row in answer.rows if row.get("level") is not None) or 0)
    own = 1 - (1 - level) / len(cells)
    says = {}
    for cell in cells:
        query = reports.level(own).where(**dict(zip(names, cell, strict=True)))
        (listed,) = query.says().values()
        says[", ".join(f"{name}={value}" for name, value in zip(names, cell, strict=True))] = listed[-1]
    return [*(f"{cell}: {text}" for cell, text in says.items()), *_together(len(cells), level, own)]


def _distinct(answer: Answer) -> list[Row]:
    """Return one row of each trend: rows of several times have it in common."""
    names = ["metric", *segments_of(answer), "value"]
    rows = [row for row in answer.rows if isinstance(row.get("trend"), float)]
    return list({tuple(row[name] for name in names): row for row in reversed(rows)}.values())[::-1]


def _together(number: int, level: float, own: float) -> list[str]:
    """Say that several trends hold together."""
    together = f"What is said of these {number} trends holds together at {100 * level:g}%"
    return [f"{together}: each has a level of {100 * own:.4g}%."] if number > 1 else []


def _trend(row: Row, metric: Mapping[str, Any]) -> str:
    """Say of a row which way its trend goes and by how much, without a full stop."""
    is_share = row["unit"] == "share"
    is_ratio = not is_share and metric["scale"] == "log"
    none = 1.0 if is_ratio else 0.0
    low, high = float(row["trend_low"] or 0), float(row["trend_high"] or 0)
    subject, length = subject_of(row, metric), metric["period_length"]
    is_known = low > none or high < none
    if is_known and high < none:
        low, high = (1 / high, 1 / low) if is_ratio else (-high, -low)
    signs = "" if is_known else "+"
    begin, end = digits.written_distance((low, high), range_of(metric), is_share=is_share, is_ratio=is_ratio, positive=signs)
    unit = "" if is_ratio else f" {'points' if is_share else row['unit']}"
    size = f"{'a factor of ' * is_ratio}{begin} to {end}{unit} a {length}"
    if not is_known:
        return f"No trend beyond chance of {subject}: {size}"
    return f"On average {subject} {'rose' if float(row['trend_low'] or 0) > none else 'fell'} by {size}"
