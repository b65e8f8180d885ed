"""What is reserved for each metric: numbers of the registry and the budget, and enough for whatever may happen."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from fractions import Fraction
from math import exp, inf, log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deniable import mechanisms
from deniable.declared import Declared
from deniable.limits.allowance import MICRO, Allowance, cost, micro
from deniable.registry import Metric, period
from deniable.registry.tables import Budget

HEAD = 'format = 1\napp = "shop"\n'
REST = 'description = "d"\nowner = "o"\n'
LENGTHS = st.sampled_from(period.LENGTHS)


def metric(**changes) -> Metric:
    """Declare a question of three values, asked daily, with keys replaced."""
    return Metric(**({"id": "m", "type": "categorical", "values": ("a", "b", "c"), "epsilon": "1"} | changes))


def allowance(budget: Budget | None = None, **changes) -> Allowance:
    declared = metric(**changes)
    return Allowance.of(Declared.of(declared), budget or Budget())


@pytest.mark.parametrize("epsilon", ["0.1", "1", "2", "3.3333333", "16"])
def test_cost_is_never_below_the_loss(epsilon):
    """A mechanism costs its loss in millionths of a nat, rounded up, and no more than a millionth above it."""
    ratio = mechanisms.make("grr", domain_size=3, epsilon=epsilon).ratio
    assert exp(cost(ratio) / MICRO) >= ratio * (1 - 1e-12)
    assert cost(ratio) <= float(epsilon) * MICRO + 1


@given(st.integers(1, 10**12), st.integers(1, 10**12))
def test_cost_rounds_up(one, other):
    """Whatever the ratio, what is debited is at least its logarithm."""
    ratio = Fraction(max(one, other), min(one, other))
    assert log(ratio) * MICRO <= cost(ratio) <= log(ratio) * MICRO + 2


@pytest.mark.parametrize(
    ("changes", "month"),
    [
        ({}, 31),
        ({"per_period": 4}, 124),
        ({"period": "hour"}, 744),
        ({"period": "week"}, 5),
        ({"period": "month"}, 1),
        ({"sample": "0.01"}, 31),  # it may be drawn every time
        ({"epsilon_permanent": "2"}, 4),
        ({"epsilon_permanent": "2", "answers_per_month": 1}, 2),
        ({"epsilon_permanent": "2", "answers_per_month": 9}, 6),  # there are three answers
        ({"epsilon_permanent": "2", "answers_per_month": 9, "period": "month", "mechanism": "l_osue"}, 2),
    ],
)
def test_what_is_reserved_of_a_month(changes, month):
    """As many reports as can count in a calendar month, or as many kept responses as may be different in it."""
    assert allowance(**changes).month / MICRO == pytest.approx(month, abs=1e-3)


def test_what_is_reserved_of_a_lifetime():
    """As many times more as the lifetime has budgets of a month; of a metric with few answers, no more than all of them."""
    assert allowance().lifetime == 60 * 31 * MICRO
    assert allowance(Budget(per_month=None, lifetime=None)).lifetime is None
    assert allowance(Budget(per_month=100, lifetime=None)).lifetime is None
    permanent = allowance(epsilon_permanent="2", values=tuple(map(str, range(200))), mechanism="l_osue")
    assert (permanent.answers, permanent.answers_ever) == (2, 120)
    few = allowance(epsilon_permanent="2")
    assert (few.answers, few.answers_ever, few.lifetime) == (2, 3, few.cost * 3)
    assert (few.due, allowance(Budget(per_month=None, lifetime=None), epsilon_permanent="2").due) == (few.lifetime, few.month)
    once = allowance(Budget(per_month=32, lifetime=32), epsilon_permanent="2")
    assert (once.answers, once.answers_ever) == (2, 2)
    text = Metric("t", "string", (), "1", candidates="c.txt", epsilon_permanent="2")
    assert Allowance.of(Declared.of(text), Budget()).answers_ever == 120
    assert Allowance.of(Declared.of(text), Budget(per_month=None, lifetime=None)).answers_ever == inf


@given(
    LENGTHS,
    st.floats(0.05, 40, allow_nan=False),
    st.datetimes(datetime(2023, 1, 1), datetime(2028, 12, 31)),  # noqa: DTZ001 - made UTC below
)
def test_no_window_touches_more_periods(length, days, end):
    """Wherever a stretch of time ends, the periods that it touches are as many as is reserved for, or fewer."""
    last = end.replace(tzinfo=UTC)
    begin = last - timedelta(days=days)
    touched, at = 0, last
    while True:
        start, until = period.bounds(period.of(at, length), length)
        if until <= begin:  # as the ledger counts
            break
        touched += 1
        at = start - timedelta(seconds=1)
    assert touched <= period.touched(length, days)


@pytest.mark.parametrize(
    ("length", "days"),
    [("hour", 1), *(("day", d) for d in (1, 7, 30)), *(("week", d) for d in (1, 7, 30, 365))]
    + [("month", d) for d in (1, 7, 28, 29, 30, 31, 59, 60, 90, 365)],
)
def test_some_window_touches_as_many(length, days):
    """What is reserved is not more than some window takes."""
    moments = (datetime(2025, 1, 1, tzinfo=UTC) + timedelta(days=day) for day in range(366))  # 2026 has no leap day either
    most = 0
    for end in moments:
        count, at = 0, end
        while (bounds := period.bounds(period.of(at, length), length))[1] > end - timedelta(days=days):
            count, at = count + 1, bounds[0] - timedelta(seconds=1)
        most = max(most, count)
    assert period.touched(length, days) == most


@given(st.lists(st.integers(1, 40), min_size=1, max_size=6), st.integers(1, 1000), st.integers(10, 500))
def test_lifetimes_fit_where_months_do(tenths, per_month, times):
    """Parts that fit into the month fit into the lifetime, and each is enough for a month."""
    budget = Budget(per_month=per_month / 10, lifetime=per_month * times / 100)
    parts = [allowance(budget, id=f"m{i}", epsilon=f"{tenth / 10}", period="month") for i, tenth in enumerate(tenths)]
    if sum(part.month for part in parts) <= micro(per_month / 10):
        assert sum(part.lifetime or 0 for part in parts) <= micro(per_month * times / 100)
    assert all((part.lifetime or 0) >= part.month for part in parts)


@given(st.integers(1, 10**8))
def test_a_bound_is_what_is_written(hundredths):
    """Two decimals of a nat are counted exactly, though their floating-point numbers are not exact."""
    assert micro(float(f"{hundredths // 100}.{hundredths % 100:02}")) == hundredths * 10_000
