"""The budget of an app's analysts in a real store: nothing is spent twice, nothing without an answer, no more than there is."""

from __future__ import annotations

from threading import Barrier, Thread

import pytest

from deniable.limits.allowance import MICRO
from deniable.registry.tables import Analysts
from deniable.wire.report import Stratum
from deniable_aggregator.questions.budgets import Budgets, BudgetSpent, Month, PaidQuestion, Payer
from deniable_aggregator.store import Store

pytestmark = pytest.mark.both_stores

KEYS = [f"{number:016x}" for number in range(12)]
KEY, OTHER, THIRD = KEYS[:3]
WHOLE = Stratum("theme", 1, "f00d", "2026-11-20", "")
LINUX, MACOS = (("linux",), ("free", "paid")), (("macos",), ("free", "paid"))


@pytest.fixture
def budgets(real_redis):
    """Let all keys spend 1 nat on a month, and each of them 0.6."""
    return Budgets(Store(real_redis, "shop"), Analysts(epsilon=1.0, per_key=0.6))


def query(*cells, cost=300_000, month="2026-11", figure="count", **changes):
    return PaidQuestion(WHOLE._replace(**changes), month, cells or (LINUX,), cost, figure)


def ask(budgets, question, answer=0, key=KEY, epsilon=None):
    return budgets.ask(Payer(key, epsilon), question, lambda: [answer])


def refused(budgets, question, key=KEY, epsilon=None):
    with pytest.raises(BudgetSpent):
        ask(budgets, question, key=key, epsilon=epsilon)
    return budgets.left(Payer(key, epsilon), question.month)


def test_answers_add_up_until_a_keys_part_is_spent(budgets):
    """Two questions of 0.3 nats are not answered to the unit where one millionth is missing; one of what is left is."""
    assert ask(budgets, query()).left == 300_000
    assert refused(budgets, query(cost=300_001)) == (700_000, 300_000)
    assert ask(budgets, query(cost=299_999)).left == 1
    assert refused(budgets, query(cost=2)) == (400_001, 1)
    assert ask(budgets, query(cost=1)).left == 0


def test_all_keys_share_what_the_app_has(budgets):
    """However many keys ask, and whatever each has left of its own part, together they spend no more than the app has."""
    assert ask(budgets, query(cost=600_000)).left == 0
    assert ask(budgets, query(cost=250_000), key=OTHER).left == 150_000
    assert ask(budgets, query(cost=150_000), key=THIRD).left == 0
    for key in KEYS[2:]:
        assert refused(budgets, query(cost=10_000), key)[0] == 0
    assert budgets.spent() == {"2026-11": {"": MICRO, KEY: 600_000, OTHER: 250_000, THIRD: 150_000}}


@pytest.mark.parametrize(
    "another",
    [
        query(MACOS, cost=300_001),
        query(LINUX, MACOS, cost=300_001),
        query(cost=300_001, period="2026-11-03"),
        query(cost=300_001, metric="export"),
        query(cost=300_001, version=2),
    ],
)
def test_nothing_is_for_less_because_it_is_about_others(budgets, another):
    """Disjoint cells, periods, metrics and versions add up like the same: from one and what is published, others follow."""
    ask(budgets, query())
    assert refused(budgets, another) == (700_000, 300_000)


def test_months_have_budgets_of_their_own_that_never_come_back(budgets):
    """What is spent on a month's reports is spent, whenever one asks; reports of another month have their own."""
    ask(budgets, query(cost=600_000))
    assert ask(budgets, query(cost=600_000, month="2026-12", period="2026-12-01")).left == 0
    assert refused(budgets, query(cost=1)) == (400_000, 0)


def test_the_same_question_is_answered_the_same_for_nothing(budgets):
    """Whoever asks again gets the first answer, which costs nothing, also when the budget is spent."""
    first, again, others = (ask(budgets, query(cost=600_000), answer, key) for answer, key in ((7, KEY), (8, KEY), (9, OTHER)))
    assert [each.numbers[0] for each in (first, again, others)] == [7, 7, 7]
    assert [each.spent for each in (first, again, others)] == [600_000, 0, 0]
    assert [each.left for each in (first, again, others)] == [0, 0, 400_000]


def test_what_makes_a_question_another(budgets):
    """Another cost, cell, set of cells, period, version, definition or metric is another question, with an answer of its own."""
    questions = [
        query(cost=1),
        query(cost=2),
        query(MACOS, cost=1),
        query(LINUX, MACOS, cost=1),
        query(cost=1, period="2026-11-19"),
        query(cost=1, version=2),
        query(cost=1, fingerprint="beef"),
        query(cost=1, metric="other"),
        query(cost=1, figure="sum"),
    ]
    answers = [ask(budgets, question, number) for number, question in enumerate(questions)]
    assert [each.numbers[0] for each in answers] == list(range(len(questions)))
    assert all(each.spent for each in answers)


def test_a_budget_is_read_as_it_is_written(real_redis):
    """A budget such as 0.57, of which a float has a little less, pays for a question of 0.57."""
    exact = Budgets(Store(real_redis, "shop"), Analysts(epsilon=0.57, per_key=0.57))
    assert ask(exact, query(cost=570_000)).left == 0


def test_a_keys_own_budget_lowers_and_never_raises(budgets):
    """A key has the least of the app's budget, of what the registry gives each key, and of what it was made for, exactly."""
    assert [budgets.limits(Payer(KEY, nats))[1] for nats in (None, 0, 0.07, 0.57, 0.6, 0.9, 20)] == [
        600_000,
        0,
        70_000,
        570_000,
        600_000,
        600_000,
        600_000,
    ]
    assert Budgets(budgets._store, Analysts(epsilon=0.2, per_key=5)).limits(Payer(KEY, 3)) == (200_000, 200_000)
    assert refused(budgets, query(cost=100_001), epsilon=0.1) == (MICRO, 100_000)
    assert ask(budgets, query(cost=70_000), epsilon=0.07).left == 0  # a float of 0.07 nats has a little more
    assert refused(budgets, query(cost=1), epsilon=0.07) == (930_000, 0)
    assert budgets.months(Payer(KEY, 0.07)) == [Month("2026-11", 70_000, 0, 930_000)]
    assert budgets.months(Payer(OTHER, 0.07)) == [Month("2026-11", 0, 70_000, 930_000)]


def test_a_key_with_its_own_budget_spends_of_both(budgets):
    """What a key spends of its own budget counts for the app, and what the app has left bounds the key."""
    ask(budgets, query(cost=600_000))
    ask(budgets, query(cost=350_000), key=OTHER)
    assert budgets.left(Payer(THIRD, 0.1), "2026-11") == (50_000, 100_000)
    assert refused(budgets, query(cost=60_000), THIRD, 0.1) == (50_000, 100_000)
    assert ask(budgets, query(cost=50_000), key=THIRD, epsilon=0.1).left == 0


def test_the_store_refuses_what_another_process_took_of_a_keys_own_budget(budgets, real_redis):
    """Two requests with one key at once do not both take the last of its own budget, though the app has more."""
    send = budgets._answer

    def meanwhile(keys, args):
        budgets._answer = send
        ask(budgets, query(MACOS, cost=60_000), epsilon=0.1)
        return send(keys, args)

    budgets._answer = meanwhile
    assert refused(budgets, query(cost=60_000), epsilon=0.1) == (940_000, 40_000)
    assert real_redis.hlen("{shop}:answers:theme") == 1


def test_a_budget_that_was_lowered_is_spent(budgets, real_redis):
    """What was spent before counts, and nothing is below 0."""
    ask(budgets, query(cost=600_000))
    lower = Budgets(Store(real_redis, "shop"), Analysts(epsilon=0.5))
    assert refused(lower, query(cost=1), OTHER) == (0, 500_000)


def test_nothing_is_drawn_for_what_is_not_answered(budgets):
    """For a refused or repeated question no exact number is looked at."""
    ask(budgets, query(cost=600_000))

    def never():
        raise AssertionError

    assert budgets.ask(Payer(KEY), query(cost=600_000), never).spent == 0
    with pytest.raises(BudgetSpent):
        budgets.ask(Payer(KEY), query(cost=5), never)


def test_an_answer_that_cannot_be_drawn_costs_nothing(budgets, real_redis):
    """What goes wrong while exact numbers are read leaves everything as it was."""

    def fails():
        raise LookupError

    with pytest.raises(LookupError):
        budgets.ask(Payer(KEY), query(), fails)
    assert not list(real_redis.scan_iter())


def test_a_script_that_ran_twice_has_spent_once(budgets, real_redis):
    """Where the store's first answer was lost and the script is sent again, the question is paid once and answered the same."""
    send = budgets._answer

    def twice(keys, args):
        send(keys, args)
        return send(keys, args)

    budgets._answer = twice
    answer = ask(budgets, query(), 5)
    assert (answer.numbers[0], answer.spent) == (5, 300_000)  # which the audit log tells
    assert budgets.left(Payer(KEY), "2026-11") == (700_000, 300_000)
    assert real_redis.hlen("{shop}:answers:theme") == 1


@pytest.mark.parametrize(
    ("others", "left"), [({KEY: 500_000}, (500_000, 100_000)), ({OTHER: 500_000, THIRD: 300_000}, (200_000, 600_000))]
)
def test_what_is_spent_in_between_counts(budgets, real_redis, others, left):
    """A question that could be paid for when it was looked at, and cannot any more, is not answered and spends nothing."""
    send = budgets._answer

    def meanwhile(keys, args):
        budgets._answer = send
        for key, cost in others.items():
            ask(budgets, query(MACOS, cost=cost), key=key)
        return send(keys, args)

    budgets._answer = meanwhile
    assert refused(budgets, query()) == left
    assert real_redis.hlen("{shop}:answers:theme") == len(others)


def test_threads_that_ask_at_once_spend_no_more_than_there_is(real_redis):
    """Of twenty different questions of 0.1 nats by ten keys at once, as many are answered as the app's budget pays for."""
    store, start, outcomes = Store(real_redis, "shop"), Barrier(20), []

    def one(number):
        own = Budgets(store, Analysts())
        start.wait()
        try:
            outcomes.append(ask(own, query(cost=100_000 - number), key=KEYS[number % 10]).spent)
        except BudgetSpent:
            outcomes.append(0)

    threads = [Thread(target=one, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(outcomes) == 20
    assert 0.9 * MICRO < sum(outcomes) <= MICRO
    assert real_redis.hlen("{shop}:answers:theme") == sum(outcome > 0 for outcome in outcomes)
