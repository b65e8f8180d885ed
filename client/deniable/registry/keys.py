"""Keys of a registry that were mistyped, or go by another word elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

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
