"""What a query asks of one metric, with what was published of it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from deniable_aggregator.answer.model.fields import days_of, in_words
from deniable_aggregator.answer.question import date_range
from deniable_aggregator.answer.select import state

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from deniable_aggregator.answer.question import Question, Words
    from deniable_aggregator.answer.select import Published, Selection

_REASONS = {
    "withheld": "this segment is withheld: it has too few reports, or would give those of others away",
    "joined": "it had too few reports, which are counted with a later period",
}


@dataclass(frozen=True, eq=False)
class Topic:
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
            return "withheld" if self._within and not self.versions[0].app.trial else "missing"
        return state(self._cells(words), name)

    def _cells(self, words: Words) -> Iterator[tuple[Published, str]]:
        return ((version, self.question.cell(version.declared, words)) for version in self.versions)

    def reason(self, words: Words, name: str | None) -> str:
        """Say in words why there is nothing of a cell in a period; without a name, in all periods asked for."""
        reason = _REASONS.get(self.state(words, name))
        if reason is not None:
            return reason
        metric, spans = self.question.versions[0].metric, [span for each in self.versions for span in each.spans]
        days = days_of(spans, metric.period)
        if self._within or days is None:
            return f"nothing of {metric.id} is published{' of this time or segment' if self._within else ' yet'}"
        return f"nothing of {metric.id} is published in this date_range, but {in_words(days)}"
