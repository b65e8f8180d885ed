"""Periods: hours, days, weeks and months in UTC. Sorted by name, they are in order of time.

``hour`` 2026-11-21T14, ``day`` 2026-11-21, ``week`` 2026-W47 (ISO 8601, from Monday), ``month`` 2026-11.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from math import ceil

from deniable.errors import ParameterError

LENGTHS = ("hour", "day", "week", "month")
CYCLES = {"hour": 1, "day": 7, "week": 1, "month": 1}
"""Of each length, how many periods are a cycle: people answer otherwise on Sundays. Only periods a cycle apart are alike."""
MOST_IN_MONTH = {"hour": 24 * 31, "day": 31, "week": 5, "month": 1}
"""Of each length, how many periods count in one calendar month at most."""

_YEARS = 5  # first years that are tried: one is a leap year
_BEGIN = date(2023, 1, 1)


def of(
    moment: datetime,  # an aware datetime
    length: str,  # one of `LENGTHS`
) -> str:
    """Return the name of the period of a moment; raise `ParameterError` if the length is unknown."""
    utc = moment.astimezone(UTC)
    if length == "hour":
        return f"{utc:%Y-%m-%dT%H}"
    if length == "day":
        return f"{utc:%Y-%m-%d}"
    if length == "week":
        year, week, _ = utc.isocalendar()
        return f"{year:04}-W{week:02}"
    if length == "month":
        return f"{utc:%Y-%m}"
    raise ParameterError(f"period: write one of {', '.join(LENGTHS)}", length)


def bounds(
    name: str,  # a name, as `of` writes it
    length: str,  # one of `LENGTHS`
) -> tuple[datetime, datetime]:
    """Return the start and the end of a period; raise `ParameterError` for a name that `of` does not write."""
    try:
        start, end = _bounds(name, length)
        canonical = of(start, length) == name  # ISO 8601 has other spellings, such as 20261101; tallies need a single one
    except (ValueError, OverflowError):
        canonical = False
    if not canonical:
        raise ParameterError(f"period: write it like {of(datetime.now(UTC), length)}, of length {length}", name)
    return start, end


def length_of(name: str) -> str:
    """Return the length of a period by its name; empty if this is no name of a period."""
    for length in LENGTHS:  # the names of each length have their own form
        try:
            bounds(name, length)
        except ParameterError:
            continue
        return length
    return ""


def end(name: str) -> datetime | None:
    """Return the end of a period of any length; None if this is no name of a period."""
    length = length_of(name)
    return bounds(name, length)[1] if length else None


def month_of(
    name: str,  # a name, as `of` writes it
    length: str,  # one of `LENGTHS`
) -> str:
    """Return the calendar month (UTC) in which a period counts: that of its last day."""
    return of(bounds(name, length)[1] - timedelta(seconds=1), "month")


def months_between(
    first: date,
    last: date,
) -> int:
    """Return how many calendar months two days and the days between them touch; 0 or less if the last is in an earlier month."""
    return (last.year - first.year) * 12 + last.month - first.month + 1


@lru_cache(maxsize=64)
def touched(
    length: str,  # one of `LENGTHS`
    days: float,  # Length of the window, above 0. The window includes its last moment but not its first.
) -> int:
    """Return how many periods a window of time touches at most; raise `ParameterError` if the length is unknown."""
    if length == "month":
        # All months between the first and the last are inside the window, so it is longer than these together.
        months = 2
        while _shortest_months(months - 1) < days:
            months += 1
        return months
    if length not in LENGTHS:
        raise ParameterError(f"period: write one of {', '.join(LENGTHS)}", length)
    return ceil(days * 24 if length == "hour" else days / 7 if length == "week" else days) + 1


def most_in_days(
    length: str,  # one of `LENGTHS`
    days: int,  # at least 1
) -> int:
    """Return how many periods a run of whole days touches at most; raise `ParameterError` if the length is unknown."""
    if length == "month":
        # The most are touched when the first day is the last of its month.
        eves = (date(_BEGIN.year + n // 12, n % 12 + 1, 1) - timedelta(1) for n in range(12 * _YEARS))
        return max(months_between(eve, eve + timedelta(days - 1)) for eve in eves)
    if length not in LENGTHS:
        raise ParameterError(f"period: write one of {', '.join(LENGTHS)}", length)
    if length == "week":
        return (days + 12) // 7  # when the first day is a Sunday
    return days * 24 if length == "hour" else days


def _shortest_months(count: int) -> int:
    """Return the least number of days of `count` consecutive months."""
    years, months = divmod(count, 12)
    begins = [datetime(year, month, 1, tzinfo=UTC) for year in (2001, 2002) for month in range(1, 13)]
    # Any four consecutive years have a leap day, except around the turn of most centuries.
    return years * 365 + (min((begins[i + months] - begins[i]).days for i in range(12)) if months else 0)


def _bounds(name: str, length: str) -> tuple[datetime, datetime]:
    if length == "hour":
        start = _start(name)
        return start, start + timedelta(hours=1)
    if length == "day":
        start = _start(name)
        return start, start + timedelta(days=1)
    if length == "week":
        start = _start(f"{name}-1")
        return start, start + timedelta(weeks=1)
    start = _start(f"{name}-01")
    return start, (start + timedelta(days=32)).replace(day=1)


def _start(moment: str) -> datetime:
    """Read a moment in UTC. Unlike `strptime`, this imports nothing while an app records."""
    return datetime.fromisoformat(moment).replace(tzinfo=UTC)
