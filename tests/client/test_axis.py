"""The axis of a number: every number has one position, and whole numbers keep their meaning."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deniable.errors import ParameterError
from deniable.registry.answers.axis import FINEST, Axis, read_number

ENDS = st.fractions(min_value=-10_000, max_value=10_000, max_denominator=1000)


@pytest.mark.parametrize(
    ("low", "high"), [(0, 1), (0, 10), (1, 60_000), (-5, 5), (0, FINEST), (0, 1_000_003), (-(1 << 31), 1 << 31)]
)
def test_whole_numbers_are_exact(low, high):
    """Every whole number of a range of whole numbers has a position that stands for it."""
    axis = Axis(Fraction(low), Fraction(high))
    assert axis.steps >= min(FINEST, high - low)
    for number in {low, low + 1, (low + high) // 2, low + (high - low) // 3, high - 1, high}:
        assert Fraction(axis.position(number), axis.steps) == Fraction(number - low, high - low)


@given(ENDS, ENDS, st.fractions(min_value=-20_000, max_value=20_000, max_denominator=10**6))
def test_the_nearest_position(one, other, number):
    """A number has the position nearest to it; beyond the range, that of the nearer end."""
    low, high = sorted((one, other))
    if low == high:
        return
    axis = Axis(low, high)
    position = axis.position(number)
    exact = (min(max(number, low), high) - low) / (high - low) * axis.steps
    assert abs(position - exact) <= Fraction(1, 2)
    assert position == axis.position(Fraction(number))
    assert axis.steps >= FINEST


@given(st.floats(allow_nan=False), st.integers(-5, 5))
def test_floats_are_exact_fractions(number, low):
    """A float is the fraction that it stands for, also one that is huge, tiny or infinite."""
    axis = Axis(Fraction(low), Fraction(low + 7))
    position = axis.position(number)
    if number in (inf, -inf):
        assert position == (axis.steps if number > 0 else 0)
    else:
        assert position == axis.position(Fraction(number))


@given(st.floats(min_value=1e-3, max_value=1e6))
def test_logarithmic_positions(number):
    """On a logarithmic scale equal ratios are equal steps, and a position stands for a number within half a step."""
    axis = Axis(Fraction(1, 1000), Fraction(10**6), "log")
    back = axis.number(axis.position(number) / axis.steps)
    assert back == pytest.approx(number, rel=9 * 2.3026 / axis.steps)
    assert axis.position(0) == axis.position(-3) == axis.position(0.0005) == 0
    assert axis.position(10**400) == axis.position(inf) == axis.steps


def test_positions_stand_for_numbers():
    """`number` undoes `share`, also beyond the range, where estimates may lie."""
    for axis in (Axis(Fraction(-2), Fraction(6)), Axis(Fraction(1), Fraction(100), "log")):
        for share in (-0.5, 0.0, 0.25, 1.0, 1.5):
            assert axis.share(axis.number(share)) == pytest.approx(share)
    assert Axis(Fraction(1), Fraction(100), "log").number(0.5) == pytest.approx(10)


@pytest.mark.parametrize(
    ("written", "number"), [(3, Fraction(3)), (0.1, Fraction(1, 10)), ("2.50", Fraction(5, 2)), ("-1e3", Fraction(-1000))]
)
def test_numbers_are_read_as_they_are_written(written, number):
    """A decimal is the decimal, not the nearest float."""
    assert read_number(written) == number


@pytest.mark.parametrize("written", [True, None, "x", "nan", "inf", inf, [], Decimal(1)])
def test_what_is_no_number(written):
    """What is no finite number of a registry is refused, with the value."""
    with pytest.raises(ParameterError, match=r": write a whole number, or a decimal such as 0\.5"):
        read_number(written)
