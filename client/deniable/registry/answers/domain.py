"""The rules of a metric's domain: what its table may say of the possible answers."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from math import isfinite, prod
from typing import TYPE_CHECKING, Any

from deniable.errors import ParameterError
from deniable.messages.plural import plural
from deniable.registry import text
from deniable.registry.answers.axis import read_number
from deniable.registry.hierarchy import WORD
from deniable.registry.keys import meant

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MAX_VALUES = 1 << 16
MAX_OPTIONS = 1024
"""Most options of a set."""

_SCALES = ("linear", "log")
_NUMBER = {"range": "[1, 60000]", "unit": '"ms"', "estimate": '"mean"'}
"""Keys that each number has, with an example."""
_RANGE, _SUCH = "range: write the least and the greatest number", "such as [1, 60000]"
_RANGES = f"{_RANGE}, {_SUCH}", f"{_RANGE}, the least above 0 on a logarithmic scale, {_SUCH}; 0 is then reported as the least"
"""What a range must be, on a linear and on a logarithmic scale."""

Broken = tuple[str, object]  # rule, value
_SYNONYMS = {
    **dict.fromkeys(("enum", "choice", "select", "option"), "categorical"),
    **dict.fromkeys(("multi", "multiple", "list", "options", "choices", "multiselect"), "set"),
    **dict.fromkeys(("int", "integer", "float", "decimal", "double", "numeric"), "number"),
    **dict.fromkeys(("rating", "scale", "level"), "ordinal"),
    **dict.fromkeys(("text", "str"), "string"),
    **dict.fromkeys(("yesno", "flag"), "boolean"),
}
"""What else people call a type."""


def type_meant(
    name: object,
    types: Iterable[str],  # the names of all
) -> str | None:
    """Return the type that a name is, or that a mistyped one may have meant; None if there is none."""
    from deniable.messages.lookalike import nearest  # noqa: PLC0415 - only a mistake needs it

    return nearest(_SYNONYMS.get(name.lower(), name), types) if isinstance(name, str) else None


def boolean_faults(table: dict[str, Any]) -> Iterator[Broken]:
    """Find the faults of a boolean."""
    if "values" in table:
        yield "values: remove it; the answers to a boolean are False and True", table["values"]


def listed_faults(
    table: dict[str, Any],
    most: int = MAX_VALUES,  # values
) -> Iterator[Broken]:
    """Find the faults of a metric that lists its values."""
    yield from _values_faults(table.get("values"), most)
    if not isinstance(table.get("joint", False), bool):
        yield "joint: write true or false, without quotes", table["joint"]


def ordinal_faults(table: dict[str, Any]) -> Iterator[Broken]:
    """Find the faults of an ordinal."""
    yield from listed_faults(table)
    if table.get("estimate", "mean") != "mean":
        yield (
            'estimate: write estimate = "mean" for an ordinal, or remove it; then the share of each value is estimated',
            table["estimate"],
        )


def set_faults(table: dict[str, Any]) -> Iterator[Broken]:
    """Find the faults of a set."""
    yield from listed_faults(table, MAX_OPTIONS)
    if "most" not in table:
        return
    most, values = table["most"], table.get("values")
    options = MAX_OPTIONS if any(_values_faults(values, MAX_OPTIONS)) or not isinstance(values, list) else len(values)
    if isinstance(most, bool) or not isinstance(most, int) or not 1 <= most < options:
        yield f"most: write the most options that people choose, a whole number from 1 to {options - 1}, or remove it", most
    elif table.get("joint") is True:
        yield "most: write either this or joint = true; of capped answers no pairs are estimated", most


def number_faults(table: dict[str, Any]) -> Iterator[Broken]:
    """Find the faults of a number."""
    if "values" in table:
        yield "values: remove it; a number has a range", table["values"]
    scale = table.get("scale", "linear")
    unit, estimate = table.get("unit"), table.get("estimate")
    if scale not in _SCALES:
        yield f"scale: write {' or '.join(_SCALES)}", scale
        scale = meant(str(scale), _SCALES)
    missing = [key for key in _NUMBER if key not in table]
    if len(missing) > 1:
        such = _and([f"{key} = {_NUMBER[key]}" for key in missing])
        yield f"{_and(missing)} are missing: write what is counted and estimated, such as {such}", ...
        return
    if not isinstance(unit, str) or not WORD.fullmatch(unit):
        joined = "-".join(unit.split()) if isinstance(unit, str) else ""
        hint = f"; did you mean {joined!r}?" if WORD.fullmatch(joined) else ""
        yield f"unit: write a word that says what the number counts, such as ms, bytes or flights{hint}", unit
    if estimate not in ("mean", "distribution"):
        yield 'estimate: write estimate = "mean", or estimate = "distribution" for quantiles and the mean', estimate
    yield from _range_faults(table, scale)
    if "none" in table:
        try:
            read_number(table["none"])
        except ParameterError:
            yield "none: write the number that is reported for everything that is no number", table["none"]


def _range_faults(table: dict[str, Any], scale: str | None) -> Iterator[Broken]:
    ends = table.get("range")
    try:
        low, high = map(read_number, ends if isinstance(ends, list) else ())
    except ValueError:  # ParameterError is one
        low = high = Fraction(0)
    if isinstance(ends, list) and any(isinstance(end, float) and not isfinite(end) for end in ends):
        yield f"{_RANGE}, which are finite, {_SUCH}", ends
    elif not low < high or (scale == "log" and low <= 0):
        yield _RANGES[scale == "log"], ends
    else:
        yield from _step_faults(table, low, high)


def _and(words: list[str]) -> str:
    return f"{', '.join(words[:-1])} and {words[-1]}"


def _step_faults(table: dict[str, Any], low: Fraction, high: Fraction) -> Iterator[Broken]:
    if not isinstance(table.get("whole", False), bool):
        yield "whole: write true or false, without quotes", table["whole"]
    elif table.get("whole", False) and "step" in table:
        yield "step: write either this or whole = true, which is a step of 1", table["step"]
    if table.get("whole") is True and not low.denominator == high.denominator == 1:
        yield "whole: write whole numbers as both ends of the range, such as [0, 20], or remove it", True
    if "step" not in table:
        return
    rule = "step: write a number above 0 that divides the range into equal parts, such as 1 or 0.5"
    try:
        step = read_number(table["step"])
    except ParameterError:
        yield rule, table["step"]
        return
    if isinstance(table["step"], str) or step <= 0 or ((high - low) / step).denominator != 1:
        yield rule, table["step"]


def product_faults(table: dict[str, Any]) -> Iterator[Broken]:
    """Find the faults of a product."""
    if "values" in table:
        yield "values: remove it; the answers to a product are the combinations of its factors' values", table["values"]
    factors = table.get("factors")
    if not isinstance(factors, dict) or len(factors) < 2:  # noqa: PLR2004
        yield (
            'factors: write a table of two or more lists, such as { theme = ["light", "dark"], export = ["no", "yes"] }',
            factors,
        )
        return
    broken = [
        (f"factors.{name}{rule.removeprefix('values')}", value)
        for name, values in factors.items()
        for rule, value in _values_faults(values, MAX_VALUES)
    ]
    yield from broken
    size = 0 if broken else prod(map(len, factors.values()))
    if size > MAX_VALUES:
        yield f"factors have {size:,} combinations: use fewer values, so that there are {MAX_VALUES:,} at most", ...


def open_faults(table: dict[str, Any]) -> Iterator[Broken]:
    """Find the faults of a metric with too many answers for a list."""
    if "values" in table:
        yield (
            f'values: remove it; the answers to a {table["type"]} come from candidates = "file.txt", or discover = true',
            table["values"],
        )
    discover, candidates = table.get("discover", False), table.get("candidates")
    if not isinstance(discover, bool):
        yield "discover: write true or false, without quotes", discover
    elif candidates is not None and (not isinstance(candidates, str) or not candidates):
        yield "candidates: write the name of a file that has one answer to a line", candidates
    elif discover == (candidates is not None):
        both = "candidates and discover are both declared" if discover else "the answers are not declared"
        yield f'{both}: write either candidates = "file.txt" or discover = true', ...
    length = table.get("max_length", 1)
    if not _is_length(length):
        yield f"max_length: write a number of bytes from 1 to {text.MAX_LENGTH}", length


def key_faults(table: dict[str, Any]) -> Iterator[Broken]:
    """Find the faults of a key."""
    yield from open_faults(table)
    if _is_length(table.get("max_length")):
        yield "max_length: remove it; a key has 8 bytes", table["max_length"]


def _is_length(length: object) -> bool:
    return isinstance(length, int) and not isinstance(length, bool) and 1 <= length <= text.MAX_LENGTH


def _values_faults(values: object, most: int) -> Iterator[Broken]:
    if not isinstance(values, list) or not all(isinstance(value, str) and value for value in values):
        yield "values: write a list of texts, each in quotes", values
    elif not 2 <= len(values) <= most:  # noqa: PLR2004
        yield f"values has {plural(len(values), 'answer')}: list 2 to {most:,}", ...
    elif len(set(values)) != len(values):
        twice = ", ".join(sorted(repr(value) for value, times in Counter(values).items() if times > 1))
        yield f"values has {twice} more than once: list each answer once", ...
