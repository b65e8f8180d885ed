"""Exact integer weights: the one place where epsilon becomes a ratio of integers.

A likelihood ratio of e^epsilon is irrational, so no sampler on integers can have it. It is rounded *down* to a ratio of integers
once. Device and decoder use the same integers. The relative error is below 2^-32.
"""

from __future__ import annotations

from decimal import ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from math import isfinite, log

from deniable.errors import ParameterError

UNIT = 1 << 32
"""The weight of ratio one. A weight of w * UNIT means "w times as likely"."""

MAX_EPSILON = 16
"""Largest epsilon. With more, a report is practically the answer itself: the odds are nine million to one."""

MIN_EPSILON = Fraction(1, 1 << 31)
"""Least epsilon. With less, e^(epsilon / 2) would be rounded to 1. Reports would say nothing, and estimates divide by zero."""


def exact(
    epsilon: float | str | Fraction,  # privacy loss in nats, in [`MIN_EPSILON`, `MAX_EPSILON`]
) -> Fraction:
    """Read an epsilon as the written decimal, not as the nearest binary float; raise `ParameterError` if it is none."""
    rule = f"epsilon: write a number of nats above 0 and at most {MAX_EPSILON}"
    if isinstance(epsilon, bool) or (isinstance(epsilon, float) and not isfinite(epsilon)):
        raise ParameterError(rule, epsilon)
    try:
        value = epsilon if isinstance(epsilon, Fraction) else Fraction(str(epsilon))
    except (ValueError, ZeroDivisionError):
        raise ParameterError(rule, epsilon) from None
    if not 0 < value <= MAX_EPSILON:
        raise ParameterError(rule, epsilon)
    if value < MIN_EPSILON:
        raise ParameterError("epsilon: write at least 2^-31 nats; integer weights cannot carry less", epsilon)
    return value


def weight(epsilon: Fraction) -> int:
    """Compute floor(e^epsilon * `UNIT`), exactly."""
    # `decimal` rounds `exp` and division correctly, to sixty digits. So at least forty digits follow the integer. The floor is
    # wrong only if all of these are zeros or nines. e^epsilon is irrational for every rational epsilon but 0.
    context = Context(prec=60, rounding=ROUND_FLOOR)
    power = context.exp(context.divide(Decimal(epsilon.numerator), Decimal(epsilon.denominator)))
    return int(context.multiply(power, Decimal(UNIT)).to_integral_value(rounding=ROUND_FLOOR))


def spent(
    ratio: Fraction,  # the worst likelihood ratio of two answers, e.g. `weight(requested) / UNIT`
    requested: Fraction,  # the requested epsilon; at least ln(ratio)
) -> float:
    """Return ln(ratio) in nats, as a float that is never above the requested epsilon."""
    return min(log(ratio.numerator) - log(ratio.denominator), float(requested))
