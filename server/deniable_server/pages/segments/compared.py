"""The values of a dimension compared with one of them, all answers at once; and the answer that differs most clearly."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from deniable.messages.lookalike import did_you_mean
from deniable.messages.plural import few
from deniable.registry import OTHER
from deniable_aggregator.answer.difference.sentence import clarity
from deniable_aggregator.answer.model.query import MOST_ROWS, CompareWith, Filter, Page, Query
from deniable_aggregator.answer.question import date_range, questions
from deniable_aggregator.answer.question.cells import segments_of, with_columns
from deniable_aggregator.answer.refusal import UnknownValue
from deniable_aggregator.answer.table import rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from deniable_aggregator.answer.select import Published, Selection

MOST_ANSWERS = 30
"""Answers that are tested together, and to choose from."""
_SHOWN = 40  # characters of what was asked for


class Dimension(NamedTuple):
    """The values of a dimension, compared with one of them."""

    name: str
    base: str
    rows: Sequence[Mapping[str, Any]]  # those of a query, each with the value of the dimension under an empty name

    def of(self, answer: str) -> list[Mapping[str, Any]]:
        """Return the row of each value that is about an answer, or says that nothing is published."""
        return [row for row in self.rows if row["value"] in (answer, None)]


class Difference(NamedTuple):
    """How a value of a dimension differs from the base in one answer."""

    dimension: Dimension
    row: Mapping[str, Any]


def compared(
    version: Published,
    days: tuple[str, str] | None,  # the first and the last day; None: all
    answers: Sequence[str],  # which are tested together, as rows name them
    base: str,  # a cell; of other dimensions and if it is empty, the base is as of `_base`
    level: float,
) -> list[Dimension]:
    """Compare the values of each dimension with a base; raise `Refusal` if that is too much."""
    app, now = version.app, datetime.now(UTC)
    span = date_range.read(days, now).names(version.length)
    dimensions = []
    for name in version.breakdown.names:
        chosen = _base(version, name, base, span)
        query = with_columns(
            Query(
                metrics=(version.declared.metric.id,),
                date_range=days,
                dimensions=(name, "value"),
                filters=(Filter("is", "value", tuple(answers)),),
                compare=CompareWith(dimension=name, base=chosen),
                level=level,
                pagination=Page(limit=MOST_ROWS),
            )
        )
        (question,) = questions(app.registry, query, [[version.declared]], now)
        column = segments_of(query)[0]
        answered = rows(app, query, [(question, [version])])
        dimensions.append(Dimension(name, chosen, [{**each, "": each[column]} for each in answered.rows]))
    return dimensions


def check_base(version: Published, base: str) -> None:
    """Raise `UnknownValue` for a base that is no value of a dimension."""
    cells = [f"{name}={each}" for name in version.breakdown.names for each in _values(version, name)]
    if base and base not in cells:
        known = f"write one of {few(cells)}{did_you_mean(base, cells)}" if cells else "it has no segments, so leave base out"
        raise UnknownValue(f"{version.declared.metric.id} has no base {base[:_SHOWN]!r}: {known}")


def _values(version: Published, name: str) -> list[str]:
    return [each for each in version.breakdown.values[name] if each != OTHER]


def _base(version: Published, name: str, chosen: str, span: tuple[str, str]) -> str:
    """Choose the base: what was asked for, the base of an experiment if it is published, or the value with most reports."""
    reports = {each: version.between(f"{name}={each}", *span).n for each in _values(version, name)}
    experiment = version.app.registry.experiments.get(name)
    declared = experiment.base if experiment and reports.get(experiment.base) else ""
    named = next((each for each in reports if f"{name}={each}" == chosen), "")
    return named or declared or max(reports, key=reports.__getitem__)


class Pair(NamedTuple):
    """A value of a dimension and the base, as far as both are published."""

    # base, cell: as segments
    base: str
    cell: str
    # first, second: the releases of each, of the same periods
    first: Selection
    second: Selection


def pairs_of(version: Published, name: str) -> Iterator[Pair]:
    """Pair each value of a dimension with the usual base, in the periods in which both are published."""
    base = f"{name}={_base(version, name, '', ('', '~'))}"
    for value in _values(version, name):
        cell = f"{name}={value}"
        first, second = (version.between(each, "", "~") for each in (base, cell))
        both = first.by_last.keys() & second.by_last.keys()
        if both and cell != base:
            yield Pair(base, cell, first.within(both), second.within(both))


def differing(dimensions: Iterable[Dimension], scale: str) -> list[Difference]:
    """Return what differs beyond chance, in all answers of a dimension together; the clearest first."""
    listed = [Difference(each, row) for each in dimensions for row in each.rows if row["differs"]]
    return sorted(listed, key=lambda one: clarity(one.row["p_value"], one.row["difference"], scale))
