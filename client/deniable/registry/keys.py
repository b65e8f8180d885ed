"""Keys of a registry that were mistyped, or go by another word elsewhere."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

_WORDS = {
    "values": ("options", "choices", "answers", "enum", "categories", "items", "levels", "labels", "domain"),
    "description": ("desc", "about", "text", "title", "summary", "question", "help", "doc", "purpose"),
    "owner": ("author", "contact", "maintainer", "team", "email"),
    "expires": ("until", "end", "ends", "expiry", "expiration", "expire", "sunset", "last_day"),
    "period": ("interval", "frequency", "every", "cadence", "granularity"),
    "segments": ("dimensions", "breakdown", "breakdowns", "by", "tags", "attributes"),
    "type": ("kind",),
    "epsilon": ("eps", "privacy", "noise"),
    "epsilon_permanent": ("permanent", "memoize", "memo"),
    "other": ("default", "fallback", "else", "unlisted"),
    "none": ("null", "missing", "empty"),
    "unit": ("measure", "uom"),
    "step": ("bins", "buckets", "resolution", "precision"),
    "estimate": ("statistic", "aggregate", "aggregation"),
    "most": ("max_options", "max_values", "limit"),
    "min_reports": ("threshold", "minimum", "k"),
    "mechanism": ("algorithm", "method"),
    "sample": ("sample_rate", "sampling", "rate", "probability"),
    "candidates": ("dictionary", "words", "list"),
    "budget": ("limits",),
}
"""What a key is called elsewhere."""
_BY_WORD = {word: key for key, words in _WORDS.items() for word in words}
_ENDS = ("min", "max", "minimum", "maximum", "least", "greatest", "low", "high", "lower", "upper", "from", "to")
"""Keys for one end of a range."""


def meant(key: str, known: Iterable[str]) -> str | None:
    """Return the key that a mistyped one may have meant, or that has its meaning here; None if there is none."""
    from deniable.messages.lookalike import nearest  # noqa: PLC0415 - only a mistake needs it

    known = list(known)
    word = _BY_WORD.get(key.lower())
    if word in known:
        return word
    is_end = "range" in known and key.lower() in _ENDS  # which stands for half of another key
    return None if is_end else nearest(key, known)


def instead(key: str, known: Sequence[str]) -> str:
    """Say what to write instead of a key that is not known."""
    if "range" in known and key.lower() in _ENDS:
        of_sets = "; of a set, how many options count is called most" if "most" in known and key.lower().startswith("max") else ""
        return f"range, which has the least and the greatest number, such as range = [0, 100]{of_sets}"
    return meant(key, known) or f"one of {listed(known)}"


def listed(names: Iterable[str]) -> str:
    """List names, of which one is to be chosen."""
    *others, last = names
    return f"{', '.join(others)} or {last}" if others else last


def lifted(
    document: dict[str, Any],
    known: Collection[str],  # the keys of a metric
    top: Collection[str],  # the keys of the file
) -> tuple[dict[str, Any], list[str]]:
    """Move keys of the file to the top that stand below a table's head, where TOML takes them for keys of the table.

    Return the document, which is a copy if a key was moved, and for each moved key what to do.
    """
    moved = list(_inside(document, known, top))
    if not moved:
        return document, []
    from copy import deepcopy  # noqa: PLC0415 - only a mistake needs it

    document, rules = deepcopy(document), []
    for key, path in moved:
        table = document
        for name in path:
            table = table[name]
        value, head = table.pop(key), ".".join(map(_written, path))
        document.setdefault(key, value)
        as_table = f", or write [{key}]" if isinstance(value, dict) else ""
        rules.append(f"{key} stands inside [{head}]: move it above the first table{as_table}")
    return document, rules


def _inside(document: dict[str, Any], known: Collection[str], top: Collection[str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield each key of the file that stands in a table, and the path of that table."""
    metrics = document.get("metrics")
    tables: list[tuple[tuple[str, ...], Any]] = [
        ((name,), document[name]) for name in top if name in document and name != "metrics"
    ]
    tables += [(("metrics", id_), table) for id_, table in metrics.items()] if isinstance(metrics, dict) else []
    names = document.get("segments", ())
    for path, table in tables:  # it grows
        for key, value in table.items() if isinstance(table, dict) else ():
            match path[0]:
                case "metrics" | "caps" if key in known:
                    misplaced = key in top and isinstance(value, dict)  # segments
                case "metrics":
                    misplaced = key in top and not (isinstance(value, dict) and "type" in value)
                    tables += [] if misplaced else [((*path, key), value)]  # an id may lack its quotes
                case "segments":
                    misplaced = key in top and not isinstance(value, list)
                case "generalize" | "experiments":
                    misplaced = key in top and key not in names
                case _:
                    misplaced = key in top and key != "metrics"
            if misplaced:
                yield key, path


def _written(name: str) -> str:
    return name if re.fullmatch(r"[\w-]+", name, re.ASCII) else f'"{name}"'
