"""Numbers of any class as plain numbers of bounded size, so that none takes long to place on an axis.

A whole number, decimal or fraction may have millions of digits, and exact arithmetic with it would not end. So its size is looked
at before any other thing is done with it.
"""

from __future__ import annotations

from decimal import ROUND_DOWN, Context, Decimal
from fractions import Fraction
from math import inf
from operator import index
from typing import Any, TypeVar

T = TypeVar("T", int, float, Fraction)

LARGEST = 1 << 1023
"""Numbers from here on count as infinite. Every smaller one is a float, too."""

_MOST_DIGITS = 1000  # that are kept of a decimal; every float has fewer
_EXPONENTS = -400, 310  # a decimal with an exponent below is next to zero, and with one above it is infinite
_MOST_BITS = 4096  # that are kept of each term of a fraction
_LEAST = Fraction(1, 10**400)  # next to zero: no two positions of an axis are so close
_CUT = Context(prec=_MOST_DIGITS, rounding=ROUND_DOWN, traps=[])
_REAL = (None, "i", "u", "f")  # kinds of numpy's types that are numbers; b is a truth value, c complex, m a duration


def plain(
    value: Any,  # any object
) -> int | float | Fraction | None:
    """Read a number as a plain one, or return None if it is no number: NaN, a truth value, a text."""
    # The result is below `LARGEST` in size, or infinite. Of a decimal or fraction with thousands of digits it is the beginning.
    # Methods of an object are called only if its class is none of Python's numbers. What they raise is passed on.
    if isinstance(value, bool) or getattr(getattr(value, "dtype", None), "kind", None) not in _REAL:
        return None
    if isinstance(value, float):
        return _finite(float.__float__(value))
    if isinstance(value, int):
        return _finite(int.__index__(value))
    if isinstance(value, Decimal):
        return _decimal(value)
    if isinstance(value, Fraction):
        return _fraction(*Fraction.as_integer_ratio(value))
    return _other(value)


def _other(value: Any) -> float | None:
    """Read a number of a class that is none of Python's, such as those of numpy."""
    if hasattr(type(value), "__index__"):
        return _finite(index(value))
    return _finite(float(value)) if hasattr(type(value), "__float__") else None


def _finite(number: T) -> T | float | None:
    """Return a number, or an infinity if it is as large as `LARGEST`; None of NaN."""
    if -LARGEST < number < LARGEST:
        return number
    return inf if number > 0 else -inf if number < 0 else None


def _decimal(number: Decimal) -> float | Fraction | None:
    if Decimal.is_nan(number):  # a signalling one raises an error if it is used
        return None
    if Decimal.is_zero(number):  # its exponent may be as large as that of any other
        return 0.0
    least, most = _EXPONENTS
    exponent = Decimal.adjusted(number)
    if exponent > most or not Decimal.is_finite(number):
        return -inf if Decimal.is_signed(number) else inf
    if exponent < least:
        return -_LEAST if Decimal.is_signed(number) else _LEAST
    return _fraction(*_CUT.plus(number).as_integer_ratio())


def _fraction(numerator: int, denominator: int) -> float | Fraction | None:
    size = int.bit_length(numerator) - int.bit_length(denominator)
    if size > LARGEST.bit_length():
        return inf if numerator > 0 else -inf
    if size < -_MOST_BITS // 2 and numerator:
        return _LEAST if numerator > 0 else -_LEAST
    excess = min(int.bit_length(numerator), int.bit_length(denominator)) - _MOST_BITS
    if excess > 0:
        numerator, denominator = numerator >> excess, denominator >> excess
    number = Fraction(numerator, denominator)
    return number if size < LARGEST.bit_length() - 2 else _finite(number)  # seldom, because it compares slowly
