"""The cells that a query is about: what its dimensions and filters say of a metric's segments."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from deniable_aggregator.answer.model.rows import COLUMNS
from deniable_aggregator.answer.refusal import Summed, UnknownDimension
from deniable_aggregator.answer.versions import answers
from deniable_aggregator.publish.breakdown import Breakdown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from deniable.declared import Declared, Definition
    from deniable.registry import Registry
    from deniable_aggregator.answer.model.query import Filter, Query

_PREFIX = "segment_"


def _column(segment: str) -> str:
    """Return the name of a segment's column: its own, unless another column has that."""
    return _PREFIX + segment if segment in COLUMNS or segment.startswith(_PREFIX) else segment


def segments_of(query: Query) -> list[str]:
    """Return the columns of the segments that rows are broken down by."""
    return [name for name in query.dimensions if name not in ("time", "value")]


class Cells(NamedTuple):
    """The cells of one version of a metric."""

    breakdown: Breakdown  # its segments
    dimensions: tuple[str, ...]  # those that rows are broken down by
    listed: tuple[tuple[str, ...], ...]  # of each the values wanted
    fixed: Mapping[str, str]  # the other segments that are filtered, each with its value

    def text(self, words: Sequence[str]) -> str:
        """Return the cell with these values of the dimensions."""
        given = {**self.fixed, **dict(zip(self.dimensions, words, strict=True))}
        return self.breakdown.text(tuple(given.get(name) for name in self.breakdown.names))

    def overlapping(self, dimension: int, base: str) -> str | None:
        """Return a value wanted of a dimension that shares people with another one, or None."""
        segment = self.dimensions[dimension]
        at = self.breakdown.names.index(segment)

        def people(word: str) -> set[str]:
            return set(self.breakdown.box(f"{segment}={word}")[at])

        return next((word for word in self.listed[dimension] if word != base and people(word) & people(base)), None)

    @classmethod
    def of(cls, registry: Registry, declared: Declared, query: Query) -> Cells:
        """Read the dimensions and filters of a query.

        Raises
        ------
        UnknownDimension
            If the metric has no such dimension, or the dimension no such value.
        Summed
            If a filter asks for several cells together.
        """
        breakdown = Breakdown.of(registry, declared.metric)
        names = {_column(name): name for name in breakdown.names}
        asked = segments_of(query)
        filtered = [each for each in query.filters if each.dimension != "value"]
        for name in (*asked, *(each.dimension for each in filtered)):
            if name not in names:
                known = ", ".join(("time", "value", *names))
                raise UnknownDimension(f"dimensions of {declared.metric.id} are {known}; filters are of value or a segment")
        by = {name: [each for each in filtered if each.dimension == name] for name in names}
        fixed = {names[name]: _one(breakdown, names[name], some) for name, some in by.items() if some and name not in asked}
        listed = tuple(_some(breakdown, names[name], by[name]) for name in asked)
        base = query.compare.base if query.compare else None
        if base is not None and query.compare:
            _check(breakdown, names[str(query.compare.dimension)], [base])
        return cls(breakdown, tuple(names[name] for name in asked), listed, fixed)

    @classmethod
    def of_each(cls, registry: Registry, versions: Iterable[Declared], query: Query) -> dict[Definition, Cells]:
        """Read them for each version that has them, by its definition.

        Raises
        ------
        Refusal
            For the first version, if no other has them.
        """
        return dict(answers(versions, lambda each: (each.definition, cls.of(registry, each, query))))


def _one(breakdown: Breakdown, segment: str, filters: Sequence[Filter]) -> str:
    """Return the only value that filters leave of a segment that is no dimension."""
    if len(filters) > 1 or filters[0].op != "is" or len(filters[0].values) > 1:
        rule = f"cells are not added up: filter {segment} by one value that it is, or name it among the dimensions"
        raise Summed(rule)
    _check(breakdown, segment, filters[0].values)
    return filters[0].values[0]


def _some(breakdown: Breakdown, segment: str, filters: Sequence[Filter]) -> tuple[str, ...]:
    """Return the values that filters leave of a dimension; without any, all that are declared."""
    for each in filters:
        _check(breakdown, segment, each.values)
    wanted = next((each.values for each in filters if each.op == "is"), breakdown.values[segment])
    kept_ = [word for word in dict.fromkeys(wanted) if all(_keeps(breakdown, segment, each, word) for each in filters)]
    return tuple(kept_)


def _keeps(breakdown: Breakdown, segment: str, each: Filter, word: str) -> bool:
    if each.op == "is":
        return word in each.values
    return not set(breakdown.lineage(segment, word)) & set(each.values)


def _check(breakdown: Breakdown, segment: str, words: Iterable[str]) -> None:
    known = breakdown.words_of(segment)
    for word in words:
        if word not in known:
            raise UnknownDimension(f"segment {segment} is one of {', '.join(known)}")


def kept(query: Query) -> Callable[[str], bool]:
    """Return what tells whether the filters keep a value."""
    of_value = [(frozenset(each.values), each.op == "is") for each in query.filters if each.dimension == "value"]
    return lambda label: all((label in values) == wanted for values, wanted in of_value)
