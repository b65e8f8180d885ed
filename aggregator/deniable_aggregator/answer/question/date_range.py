"""Date ranges: which periods a query is about."""

from __future__ import annotations

import re
from calendar import monthrange
from datetime import UTC, date, datetime, time, timedelta
from typing import TYPE_CHECKING, NamedTuple

from deniable.registry import period
from deniable_aggregator.answer.model.query import MOST_ROWS
from deniable_aggregator.answer.refusal import IncompatibleMembers, QueryTooLarge, Refusal

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class UnknownRange(Refusal):
    """The date range cannot be read."""

    code = "date_range"


class DateRange(NamedTuple):
    """The time that a query is about."""

    first: datetime | None  # its first moment; None: from the beginning
    end: datetime | None  # the moment after; None: there is no end

    def names(self, length: str) -> tuple[str, str]:
        """Return the first and the last period that overlap it; names between them are in it, too."""
        first = period.of(self.first, length) if self.first else ""
        last = period.of(self.end - timedelta(microseconds=1), length) if self.end else "~"
        return first, last

    def holds(self, name: str, length: str) -> bool:
        """Tell whether all of a period is in it."""
        begins, ends = period.bounds(name, length)
        return (self.first is None or self.first <= begins) and (self.end is None or ends <= self.end)

    def before(self, length: str, *, weekday: bool) -> Earlier:
        """Return how far the range of the same length before it is away."""
        if self.first is None or self.end is None:
            raise IncompatibleMembers(_NO_RANGE)
        if weekday and length not in _OF_A_WEEK:
            raise IncompatibleMembers(
                f"weekdays are matched of hours and days; a period of this metric is a {length}: leave match out"
            )
        unit = _OF_A_WEEK.get(length, 1) if weekday else 1
        return Earlier(length, 0, unit).up_to(*self.names(length))


class Earlier(NamedTuple):
    """So many periods before."""

    length: str  # of a period
    periods: int  # how many
    unit: int  # of which this is a multiple

    def up_to(self, first: str, last: str) -> Earlier:
        """Return how far the range of the same length before another is away."""
        number = sum(1 for _ in names_between(first, last, self.length))
        return self._replace(periods=-(-number // self.unit) * self.unit)

    def of(self, name: str) -> str:
        """Return the period so many before another."""
        begins, _ = period.bounds(name, self.length)
        if self.length == "month":
            months = 12 * begins.year + begins.month - 1 - self.periods
            return f"{months // 12:04}-{months % 12 + 1:02}"
        return period.of(begins - self.periods * _LENGTHS[self.length], self.length)


def number_of(first: str, last: str, length: str) -> int:
    """Count the periods from one to another."""
    begins, ends = period.bounds(first, length)[0], period.bounds(last, length)[1]
    if length == "month":
        return period.months_between(begins, ends - timedelta(1))
    return (ends - begins) // _LENGTHS[length]


_LENGTHS = {"hour": timedelta(hours=1), "day": timedelta(days=1), "week": timedelta(weeks=1)}
JOINT = ".."
"""What stands between the ends of a range."""
_NO_RANGE = "compare_previous is with the time before a range: add between(...) or last(...), or the member date_range"
_OF_A_WEEK = {"hour": 168, "day": 7}
_SOON, _LATE = datetime(2000, 1, 1, tzinfo=UTC), datetime(2200, 1, 1, tzinfo=UTC)


def names_between(first: str, last: str, length: str) -> Iterator[str]:
    """Yield the periods from one to another; raise `QueryTooLarge` after more than an answer has rows."""
    name, number = first, 0
    while name <= last:
        if number == MOST_ROWS:
            raise QueryTooLarge(f"a query is about {MOST_ROWS:,} periods at most: ask for a shorter range of time")
        yield name
        name, number = period.of(period.bounds(name, length)[1], length), number + 1


def read(text: tuple[str, ...] | str | None, now: datetime) -> DateRange:
    """Read a date range, or its ends; raise `UnknownRange` if it is none."""
    if text is None:
        return DateRange(None, None)
    ends = text.split(JOINT) if isinstance(text, str) else text
    written = JOINT.join(ends)[:_SHOWN]
    if len(ends) == 1 and (days := _last_days(ends[0])):
        tomorrow = datetime.combine(now.astimezone(UTC).date(), time(), UTC) + timedelta(days=1)
        return DateRange(tomorrow - timedelta(days=days), tomorrow)
    moments = [_moment(end) for end in (ends[0], ends[-1])]
    too_many = len(ends) > 2  # noqa: PLR2004
    if too_many or None in moments:
        raise UnknownRange(f"{written!r} is no range: {RULE if too_many else advice(ends) or RULE}")
    (first, _), (_, end) = (moment for moment in moments if moment)
    if first >= end:
        raise UnknownRange(f"{ends[0][:_SHOWN]} is after {ends[-1][:_SHOWN]}: write the earlier one first")
    if not (first >= _SOON and end <= _LATE):
        raise UnknownRange(f"{written!r} does not lie between 2000 and 2200: {RULE}")
    return DateRange(first, end)


_UNITS = {"d": 1, "w": 7}  # in days
_MOST_DAYS = 36_500
_SHOWN = 40  # characters
RULE = (
    "write the last days or weeks, such as 30d or 12w; or a day, a week or a month, such as 2026-W47; or two of them, such as "
    "2026-10-01..2026-11-20. A time in place of a day is of RFC 3339, with its offset, such as 2026-10-01T08:00:00Z"
)
"""How a date range is written."""


def _last_days(text: str) -> int:
    """Return how many last days a text means; 0 if it means none, or too many."""
    number, days = text[:-1], _UNITS.get(text[-1:], 0)
    if not (days and number.isascii() and number.isdigit()):
        return 0
    if not 1 <= days * int(number[:6]) <= _MOST_DAYS:
        raise UnknownRange(f"a range has 1 to {_MOST_DAYS:,} last days; this is {text[:_SHOWN]!r}")
    return days * int(number[:6])


def advice(ends: Sequence[str]) -> str:
    """Say which day, week or month there is not, or how the ends of a range are written; empty if their meaning is not known."""
    faults = list(filter(None, map(_fault, ends)))
    if faults:
        return faults[0]
    meant = [_meant(ends[0], is_last=False), _meant(ends[-1], is_last=True)]
    return f"write {JOINT.join(dict.fromkeys(meant))}" if all(meant) else ""


_DAY_FIRST = re.compile(r"(\d{1,2})\.(\d{1,2})\.(\d{4})")
_YEAR_FIRST = re.compile(r"(\d{4})(?:[./-](\d{1,2})(?:[./-](\d{1,2}))?)?")
_WEEK = re.compile(r"(\d{4})-W(\d{1,2})")
_MONTHS = 12


def _numbers(text: str) -> list[int]:
    """Return the year, the month and the day of a text, as far as it has them. With / either number may be the month."""
    if day_first := _DAY_FIRST.fullmatch(text.strip()):
        return [int(each) for each in reversed(day_first.groups())]
    year_first = _YEAR_FIRST.fullmatch(text.strip())
    return [int(each) for each in year_first.groups() if each] if year_first else []


def _fault(text: str) -> str:
    """Say why there is no such day, week or month; empty if there is, or if the text is none of these."""
    if week := _WEEK.fullmatch(text.strip()):
        year, number = (int(each) for each in week.groups())
        last = date(max(year, 1), 12, 28).isocalendar().week  # this day is always in the last week
        return "" if 1 <= number <= last else f"{year} has weeks 01 to {last}"
    year, month, day = (*_numbers(text), 1, 1, 1)[:3]
    if not (1 <= month <= _MONTHS):
        return f"there is no month {month:02}"
    days = monthrange(max(year, 1), month)[1]
    return "" if 1 <= day <= days else f"{date(max(year, 1), month, 1):%B} {year} has {days} days"


def _meant(text: str, *, is_last: bool) -> str:
    """Write an end in the form of ISO 8601, a year as its first or its last month; empty if it is not known to be one."""
    if period.length_of(text):
        return text
    year, *others = _numbers(text) or [0]
    if not year:
        return ""
    return "-".join((f"{year:04}", *(f"{each:02}" for each in others or [_MONTHS if is_last else 1])))


def _moment(text: str) -> tuple[datetime, datetime] | None:
    """Read a period or a time: its first moment, and the moment after; None if it is neither."""
    length = period.length_of(text)
    if length:
        return period.bounds(text, length)
    try:
        first = datetime.fromisoformat(text)
        utc = first.astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    return (utc, utc + timedelta(microseconds=1)) if first.tzinfo else None
