"""Exact integer weights: the one place where epsilon becomes a ratio of whole numbers.

A likelihood ratio of e^epsilon is irrational, so no sampler on integers can have it. We round it *down* to a ratio of
integers once, and use the same integers on the device and in the decoder. What is lost is below 2^-32 relative.
"""

from __future__ import annotations

from decimal import ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from math import isfinite, log

from deniable.errors import ParameterError

__all__ = ["MAX_EPSILON", "MIN_EPSILON", "UNIT", "exact", "spent", "weight"]

UNIT = 1 << 32
"""Weight of an alternative of ratio one; a weight of w * UNIT means "w times as likely"."""

MAX_EPSILON = 16
"""Beyond this a report is, for all practical purposes, the answer itself (odds of nine million to one)."""

MIN_EPSILON = Fraction(1, 1 << 31)
"""Below this half of epsilon would weigh no more than the unit: a report that says nothing, and an estimate divided by zero."""


def exact(epsilon: float | str | Fraction) -> Fraction:
    """Read an epsilon as the decimal number that was written, not as its nearest binary float.

    Parameters
    ----------
    epsilon
        Privacy loss in nats, in [`MIN_EPSILON`, `MAX_EPSILON`].

    Raises
    ------
    ParameterError
        If it is not such a number.
    """
    rule = f"epsilon is a number of nats above 0 and at most {MAX_EPSILON}"
    if isinstance(epsilon, bool) or (isinstance(epsilon, float) and not isfinite(epsilon)):
        raise ParameterError(rule, epsilon)
    try:
        value = epsilon if isinstance(epsilon, Fraction) else Fraction(str(epsilon))
    except (ValueError, ZeroDivisionError):
        raise ParameterError(rule, epsilon) from None
    if not 0 < value <= MAX_EPSILON:
        raise ParameterError(rule, epsilon)
    if value < MIN_EPSILON:
        raise ParameterError("epsilon is at least 2^-31 nats: integer weights cannot carry less", epsilon)
    return value


def weight(epsilon: Fraction) -> int:
    """Compute floor(e^epsilon * `UNIT`), exactly.

    `decimal` rounds `exp` and division correctly; sixty digits leave forty below the integer, and e^epsilon is irrational
    for every rational epsilon but 0, so the floor cannot be off by one unless those forty digits were all zeros or nines.
    """
    context = Context(prec=60, rounding=ROUND_FLOOR)
    power = context.exp(context.divide(Decimal(epsilon.numerator), Decimal(epsilon.denominator)))
    return int(context.multiply(power, Decimal(UNIT)).to_integral_value(rounding=ROUND_FLOOR))


def spent(ratio: Fraction, requested: Fraction) -> float:
    """Return ln(ratio) in nats as a float that is never above what was requested.

    Parameters
    ----------
    ratio
        The worst likelihood ratio of two answers, e.g. ``weight(requested) / UNIT``.
    requested
        The epsilon asked for; at least ln(ratio).
    """
    return min(log(ratio.numerator) - log(ratio.denominator), float(requested))
