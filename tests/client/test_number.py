"""Numbers of every class and size: exactly one report, and work that does not grow with the number."""

from __future__ import annotations

import time
from decimal import Decimal, localcontext
from enum import IntEnum
from fractions import Fraction
from math import inf, nan

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from registries import metric_toml, registry_toml

from deniable import Budget, Caps, Client
from deniable.errors import ParameterError
from deniable.registry import Metric, RegistryError, parse
from deniable.registry.answers.axis import read_number
from deniable.registry.answers.number import LARGEST, plain

ALLOWED = 0.25  # seconds of this thread's own processor time; what is tested took from six seconds to for ever
REGISTRY = registry_toml(
    metric_toml("n", range=[-5, 100], unit="ms", estimate="mean", per_period=1_000_000),
    metric_toml("bytes", range=[1, 1e9], scale="log", unit="bytes", estimate="distribution", per_period=1_000_000),
    metric_toml("kept", range=[0, 1], unit="s", estimate="mean", epsilon_permanent=2),
    metric_toml("theme", values=["light", "dark"], per_period=1_000_000),
    metric_toml("plugins", type="set", values=["git", "spelling"], per_period=1_000_000),
    metric_toml("both", type="product", factors={"cart": ["empty", "full"], "coupon": ["no", "yes"]}, per_period=1_000_000),
    metric_toml("text", type="string", discover=True, per_period=1_000_000),
    metric_toml("key", type="key", discover=True, per_period=1_000_000),
    budget={},
)
LONG = 50_000_000  # characters


class Whole(int):
    """A whole number whose own methods lie."""

    def __index__(self):
        raise ValueError

    def __lt__(self, other):
        raise ValueError

    __gt__ = __le__ = __ge__ = __float__ = __int__ = bit_length = __index__


class Real(float):
    """A float whose own methods lie."""

    def __float__(self):
        return nan

    def __lt__(self, other):
        raise ValueError

    __gt__ = __le__ = __ge__ = as_integer_ratio = __lt__


class Exact(Decimal):
    """A decimal whose own methods lie."""

    def adjusted(self):
        return 0

    def is_finite(self):
        return True

    is_nan = as_integer_ratio = is_finite


class Ratio(Fraction):
    """A fraction whose own methods lie."""

    numerator = denominator = property(lambda _: "x")

    def __lt__(self, other):
        raise ValueError


class Level(IntEnum):
    """A whole number with a name."""

    HIGH = 10**300


def with_method(name, answer):
    def method(_self):
        if isinstance(answer, type):
            raise answer
        return answer

    return type("Strange", (), {name: method})()


def decimals():
    digits = st.integers(min_value=0, max_value=10**30)
    exponents = st.one_of(
        st.integers(-2000, 2000), st.sampled_from([-999_999_999_999_999_000, 10**6, 10**7, 999_999_999_999_999_000])
    )
    numbers = st.builds(
        lambda sign, number, exponent: Decimal((sign, tuple(map(int, str(number))), exponent)),
        st.integers(0, 1),
        digits,
        exponents,
    )
    named = st.sampled_from(["nan", "sNaN", "-sNaN123", "inf", "-inf", "1E+1000000", "-1E+10000000", "1E-10000000", "0E+1000000"])
    return st.one_of(numbers, named.map(Decimal))


def wholes():
    return st.one_of(
        st.integers(), st.integers(0, 10**6).map(lambda bits: 1 << bits), st.integers(0, 10**6).map(lambda bits: -1 << bits)
    )


def of_numpy():
    np = pytest.importorskip("numpy")
    kinds = [
        getattr(np, name) for name in ("int8", "uint64", "float16", "float32", "float64", "longdouble", "complex64", "bool_")
    ]
    numbers = [kind(number) for kind in kinds for number in (0, 1)]
    more = [
        np.float32("nan"),
        np.float64("inf"),
        np.timedelta64(3, "s"),
        np.datetime64("2020-01-01"),
        np.array(3),
        np.array([1, 2]),
    ]
    return st.sampled_from([*numbers, *more, np.array(2.5), np.array(np.True_), np.longdouble("1e4000")])


def strange():
    answers = st.sampled_from([ValueError, MemoryError, RecursionError, "3", None, nan, inf, 10**5000, True, Whole(3), Real(3)])
    return st.builds(with_method, st.sampled_from(["__float__", "__index__", "__int__"]), answers)


def numbers():
    fractions = st.builds(Fraction, wholes(), wholes().filter(bool))
    plain_ones = st.one_of(st.floats(), wholes(), decimals(), fractions, st.booleans(), st.complex_numbers())
    lying = st.one_of(
        st.integers().map(Whole), st.floats().map(Real), decimals().map(Exact), st.builds(Ratio, st.integers(), st.just(7))
    )
    return st.one_of(plain_ones, lying, of_numpy(), strange(), st.sampled_from([Level.HIGH, None, "3", b"3", [], object()]))


@pytest.fixture(scope="module")
def client():
    """Record with no thread, no disk and no bound of the budget."""
    free = Caps(budget=Budget(per_month=None, lifetime=None), rows=1 << 40)
    opened = Client(
        dsn="https://k@t.example/shop",
        registry=parse(REGISTRY),
        consent=True,
        caps=free,
        state=None,
        post=lambda *_: (202, {}, None),
    )
    yield opened
    opened.close(0)


def cost(client, metric, answer):
    """Record an answer; return whether there is one report, and the processor time of this thread."""
    before, begun = client.stats()["recorded"], time.thread_time()
    recorded = client.record(metric, answer)
    took = time.thread_time() - begun
    return recorded and client.stats()["recorded"] == before + 1, took


@settings(max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(metric=st.sampled_from(["n", "bytes"]), answer=numbers())
@pytest.mark.filterwarnings("ignore")  # numpy's, of discarded parts
def test_any_number_is_one_report(client, metric, answer):
    """Of any class and size, also one whose methods fail or lie."""
    reported, took = cost(client, metric, answer)
    assert reported
    assert took < ALLOWED


@pytest.mark.parametrize(
    "answer",
    [
        "1E+1000000", "1E+10000000", "-1E+10000000", "1E-10000000", "1E+999999999999999999", "1E-999999999999999999",
        "0E+10000000", "sNaN", "0." + "3" * 1_000_000, "1" + "0" * 1_000_000,
    ],
    ids=range(10),
)  # fmt: skip
def test_a_decimal_costs_little(client, answer):
    """However large, small or long."""
    reported, took = cost(client, "n", Decimal(answer))
    assert reported
    assert took < ALLOWED


def test_fractions_and_whole_numbers_cost_little(client):
    """Of millions of bits, also where both terms of a fraction have so many, and it is within the range."""
    huge = (1 << 30_000_000) + 1
    for answer in (huge, -huge, Fraction(1, huge), Fraction(-1, huge), Fraction(huge), Ratio(huge * 3, 1)):
        assert cost(client, "n", answer)[0]
    terms = Fraction.__new__(Fraction)
    terms._numerator, terms._denominator = huge * 3 + 1, huge
    for answer in (terms, huge, -huge, Fraction(1, huge)):
        reported, took = cost(client, "n", answer)
        assert reported
        assert took < ALLOWED


@pytest.mark.parametrize(
    ("metric", "answer"),
    [
        ("theme", lambda text: text), ("plugins", lambda text: [text] * 100), ("both", lambda text: (text, text)),
        ("both", lambda text: {"cart": text, "coupon": "no"}), ("text", lambda text: text),
    ],
    ids=range(5),
)  # fmt: skip
def test_a_long_text_costs_little(client, metric, answer):
    """It is one report, and is not read to its end: even its hash would take longer."""
    other = "a" * LONG
    begun = time.thread_time()
    hash(other)
    to_hash = time.thread_time() - begun
    costs = [cost(client, metric, answer(letter * LONG)) for letter in "bcd"]  # the first one imports what it needs
    assert all(reported for reported, _ in costs)
    assert min(took for _, took in costs) < to_hash / 2


@pytest.mark.parametrize(
    ("metric", "answer"),
    [
        ("plugins", set(range(1_000_000))), ("plugins", ["git"] * 3_000_000), ("key", 1 << 30_000_000),
        ("both", ("full",) * 3_000_000),
    ],
    ids=range(4),
)  # fmt: skip
def test_a_large_answer_costs_little(client, metric, answer):
    """A set of a million options is one report, too."""
    reported, took = cost(client, metric, answer)
    assert reported
    assert took < ALLOWED


def test_a_long_text_in_place_of_a_metric(client):
    """An app that mixes the arguments up, or makes names of answers, is not slow for it."""
    fresh = "".join(["y" * 20_000_000])
    begun = time.thread_time()
    assert not client.record("nosuch", fresh)
    assert not client.record(fresh, "dark")
    assert time.thread_time() - begun < ALLOWED


def test_a_kept_number_that_is_huge(client):
    """Permanent responses are drawn for it as for any."""
    reported, took = cost(client, "kept", Decimal("1E+10000000"))
    assert reported
    assert took < ALLOWED


@settings(max_examples=300)
@given(number=st.fractions(min_value=-10, max_value=110, max_denominator=10**9))
def test_the_position_is_exact(number):
    """As before of decimals and fractions of any usual size: the nearest position, halves up."""
    metric = Metric(id="n", type="number", values=(), range=("-5", "100"), unit="ms", estimate="mean", epsilon="1")
    steps = metric.axis.steps
    exact = min(max(int((number + 5) * steps / 105 + Fraction(1, 2)), 0), steps) if number > -5 else 0
    assert metric.position(number) == exact
    with localcontext() as context:
        context.prec = 60
        decimal = Decimal(number.numerator) / Decimal(number.denominator)
    assert abs(metric.position(decimal) - exact) <= 1


def test_sizes():
    """What is beyond all ranges is infinite, what is next to zero stays on its side of it."""
    assert plain(LARGEST - 1) == LARGEST - 1
    for huge in (LARGEST, Decimal(LARGEST), Fraction(LARGEST), Decimal("1E+400"), 1.7e308, inf, Level.HIGH * 10**300):
        assert plain(huge) == inf
        assert plain(-huge) == -inf
    for tiny in (Decimal("1E-1000"), Fraction(1, 10**1000), Decimal("1E-999999999")):
        assert 0 < plain(tiny) < Fraction(1, 10**350)
        negative = tiny.copy_negate() if isinstance(tiny, Decimal) else -tiny
        assert -Fraction(1, 10**350) < plain(negative) < 0
    assert plain(Decimal("0E+9999999")) == 0
    assert plain(Decimal("-0.1")) == Fraction(-1, 10)
    for nothing in (True, nan, Decimal("sNaN"), Decimal("nan"), "3", None, 3j):
        assert plain(nothing) is None


def test_truth_values_of_numpy_are_no_numbers():
    """Nor are its durations and complex numbers."""
    np = pytest.importorskip("numpy")
    metric = Metric(id="n", type="number", values=(), range=("0", "100"), unit="ms", estimate="mean", epsilon="1")
    for answer in (np.True_, np.False_, np.array(np.True_), np.complex128(3), np.timedelta64(3, "s")):
        with pytest.raises(ParameterError, match="an answer to n must be a number; this is an undeclared"):
            metric.position(answer)
    assert metric.position(np.array(100)) == metric.position(np.longdouble(100)) == metric.axis.steps


@pytest.mark.parametrize("written", ["1E+10000000", "1E+400", 10**5000, 10**400, inf, "nan", "sNaN", True], ids=range(8))
def test_a_registry_names_no_absurd_number(written):
    """Also `deniable explain` reads numbers that somebody writes."""
    begun = time.thread_time()
    with pytest.raises(ParameterError, match=r"below 2\^1023"):
        read_number(written)
    assert time.thread_time() - begun < ALLOWED


def test_a_registry_with_an_absurd_range():
    """It is a fault, not an error of arithmetic."""
    with pytest.raises(RegistryError, match=r"n: range = \[0, 10{190,200}\.\.\.: "):
        parse(REGISTRY.replace("[-5, 100]", f"[0, {10**400}]"))
