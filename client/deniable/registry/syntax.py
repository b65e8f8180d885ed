"""What is no valid TOML in a registry's text, with its line and what to do."""

from __future__ import annotations

import re
import tomllib
from typing import TYPE_CHECKING

from deniable.errors import Fault
from deniable.frozen import NamedTuple
from deniable.registry.places import key_of_line, repeated

if TYPE_CHECKING:
    from collections.abc import Sequence

_PLACE = re.compile(r"at line (\d+), column (\d+)")


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
            lines[before - 1] = ""
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
    line = int(place[1]) if place else text.rstrip().count("\n") + 1
    return Fault(file, "-", f"this is no valid TOML: {error}{_hint(text, error)}", line=line)


def _hint(text: str, error: str) -> str:
    """Say what to do about an error of the TOML reader, where its place tells."""
    place = _PLACE.search(error)
    if not place:
        return ""
    line, column = map(int, place.groups())
    value = text.split("\n")[line - 1][column - 1 :].strip()
    if value.startswith(("True", "False")):
        return f"; write {'true' if value[0] == 'T' else 'false'} in lower case"
    if error.startswith("Invalid date"):
        return "; there is no such date"
    if error.startswith("Illegal character '\\n'"):
        return "; the quote at the end of the text is missing"
    if error.startswith("Expected newline") and value.startswith(","):
        return "; write a decimal with a point, such as 0.5"
    return "; texts need quotes" if error.startswith("Invalid value") and value[:1].isalpha() else ""
