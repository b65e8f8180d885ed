"""The rows that answer a query: estimates of several metrics by time, value and segment.

Nothing here reads what is not published.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from deniable_aggregator.answer.model.fields import in_words
from deniable_aggregator.answer.model.number import line_names, mean_name, mean_names
from deniable_aggregator.answer.model.query import MOST_ROWS, Page
from deniable_aggregator.answer.model.rows import Rows
from deniable_aggregator.answer.pool import pooled
from deniable_aggregator.answer.question import number_range
from deniable_aggregator.answer.question.cells import segments_of, value_filter
from deniable_aggregator.answer.reading import LineOptions
from deniable_aggregator.answer.readings import read
from deniable_aggregator.answer.readings.differing import NOT_PLANNED, Planned, incomparable
from deniable_aggregator.answer.readings.lines import differences, trends
from deniable_aggregator.answer.refusal import QueryTooLarge
from deniable_aggregator.answer.select import earlier_in_words, state_of
from deniable_aggregator.answer.table import cost
from deniable_aggregator.answer.table.families import Families
from deniable_aggregator.answer.table.topic import Topic
from deniable_aggregator.answer.table.written import Group, about, columns_of, written

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import datetime

    import numpy as np
    from numpy.typing import NDArray

    from deniable.declared import Declared
    from deniable.registry import Metric
    from deniable_aggregator.answer.app import AppMetrics
    from deniable_aggregator.answer.model.query import Query
    from deniable_aggregator.answer.question import Question, Words
    from deniable_aggregator.answer.reading import Lines
    from deniable_aggregator.answer.readings.lines import LineDifferences
    from deniable_aggregator.answer.select import Published, Selection


class _Plan(NamedTuple):
    """A group, before anything is estimated."""

    # of, words, name, selections: as those of the group
    of: Topic
    words: Words
    name: str | None
    selections: Sequence[Selection]
    sides: tuple[Selection, Selection] | None  # what it is compared with, and what is compared; None if nothing is
    alone: str  # as that of the group


def rows(
    app: AppMetrics,  # whose metrics they are
    query: Query,
    questions: Sequence[tuple[Question, Sequence[Published]]],  # each question, with what was published of its versions
) -> Rows:
    """Estimate what a query asks for; raise `QueryTooLarge` if it asks for too much at once."""
    topics = [Topic(*each) for each in questions]
    _check_size(query, topics)
    plans = [plan for each in topics for plan in _plans(query, each)]
    courses = {(id(each), words): _course(each, words) for each in topics for words in each.groups} if query.include else {}
    estimates = _Estimates(app, query, [*_selections(plans), *(selection for each in courses.values() for _, selection in each)])
    rises = {key: _rise(estimates, course, query.level) for key, course in courses.items()}
    groups = [_group(estimates, plan, rises.get((id(plan.of), plan.words))) for plan in plans]
    total, page = sum(each.size for each in groups), query.pagination or Page()
    if total > MOST_ROWS:
        raise QueryTooLarge(_TOO_MANY)
    end = page.offset + page.limit
    families, updated = Families.of(query, groups), _updated(plans)
    return Rows(
        app=app.name,
        trial=app.trial,
        simulated=app.simulated,
        earlier=[note for topic in topics for note in earlier_in_words(topic.versions)],
        query=query,
        metrics=[about(each.question.versions[0], updated.get(id(each))) for each in topics],
        columns=columns_of(query),
        together=families.says if query.compare else None,
        total=total,
        next=end if end < total else None,
        releases=state_of(app, (version for each in topics for version in each.versions)),
        rows=list(written(query, groups, families)),
    )


_TOO_MANY = f"an answer has {MOST_ROWS:,} rows at most: ask for a shorter range of time, fewer metrics or segments"


def _check_size(query: Query, topics: Sequence[Topic]) -> None:
    """Refuse more cells and times than an answer has rows, before they are listed."""
    over_time = "time" in query.dimensions or query.include
    if sum(len(each.groups) * (len(each.names) if over_time else 1) for each in topics) > MOST_ROWS:
        raise QueryTooLarge(_TOO_MANY)


# What groups rest on


def _plans(query: Query, of: Topic) -> Iterator[_Plan]:
    # Where nothing is published at any time, one row says so.
    names: Sequence[str | None] = (of.names if "time" in query.dimensions else None) or [None]
    for words in of.groups:
        for name in names:
            first, last = (of.question.first, of.question.last) if name is None else (name, name)
            selections = list(of.find_each(words, first, last))[: None if query.pool else 1]
            sides = _sides(query, of, words, selections, (first, last))
            yield _Plan(of, words, name, selections, *((None, sides) if isinstance(sides, str) else (sides, "")))


def _sides(
    query: Query, of: Topic, words: Words, selections: Sequence[Selection], span: tuple[str, str]
) -> tuple[Selection, Selection] | str:
    """Return what a group is compared with, and what is compared with it; or why nothing is, in words."""
    if not selections or query.compare is None:
        return ""
    (selection,) = selections
    if why := incomparable(selection.declared.metric):
        return why
    if of.compared:
        ends, earlier = of.compared
        before = [earlier.of(each) for each in (span if "time" in query.dimensions else ends)]
        base = of.find(words, before[0], before[1])
        return (base, selection) if base else f"nothing is published {in_words(of.question.days(*before))}, the range before"
    at = segments_of(query).index(str(query.compare.dimension))
    if words[at] == query.compare.base:
        return "it is the base"
    base = of.find((*words[:at], str(query.compare.base), *words[at + 1 :]), *span)
    if base is None or base.declared is not selection.declared:
        return "the base is of another version" if base else "nothing is published of the base"
    # Compare the same periods, so that only the segment differs.
    both = base.by_last.keys() & selection.by_last.keys()
    return (base.within(both), selection.within(both)) if both else "it and the base are published in no period together"


def _course(of: Topic, words: Words) -> list[tuple[int, Selection]]:
    """Return the closed periods of the version of the last period, as a line is drawn through them."""
    dated = [(at, selection) for at, name in enumerate(of.names) if (selection := of.find(words, name, name))]
    return [(at, selection) for at, selection in dated if selection.closed and selection.declared is dated[-1][1].declared]


def _selections(plans: Sequence[_Plan]) -> Iterator[Selection]:
    for plan in plans:
        yield from (*plan.selections, *(plan.sides or ()))


def _updated(plans: Sequence[_Plan]) -> dict[int, datetime]:
    """Return of each topic the hour of the last release that its rows rest on."""
    last: dict[int, datetime] = {}
    for plan in plans:
        for at in filter(None, (each.updated for each in plan.selections)):
            last[id(plan.of)] = max(at, last.get(id(plan.of), at))
    return last


# Estimates


class _Estimates:
    """The lines of everything that a query needs, each estimated once."""

    def __init__(self, app: AppMetrics, query: Query, needed: Sequence[Selection]) -> None:
        self._app, self._query = app, query
        self._by_value = "value" in query.dimensions
        self.options = LineOptions(value_filter(query), _of_number(query), query.target, query.view == "consistent", query.level)
        # Groups and courses share releases: those of each selection are read and estimated once.
        distinct = {tuple(each.releases): each for each in needed if self._estimated(each.declared)}
        strata = {stratum: each.declared for each in distinct.values() for stratum in each.releases}
        tallies = [each.declared for each in distinct.values()]
        cost.check(tallies, list(strata.values()), self.options, compared=query.compare is not None)
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

    def planned(self, plan: _Plan) -> Planned:
        """Return what an experiment planned, if two of its arms are compared."""
        compare = self._query.compare
        if compare is None or compare.base is None:
            return NOT_PLANNED
        at = segments_of(self._query).index(str(compare.dimension))
        segment = plan.of.question.cells[plan.of.question.versions[0].definition].dimensions[at]
        return Planned.of(self._app.registry, segment, {compare.base, plan.words[at]})

    def _estimated(self, declared: Declared) -> bool:
        return self._by_value or bool(declared.metric.estimate)


def _of_number(query: Query) -> Callable[[Metric], Sequence[str]]:
    """Return the function that names the lines of a number: with time or a trend its means alone, unless a filter names lines."""
    if "value" not in query.dimensions:
        return lambda metric: [mean_name(metric)]
    if ranges := number_range.filtered(query):
        return lambda metric: [*line_names(metric), *(each for each in ranges if number_range.fits(each, metric))]
    over_time = "time" in query.dimensions or query.include
    if over_time and not any(each.dimension == "value" for each in query.filters):
        return mean_names
    return line_names


def _rise(
    estimates: _Estimates, course: Sequence[tuple[int, Selection]], level: float
) -> tuple[Lines | None, NDArray[np.float64] | str]:
    lines = [(at, own) for at, each in course if (own := estimates.of(each))]
    return lines[-1][1] if lines else None, trends(lines, level)


def _group(estimates: _Estimates, plan: _Plan, rise: tuple[Lines | None, NDArray[np.float64] | str] | None) -> Group:
    selections, lines = estimates.together(plan.selections)
    difference: LineDifferences | str | None = plan.alone or None
    planned = estimates.planned(plan) if plan.sides else NOT_PLANNED
    if lines and plan.sides:
        base, own = map(estimates.of, plan.sides)
        if base and own:
            difference = differences(base, own, planned.difference)
    last, slope = rise or (None, None)
    if last and lines and not isinstance(slope, str) and last.alike != lines.alike:
        slope = f"the trend is that of version {last.reading.declared.metric.version}"
    compared = plan.sides[0] if plan.sides else None
    remark = plan.of.shorter(plan.sides, plan.name) if plan.sides and not isinstance(difference, str) else ""
    return Group(plan.of, plan.words, plan.name, selections, lines, compared, difference, slope, planned, remark)
