"""The claim of the budget: for every calendar month, what counts in it is bounded, whatever the clock says and whatever dies."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deniable.declared import Declared
from deniable.device.ledger import Ledger
from deniable.device.permanent_responses import PermanentResponses
from deniable.device.prepared import Prepared
from deniable.device.state import State
from deniable.limits.allowance import MICRO, Allowance
from deniable.registry import Metric, period
from deniable.registry.tables import Budget

START = datetime(2027, 1, 15, 8, tzinfo=UTC)
MONTHS = [date(2000 + n // 12, n % 12 + 1, 1) for n in range(400 * 12 + 1)]  # until the calendar begins anew


def prepared(budget: Budget, **changes) -> Prepared:
    declared = Declared.of(Metric(**({"id": "m", "type": "boolean", "values": (False, True), "epsilon": "1"} | changes)))
    return Prepared(declared, Allowance.of(declared, budget), "")


def test_so_many_periods_count_in_a_month():
    """In 400 years no month has more, and some has as many."""
    most = dict.fromkeys(period.LENGTHS, 0)
    for first, after in pairwise(MONTHS):
        days = [first + timedelta(days=n) for n in range((after - first).days)]
        most["hour"] = max(most["hour"], 24 * len(days))
        most["day"] = max(most["day"], len(days))
        most["week"] = max(most["week"], sum(day.weekday() == 6 for day in days))
        most["month"] = 1
    assert most == period.MOST_IN_MONTH


@pytest.mark.parametrize("length", period.LENGTHS)
def test_a_period_counts_in_the_month_of_its_last_day(length):
    """Each moment of four years has one period, whose last second is in the month where it counts."""
    moment, seen = START, set()
    while moment < START + timedelta(days=4 * 366):
        name = period.of(moment, length)
        month = period.month_of(name, length)
        assert month == f"{period.bounds(name, length)[1] - timedelta(seconds=1):%Y-%m}"
        assert month >= f"{moment:%Y-%m}"
        assert length == "week" or month == f"{moment:%Y-%m}"
        seen.add(month)
        moment += timedelta(hours=7)
    assert len(seen) in (48, 49, 50)


def test_four_weeks_touch_two_months():
    """Any 28 days do, in 400 years; 30 days around a February may touch three."""
    touched = {28: 0, 29: 0, 30: 0}
    for first in MONTHS[:-1]:
        for back in range(1, 29):  # all that begin in the month before
            begin = first - timedelta(days=back)
            for days, most in touched.items():
                end = begin + timedelta(days=days - 1)
                touched[days] = max(most, 12 * (end.year - begin.year) + end.month - begin.month + 1)
    assert touched == {28: 2, 29: 2, 30: 3}
    # A stretch that begins amid a day touches one day more.
    begin = datetime(2027, 1, 31, 23, tzinfo=UTC)
    assert (begin + timedelta(days=28)).month == 2
    assert (begin + timedelta(days=28, hours=2)).month == 3


LENGTHS = st.sampled_from(period.LENGTHS)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["report", "report", "report", "die", "end", "update"]),
        st.integers(0, 2),  # which metric, and which process
        st.sampled_from([0, 0, 0.2, 1, 5, 20, 31, 400, -0.2, -1, -40, -500]),  # days that the clock goes on or back
        st.integers(1, 12),  # reports that are tried
    ),
    min_size=10,
    max_size=60,
)


@settings(deadline=None, max_examples=60)
@given(st.lists(LENGTHS, min_size=3, max_size=3), STEPS)
def test_no_month_holds_more_than_its_budget(lengths, steps):
    """Whatever the clock says, whichever process dies, ends or brings another version: by period, all is within the budget."""
    budget = Budget(per_month=6, lifetime=15)
    state, now, version = State(None), START, 1
    ledgers = [Ledger(state, budget) for _ in range(3)]
    by_month: dict[str, int] = defaultdict(int)
    by_period: dict[tuple[str, str], int] = defaultdict(int)
    for what, which, days, tries in steps:
        now += timedelta(days=days)
        if what == "die":
            ledgers[which] = Ledger(state, budget)
        elif what == "end":
            ledgers[which].return_leases()
        elif what == "update":
            version += 1
        else:
            metric = prepared(budget, id=f"m{which}", period=lengths[which], per_period=5, version=version)
            occasion = metric.occasion(now)
            for _ in range(tries):
                if ledgers[which].spend(metric.allowance, occasion) is None:
                    by_month[occasion.month] += metric.allowance.cost
                    by_period[metric.allowance.tag, occasion.stratum.period] += 1
        assert all(spent <= 6 * MICRO for spent in by_month.values())
        assert sum(by_month.values()) <= 15 * MICRO
        assert max(by_period.values(), default=0) <= 5
        with state.transaction() as db:
            written = dict(db.execute("SELECT month, sum(cost) FROM spends GROUP BY month"))
            (ever,) = db.execute("SELECT value FROM facts WHERE name = 'lifetime'").fetchone()
        assert all(spent <= written[month] <= 6 * MICRO for month, spent in by_month.items())
        assert sum(by_month.values()) <= ever == sum(written.values())


ANSWERS = tuple("abcdefghijklmnop")


def test_no_month_has_more_answers():
    """No month has more different responses, also where the report of a block is made long after it began."""
    for seed in range(30):
        chance = Random(seed)  # of the times and answers, not of what is drawn
        state, now = State(None), START
        budget = Budget(per_month=None, lifetime=None)
        responses = PermanentResponses(state, Ledger(state, budget))
        # Without noise of its own, a report is the permanent response.
        keys = {"type": "categorical", "values": ANSWERS, "epsilon": "4", "epsilon_permanent": "4", "mechanism": "rappor"}
        metric = prepared(budget, **keys, answers_per_month=2)
        begun, seen = [], defaultdict(set)
        for _ in range(60):
            now += timedelta(days=chance.choice((1, 1, 1, 9, 25, -2)))
            occasion, value = metric.occasion(now), chance.randrange(16)
            if chance.random() < 0.5:
                if responses.reserve(metric, occasion) is None:
                    begun.append(occasion)
            else:
                outcome = responses.respond(metric, occasion, value)
                if isinstance(outcome, bytes):
                    seen[occasion.month].add(outcome)
            while begun and chance.random() < 0.4:
                earlier = begun.pop(chance.randrange(len(begun)))
                outcome = responses.complete(metric, earlier, chance.randrange(16))
                if isinstance(outcome, bytes):
                    seen[earlier.month].add(outcome)
            assert all(len(each) <= 2 for each in seen.values())
        assert max(len(each) for each in seen.values()) == 2
        assert len(set.union(*seen.values())) > 4


def test_a_block_of_a_forgotten_month_makes_no_report():
    """Which responses were reported is remembered for four months of reports. What is older would be a guess."""
    budget = Budget(per_month=None, lifetime=None)
    state = State(None)
    responses = PermanentResponses(state, Ledger(state, budget))
    keys = {"type": "categorical", "values": ANSWERS, "epsilon": "4", "epsilon_permanent": "4", "mechanism": "rappor"}
    metric = prepared(budget, **keys, answers_per_month=1)
    moments = [START + timedelta(days=31 * n) for n in range(6)]
    first = metric.occasion(moments[0])
    assert responses.reserve(metric, first) is None
    for number, moment in enumerate(moments[1:]):
        assert isinstance(responses.respond(metric, metric.occasion(moment), number), bytes)
    assert responses.complete(metric, first, 9) == "this_period"
    with state.transaction() as db:
        assert db.execute("SELECT count(DISTINCT month) FROM uses").fetchone() == (5,)
