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
from deniable.errors import ConfigurationError
from deniable.limits.allowance import MICRO, Allowance, check, cost, reserved, unfit
from deniable.registry import Metric, parse, period
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
    ("changes", "window"),
    [
        ({}, 31),  # a day, and thirty more that its stretch of thirty days touches
        ({"per_period": 4}, 124),
        ({"period": "hour"}, 721),
        ({"period": "week"}, 6),
        ({"period": "month"}, 3),
        ({"sample": "0.01"}, 31),  # it may be drawn every time
        ({"epsilon_permanent": "2"}, 4),
        ({"epsilon_permanent": "2", "answers_per_window": 1}, 2),
        ({"epsilon_permanent": "2", "answers_per_window": 9}, 6),  # there are three answers
        ({"epsilon_permanent": "2", "answers_per_window": 9, "period": "month", "mechanism": "l_osue"}, 6),
    ],
)
def test_what_is_reserved_of_a_window(changes, window):
    """As many reports as fit into any window, or as many kept responses as may be different in it."""
    assert allowance(**changes).window / MICRO == pytest.approx(window, abs=1e-3)


def test_what_is_remembered():
    """The periods of any window, and of more than a year, which an update of the app may make the window."""
    assert allowance().remembered == 401
    assert allowance(period="month").remembered == period.touched("month", 400)
    assert allowance(Budget(window=500)).remembered == 501


def test_what_is_reserved_of_a_lifetime():
    """As many times more as the lifetime has windows; of a metric with few answers, no more than all of them."""
    assert allowance().lifetime == 310 * MICRO
    assert allowance(Budget(per_window=None, lifetime=None)).lifetime is None
    assert allowance(Budget(per_window=100, lifetime=None)).lifetime is None
    permanent = allowance(epsilon_permanent="2", values=tuple("abcdefghijklmnopqrstuvwxyz"), mechanism="l_osue")
    assert (permanent.answers, permanent.answers_ever) == (2, 20)
    few = allowance(epsilon_permanent="2")
    assert (few.answers, few.answers_ever, few.lifetime) == (2, 3, few.cost * 3)
    assert (few.due, allowance(Budget(per_window=None, lifetime=None), epsilon_permanent="2").due) == (few.lifetime, few.window)
    once = allowance(Budget(per_window=32, lifetime=32), epsilon_permanent="2")
    assert (once.answers, once.answers_ever) == (2, 2)
    text = Metric("t", "string", (), "1", candidates="c.txt", epsilon_permanent="2")
    assert Allowance.of(Declared.of(text), Budget()).answers_ever == 20
    assert Allowance.of(Declared.of(text), Budget(per_window=None, lifetime=None)).answers_ever == inf


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


def test_a_registry_fits_or_is_refused():
    """All reserved parts together fit into the window; else each is named, and what would fit."""
    text = HEAD + "".join(f'[metrics.m{i}]\ntype = "boolean"\nepsilon = {i + 1}\nperiod = "month"\n{REST}' for i in range(7))
    parts = reserved(parse(text), Budget(per_window=84, lifetime=84))
    assert unfit(parts.values(), Budget(per_window=84.001, lifetime=None)) is None
    assert unfit(parts.values(), Budget(per_window=None, lifetime=None)) is None
    check(parts.values(), Budget(per_window=85))
    words = r"ask for 84: raise per_window to 84(\.1)?.*; got m6 21, m5 18, m4 15, m3 12, m2 9, 2 others 9"
    with pytest.raises(ConfigurationError, match=words):
        check(parts.values(), Budget(per_window=83))


@given(st.lists(st.integers(1, 40), min_size=1, max_size=6), st.integers(1, 100), st.integers(1, 50))
def test_lifetimes_fit_where_windows_do(tenths, per_window, times):
    """Parts that fit into the window fit into the lifetime, and each is enough for a window."""
    budget = Budget(per_window=per_window, lifetime=per_window * times)
    parts = [allowance(budget, id=f"m{i}", epsilon=f"{tenth / 10}", period="month") for i, tenth in enumerate(tenths)]
    if unfit(parts, budget) is None:
        assert sum(part.lifetime or 0 for part in parts) <= per_window * times * MICRO
    assert all((part.lifetime or 0) >= part.window for part in parts)
