"""The rows of a table as they are answered: columns, cells, and the reason where there is no estimate."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import isfinite, isnan
from typing import TYPE_CHECKING

import numpy as np

from deniable.registry import period
from deniable_aggregator.answer.model.fields import days_of
from deniable_aggregator.answer.model.query import Page
from deniable_aggregator.answer.model.rows import ASKED, COLUMNS, About, RowColumn, unit_of
from deniable_aggregator.answer.question.cells import segments_of
from deniable_aggregator.answer.question.number_range import is_range
from deniable_aggregator.answer.readings.differing import NOT_PLANNED, Planned
from deniable_aggregator.answer.readings.lines import LineDifferences, notes_of, why_alone
from deniable_aggregator.answer.readings.number import range_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from numpy.typing import NDArray

    from deniable.declared import Declared
    from deniable_aggregator.answer.model.query import Query
    from deniable_aggregator.answer.model.rows import Cell
    from deniable_aggregator.answer.question import Words
    from deniable_aggregator.answer.reading import Lines
    from deniable_aggregator.answer.select import Selection
    from deniable_aggregator.answer.table.families import Families
    from deniable_aggregator.answer.table.topic import Topic


@dataclass(frozen=True, eq=False)
class Group:
    """The rows of one metric, cell and time."""

    of: Topic  # the metric
    words: Words  # the segments' values of its cell
    name: str | None  # its period; None: all periods together
    selections: Sequence[Selection]  # the releases that it rests on, one selection for each version; none if none is published
    lines: Lines | None  # its estimates; None if nothing is published, and if no value is asked for
    base: Selection | None  # the releases that it is compared with; None if it is compared with none
    # difference, rise: as `differences` and `trends` return them; or why there are none, in words. None if none is asked for.
    difference: LineDifferences | str | None
    rise: NDArray[np.float64] | str | None
    planned: Planned = NOT_PLANNED  # what an experiment planned, if two of its arms are compared
    remark: str = ""  # what to consider about the difference, in words

    @property
    def size(self) -> int:
        """Number of its rows: at least one, which says why there is no estimate."""
        return max(len(self.lines.labels), 1) if self.lines else 1

    @property
    def of_arms(self) -> bool:
        """Whether two arms of an experiment are compared."""
        return self.planned.difference is not None

    @cached_property
    def tests(self) -> NDArray[np.float64]:
        """A p-value of each hypothesis; none where nothing is compared, and nan where nothing is known."""
        if not isinstance(self.difference, LineDifferences) or self.lines is None:
            return np.zeros(0)
        return self.difference.p_value[: self.lines.hypotheses]

    @property
    def hypotheses(self) -> int:
        """How many differences are tested."""
        return int(np.count_nonzero(~np.isnan(self.tests)))


def written(query: Query, groups: Sequence[Group], families: Families) -> Iterator[dict[str, Cell]]:
    """Write the rows of the page."""
    number = sum(_hypotheses(each.lines) for each in groups if each.lines)
    # Over all pages, so that the intervals of a row do not depend on which page it is on.
    together = 1 - (1 - query.level) / max(number, 1)
    begin, page = 0, query.pagination or Page()
    for group, adjusted, tests in zip(groups, families.adjusted, families.tests, strict=True):
        first, last = max(page.offset - begin, 0), min(page.offset + page.limit - begin, group.size)
        if first < last:
            compared = 1 - (1 - query.level) / tests
            yield from _rows(query, group, (together, compared), adjusted)[first:last]
        begin += group.size


def _hypotheses(lines: Lines) -> int:
    """Count the known estimates of which none follows from another one."""
    return min(lines.hypotheses, int(np.count_nonzero(~np.isnan(lines.estimates))))


def _rows(
    query: Query,
    group: Group,
    together: tuple[float, float],  # the levels at which all intervals hold together: of estimates, and of differences
    adjusted: NDArray[np.float64],
) -> list[dict[str, Cell]]:
    common, lines = _common(query, group), group.lines
    if lines is None or not lines.labels:
        return [common | {"reason": common["reason"] or (lines.nothing if lines else _NO_VALUE)}]
    columns: dict[str, Sequence[Cell] | NDArray[np.float64]]
    columns = {
        "value": lines.labels,
        "n": lines.reports.tolist(),
        "estimate": lines.estimates,
        "unit": [_unit(group.of.question.versions[0], label) for label in lines.labels],
        "level": np.full(len(lines.labels), query.level),
        "stderr": lines.stderr,
        "detected": lines.detected,
    }
    columns["low_all"], columns["high_all"] = lines.interval(together[0])
    low, high = lines.interval(query.level)
    columns |= {"low": low, "high": high}
    columns |= {"count": lines.counts * lines.estimates, "count_low": lines.counts * low, "count_high": lines.counts * high}
    columns["lowered_by"] = np.full(len(lines.labels), lines.lowered_by)
    if isinstance(group.difference, LineDifferences):
        columns |= {"difference": group.difference.estimates, "p_value": group.difference.p_value}
        columns["diff_low"], columns["diff_high"] = group.difference.interval(query.level)
        columns["diff_low_all"], columns["diff_high_all"] = group.difference.interval(together[1])
        columns["p_holm"] = p_holm = np.resize(adjusted, len(lines.labels))
        columns["differs"] = [None if isnan(p) else p <= 1 - query.level for p in p_holm.tolist()]
    columns["reason"] = _reasons(group, lines)
    columns["note"] = _notes(group, lines)
    if isinstance(group.rise, np.ndarray):
        columns |= dict(zip(("trend", "trend_low", "trend_high"), group.rise, strict=True))
    cells = {name: _without_nan(each) for name, each in columns.items() if name in common}
    return [common | dict(zip(cells, row, strict=True)) for row in zip(*cells.values(), strict=True)]


_UNKNOWN = "these reports do not tell it"
_NO_VALUE = "no estimate is asked for, only the number of reports: add value to dimensions"


def _reasons(group: Group, lines: Lines) -> list[str | None]:
    """Say of each line why it has no estimate, is compared with none, or has no trend."""
    alone = why_alone(lines, group.planned.difference)

    def why(at: int) -> Iterator[str]:
        if isnan(lines.estimates[at]):
            yield _UNKNOWN
            return
        compared = group.difference.estimates if isinstance(group.difference, LineDifferences) else group.difference
        followed = group.rise[0] if isinstance(group.rise, np.ndarray) else group.rise
        for column, of_number in zip((compared, followed), alone, strict=True):
            if column is None or (isinstance(column, np.ndarray) and isfinite(column[at])):
                continue
            yield of_number[at] or (column if isinstance(column, str) else _UNKNOWN)

    return ["; ".join(why(at)) or None for at in range(len(lines.labels))]


def _notes(group: Group, lines: Lines) -> list[str | None]:
    """Say of each line what to consider of its estimate and of its difference."""
    compared = group.difference.estimates if isinstance(group.difference, LineDifferences) else np.full(len(lines.labels), np.nan)
    notes = zip(notes_of(lines), (group.remark if isfinite(each) else "" for each in compared.tolist()), strict=True)
    return ["; ".join(filter(None, note)) or None for note in notes]


def _without_nan(column: Sequence[Cell] | NDArray[np.float64]) -> list[Cell]:
    """Return a column with None for what is not known."""
    if isinstance(column, np.ndarray):
        return [each if isfinite(each) else None for each in column.tolist()]
    return list(column)


def _common(query: Query, group: Group) -> dict[str, Cell]:
    """Return what the rows of a group have in common, with None for all else."""
    of, selections = group.of, group.selections
    common: dict[str, Cell] = dict.fromkeys(each.name for each in columns_of(query))
    common |= {
        "metric": of.question.versions[0].metric.id,
        "state": "published" if selections else of.state(group.words, group.name),
        "reason": None if selections else of.reason(group.words, group.name),
    }
    if group.name is not None:
        common |= {"period": group.name, "time": f"{period.bounds(group.name, of.question.length)[0]:%Y-%m-%dT%H:%M:%SZ}"}
    common |= dict(zip(segments_of(query), group.words, strict=True))
    if selections:
        common |= _days("", selections) | _days("base_", [group.base] if group.base else [])
        common |= {"n": sum(each.n for each in selections), "closed": all(each.closed for each in selections)}
        versions = [each.declared for each in selections]
        facts = [(each.metric.version, each.mechanism.name, float(each.metric.epsilon)) for each in versions]
        alike = (values[0] if len(set(values)) == 1 else None for values in zip(*facts, strict=True))
        common |= dict(zip(("version", "mechanism", "epsilon"), alike, strict=True))
    return common


def _days(prefix: str, selections: Sequence[Selection]) -> dict[str, Cell]:
    spans = [span for each in selections for span in each.spans]
    days = days_of(spans, selections[0].declared.metric.period) if spans else None
    if days is None:
        return {}
    return {f"{prefix}from": days.first.isoformat() if days.first else None, f"{prefix}to": days.last.isoformat()}


def columns_of(query: Query) -> list[RowColumn]:
    """Return the columns of an answer, in order: those of times, values, comparisons and trends only if they are asked for."""
    parts: set[str] = {name for name in ("time", "value") if name in query.dimensions}
    parts |= {name for name, member in (("compare", query.compare), ("include", query.include)) if member}
    parts |= {"view"} if query.view == "consistent" else set()
    absent = {column for name, columns in ASKED.items() if name not in parts for column in columns}
    listed = [RowColumn(name, type_, meaning) for name, (type_, meaning) in COLUMNS.items() if name not in absent]
    at = next(place for place, each in enumerate(listed) if each.name in ("value", "n"))
    return [*listed[:at], *(RowColumn(name, "text", "the segment") for name in segments_of(query)), *listed[at:]]


def about(
    declared: Declared,
    updated: datetime | None,  # the hour of the last release that its rows rest on
) -> About:
    """Describe a metric beside its rows."""
    metric = declared.metric
    return About(
        metric.id,
        metric.type,
        metric.description,
        metric.period,
        _unit(declared),
        metric.scale,
        range_of(metric),
        list(metric.segments),
        updated,
    )


def _unit(declared: Declared, label: str = "") -> str:
    """Return the unit of a metric's estimates, or that of one line."""
    return unit_of(declared.metric.unit, is_share=not declared.metric.estimate or is_range(label))
