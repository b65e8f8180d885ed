"""Places in a registry's text: the line on which a table or a key stands, which a parsed document does not tell."""

from __future__ import annotations

import re
import tomllib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from deniable.errors import Fault

__all__ = ["placed"]

_KEY = re.compile(r"""\s*((?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*=""")
_SYNTAX = re.compile(r"\(at line (\d+)")
_QUOTES = re.compile(r"\"\"\"|'''")
_DEEPEST = 4  # parts of a dotted key that are looked at


def placed(text: str, faults: Iterable[Fault]) -> list[Fault]:
    """Say of each fault on which line it is: that of the key it names, else of its table, else the first.

    Parameters
    ----------
    text
        TOML, of the file that the faults are of.
    faults
        Those that have a line already keep it.
    """
    lines, last = _lines(text), text.rstrip().count("\n") + 1
    return [fault if fault.line else replace(fault, line=_line(lines, fault, last)) for fault in faults]


def _line(lines: Mapping[tuple[str, ...], int], fault: Fault, last: int) -> int:
    if not lines:
        found = _SYNTAX.search(str(fault.value))
        return int(found[1]) if found else last
    table = () if fault.metric == "-" else ("metrics", fault.metric)
    words: list[str] = re.findall(r"[a-zA-Z_][\w-]*", fault.rule)
    if isinstance(fault.value, str):
        words.insert(0, fault.value)  # an unknown key is the value
    for first, second in zip(words, [*words[1:], ""], strict=True):
        for path in ((*table, first, second), (*table, first)):  # such as segments.platform
            if path in lines:
                return lines[path]
    return lines.get(table, 1)


def _lines(text: str) -> dict[tuple[str, ...], int]:
    """Find where each table and each key begins; none in a text that is no TOML."""
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return {}
    found: dict[tuple[str, ...], int] = {}
    table: tuple[str, ...] = ()
    quoted = ""
    for number, line in enumerate(text.split("\n"), 1):
        # Lines within a text of several lines are no heads and no keys, whatever they look like.
        inside = quoted
        for mark in _QUOTES.findall(line):
            quoted = "" if quoted == mark else quoted or mark
        if inside:
            continue
        if line.lstrip().startswith("["):
            path = _path(line)
            if path:
                table = path
                found.setdefault(path, number)
        elif key := _KEY.match(line):
            path = (*table, *_path(f"{key[1]} = 0"))
            for length in range(len(table) + 1, min(len(path), len(table) + _DEEPEST) + 1):  # a.b = 0 begins a, too
                found.setdefault(path[:length], number)
    return found


def _path(line: str) -> tuple[str, ...]:
    """Read a table's head, or a key, as a path of names; empty where it is neither."""
    try:
        inner: Any = tomllib.loads(line)
    except tomllib.TOMLDecodeError:
        return ()
    path: list[str] = []
    while inner and isinstance(inner, dict):
        (name,) = inner
        path.append(name)
        inner = inner[name]
    return tuple(path)
