"""The tables of a metric as files for a spreadsheet: comma-separated values, with all digits."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from io import StringIO
from math import isnan
from typing import TYPE_CHECKING

from deniable_aggregator.answer.model.number import quantile_name
from deniable_aggregator.answer.model.rows import Cell, unit_of
from deniable_aggregator.answer.model.series import Trend
from deniable_aggregator.answer.readings.numbers_differing import MEDIAN
from deniable_server.api.answers.export import plain
from deniable_server.pages.series_page import why_none

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deniable_aggregator.answer.model.comparison import Comparison
    from deniable_aggregator.answer.model.experiment import ArmCourse, ExperimentAnswer
    from deniable_aggregator.answer.model.fields import Days
    from deniable_aggregator.answer.model.metric import Measurement
    from deniable_aggregator.answer.model.number import NumberEstimate
    from deniable_aggregator.answer.model.series import Line, Series
    from deniable_aggregator.answer.model.shares import ValueEstimate
    from deniable_server.pages.parts.row import Row
    from deniable_server.pages.segments.table import SegmentTable

# Columns are called as in the rows of a query.
_INTERVALS = ("low", "high", "low_all", "high_all")
_VALUES = ("value", "n", "estimate", "unit", "stderr", *_INTERVALS, "count", "consistent", "lowered_by", "detected", "reason")
_PERIODS = ("period", "state", "closed", "n", "value", "estimate", "unit", *_INTERVALS, "reason")
_CHANGES = ("changed_value", "since", "last", "difference", "diff_low_all", "diff_high_all", "p_holm")
_TRENDS = ("trend_value", "trend_since", "trend_last", "trend", "trend_low_all", "trend_high_all", "trend_p_holm")
_OVERVIEW = (
    "metric",
    "version",
    "type",
    "owner",
    "state",
    "n",
    "period",
    "closed",
    "value",
    "estimate",
    "unit",
    "low",
    "high",
    *_CHANGES,
    *_TRENDS,
)
_SEGMENTS = (
    "segment",
    "name",
    "value",
    "state",
    "n",
    "estimate",
    "unit",
    "low",
    "high",
    "difference",
    "diff_low_all",
    "diff_high_all",
    "p_holm",
)
_COMPARED = (
    *("metric", "version", "period", "segment", "level", "looks", "a", "a_from", "a_to", "a_n", "b", "b_from", "b_to", "b_n"),
    *("value", "unit", "a_estimate", "a_low", "a_high", "b_estimate", "b_low", "b_high"),
    *("difference", "diff_low", "diff_high", "diff_low_all", "diff_high_all", "p_value", "p_holm", "differs"),
)
_LOOKS = (
    *("metric", "version", "a", "b", "level", "looks", "value", "unit", "last", "a_n", "b_n"),
    *("difference", "diff_low_all", "diff_high_all"),
)
_NOTHING = ("",) * 6  # of a period: its estimate, the unit and the intervals
_ALIKE = ("metric", "version", "segment", "from", "to", "level")

Figures = Iterator[tuple[Cell, ...]]


def of_values(
    measured: Measurement,
    why: str = "",  # nothing is published, which one line says; empty: there is no such line
) -> str:
    """Write the estimates of a metric: a line for each value, or for each figure of a number."""
    alike = (measured.id, measured.version, measured.segment or "", *_days(measured.days), measured.level)
    values = (_value(row, measured.lowered_by) for row in measured.estimates)
    lines: Figures = values if measured.number is None else _figures(measured.number, measured.n)
    if not measured.n and why:
        lines = iter([("", 0, *("",) * (len(_VALUES) - 3), why)])
    return _file((*_ALIKE, "mechanism", *_VALUES), ((*alike, measured.mechanism, *line) for line in lines))


def of_series(series: Series) -> str:
    """Write a metric over time: a line for each period and value."""
    return _file((*_ALIKE, *_PERIODS), _points(series))


def of_segments(measured: Measurement, table: SegmentTable | None) -> str:
    """Write the segments: a line for each answer of each, the shown answer first, with its difference from the base."""
    alike = (measured.id, measured.version, *_days(measured.days), measured.level)
    tested = table.tested if table else ()
    lines = [(name, row.name, value, *row.numbers) for value, groups in tested for name, rows in groups for row in rows]
    return _file((*(each for each in _ALIKE if each != "segment"), *_SEGMENTS), ((*alike, *line) for line in lines))


def of_rows(rows: Sequence[Row]) -> str:
    """Write the list of metrics: a line for each, with its last period, and its change and its trend."""
    return _file(_OVERVIEW, map(_row, rows))


def _row(row: Row) -> tuple[Cell, ...]:
    begin = (row.id, row.version, row.type, row.owner, row.state, row.n, row.period, row.closed if row.n else "", *row.estimate)
    return *begin, *_move(row, is_trend=False), *_move(row, is_trend=True)


def _move(row: Row, *, is_trend: bool) -> tuple[Cell, ...]:
    moves = [move for move in row.tests if move.is_trend == is_trend and not isnan(move.p_holm)]
    if not moves:
        return ("",) * len(_TRENDS)
    first = (move for move in row.moves if move.is_trend == is_trend)
    move = next(first, min(moves, key=lambda test: test.result.p_value))
    result = move.result
    size = result.slope if isinstance(result, Trend) else result.difference
    return _name(move.line), result.since, result.last, size, *result.simultaneous, move.p_holm


def of_comparison(comparison: Comparison) -> str:
    """Write what two sides differ in: a line for each value, or for each figure of a number."""
    of = (comparison.id, comparison.version, comparison.period or "", comparison.segment or "", comparison.level)
    looks = "every" if comparison.experiment else "one"  # at which intervals of a difference hold
    sides = [cell for side in (comparison.a, comparison.b) for cell in (side.name, *_days(side.days), side.n)]
    return _file(
        _COMPARED,
        (
            (
                *of,
                looks,
                *sides,
                *(row.label, unit_of(comparison.unit, is_share=row.value is not None)),
                *(row.first, *row.first_interval),
                *(row.second, *row.second_interval),
                *(row.difference, *row.interval, *row.simultaneous),
                *(row.p_value, row.p_holm, row.differs),
            )
            for row in comparison.differences
        ),
    )


def of_experiment(answer: ExperimentAnswer) -> str:
    """Return the table of an experiment's looks."""
    return _file(
        _LOOKS,
        (
            (
                *(
                    answer.id,
                    course.comparison.version,
                    course.comparison.a.name,
                    course.comparison.b.name,
                    answer.level,
                    "every",
                ),
                *(course.label, _unit_of_looks(course), look.last, look.first_n, look.second_n),
                *(look.difference, *look.simultaneous),
            )
            for course in answer.arms
            for look in course.looks
        ),
    )


def _unit_of_looks(course: ArmCourse) -> str:
    is_share = any(row.value is not None for row in course.comparison.differences)
    return unit_of(course.comparison.unit, is_share=is_share)


def _days(days: Days | None) -> tuple[str, str]:
    return ("", "") if days is None else (days.first.isoformat() if days.first else "", days.last.isoformat())


def _value(row: ValueEstimate, lowered_by: float) -> tuple[Cell, ...]:
    shares = (row.frequency, unit_of("", is_share=True), row.stderr, *row.interval, *row.simultaneous, row.count, row.consistent)
    return row.label, row.n, *shares, lowered_by, row.detected, ""


def _figures(number: NumberEstimate, n: int) -> Figures:
    blanks = ("",) * (len(_VALUES) - 9)
    none = ("", "")  # there are no intervals of all figures at once
    unit, of_share = unit_of(number.unit, is_share=False), unit_of("", is_share=True)
    if number.geometric_mean:
        yield "geometric_mean", n, number.geometric_mean.value, unit, "", *number.geometric_mean.interval, *none, *blanks
    yield "mean", n, number.mean, unit, number.stderr, *number.interval, *none, *blanks
    if number.sum is not None:
        total, ends = number.sum
        yield "sum", n, total, unit, "", *ends, *none, *blanks
    for quantile in number.quantiles:
        yield quantile_name(quantile.share), n, quantile.value, unit, "", *quantile.interval, *none, *blanks
    if number.range_share:
        share = number.range_share
        yield share.range, n, share.share, of_share, share.stderr, *share.interval, *none, *blanks
    for value in number.values:
        shares = (value.frequency, of_share, value.stderr, *value.interval, *value.simultaneous)
        yield f"share of {value.label}", value.n, *shares, *blanks


def _points(series: Series) -> Figures:
    for at, period in enumerate(series.periods):
        version = "" if period.version is None else period.version
        alike = (series.id, version, series.segment or "", *_days(period.days), series.level)
        begin = (*alike, period.period, period.state, period.closed)
        points = [(line, line.points[at]) for line in series.lines]
        for line, point in points:
            unit = unit_of(series.unit, is_share=line.kind == "share")
            if point is not None:
                reason = why_none(series, line, at) if isnan(point.estimate) else ""
                yield *begin, point.n, _name(line), point.estimate, unit, *point.interval, *point.simultaneous, reason
            elif line.kind == MEDIAN and any(other for _, other in points):  # medians are of the last periods only
                yield *begin, period.n, _name(line), *_NOTHING, why_none(series, line, at)
        if not any(point for _, point in points):  # a period without an estimate has a line, too
            yield *begin, period.n, "", *_NOTHING, why_none(series, None, at)


def _name(line: Line) -> str:
    """Return what rows of a query call a line."""
    return quantile_name(0.5) if line.kind == MEDIAN else line.label


def _file(names: Sequence[str], rows: Figures) -> str:
    text = StringIO()
    writer = csv.writer(text)
    writer.writerow(names)
    writer.writerows([_cell(each) for each in row] for row in rows)
    return text.getvalue()


def _cell(content: Cell) -> str:
    # `plain` keeps a spreadsheet from running a value as a formula.
    return "" if isinstance(content, float) and isnan(content) else plain(content)
