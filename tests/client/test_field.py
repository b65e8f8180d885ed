"""Finite fields against their axioms, and against the plain product of polynomials."""

from __future__ import annotations

from functools import partial
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deniable.errors import ParameterError
from deniable.exact.finite_field import MAX_DEGREE, Field, is_order

SMALL = [2, 3, 4, 5, 7, 8, 11, 16]
LARGE = [64, 257, 1024, 2039, 4096, 4194301]
MODULI = [0b111, 0b1011, 0b10011, 0b100101, 0b1000011, 0b10000011, 0b100011101, 0b1000010001, 0b10000001001, 0b100000000101]


def plus(field, a, b):
    """Add two elements: digit by digit in base two, or modulo the order."""
    return (a + b) % field.order if field.order % 2 else a ^ b


def inverse(field, a):
    """Invert an element: the group has order - 1 of them."""
    result, power, exponent = 1, a, field.order - 2
    while exponent:
        result = field.mul(result, power) if exponent & 1 else result
        power, exponent = field.mul(power, power), exponent >> 1
    return result


def axioms(field, a, b, c):
    add, mul = partial(plus, field), field.mul
    return (
        add(a, b) == add(b, a)
        and mul(a, b) == mul(b, a)
        and add(add(a, b), c) == add(a, add(b, c))
        and mul(mul(a, b), c) == mul(a, mul(b, c))
        and mul(a, add(b, c)) == add(mul(a, b), mul(a, c))
        and (add(a, 0), mul(a, 1), mul(a, 0), add(a, field.neg(a))) == (a, a, 0, 0)
        and (a == 0 or mul(a, inverse(field, a)) == 1)
    )


@pytest.mark.parametrize("order", SMALL)
def test_axioms(order):
    """Every three elements of a small field keep the laws of arithmetic, and results are elements."""
    field, elements = Field(order), range(order)
    assert all(axioms(field, a, b, c) for a, b, c in product(elements, repeat=3))
    assert {f(a, b) for f in (partial(plus, field), field.mul) for a in elements for b in elements} == set(elements)


@pytest.mark.parametrize("order", LARGE)
@given(data=st.data())
def test_axioms_of_large_fields(order, data):
    """Any three elements of a large field keep them too."""
    element = st.integers(0, order - 1)
    assert axioms(Field(order), data.draw(element), data.draw(element), data.draw(element))


@pytest.mark.parametrize("modulus", MODULI)
@given(data=st.data())
def test_products_are_those_of_polynomials(modulus, data):
    """In even order a product is the carry-less one modulo a polynomial that never changes: tallies depend on it."""
    degree = modulus.bit_length() - 1
    element = st.integers(0, (1 << degree) - 1)
    a, b = data.draw(element), data.draw(element)
    plain = 0
    for bit in range(degree):
        plain ^= (a << bit) * (b >> bit & 1)
    for bit in reversed(range(degree, 2 * degree)):
        plain ^= (modulus << bit - degree) * (plain >> bit & 1)
    assert Field(1 << degree).mul(a, b) == plain


@pytest.mark.parametrize("order", SMALL + LARGE)
@given(data=st.data())
def test_an_inner_product_is_a_sum_of_products(order, data):
    """The inner product adds up the products of the coordinates."""
    field = Field(order)
    pairs = data.draw(st.lists(st.tuples(*[st.integers(0, order - 1)] * 2), max_size=6))
    total = 0
    for a, b in pairs:
        total = plus(field, total, field.mul(a, b))
    assert field.dot([a for a, _ in pairs], [b for _, b in pairs]) == total


@pytest.mark.parametrize("order", [-7, -4, 0, 1, 6, 9, 25, 27, 100, 1 << MAX_DEGREE + 1])
def test_no_such_field(order):
    """An order that is neither prime nor a small power of two is refused with the rule and the value."""
    assert not is_order(order)
    with pytest.raises(ParameterError, match=rf"order = {order}: write a prime number, or a power of two up to 2\^12") as caught:
        Field(order)
    assert caught.value.value == order


def test_fields_of_one_order_are_one():
    """Fields are equal by their order, and share their tables."""
    assert Field(256) == Field(256) != Field(257)
    assert hash(Field(256)) == hash(Field(256))
    assert Field(256).powers is Field(256).powers
