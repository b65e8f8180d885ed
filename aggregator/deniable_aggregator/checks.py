"""Checks of the numbers that accounts are made of."""

from __future__ import annotations

from math import isfinite

from deniable.errors import ParameterError

LEAST_DELTA = 1e-15
"""A smaller delta is 0 in practice, and near the precision of floating-point sums."""


def delta(value: float) -> float:
    """Return a valid delta, or raise `ParameterError`."""
    if isinstance(value, bool) or not LEAST_DELTA <= value < 1:
        raise ParameterError(f"delta: write a probability from {LEAST_DELTA:g} to below 1", value)
    return value


def positive(name: str, value: float) -> float:
    """Return a number above 0, or raise `ParameterError`."""
    if isinstance(value, bool) or not (isfinite(value) and value > 0):
        raise ParameterError(f"{name}: write a number above 0", value)
    return value


def nonnegative(name: str, value: float) -> float:
    """Return a number of at least 0, or raise `ParameterError`."""
    if isinstance(value, bool) or not (isfinite(value) and value >= 0):
        raise ParameterError(f"{name}: write a number of at least 0", value)
    return value


def count(name: str, value: int, least: int = 1) -> int:
    """Return a whole number of at least `least`, or raise `ParameterError`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ParameterError(f"{name}: write a whole number of at least {least}", value)
    return value
