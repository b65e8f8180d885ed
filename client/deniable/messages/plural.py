"""How sentences write a count, and names."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_IRREGULAR = {"person": "people"}
_HISSES = ("ch", "s", "x")


def plural(number: float, noun: str, form: str = ",") -> str:
    """Write a number with its noun, such as 1 batch and 2 batches; of plural_noun words the last one changes.

    Examples
    --------
    >>> plural(1, "report"), plural(1200, "report"), plural(0, "entry"), plural(1.0, "nat", ".4g"), plural(0.5, "nat", ".4g")
    ('1 report', '1,200 reports', '0 entries', '1 nat', '0.5 nats')
    """
    written = f"{number:{form}}"
    return f"{written} {noun if written == '1' else plural_noun(noun)}"


def plural_noun(noun: str) -> str:
    """Return the plural of a noun."""
    if noun in _IRREGULAR:
        return _IRREGULAR[noun]
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return f"{noun[:-1]}ies"
    return f"{noun}es" if noun.endswith(_HISSES) else f"{noun}s"


def few(
    names: Sequence[str],
    most: int = 5,  # with the words `and 3 more` as one
    between: str = ", ",
) -> str:
    """List names, of many the first ones, and how many more there are."""
    left = len(names) - most + 1
    return between.join(names) if left <= 1 else f"{between.join(names[: most - 1])} and {left} more"


def named(
    numbers: Mapping[str, int],  # by name
) -> str:
    """Write the names that a count is of, each with its number unless there is one; empty without a name.

    Examples
    --------
    >>> named({"ui.theme": 3}), named({"ui.dark": 1, "ui.theme": 2}), named({})
    (' (ui.theme)', ' (ui.dark 1, ui.theme 2)', '')
    """
    names = [*numbers] if len(numbers) == 1 else [f"{name} {number}" for name, number in numbers.items()]
    return f" ({few(names)})" if names else ""
