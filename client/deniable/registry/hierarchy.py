"""How the values of a segment generalise: 2.4.1 to 2.4 to 2. So a rare value can be shown within a more common one.

::

    [generalize]
    version = "."                 # cut at the last dot

    [generalize.platform]         # or word by word
    debian = "linux-any"
    fedora = "linux-any"

A word that generalises others may be a value itself only if they begin with it, such as 2.4 and 2.4.1. Then it stands for itself
and for them. Devices do not use the hierarchy, and it may change at any time.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]*")
"""A segment's name or value."""
SEPARATORS = "_.+-"
MAX_STEPS = 8
"""Most steps from a value to its most general word. Each step multiplies the cells of a metric."""

_Broken = tuple[str, object]  # rule, value


def parents(
    values: Sequence[str],  # the declared values of a segment
    declared: str | Mapping[str, str],  # a separator at which values are cut, or the next more general words themselves
) -> dict[str, str]:
    """Return the next more general word of each value and of each more general word; the most general ones have none."""
    if not isinstance(declared, str):
        return dict(declared)
    above = {}
    for value in values:
        word, head = value, value.rpartition(declared)[0]
        while head:
            above[word] = head
            word, head = head, head.rpartition(declared)[0]
    return above


def faults_of(
    name: str,  # the segment
    values: Sequence[str] | None,  # its declared values; None if it is not declared or has faults
    declared: Any,  # the entry, as parsed from TOML
) -> Iterator[_Broken]:
    """Find every fault of one segment's entry under ``[generalize]``."""
    if values is None:
        yield f"generalize.{name}: declare a segment of this name under [segments]", ...
        return
    if isinstance(declared, str):
        if len(declared) != 1 or declared not in SEPARATORS:
            yield (
                f"generalize.{name}: write one of the separators {' '.join(SEPARATORS)} in quotes, or a table of words",
                declared,
            )
            return
        if not any(declared in value for value in values):
            yield f"generalize.{name}: write a separator that occurs in the values of {name}", declared
    elif not isinstance(declared, dict) or not all(isinstance(word, str) and WORD.fullmatch(word) for word in declared.values()):
        yield (
            f'generalize.{name}: write a table of words of the letters A to Z, digits and _.+-, such as {{ "2.4.1" = "2.4" }}',
            declared,
        )
        return
    else:
        yield from _table_faults(name, values, declared)
    yield from _length_faults(name, values, parents(values, declared))


def _table_faults(name: str, values: Sequence[str], declared: dict[str, str]) -> Iterator[_Broken]:
    known = {*values, *declared.values()}
    for word in declared:
        if word not in known:
            yield (
                f"generalize.{name} has {word!r}, which no value of {name} leads to: list it as a value, or remove it",
                ...,
            )
    for word, above in declared.items():
        branch = word.startswith(above) and word[len(above) :].startswith(tuple(SEPARATORS))
        if above in values and not branch and word != above:
            yield (
                f"generalize.{name}.{word}: write another word; only values that begin with {above!r} may lead to it",
                above,
            )


def _length_faults(name: str, values: Sequence[str], above: dict[str, str]) -> Iterator[_Broken]:
    looped = set[str]()
    for value in dict.fromkeys((*values, *above)):
        chain = [value]
        while (word := above.get(chain[-1])) is not None and word not in chain:
            chain.append(word)
        if word is not None:
            if word not in looped:
                yield f"generalize.{name} leads from {word!r} back to itself: write a more general word for one of them", ...
            looped.update(chain)
        elif len(chain) > MAX_STEPS + 1 and value in values:
            yield f"generalize.{name} leads from {value!r} over more than {MAX_STEPS} steps: leave some out", ...
