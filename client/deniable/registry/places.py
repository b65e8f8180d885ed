"""The lines of tables and keys in a registry's text. A parsed document does not have them."""

from __future__ import annotations

import re
import tomllib
from typing import TYPE_CHECKING, Any

from deniable.frozen import replace

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from deniable.errors import Fault

_KEY = re.compile(r"""\s*((?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*=""")
_QUOTES = re.compile(r"\"\"\"|'''")
_DEEPEST = 4  # most parts of a dotted key


def placed(
    text: str,  # the TOML text of the file
    faults: Iterable[Fault],  # Faults of this file. A fault that has a line keeps it.
) -> list[Fault]:
    """Give each fault its line: that of the key that it names, else that of its table, else the first."""
    lines = _lines(text)
    return [fault if fault.line else replace(fault, line=_line(lines, fault)) for fault in faults]


def _line(lines: Mapping[tuple[str, ...], int], fault: Fault) -> int:
    table: tuple[str, ...] = () if fault.metric == "-" else ("metrics", fault.metric)
    if table and table not in lines:  # the head may be mistyped, as [metric."ui.theme"]
        # or an id with a dot may lack its quotes, as [metrics.ui.theme]
        table = next((path for path in lines if ".".join(path[1:]) == fault.metric), table)
    words: list[str] = re.findall(r"[a-zA-Z_][\w-]*", fault.rule)
    if isinstance(fault.value, str):
        words.insert(0, fault.value)  # for an unknown key, the value is the key
    in_file = not table and fault.value is not None
    for place, (first, second) in enumerate(zip(words, [*words[1:], ""], strict=True)):
        for path in ((*table, first, second), (*table, first)):  # such as segments.platform
            if path in lines:
                return lines[path]
        for end in ((first, second), (first,)) if in_file and not place else ():  # a key of the file may stand inside a table
            for path, line in lines.items():
                if path[-len(end) :] == end:
                    return line
    return lines.get(table, 1)


def _lines(text: str) -> dict[tuple[str, ...], int]:
    """Return the line of each table and key; empty if the text is no TOML."""
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return {}
    numbers: dict[tuple[str, ...], int] = {}
    for number, table, key in declared(text):
        path = (*table, *key)
        for length in range(len(table) + 1 if key else 1, min(len(path), len(table) + _DEEPEST) + 1):
            numbers.setdefault(path[:length], number)  # a.b = 0 is also the line of a, and so is [a.b]
    return numbers


def repeated(text: str) -> tuple[str, int, int] | None:
    """Find the first table or key that is declared twice; return how it is written and both lines. None if none is."""
    lines: dict[tuple[str, ...], int] = {}
    for number, table, key in declared(text):
        first = lines.setdefault((*table, *key), number)
        if first != number:
            line = text.split("\n")[number - 1].strip()
            return line.partition("=")[0].strip() if key else line.partition("#")[0].strip(), first, number
    return None


def key_of_line(text: str, line: int) -> tuple[str, ...]:
    """Return the key on a line, with its table; empty if the line has none."""
    return next(((*table, *key) for number, table, key in declared(text) if number == line and key), ())


def declared(text: str) -> Iterator[tuple[int, tuple[str, ...], tuple[str, ...]]]:
    """Yield the line of each table's head, and of each key with its table."""
    table: tuple[str, ...] = ()
    quoted = ""
    for number, line in enumerate(text.split("\n"), 1):
        # Lines inside a string of several lines are no heads and no keys.
        inside = quoted
        for mark in _QUOTES.findall(line):
            quoted = "" if quoted == mark else quoted or mark
        if inside:
            continue
        if line.lstrip().startswith("["):
            path = _path(line)
            if path:
                table = path
                yield number, table, ()
        elif key := _KEY.match(line):
            yield number, table, _path(f"{key[1]} = 0")


def _path(line: str) -> tuple[str, ...]:
    """Read a table's head or a key as a path of names; empty if it is neither."""
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
