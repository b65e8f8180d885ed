"""The cells that a query is about: what its dimensions and filters say of a metric's segments."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from deniable.messages.lookalike import did_you_mean
from deniable.registry.period import LENGTHS
from deniable_aggregator.answer.model.rows import COLUMNS
from deniable_aggregator.answer.refusal import IncompatibleMembers, Summed, UnknownDimension, UnknownValue
from deniable_aggregator.answer.versions import answers
from deniable_aggregator.publish.breakdown import Breakdown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from deniable.declared import Declared, Definition
    from deniable.registry import Registry
    from deniable_aggregator.answer.model.query import Filter, Query

_PREFIX = "segment_"
_OF_TIME = ("time", "period", "from", "to")
_BY_TIME = "days are chosen by date_range, in Python by between(), and rows for each period are those by time"


def _column(segment: str) -> str:
    """Return the name of a segment's column: its own, unless another column has that."""
    return _PREFIX + segment if segment in COLUMNS or segment.startswith(_PREFIX) else segment


def as_written(column: str) -> str:
    """Return the name by which a query may call a column that no segment has."""
    name = column.removeprefix(_PREFIX)
    return name if name in COLUMNS else column


def segments_of(query: Query) -> list[str]:
    """Return the columns of the segments that rows are broken down by."""
    return [name for name in query.dimensions if name not in ("time", "value")]


def with_columns(query: Query) -> Query:
    """Return a query with the columns of its segments, where it names segments that are called like another column."""

    def column(name: str) -> str:
        return _column(name) if name in COLUMNS and name not in ("time", "value") else name

    compare = query.compare
    if compare and compare.dimension:
        compare = replace(compare, dimension=column(compare.dimension))
    return replace(
        query,
        dimensions=tuple(map(column, query.dimensions)),
        filters=tuple(replace(each, dimension=column(each.dimension)) for each in query.filters),
        compare=compare,
    )


class QueryCells(NamedTuple):
    """The cells of one version of a metric."""

    breakdown: Breakdown  # its segments
    dimensions: tuple[str, ...]  # those that rows are broken down by
    listed: tuple[tuple[str, ...], ...]  # of each dimension the values that have rows
    fixed: Mapping[str, str]  # the value of each other segment that is filtered
    open: frozenset[str]  # the dimensions of which no filter names the values that have rows

    def text(self, words: Sequence[str]) -> str:
        """Return the cell with these values of the dimensions."""
        values = {**self.fixed, **dict(zip(self.dimensions, words, strict=True))}
        return self.breakdown.text(tuple(values.get(name) for name in self.breakdown.names))

    def overlapping(self, dimension: int, base: str) -> str | None:
        """Return a value of a dimension's rows that shares people with the base, or None."""
        segment = self.dimensions[dimension]
        at = self.breakdown.names.index(segment)

        def people(word: str) -> set[str]:
            return set(self.breakdown.box(f"{segment}={word}")[at])

        return next((word for word in self.listed[dimension] if word != base and people(word) & people(base)), None)

    @classmethod
    def of(cls, registry: Registry, declared: Declared, query: Query) -> QueryCells:
        """Read the dimensions and filters of a query; raise `UnknownDimension`, or `Summed` for several cells together."""
        breakdown = Breakdown.of(registry, declared.metric)
        names = {_column(name): name for name in breakdown.names}
        segments = segments_of(query)
        filtered = [each for each in query.filters if each.dimension != "value"]
        for name in (each.dimension for each in filtered):
            if name not in names and as_written(name) in _OF_TIME:
                raise UnknownDimension(f"no filter is of {as_written(name)}: {_BY_TIME}")
        for name in (*segments, *(each.dimension for each in filtered)):
            if name not in names:
                known, written = ("time", "value", *names), as_written(name)
                raise UnknownDimension(_no_dimension(declared, registry, written, known))
        by = {name: [each for each in filtered if each.dimension == name] for name in names}
        fixed = {names[name]: _one(breakdown, names[name], own) for name, own in by.items() if own and name not in segments}
        listed = tuple(_values(breakdown, names[name], by[name]) for name in segments)
        base = query.compare.base if query.compare else None
        if base is not None and query.compare:
            _check(breakdown, names[str(query.compare.dimension)], [base])
        unnamed = frozenset(names[name] for name in segments if all(each.op != "is" for each in by[name]))
        return cls(breakdown, tuple(names[name] for name in segments), listed, fixed, unnamed)

    @classmethod
    def of_each(cls, registry: Registry, versions: Iterable[Declared], query: Query) -> dict[Definition, QueryCells]:
        """Read the cells for each version that has them; raise the first version's `Refusal` if none has."""
        return dict(answers(versions, lambda version: (version.definition, cls.of(registry, version, query))))


def _no_dimension(declared: Declared, registry: Registry, name: str, known: Sequence[str]) -> str:
    """Say that a metric has no such dimension, and what may have been meant."""
    metric = declared.metric
    if name in registry.segments:
        listed = f"its segments are {', '.join(metric.segments)}" if metric.segments else "it has no segments"
        return f"{metric.id} has no segment {name!r}: {listed}, and reports carry no other"
    rule = f"{metric.id} has no dimension {name!r}: its dimensions are {', '.join(known)}, and filters are of value or a segment"
    if name in (*LENGTHS, "date"):
        return f"{rule}; 'time' has a row for each {metric.period}, the metric's period"
    return f"{rule}{did_you_mean(name, known)}"


def _one(breakdown: Breakdown, segment: str, filters: Sequence[Filter]) -> str:
    """Return the only value that filters leave of a segment that is no dimension."""
    if len(filters) > 1 or filters[0].op != "is" or len(filters[0].values) > 1:
        how = f"--by {segment}, by({segment!r}), or the member dimensions"
        rule = f"segments are not added up: name one value of {segment}, or break rows down by it: {how}"
        raise Summed(rule)
    _check(breakdown, segment, filters[0].values)
    return filters[0].values[0]


def _values(breakdown: Breakdown, segment: str, filters: Sequence[Filter]) -> tuple[str, ...]:
    """Return the values that filters leave of a dimension; without any, all that are declared."""
    for filter_ in filters:
        _check(breakdown, segment, filter_.values)
    listed = next((filter_.values for filter_ in filters if filter_.op == "is"), breakdown.values[segment])
    words = [word for word in dict.fromkeys(listed) if all(_keeps(breakdown, segment, filter_, word) for filter_ in filters)]
    if not words:
        raise IncompatibleMembers(f"the filters of {segment} leave none of its values: {', '.join(breakdown.values[segment])}")
    return tuple(words)


def _keeps(breakdown: Breakdown, segment: str, filter_: Filter, word: str) -> bool:
    if filter_.op == "is":
        return word in filter_.values
    return not set(breakdown.lineage(segment, word)) & set(filter_.values)


def _check(breakdown: Breakdown, segment: str, words: Iterable[str]) -> None:
    known = breakdown.words_of(segment)
    for word in words:
        if word not in known:
            raise UnknownValue(
                f"segment {segment} has no value {word!r}: write one of {', '.join(known)}{did_you_mean(word, known)}"
            )


def value_filter(query: Query) -> Callable[[str], bool]:
    """Return the function that says whether the filters keep a value."""
    of_value = [(frozenset(each.values), each.op == "is") for each in query.filters if each.dimension == "value"]
    return lambda label: all((label in values) == included for values, included in of_value)
