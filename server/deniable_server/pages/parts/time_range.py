"""The range of time that a page is about, and the periods in which it is drawn. Both stand in the address."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

from flask import request

from deniable.registry import period
from deniable_aggregator.answer import figures
from deniable_aggregator.answer.over_time.periods import most_periods
from deniable_aggregator.answer.question import date_range
from deniable_server.api.answers.parameters import BOTH
from deniable_server.http.problem import Problem

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deniable.declared import Declared
    from deniable_aggregator.answer.model.fields import Span
    from deniable_aggregator.answer.question.date_range import DateRange

RANGES = {"30d": "30 days", "90d": "90 days", "365d": "12 months"}
"""Ranges to choose from, beside all."""
_ALL = "all"
_SHOWN = 40  # characters of what was asked for
_MOST, _MOST_OF_EACH = 100, 60  # periods drawn unless shorter ones are asked for: of one line, and of each of several


@dataclass(frozen=True, slots=True)
class TimeRange:
    """A range of time; nothing was asked for if `text` is empty."""

    text: str = ""  # as in the address
    dates: DateRange | None = None  # None: everything that is published

    @property
    def days(self) -> tuple[date, date] | None:
        """Its first and last day; None if it is open."""
        if self.dates is None or self.dates.first is None or self.dates.end is None:
            return None
        return self.dates.first.date(), (self.dates.end - timedelta(microseconds=1)).date()

    @property
    def fixed(self) -> str:
        """The same range as two days; empty if it is open."""
        return f"{self.days[0]}..{self.days[1]}" if self.days else ""

    @property
    def words(self) -> str:
        """The range in words; empty if it is open."""
        return figures.brief_range(str(self.days[0]), str(self.days[1]), "day") if self.days else ""


def of_request() -> TimeRange:
    """Read the parameter ``range``, or the days ``from`` and ``to`` of a form, which come before it."""
    text, first, last = (request.args.get(name, "") for name in ("range", "from", "to"))
    if first or last:
        text = date_range.JOINT.join((first or "2000-01-01", last or str(datetime.now(UTC).date())))
    if text in ("", _ALL):
        return TimeRange()
    if request.args.get("period"):
        raise Problem(400, "date_range", BOTH)
    return TimeRange(text, date_range.read(text, datetime.now(UTC)))


def unit(
    spans: Sequence[Span],  # the releases in the range
    declared: Declared,
    text: str,  # the parameter ``by``; empty: the shortest of which all have room
) -> tuple[str, list[str]]:
    """Return the length of the periods to draw, and all lengths to choose from."""
    length = declared.metric.period
    lengths = list(period.LENGTHS[period.LENGTHS.index(length) :])
    if text:
        if text not in lengths:
            raise Problem(400, "by", _no_length(text, lengths))
        return text, lengths
    is_one = declared.metric.estimate or any(value is True for value in declared.metric.values)
    most = min(most_periods(declared), _MOST if is_one else _MOST_OF_EACH)
    return next((each for each in lengths if _number(spans, length, each) <= most), lengths[-1]), lengths


def _no_length(text: str, lengths: Sequence[str]) -> str:
    """Say which lengths of periods a metric can be drawn in."""
    possible = f"by is {'' if len(lengths) == 1 else 'one of '}{', '.join(lengths)}"
    if text in period.LENGTHS:
        return f"this metric is {_ADVERBS[lengths[0]]}: {possible}"
    return f"{possible}; this is {text[:_SHOWN]}"


_ADVERBS = {"hour": "hourly", "day": "daily", "week": "weekly", "month": "monthly"}


def _number(spans: Sequence[Span], length: str, by: str) -> int:
    """Return about how many longer periods there are from the first release to the last."""
    if not spans:
        return 0
    begins, ends = period.bounds(spans[0].last, length)[0], period.bounds(spans[-1].last, length)[1]
    return int((ends - begins) / _LENGTHS[by]) + 1


_LENGTHS = {"hour": timedelta(hours=1), "day": timedelta(days=1), "week": timedelta(weeks=1), "month": timedelta(days=30)}
