"""The rows that answer a query: estimates of several metrics by time, value and segment.

Nothing here reads what is not published.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import isfinite
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from deniable.registry import period
from deniable_aggregator.answer.model.number import MEANS, QUANTILE_NAMES
from deniable_aggregator.answer.model.query import MOST_ROWS, Page
from deniable_aggregator.answer.model.rows import COLUMNS, About, RowColumn, Rows
from deniable_aggregator.answer.pool import pooled
from deniable_aggregator.answer.question import date_range
from deniable_aggregator.answer.question.cells import segments_of, value_filter
from deniable_aggregator.answer.reading import LineOptions
from deniable_aggregator.answer.readings import read
from deniable_aggregator.answer.readings.lines import differences, trends
from deniable_aggregator.answer.refusal import QueryTooLarge
from deniable_aggregator.answer.select import earlier_in_words, state, state_of
from deniable_aggregator.decode.multiple_testing import holm_adjusted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from deniable.declared import Declared
    from deniable_aggregator.answer.app import AppMetrics
    from deniable_aggregator.answer.model.query import Query
    from deniable_aggregator.answer.model.rows import Cell
    from deniable_aggregator.answer.question import Question, Words
    from deniable_aggregator.answer.reading import Lines
    from deniable_aggregator.answer.select import Published, Selection

_MOST_VALUES = 400_000  # what is estimated in no longer than a few seconds
_CANDIDATE, _SEARCH, _FIT = 20, 40_000, 33_000  # values that take as long as one candidate, one search, one distribution
_COMPARED, _READ = 10, 0.1  # and as long as one value that is compared, as one cell of a tally that is read


@dataclass(frozen=True, eq=False)
class _Topic:
    """A metric of the query, with what was published of it."""

    question: Question
    versions: Sequence[Published]  # in the question's order

    @cached_property
    def names(self) -> list[str]:
        """The periods from the first to the last in which anything is published."""
        within = self._within
        return list(date_range.names_between(min(within), max(within), self.question.length)) if within else []

    @cached_property
    def _within(self) -> frozenset[str]:
        """The last periods of the releases of any cell."""
        first, last = self.question.first, self.question.last
        return frozenset(name for each in self.versions for name in each.names if first <= name <= last)

    def find(self, words: Words, first: str, last: str) -> Selection | None:
        """Select the releases of a cell between two periods, of the highest version that has any."""
        return next(self.find_each(words, first, last), None)

    def find_each(self, words: Words, first: str, last: str) -> Iterator[Selection]:
        """Select the releases of a cell between two periods, of each version that has any, the highest first."""
        for version, cell in self._cells(words):
            selection = version.between(cell, first, last)
            if selection.releases:
                yield selection

    def state(self, words: Words, name: str | None) -> str:
        """Say why there is nothing of a cell in a period; without a name, in all periods asked for."""
        if name is None:
            return "withheld" if self._within else "missing"
        return state(self._cells(words), name)

    def _cells(self, words: Words) -> Iterator[tuple[Published, str]]:
        return ((version, self.question.cell(version.declared, words)) for version in self.versions)


@dataclass(frozen=True, eq=False)
class _Group:
    """The rows of one metric, cell and time."""

    of: _Topic  # the metric
    words: Words  # the segments' values of its cell
    name: str | None  # its period; None: all periods together
    selections: Sequence[Selection]  # the releases that it rests on, one selection for each version; none if none is published
    lines: Lines | None  # its estimates; None if nothing is published, and if no value is asked for
    difference: NDArray[np.float64] | None  # (4, lines), as `differences` returns it; None if nothing is compared
    rise: NDArray[np.float64] | None  # (3, lines), as `trends` returns it; None if there is no trend

    @property
    def size(self) -> int:
        """Number of its rows: at least one, which says why there is no estimate."""
        return max(len(self.lines.labels), 1) if self.lines else 1


class _Plan(NamedTuple):
    """A group, before anything is estimated."""

    # of, words, name, selections: as those of the group
    of: _Topic
    words: Words
    name: str | None
    selections: Sequence[Selection]
    sides: tuple[Selection, Selection] | None  # what it is compared with, and what is compared; None if nothing is


def rows(
    app: AppMetrics,  # whose metrics they are
    query: Query,
    questions: Sequence[tuple[Question, Sequence[Published]]],  # each question, with what was published of its versions
) -> Rows:
    """Estimate what a query asks for; raise `QueryTooLarge` if it asks for too much at once."""
    topics = [_Topic(*each) for each in questions]
    _check_size(query, topics)
    plans = [plan for each in topics for plan in _plans(query, each)]
    courses = (
        {(id(each), words): _course(each, words) for each in topics for words in each.question.groups} if query.include else {}
    )
    estimates = _Estimates(app, query, [*_selections(plans), *(selection for each in courses.values() for _, selection in each)])
    rises = {key: _rise(estimates, course, query.level) for key, course in courses.items()}
    groups = [_group(estimates, plan, rises.get((id(plan.of), plan.words))) for plan in plans]
    total, page = sum(each.size for each in groups), query.pagination or Page()
    if total > MOST_ROWS:
        raise QueryTooLarge(_TOO_MANY)
    end = page.offset + page.limit
    return Rows(
        app=app.name,
        trial=app.trial,
        simulated=app.simulated,
        earlier=[note for topic in topics for note in earlier_in_words(topic.versions)],
        query=query,
        metrics=[_about(each.question.versions[0]) for each in topics],
        columns=_columns(query),
        total=total,
        next=end if end < total else None,
        releases=state_of(app, (version for each in topics for version in each.versions)),
        rows=list(_written(query, groups)),
    )


_TOO_MANY = f"an answer has {MOST_ROWS:,} rows at most: ask for a shorter date_range, fewer metrics or segments"


def _check_size(query: Query, topics: Sequence[_Topic]) -> None:
    """Refuse more cells and times than an answer has rows, before they are listed."""
    over_time = "time" in query.dimensions or query.include
    if sum(each.question.size * (len(each.names) if over_time else 1) for each in topics) > MOST_ROWS:
        raise QueryTooLarge(_TOO_MANY)


# What groups rest on


def _plans(query: Query, of: _Topic) -> Iterator[_Plan]:
    names: Sequence[str | None] = of.names if "time" in query.dimensions else [None]
    for words in of.question.groups:
        for name in names:
            first, last = (of.question.first, of.question.last) if name is None else (name, name)
            selections = list(of.find_each(words, first, last))[: None if query.pool else 1]
            yield _Plan(of, words, name, selections, _sides(query, of, words, selections, (first, last)))


def _sides(
    query: Query, of: _Topic, words: Words, selections: Sequence[Selection], span: tuple[str, str]
) -> tuple[Selection, Selection] | None:
    """Return what a group is compared with, and what is compared with it."""
    if not selections or query.compare is None:
        return None
    (selection,) = selections
    if of.question.earlier:
        base = of.find(words, *map(of.question.earlier.of, span))
        return (base, selection) if base else None
    at = segments_of(query).index(str(query.compare.dimension))
    if words[at] == query.compare.base:
        return None
    base = of.find((*words[:at], str(query.compare.base), *words[at + 1 :]), *span)
    if base is None or base.declared is not selection.declared:
        return None
    # Compare the same periods, so that only the segment differs.
    both = base.by_last.keys() & selection.by_last.keys()
    return (base.within(both), selection.within(both)) if both else None


def _course(of: _Topic, words: Words) -> list[tuple[int, Selection]]:
    """Return the closed periods of the version of the last period, as a line is drawn through them."""
    dated = [(at, selection) for at, name in enumerate(of.names) if (selection := of.find(words, name, name))]
    return [(at, selection) for at, selection in dated if selection.closed and selection.declared is dated[-1][1].declared]


def _selections(plans: Sequence[_Plan]) -> Iterator[Selection]:
    for plan in plans:
        yield from (*plan.selections, *(plan.sides or ()))


# Estimates


class _Estimates:
    """The lines of everything that a query needs, each estimated once."""

    def __init__(self, app: AppMetrics, query: Query, needed: Sequence[Selection]) -> None:
        self._app, self._query = app, query
        self._by_value = "value" in query.dimensions
        keeps = value_filter(query) if self._by_value else MEANS.__contains__
        self.options = LineOptions(keeps, query.target, query.view == "consistent", query.level)
        # Groups and courses share releases: those of each selection are read and estimated once.
        distinct = {tuple(each.releases): each for each in needed if self._estimated(each.declared)}
        strata = {stratum: each.declared for each in distinct.values() for stratum in each.releases}
        each_value = _COMPARED if query.compare else 1
        estimating = sum(self._cost(each.declared, each_value) for each in distinct.values())
        reading = sum(_READ * each.layout.rows * each.layout.width for each in strata.values())
        if estimating + reading > _MOST_VALUES:
            rule = "this would take too long to estimate"
            raise QueryTooLarge(f"{rule}: ask for a shorter date_range, fewer metrics, or fewer segments")
        readings = read(list(distinct.values()))
        self._lines = {key: reading.lines(self.options) for key, reading in zip(distinct, readings, strict=True)}

    def of(self, selection: Selection) -> Lines | None:
        """Return what is estimated from some releases; None where no value is asked for."""
        if not self._estimated(selection.declared):
            return None
        return self._lines[tuple(selection.releases)]

    def together(self, selections: Sequence[Selection]) -> tuple[Sequence[Selection], Lines | None]:
        """Return what is estimated from all versions together, or else from the first, with the versions that it is of."""
        tables = [lines for selection in selections if (lines := self.of(selection))]
        if not tables:
            return selections, None
        all_ = pooled(tables, self.options)
        return (selections, all_) if all_ else (selections[:1], tables[0])

    def planned(self, plan: _Plan) -> float | None:
        """Return the difference for which an experiment was planned, if two of its arms are compared; else None."""
        compare = self._query.compare
        if compare is None or compare.base is None:
            return None
        at = segments_of(self._query).index(str(compare.dimension))
        segment = plan.of.question.cells[plan.of.question.versions[0].definition].dimensions[at]
        arms = {compare.base, plan.words[at]} <= set(self._app.registry.segments[segment])
        experiment = self._app.registry.experiments.get(segment) if arms else None
        return experiment.planned if experiment else None

    def _estimated(self, declared: Declared) -> bool:
        return self._by_value or bool(declared.metric.estimate)

    def _cost(self, declared: Declared, each_value: int) -> int:
        """Return how many values take as long as the estimates of one tally."""
        metric = declared.metric
        if metric.estimate == "distribution" and any(map(self.options.keeps, QUANTILE_NAMES)):
            return _FIT
        if metric.discover:
            return _SEARCH
        size = 1 if metric.estimate else _CANDIDATE * len(declared.candidates) if metric.open else metric.domain_size
        return each_value * size


def _rise(
    estimates: _Estimates, course: Sequence[tuple[int, Selection]], level: float
) -> tuple[Lines, NDArray[np.float64]] | None:
    lines = [(at, own) for at, each in course if (own := estimates.of(each))]
    rise = trends(lines, level)
    return None if rise is None else (lines[-1][1], rise)


def _group(estimates: _Estimates, plan: _Plan, rise: tuple[Lines, NDArray[np.float64]] | None) -> _Group:
    selections, lines = estimates.together(plan.selections)
    difference = None
    if lines and plan.sides:
        base, own = map(estimates.of, plan.sides)
        if base and own and own.labels == lines.labels:
            difference = differences(base, own, estimates.options, estimates.planned(plan))
    alike = rise is not None and lines is not None and rise[0].alike == lines.alike
    return _Group(plan.of, plan.words, plan.name, selections, lines, difference, rise[1] if rise and alike else None)


# Rows


def _written(query: Query, groups: Sequence[_Group]) -> Iterator[dict[str, Cell]]:
    """Write the rows of the page."""
    number = sum(_hypotheses(each.lines) for each in groups if each.lines)
    # Over all pages, so that the intervals of a row do not depend on which page it is on.
    together = 1 - (1 - query.level) / max(number, 1)
    adjusted = holm_adjusted(np.concatenate([np.zeros(0), *map(_tests, groups)]))
    begin, tested, page = 0, 0, query.pagination or Page()
    for group in groups:
        tests = len(_tests(group))
        first, last = max(page.offset - begin, 0), min(page.offset + page.limit - begin, group.size)
        if first < last:
            yield from _rows(query, group, together, adjusted[tested : tested + tests])[first:last]
        begin, tested = begin + group.size, tested + tests


def _hypotheses(lines: Lines) -> int:
    """Count the known estimates of which none follows from another one."""
    return min(lines.hypotheses, int(np.count_nonzero(~np.isnan(lines.estimates))))


def _tests(group: _Group) -> NDArray[np.float64]:
    """Return a p-value of each hypothesis; none where nothing is compared."""
    if group.difference is None or group.lines is None:
        return np.zeros(0)
    return np.asarray(group.difference[3][: group.lines.hypotheses], np.float64)


def _rows(query: Query, group: _Group, together: float, adjusted: NDArray[np.float64]) -> list[dict[str, Cell]]:
    common, lines = _common(query, group), group.lines
    if lines is None or not lines.labels:
        return [common]
    columns: dict[str, Sequence[Cell] | NDArray[np.float64]]
    columns = {
        "value": lines.labels,
        "n": lines.reports.tolist(),
        "estimate": lines.estimates,
        "stderr": lines.stderr,
        "detected": lines.detected,
    }
    columns["low"], columns["high"] = lines.interval(query.level)
    columns["low_all"], columns["high_all"] = lines.interval(together)
    columns["lowered_by"] = np.full(len(lines.labels), lines.lowered_by)
    if group.difference is not None:
        columns |= dict(zip(("difference", "diff_low", "diff_high", "p"), group.difference, strict=True))
        columns["p_holm"] = np.resize(adjusted, len(lines.labels))
    if group.rise is not None:
        columns |= dict(zip(("trend", "trend_low", "trend_high"), group.rise, strict=True))
    cells = {name: _without_nan(each) for name, each in columns.items() if name in common}
    return [common | dict(zip(cells, row, strict=True)) for row in zip(*cells.values(), strict=True)]


def _without_nan(column: Sequence[Cell] | NDArray[np.float64]) -> list[Cell]:
    """Return a column with None for what is not known."""
    if isinstance(column, np.ndarray):
        return [each if isfinite(each) else None for each in column.tolist()]
    return list(column)


def _common(query: Query, group: _Group) -> dict[str, Cell]:
    """Return what the rows of a group have in common, with None for all else."""
    of, selections = group.of, group.selections
    common: dict[str, Cell] = dict.fromkeys(each.name for each in _columns(query))
    common |= {
        "metric": of.question.versions[0].metric.id,
        "state": "published" if selections else of.state(group.words, group.name),
    }
    if group.name is not None:
        common |= {"period": group.name, "time": f"{period.bounds(group.name, of.question.length)[0]:%Y-%m-%dT%H:%M:%SZ}"}
    common |= dict(zip(segments_of(query), group.words, strict=True))
    if selections:
        common |= {"n": sum(each.n for each in selections), "closed": all(each.closed for each in selections)}
        versions = [each.declared for each in selections]
        facts = [(each.metric.version, each.mechanism.name, float(each.metric.epsilon)) for each in versions]
        alike = (values[0] if len(set(values)) == 1 else None for values in zip(*facts, strict=True))
        common |= dict(zip(("version", "mechanism", "epsilon"), alike, strict=True))
    return common


def _columns(query: Query) -> list[RowColumn]:
    """Return the columns of an answer, in order: those of times, values, comparisons and trends only if they are asked for."""
    absent = {"period", "time"} - ({"period", "time"} if "time" in query.dimensions else set())
    absent |= {"value"} - set(query.dimensions)
    if query.compare is None:
        absent |= {"difference", "diff_low", "diff_high", "p", "p_holm"}
    if query.view != "consistent":
        absent |= {"lowered_by"}
    if not query.include:
        absent |= {"trend", "trend_low", "trend_high"}
    listed = [RowColumn(name, type_, meaning) for name, (type_, meaning) in COLUMNS.items() if name not in absent]
    at = next(place for place, each in enumerate(listed) if each.name in ("value", "n"))
    return [*listed[:at], *(RowColumn(name, "text", "the segment") for name in segments_of(query)), *listed[at:]]


def _about(declared: Declared) -> About:
    metric = declared.metric
    unit = (metric.unit or "position") if metric.estimate else "share"
    return About(metric.id, metric.type, metric.description, metric.period, unit, metric.scale)
