"""Periods: hours, days, weeks and months in UTC. Their names sort in order of time.

``hour`` 2026-11-21T14, ``day`` 2026-11-21, ``week`` 2026-W47 (ISO 8601, from Monday), ``month`` 2026-11.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from math import ceil

from deniable.errors import ParameterError

__all__ = ["LENGTHS", "bounds", "end", "of", "touched"]

LENGTHS = ("hour", "day", "week", "month")


def of(moment: datetime, length: str) -> str:
    """Name the period that a moment falls in.

    Parameters
    ----------
    moment
        An aware datetime.
    length
        One of `LENGTHS`.

    Raises
    ------
    ParameterError
        If the length is unknown.
    """
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
    raise ParameterError(f"a period is one of {', '.join(LENGTHS)}", length)


def bounds(name: str, length: str) -> tuple[datetime, datetime]:
    """Return when a period begins and when it has ended.

    Parameters
    ----------
    name
        As written by `of`.
    length
        One of `LENGTHS`.

    Raises
    ------
    ParameterError
        If the name is not one that `of` writes for this length.
    """
    try:
        start, end = _bounds(name, length)
        canonical = of(start, length) == name  # ISO 8601 has several ("20261101"); one spelling names a tally
    except (ValueError, OverflowError):
        canonical = False
    if not canonical:
        raise ParameterError(f"a period of length {length} is written like {of(datetime.now(UTC), length)}", name)
    return start, end


def end(name: str) -> datetime | None:
    """Return when a period has ended, whatever its length; None if it is none."""
    for length in LENGTHS:  # each of which writes its names in a form of its own
        try:
            return bounds(name, length)[1]
        except ParameterError:
            continue
    return None


@lru_cache(maxsize=64)
def touched(length: str, days: float) -> int:
    """Count how many periods a stretch of time touches at most, wherever it begins.

    Parameters
    ----------
    length
        One of `LENGTHS`.
    days
        Length of the stretch, above 0. It includes its last moment and not its first.

    Raises
    ------
    ParameterError
        If the length is unknown.
    """
    if length == "month":
        # Those between the first and the last lie in it whole; it is longer than these together.
        months = 2
        while _shortest_months(months - 1) < days:
            months += 1
        return months
    if length not in LENGTHS:
        raise ParameterError(f"a period is one of {', '.join(LENGTHS)}", length)
    return ceil(days * 24 if length == "hour" else days / 7 if length == "week" else days) + 1


def _shortest_months(count: int) -> int:
    """Return the days of the shortest so many months in a row."""
    years, rest = divmod(count, 12)
    begins = [datetime(year, month, 1, tzinfo=UTC) for year in (2001, 2002) for month in range(1, 13)]
    # Any four years in a row have a leap day, except around some turns of a century.
    return years * 365 + (min((begins[i + rest] - begins[i]).days for i in range(12)) if rest else 0)


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
    """Read a moment in UTC. Unlike `strptime` this imports nothing while an app records."""
    return datetime.fromisoformat(moment).replace(tzinfo=UTC)
