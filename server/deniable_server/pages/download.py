"""The tables of a metric as files for a spreadsheet: comma-separated values, with all digits."""

from __future__ import annotations

import csv
from io import StringIO
from math import isnan
from typing import TYPE_CHECKING

from deniable_server.api.answers.export import plain

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from deniable_aggregator.answer.model.metric import Measurement
    from deniable_aggregator.answer.model.number import NumberEstimate
    from deniable_aggregator.answer.model.rows import Cell
    from deniable_aggregator.answer.model.series import Series
    from deniable_aggregator.answer.model.shares import ValueEstimate

_ENDS = ("low", "high")
_ALL = ("low of all at once", "high of all at once")


def of_values(measured: Measurement) -> str:
    """Write the estimates of a metric: a line for each value, or for each figure of a number."""
    if measured.number is not None:
        return _file(("figure", "estimate", *_ENDS, "level"), _figures(measured.number), measured.level)
    shares = ("share", "standard error", *_ENDS, *_ALL, "count", "consistent share")
    names = ("value", "reports", *shares, "lowered by", "detected", "level")
    return _file(names, (_value(row, measured.lowered_by) for row in measured.estimates), measured.level)


def of_series(series: Series) -> str:
    """Write a metric over time: a line for each period and value."""
    names = ("period", "state", "closed", "version", "reports", "value", "estimate", *_ENDS, *_ALL, "level")
    return _file(names, _points(series), series.level)


def _value(row: ValueEstimate, lowered_by: float) -> tuple[Cell, ...]:
    shares = (row.frequency, row.stderr, *row.interval, *row.simultaneous, row.count, row.consistent)
    return row.label, row.n, *shares, lowered_by, row.detected


def _figures(number: NumberEstimate) -> Iterator[tuple[Cell, ...]]:
    if number.geometric_mean:
        yield "geometric mean", number.geometric_mean.value, *number.geometric_mean.interval
    yield "mean", number.mean, *number.interval
    if number.sum is not None:
        total, ends = number.sum
        yield "sum", total, *ends
    for value in number.values:
        yield f"share of {value.label}", value.frequency, *value.interval
    for quantile in number.quantiles:
        yield f"{100 * quantile.share:g}% quantile", quantile.value, *quantile.interval


def _points(series: Series) -> Iterator[tuple[Cell, ...]]:
    for at, period in enumerate(series.periods):
        begin = (period.period, period.state, period.closed, period.version)
        points = [(line.label, line.points[at]) for line in series.lines]
        for label, point in points:
            if point is not None:
                yield *begin, point.n, label, point.estimate, *point.interval, *point.simultaneous
        if not any(point for _, point in points):  # a period without an estimate has a line, too
            yield *begin, period.n, "", "", "", "", "", ""


def _file(names: Sequence[str], rows: Iterator[tuple[Cell, ...]], level: float) -> str:
    text = StringIO()
    writer = csv.writer(text)
    writer.writerow(names)
    writer.writerows([*map(_cell, row), level] for row in rows)
    return text.getvalue()


def _cell(content: Cell) -> str:
    # `plain` keeps a spreadsheet from running a value as a formula.
    return "" if isinstance(content, float) and isnan(content) else plain(content)
