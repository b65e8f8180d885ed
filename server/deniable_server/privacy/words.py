"""How a report writes numbers and foreign texts. Bounds are rounded up, never down."""

from __future__ import annotations

import unicodedata
from decimal import ROUND_CEILING, Context, Decimal
from math import exp, isinf

from deniable.messages.percent import percent
from deniable.messages.plural import plural

__all__ = ["chance", "count", "nats", "odds", "percent", "plain", "plural", "precise"]

_NEAREST, _FIVE, _THREE = Context(prec=9), Context(prec=5, rounding=ROUND_CEILING), Context(prec=3, rounding=ROUND_CEILING)
_LARGEST = 13.0  # nats; above, odds are written as a power
_FORBIDDEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}  # control characters, and those that change the direction of text


def count(number: float) -> str:
    """Write a whole number in groups of three digits; infinity means no bound."""
    return "no bound" if isinf(number) else f"{round(number):,}"


def nats(epsilon: float | None) -> str:
    """Write an epsilon in five digits, rounded up; None and infinity mean no bound."""
    if epsilon is None or isinf(epsilon):
        return "no bound"
    return f"{_FIVE.plus(_NEAREST.plus(Decimal(epsilon))).normalize():,f}"


def precise(epsilon: float | None) -> str:
    """Write an epsilon in twelve digits, as it is."""
    return "no bound" if epsilon is None or isinf(epsilon) else f"{epsilon:.12g}"


def odds(epsilon: float | None) -> str:
    """Write e^epsilon in three digits, rounded up."""
    if epsilon is None or isinf(epsilon):
        return "any number"
    if epsilon > _LARGEST:
        return f"e^{nats(epsilon)}"
    return f"{_THREE.plus(_NEAREST.plus(Decimal(exp(epsilon)))).normalize():,f}"


def chance(delta: float) -> str:
    """Write a small probability as a decimal fraction, in three digits, rounded up."""
    return f"{_THREE.plus(_NEAREST.plus(Decimal(str(delta)))).normalize():f}"


def plain(text: str) -> str:
    """Return a foreign text as one line, without control characters and those that change the direction of text."""
    allowed = "".join(" " if letter.isspace() else letter for letter in text if letter.isspace() or _allowed(letter))
    return " ".join(allowed.split())


def _allowed(letter: str) -> bool:
    return unicodedata.category(letter) not in _FORBIDDEN
