"""A query as the calls that make it, for people who look at one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_OF_FILTER = {"is": "where", "is_not": "where_not"}
_OF_MEMBER = {"pool": "pool", "include": "trend", "target": "respondents", "view": "consistent"}


def calls(members: Mapping[str, Any]) -> Iterator[str]:
    """Write the calls that give a query its members."""
    if "metrics" in members:
        yield _call("metric", *members["metrics"])
    if "dimensions" in members:
        names = [each for each in members["dimensions"] if each != "value"]
        yield _call("by", *names) if "value" in members["dimensions"] else _call("by", *names, values=False)
    if "date_range" in members:
        range_ = members["date_range"]
        if not isinstance(range_, str):
            yield _call("between", *range_)
        else:  # the last days or weeks, such as 12w; or one day, week or month
            yield _call("last" if range_.endswith(("d", "w")) else "between", range_)
    for op, name, words in members.get("filters", ()):
        yield _call(_OF_FILTER[op], **{name: words[0] if len(words) == 1 else words})
    compared = members.get("compare", {})
    if "dimension" in compared:
        yield _call("compare", compared["dimension"], base=compared["base"])
    if "date_range" in compared:
        yield _call("compare_previous", **({"weekday": True} if "match" in compared else {}))
    yield from (_call(name) for member, name in _OF_MEMBER.items() if member in members)
    if "level" in members:
        yield _call("level", members["level"])


def _call(name: str, *words: object, **named: object) -> str:
    arguments = [*map(repr, words), *(f"{key}={value!r}" for key, value in named.items())]
    return f"{name}({', '.join(arguments)})"
