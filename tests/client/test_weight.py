"""Epsilon becomes whole numbers once: floor(e^epsilon 2^32), against a Taylor series in exact fractions."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from math import floor, inf, log, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deniable.errors import ParameterError
from deniable.exact.epsilon import MAX_EPSILON, UNIT, exact, spent, weight

EPSILONS = [
    *(
        "0.001",
        "0.01",
        "0.1",
        "0.25",
        "0.5",
        "0.693147",
        "1",
        "1.0986122886681098",
        "2",
        "3",
        "3.7",
        "5",
        "8",
        "10",
        "12.5",
        "16",
    ),
    *("0.0000001", "1/3", "7/11"),
]
epsilons = st.fractions(min_value=Fraction(1, 10**6), max_value=MAX_EPSILON, max_denominator=10**6)


def taylor(x: Fraction) -> tuple[Fraction, Fraction]:
    """Bracket e^x, x in (0, 16]: a partial sum of its series, and that plus a bound of the remainder."""
    term = total = Fraction(1)
    k = 0
    while k < 40 or term > Fraction(1, 10**30):
        k += 1
        term = term * x / k
        term = Fraction(floor(term * 10**60), 10**60)  # rounded down; the bound below makes up for it
        total += term
    return total, total + 2 * term + Fraction(k * 2**k, 10**60) * 3**16


def check(x: Fraction) -> None:
    below, above = taylor(x)
    assert floor(below * UNIT) == floor(above * UNIT), "the bracket is too wide to tell"
    assert weight(x) == floor(below * UNIT)


@pytest.mark.parametrize("text", EPSILONS)
def test_weight_is_the_floor(text):
    """The weight is the floor of e^epsilon times the unit, by an independent computation."""
    check(exact(text))


@given(epsilons)
def test_weight_is_the_floor_for_any_fraction(x):
    """The same for fractions that no one would write."""
    check(x)


@given(epsilons, epsilons)
def test_weight_is_monotone(x, y):
    """More epsilon never has less weight."""
    assert (weight(x) <= weight(y)) == (x <= y) or weight(x) == weight(y)


@given(epsilons)
def test_weight_never_spends_more(x):
    """The ratio of integers stays at or below e^epsilon, and within 2^-32 of it."""
    below, above = taylor(x)
    assert Fraction(weight(x), UNIT) <= above
    assert Fraction(weight(x) + 1, UNIT) > below
    assert 0 <= spent(Fraction(weight(x), UNIT), x) <= float(x)
    assert spent(Fraction(weight(x), UNIT), x) == pytest.approx(float(x), rel=1e-9, abs=3e-10)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (0.1, Fraction(1, 10)),
        ("0.1", Fraction(1, 10)),
        (1, Fraction(1)),
        (1e-3, Fraction(1, 1000)),
        ("1e-3", Fraction(1, 1000)),
        (Fraction(1, 3), Fraction(1, 3)),
        ("1/3", Fraction(1, 3)),
        (16, Fraction(16)),
        (16.0, Fraction(16)),
        (Decimal("2.5"), Fraction(5, 2)),
    ],
)
def test_epsilon_is_read_as_written(text, value):
    """An epsilon is the decimal number that was written, not the nearest binary one."""
    assert exact(text) == value


@pytest.mark.parametrize(
    "wrong",
    [nan, inf, -inf, True, False, 0, 0.0, -1, -0.5, 17, 16.000001, "nan", "inf", "one", "", "1/0", None, [1], b"1", "1,5", 1j],
)
def test_what_is_no_epsilon(wrong):
    """What is not a number in (0, 16] is refused with the rule and the value."""
    with pytest.raises(ParameterError, match=r"epsilon .*: write a number of nats above 0 and at most 16") as caught:
        exact(wrong)
    assert caught.value.value is wrong


@pytest.mark.parametrize("tiny", ["1e-10", "1e-12", 1e-300, Fraction(1, 2**31) - Fraction(1, 2**60)])
def test_an_epsilon_without_weight(tiny):
    """An epsilon so small that no integer weight can carry it is refused, rather than dividing by zero later."""
    with pytest.raises(ParameterError, match=r"epsilon = .*: write at least 2\^-31 nats") as caught:
        exact(tiny)
    assert caught.value.value == tiny


def test_the_least_epsilon_has_weight():
    """At the smallest epsilon allowed even half of it weighs more than the unit."""
    assert weight(exact(Fraction(1, 2**31)) / 2) > UNIT


def test_log_three_is_the_coin():
    """The decimal that stands for ln 3 gives at least the weight of three."""
    assert weight(exact("1.0986122886681098")) == weight(exact(log(3))) == 3 * UNIT
