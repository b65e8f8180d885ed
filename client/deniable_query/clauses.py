"""Which clauses of a query each method applies. It refuses the others, so that no answer is of other reports than asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from deniable_query.calls import calls
from deniable_query.error import QueryError

if TYPE_CHECKING:
    from collections.abc import Mapping


class _Method(NamedTuple):
    about: str  # what its answer is of
    applies: tuple[str, ...]
    instead: str  # of another clause


_SENTENCES = "is of all values, and of all reports or of one value of each segment"
_ROWS = "leave it out, or ask for rows()"
_RANGE = ("between", "last")
METHODS = {
    "says": _Method(_SENTENCES, ("metric", *_RANGE, "where", "level"), _ROWS),
    "leading": _Method(_SENTENCES, ("metric", *_RANGE, "where", "level"), _ROWS),
    "comparison of times": _Method(
        "is of the two times that it names, of all values, and of all reports or of one value of each segment",
        ("metric", "where", "level"),
        "leave it out, or ask for rows() with compare_previous()",
    ),
    "comparison of segments": _Method(
        "is of all values, in all time or in one period",
        ("metric", "between", "where", "level"),
        "write between('2026-W47'), leave it out, or ask for rows() with compare('platform', base='linux')",
    ),
    "experiment": _Method(
        "is of all arms, and of all reports from the beginning to each look",
        ("metric", "level"),
        "leave it out, or ask for rows() with compare('arm', base='control'). An answer to follow is experiment(value='yes')",
    ),
    "diagnosis": _Method("is of a whole metric", ("metric",), "leave it out"),
    "withheld": _Method("is of the period and the segments that it names", ("metric",), "leave it out"),
    "metrics": _Method("lists all metrics", (), "ask Query(...) itself"),
    "budgets": _Method("is of all metrics", (), "ask Query(...) itself"),
}
"""The methods that are no rows. Those of rows apply every clause: the server has it, or refuses it."""


def check(name: str, members: Mapping[str, Any]) -> None:
    """Raise `QueryError` if a query has a clause that a method of `METHODS` cannot apply."""
    method = METHODS[name]
    refused = [call for call in calls(members) if not _applies(method, call, members)]
    if refused:
        rule = f"{name.partition(' ')[0]}() {method.about}, so it cannot apply {'.'.join(refused)}"
        raise QueryError(0, "", f"{rule}: {method.instead}")


def segment_of(members: Mapping[str, Any]) -> str:
    """Write the segments of a query as one; empty: all reports."""
    return ",".join(f"{name}={words[0]}" for _, name, words in members.get("filters", ()))


def range_of(members: Mapping[str, Any]) -> str:
    """Write the range of a query as one text; empty: everything published."""
    dates = members.get("date_range", "")
    return dates if isinstance(dates, str) else "..".join(dates)


def _applies(method: _Method, call: str, members: Mapping[str, Any]) -> bool:
    clause = call.partition("(")[0]
    if clause not in method.applies:
        return False
    if clause == "between" and "last" not in method.applies:  # one period
        return isinstance(members["date_range"], str)
    if clause == "where":  # one value of a segment
        filters = [each for each in members["filters"] if call in calls({"filters": [each]})]
        return all(name != "value" and len(words) == 1 for _, name, words in filters)
    return True
