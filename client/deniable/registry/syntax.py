"""What is no valid TOML in a registry's text, with its line and what to do."""

from __future__ import annotations

import re
import tomllib
from typing import TYPE_CHECKING

from deniable.errors import Fault
from deniable.frozen import NamedTuple
from deniable.registry.places import declared, key_of_line, repeated

if TYPE_CHECKING:
    from collections.abc import Sequence

_PLACE = re.compile(r"at line (\d+), column (\d+)")
_NEXT = re.compile(r"""\s*(\[|[\w."'-]+\s*=)""")  # where a table or a key begins
_NO_MARKS = re.compile(r"""\"(?:\\.|[^"\\\n])*"|'[^'\n]*'|\#.*""")  # texts and comments, whose brackets are no brackets

_MEANINGS = {
    "Unclosed array": "a comma is missing before it",
    "Invalid date": "there is no such date",
    "Illegal character '\\n'": "the quote at the end of the text is missing",
}
"""What an error of the TOML reader means, by its beginning."""


class Readable(NamedTuple):
    """A text of which lines that are no valid TOML were left out."""

    text: str  # with an empty line for each that was left out, so that all others keep their numbers
    faults: tuple[Fault, ...]  # one for each such line
    left_out: Sequence[tuple[str, ...]]  # the keys of these lines, each with its table
    is_toml: bool  # whether the rest can be read


def readable(text: str, file: str) -> Readable:
    """Leave out each line that is no valid TOML, as far as that shows which key it is."""
    faults, left_out, before = list[Fault](), list[tuple[str, ...]](), 0
    while True:
        try:
            tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            fault = fault_of(text, file, str(error))
            key = key_of_line(text, fault.line)
            # A head that is left out, or an error that does not go away, would make others of lines that are right.
            if fault.line <= before or not key:
                return Readable(text, (*faults, fault) if fault.line > before else tuple(faults), left_out, is_toml=False)
            before = fault.line
            faults.append(fault)
            left_out.append(key)
            lines = text.split("\n")
            end = max(_end(text, str(error)) - 1, before) if _array(text, str(error)) else before
            lines[before - 1 : end] = [""] * (end - before + 1)
            text = "\n".join(lines)
        else:
            return Readable(text, tuple(faults), left_out, is_toml=True)


def fault_of(text: str, file: str, error: str) -> Fault:
    """Return the fault of an error of the TOML reader."""
    place = _PLACE.search(error)
    twice = repeated(text)
    if twice and place and int(place[1]) == twice[2]:
        name, first, second = twice
        return Fault(file, "-", f"{name} is on line {first} already: keep one of the two", line=second)
    if array := _array(text, error):
        line, key = array
        return Fault(file, "-", f"{key} begins an array that has no end: write ] after its last value", line=line)
    line = int(place[1]) if place else text.rstrip().count("\n") + 1
    return Fault(file, "-", f"this is no valid TOML: {error}{_hint(text, error)}", line=line)


def _end(text: str, error: str) -> int:
    """Return the line at which the TOML reader ended; the one after the last at the end of the text."""
    place = _PLACE.search(error)
    return int(place[1]) if place else text.count("\n") + 2


def _array(text: str, error: str) -> tuple[int, str] | None:
    """Return the line and the key of an array that has no end before the next key or head; None if the error is another."""
    end, lines = _end(text, error), text.split("\n")
    if end <= len(lines) and not _NEXT.match(lines[end - 1]):
        return None
    before = [(number, key) for number, _, key in declared(text) if key and number < end]
    if not before:
        return None
    line, key = before[-1]
    marks = _NO_MARKS.sub("", "\n".join(lines[line - 1 : end - 1]))
    return (line, key[-1]) if marks.count("[") > marks.count("]") else None


def _hint(text: str, error: str) -> str:
    """Say what to do about an error of the TOML reader, where its place tells."""
    place = _PLACE.search(error)
    if not place:
        return ""
    line, column = map(int, place.groups())
    value = text.split("\n")[line - 1][column - 1 :].strip()
    if value.startswith(("True", "False")):
        return f"; write {'true' if value[0] == 'T' else 'false'} in lower case"
    for start, meaning in _MEANINGS.items():
        if error.startswith(start):
            return f"; {meaning}"
    if error.startswith("Expected newline") and value.startswith(","):
        return "; write a decimal with a point, such as 0.5"
    return "; texts need quotes" if error.startswith("Invalid value") and value[:1].isalpha() else ""
