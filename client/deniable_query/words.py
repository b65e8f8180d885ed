"""How answers and times are written in a question."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, date, datetime, time
from difflib import get_close_matches
from numbers import Integral, Real

from deniable_query.error import QueryError

_FIGURE = re.compile(r"mean|geometric_mean|median|p\d\d?")
_MEANT = {"filter": "where", "group_by": "by", "groupby": "by", "to_pandas": "frame", "to_csv": "csv", "range": "between"}


def unknown(name: str, methods: Iterable[str]) -> str:
    """Say what to write in place of a method that a query does not have."""
    rule = f"a query has no method {name!r}"
    if _FIGURE.fullmatch(name):
        figure = "p50" if name == "median" else name
        return f"{rule}: a figure of a number is asked for with where(value={figure!r}).rows()"
    known = [each for each in methods if not each.startswith("_")]
    near = _MEANT.get(name) or next(iter(get_close_matches(name, known, 1)), "")
    return f"{rule}; did you mean {near}()?" if near else f"{rule}: its methods are {', '.join(sorted(known))}"


def answer_text(value: object) -> str:
    """Write a value of a filter as rows have it: yes and no for booleans, numbers as texts."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Real):
        return f"{float(value):.12g}" if not isinstance(value, Integral) else str(int(value))
    raise QueryError(0, "", f"a filter names texts, True, False or numbers, one or several; this is {value!r}")


def answer_texts(values: object) -> list[str]:
    """Write the values of a filter, one or several."""
    one = isinstance(values, str) or not isinstance(values, Iterable)
    return [answer_text(values)] if one else [answer_text(each) for each in values]  # type: ignore[attr-defined]


def time_text(at: str | date) -> str:
    """Write a day, or a time in UTC unless it has another offset. A midnight without an offset is a day."""
    if isinstance(at, str):
        return at
    if not isinstance(at, date):
        raise QueryError(0, "", f"between() takes a day, week, month or time, such as '2026-W47'; this is {at!r}")
    if not isinstance(at, datetime):
        return at.isoformat()
    if at.tzinfo is None and at.time() == time():
        return at.date().isoformat()
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).isoformat()
