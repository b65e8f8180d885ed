"""What is wrong with the members of an object that a request sends, in words of its reader."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from deniable.messages.lookalike import did_you_mean
from deniable_aggregator.answer.model.query import meant_level
from deniable_server.api.answers.parameters import LONGEST_SHOWN

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# Where msgspec says that something is wrong. None of its words is repeated.
_MISSING = re.compile(r"missing required field `(\w+)`$")
_AT = re.compile(r" - at `\$\.([\w.]+)[^`]*`$")


def fault(
    table: Any,  # what was sent
    error: str,  # of msgspec
    what: str,  # what it is meant to be, such as "a query"
    rules: Mapping[str, str],  # of each member, what it is
    members: Sequence[str],
) -> str:
    """Name the member that is wrong, what it is, and what was sent; or the near name of one that there is not."""
    if not isinstance(table, dict):
        first = members[0]
        return f"{what} is an object with members, first {first}, which is {rules[first]}; this is {_in_short(table)}"
    if unknown := next((each for each in table if each not in members), None):
        near = did_you_mean(unknown[:LONGEST_SHOWN], members)
        return f"{what} has no member {unknown[:LONGEST_SHOWN]!r}: its members are {', '.join(members)}{near}"
    if missing := _MISSING.search(error):
        return f"{missing[1]} is missing: it is {rules[missing[1]]}"
    at = _AT.search(error)
    name, *below = at[1].split(".") if at else [members[0]]
    value = table.get(name)
    if below and below[0] in rules and isinstance(value, dict):  # of an object within
        name, value = below[0], value.get(below[0])
    near = meant_level(str(value)) if name == "level" else ""
    return f"{name} is {rules[name]}; this is {_in_short(value)}{near}"


def _in_short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}..."
