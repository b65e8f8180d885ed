"""Collection windows: named stretches of UTC time, written so that they sort.

``hour`` 2026-11-21T14, ``day`` 2026-11-21, ``week`` 2026-W47 (ISO 8601, from Monday), ``month`` 2026-11.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from deniable.errors import ParameterError

__all__ = ["LENGTHS", "bounds", "end", "of"]

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
        canonical = of(start, length) == name  # strptime is lenient ("2026-1-1"); one spelling names a tally
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


def _bounds(name: str, length: str) -> tuple[datetime, datetime]:
    if length == "hour":
        start = datetime.strptime(name, "%Y-%m-%dT%H").replace(tzinfo=UTC)
        return start, start + timedelta(hours=1)
    if length == "day":
        start = datetime.strptime(name, "%Y-%m-%d").replace(tzinfo=UTC)
        return start, start + timedelta(days=1)
    if length == "week":
        start = datetime.strptime(f"{name}-1", "%G-W%V-%u").replace(tzinfo=UTC)
        return start, start + timedelta(weeks=1)
    start = datetime.strptime(name, "%Y-%m").replace(tzinfo=UTC)
    return start, (start + timedelta(days=32)).replace(day=1)
