"""What a query asks of one metric, with what was published of it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from deniable.messages.plural import plural
from deniable.registry import OTHER
from deniable_aggregator.answer.absence import unpublished
from deniable_aggregator.answer.model.fields import days_of, in_words
from deniable_aggregator.answer.question import date_range
from deniable_aggregator.answer.refusal import why_withheld
from deniable_aggregator.answer.select import state

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from deniable_aggregator.answer.question import Question, Words
    from deniable_aggregator.answer.question.date_range import Earlier
    from deniable_aggregator.answer.select import Published, Selection


@dataclass(frozen=True, eq=False)
class Topic:
    """A metric of the query, with what was published of it."""

    question: Question
    versions: Sequence[Published]  # in the question's order

    @cached_property
    def groups(self) -> list[Words]:
        """The values of the segments that have rows: undeclared ones only where they were published, or are asked for."""
        cells, published = self.question.cells[self.versions[0].declared.definition], self._parts
        silent = [at for at, name in enumerate(cells.dimensions) if name in cells.open and f"{name}={OTHER}" not in published]
        rows = [words for words in self.question.groups if not any(words[at] == OTHER for at in silent)]
        return rows or self.question.groups  # no answer is empty

    @cached_property
    def _parts(self) -> set[str]:
        """Each segment's value of which a cell is published."""
        return {part for each in self.versions for cell in each.cells for part in cell.split(",")}

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
            return "withheld" if self._within and not self.versions[0].app.trial else "missing"
        return state(self._cells(words), name)

    @cached_property
    def compared(self) -> tuple[tuple[str, str], Earlier] | None:
        """What is compared with the range before: from the first period to the last one published, and how far the other is away.

        The period that is open now would otherwise stand for one of this range, beside a closed one of the range before.
        """
        question = self.question
        if question.earlier is None:
            return None
        last = max(self._within, default=question.last)
        return (question.first, last), question.earlier.up_to(question.first, last)

    def shorter(self, sides: tuple[Selection, Selection], name: str | None) -> str:
        """Say that more periods of one side than of the range before are published, or fewer; empty where as many are."""
        question = self.question
        if self.compared is None or name is not None:
            return ""
        (first, last), earlier = self.compared
        ranges = [(earlier.of(first), earlier.of(last)), (first, last)]
        base, own = (_periods(side, *each, question.length) for side, each in zip(sides, ranges, strict=True))
        if base == own:
            return ""
        where = "the range before" if base < own else "this range"
        compared = f"{plural(own, question.length)} compared with {plural(base, question.length)}"
        return f"{compared}: of {where} no more is published"

    def _cells(self, words: Words) -> Iterator[tuple[Published, str]]:
        return ((version, self.question.cell(version.declared, words)) for version in self.versions)

    def reason(self, words: Words, name: str | None) -> str:
        """Say in words why there is nothing of a cell in a period; without a name, in all periods asked for."""
        version, metric = self.versions[0], self.question.versions[0].metric
        state, spans = self.state(words, name), [span for each in self.versions for span in each.spans]
        if state == "withheld":
            return f"this segment is withheld: {why_withheld(version.declared)}"
        if state == "joined":
            return "it had too few reports, which are counted with a later period"
        days = days_of(spans, metric.period)
        if days is None:
            return f"nothing of {metric.id} is published yet: {version.app.why_nothing_yet(self.question.versions[0])}"
        if self._within:
            return unpublished(metric.id, self._named(words, name))
        return f"nothing of {metric.id} is published in this range, but {in_words(days)}"

    def _named(self, words: Words, name: str | None) -> str:
        """Name a group of rows: by its period and its segments, also those of a filter. A segment alone is the one asked for."""
        cell = self.question.cell(self.versions[0].declared, words)
        if cell and not words and not name:
            return "this segment"
        return ", ".join(filter(None, [name, *cell.split(",")])) or "this time"


def _periods(side: Selection, first: str, last: str, length: str) -> int:
    """Count the periods of a range that releases cover."""
    spans = [(max(span.first or first, first), min(span.last, last)) for span in side.spans]
    return sum(1 for begin, end in spans for _ in date_range.names_between(begin, end, length))
