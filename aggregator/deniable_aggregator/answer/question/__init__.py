"""Questions: what a query asks of each metric. A question is checked against the registry, before anything is read."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import TYPE_CHECKING

from deniable.messages.lookalike import did_you_mean
from deniable_aggregator.answer.model.fields import Span, days_of
from deniable_aggregator.answer.model.number import line_names
from deniable_aggregator.answer.question import date_range, number_range
from deniable_aggregator.answer.question.cells import QueryCells, as_written, segments_of, value_filter
from deniable_aggregator.answer.refusal import Incomparable, IncompatibleMembers, UnknownDimension, UnknownValue, overlap

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from deniable.declared import Declared, Definition
    from deniable.registry import Metric, Registry
    from deniable_aggregator.answer.model.fields import Days
    from deniable_aggregator.answer.model.query import Query
    from deniable_aggregator.answer.question.date_range import DateRange, Earlier

    Words = tuple[str, ...]


_MOST_LISTED = 20  # values in a refusal
_OTHERWISE = {"median": "p50", "true": "yes", "false": "no"}
"""What a value is called elsewhere."""
_QUANTILE = re.compile(r"p\d{1,2}")


@dataclass(frozen=True, eq=False)
class Question:
    """What a query asks of one metric."""

    cells: Mapping[Definition, QueryCells]  # of each version
    versions: Sequence[Declared]  # the versions to try, the highest first
    # first, last: the periods that the query is about; empty and "~" where it is open
    first: str
    last: str
    earlier: Earlier | None  # where the range before lies, if each row is compared with it

    @property
    def groups(self) -> list[Words]:
        """The values of the segments that rows are broken down by."""
        return list(product(*self._listed))

    @property
    def size(self) -> int:
        """How many groups there are."""
        return prod(map(len, self._listed))

    @property
    def _listed(self) -> tuple[Words, ...]:
        return self.cells[self.versions[0].definition].listed

    @property
    def length(self) -> str:
        """The length of a period."""
        return self.versions[0].metric.period

    def days(self, first: str, last: str) -> Days | None:
        """Return the days of some periods, from the first to the last of them."""
        return days_of([Span(first, last)], self.length)

    def cell(self, version: Declared, words: Words) -> str:
        """Return the cell of a version with these values of the segments."""
        return self.cells[version.definition].text(words)


def questions(
    registry: Registry,  # declares the metrics
    query: Query,
    metrics: Sequence[Sequence[Declared]],  # of each metric the versions to try, the highest first
    now: datetime,  # the last days of a date range end today
) -> list[Question]:
    """Read what a query asks of each metric; raise `Refusal` if that cannot be answered, whatever was published."""
    _check(query)
    _check_values(query, metrics)
    span = date_range.read(query.date_range, now)
    return [_question(registry, query, versions, span) for versions in metrics]


def _check(query: Query) -> None:
    compare = query.compare
    if len(set(query.dimensions)) < len(query.dimensions):
        twice = next(each for each in query.dimensions if query.dimensions.count(each) > 1)
        raise UnknownDimension(f"dimensions names each dimension once; {twice!r} is named twice")
    if "value" not in query.dimensions and any(each.dimension == "value" for each in query.filters):
        raise UnknownDimension("values are filtered where value is one of the dimensions: name it there, or leave the filter out")
    if query.pool and (compare or query.include or query.view == "consistent" or query.target == "respondents"):
        raise IncompatibleMembers("versions are pooled in the raw view of the population, without compare and trend")
    if query.view == "consistent" and (compare or query.include):
        raise IncompatibleMembers("consistent shares are biased, so compare and trend are of the view raw")
    if compare is None:
        return
    segment = compare.dimension is not None and compare.base is not None
    if compare.date_range and (compare.dimension, compare.base) != (None, None):
        raise Incomparable("rows are compared with one of their segments or with the range before, not with both: ask twice")
    if segment == (compare.date_range is not None) or (compare.dimension is None) != (compare.base is None):
        raise Incomparable("compare has a dimension and its base, or the date_range previous")
    if compare.match and segment:
        raise Incomparable("match belongs to the date_range previous")
    if segment and (compare.dimension not in query.dimensions or compare.dimension in ("time", "value")):
        raise Incomparable(_no_segment(as_written(str(compare.dimension)), query.dimensions))


def _no_segment(name: str, dimensions: Sequence[str]) -> str:
    """Say that what is compared is no segment among the dimensions, and what to ask instead."""
    rule = "what is compared are values of a segment, where it is one of the dimensions"
    if name in ("time", "period"):
        return (
            f"{rule}; two periods are compared by the page /m/<id>/compare, and by GET /api/v1/metrics/<id>/compare?a=...&b=..."
        )
    near = did_you_mean(name, [each for each in dimensions if each not in ("time", "value")])
    add = "" if name == "value" else f": add by({name!r}), or the member of dimensions"
    return f"{rule}; {name!r} is no segment among {', '.join(dimensions) or 'none'}{near or add}"


def _check_values(query: Query, metrics: Sequence[Sequence[Declared]]) -> None:
    """Refuse a filter of a value that no metric has. What a search may find is not known before."""
    keeps = value_filter(query)
    named = [word for each in query.filters if each.dimension == "value" and each.op == "is" for word in each.values]
    if named and not any(map(keeps, named)):
        raise IncompatibleMembers("the filters of value exclude each other: write one filter with all values that have rows")
    words = [word for each in query.filters if each.dimension == "value" for word in each.values]
    versions = [declared for each in metrics for declared in each]
    if not words or any(declared.metric.discover for declared in versions):
        return
    known = dict.fromkeys(label for declared in versions for label in labels(declared))
    numbers = [declared.metric for declared in versions if number_range.has_ranges(declared.metric)]
    ranges = number_range.filtered(query)
    for word in words:
        if word in known or (word in ranges and any(number_range.fits(word, each) for each in numbers)):
            continue
        if word in ranges and numbers:
            number_range.read(word, numbers[0])  # which says what is wrong
        hint = number_range.meant(word, numbers[0]) if numbers else _means_only(word, [each.metric for each in versions])
        hint = hint or _summed(word, [each.metric for each in versions])
        raise UnknownValue(unknown_value(word, list(known), ", ".join(each[0].metric.id for each in metrics), hint))


def _means_only(word: str, metrics: Sequence[Metric]) -> str:
    """Say what a quantile or a range needs, if all that is estimated of a number is its mean."""
    figure = word.casefold() == "median" or number_range.is_range(word) or _QUANTILE.fullmatch(word)
    if not figure or not any(each.axis is not None for each in metrics):
        return ""
    return '; quantiles and ranges need estimate = "distribution" in the registry, and here only the mean is estimated'


def _summed(word: str, metrics: Sequence[Metric]) -> str:
    """Say where the sum of a number is, if it is asked for as a value."""
    number = next((each.id for each in metrics if each.axis is not None), "") if word.casefold() == "sum" else ""
    return f"; its sum is on its page, and as number.sum in GET /api/v1/metrics/{number}" if number else ""


def labels(declared: Declared) -> Sequence[str]:
    """Return what may stand in the column of values."""
    metric = declared.metric
    if metric.estimate:
        return line_names(metric)
    positions = declared.candidates if metric.open else range(metric.kind.estimated(metric))
    return [metric.label(position) for position in positions]


def unknown_value(
    word: str,
    known: Sequence[str],  # values that there are
    metrics: str,  # names of those asked
    hint: str = "",  # what else may be meant
) -> str:
    """Say that metrics have no such value, and which they have."""
    listed = f": its values are {', '.join(known)}" if len(known) <= _MOST_LISTED else ""
    meant = _OTHERWISE.get(word.casefold())
    near = f"; {word.casefold()} is written {meant!r}" if meant in known else did_you_mean(word, known)
    # A number with a sign of comparison is no mistyped quantile.
    return f"{metrics} has no value {word!r}{listed}{near if word[:1].isalnum() or not hint else ''}{hint}"


def _question(registry: Registry, query: Query, declared: Sequence[Declared], span: DateRange) -> Question:
    over_time = "time" in query.dimensions or query.include or (query.compare and query.compare.date_range)
    # A metric's versions may have periods of other lengths, which are no part of one series.
    versions = [each for each in declared if not over_time or each.metric.period == declared[0].metric.period]
    if (query.compare or query.include) and "value" not in query.dimensions and not versions[0].metric.estimate:
        raise IncompatibleMembers("compare and trend are of shares and means: name value among the dimensions")
    cells = QueryCells.of_each(registry, versions, query)
    versions = [each for each in versions if each.definition in cells]
    if query.compare and query.compare.base is not None:
        at = segments_of(query).index(str(query.compare.dimension))
        base = query.compare.base
        if other := next(filter(None, (each.overlapping(at, base) for each in cells.values())), None):
            raise Incomparable(overlap(base, other))
    length = versions[0].metric.period
    earlier = None
    if query.compare and query.compare.date_range:
        earlier = span.before(length, weekday=query.compare.match is not None)
    return Question(cells, versions, *span.names(length), earlier)
