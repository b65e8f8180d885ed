"""Budgets of analysts in a real store: nothing is spent twice, nothing without an answer, and no more than there is."""

from __future__ import annotations

import json
import subprocess
import sys
from threading import Barrier, Thread

import pytest

from deniable.allowance import MICRO
from deniable.analysts import Analysts
from deniable.report import Stratum
from deniable_aggregator.breakdown import Breakdown
from deniable_aggregator.budgets import Asked, Budgets, BudgetSpent
from deniable_aggregator.store import Store

BREAKDOWN = Breakdown({"platform": ("linux", "macos"), "plan": ("free", "paid")})
KEY, OTHER = "00112233aabbccdd", "ffeeddccbbaa9988"
WHOLE = Stratum("theme", 1, "f00d", "2026-11-20", "")
DAY = 86_400


class Clock:
    """A store's client whose time can be set."""

    def __init__(self, client):
        self._client, self.seconds = client, 1_800_000_000

    def __getattr__(self, name):
        return getattr(self._client, name)

    def time(self):
        return self.seconds, 0


@pytest.fixture
def budgets(real_redis):
    """Let each key spend 1 nat in 30 days, at a time of our own."""
    made = Budgets(Store(real_redis, "shop"), Analysts(epsilon=1.0, window=30))
    made.clock = made._redis = Clock(real_redis)
    return made


def asked(cell="", cost=300_000, kind="participants", among="", **changes):
    return Asked(WHOLE._replace(segment=cell, **changes), kind, among, cost)


def ask(budgets, question, told=0, key=KEY, breakdown=BREAKDOWN):
    return budgets.ask(key, question, breakdown, lambda: {"count": told})


def refusal(budgets, question, key=KEY):
    with pytest.raises(BudgetSpent) as caught:
        ask(budgets, question, key=key)
    return caught.value.left, caught.value.seconds


def test_questions_add_up_until_the_budget_is_spent(budgets):
    """Three questions of 0.3 nats are answered and a fourth is not; one of what is left is."""
    lefts = [ask(budgets, asked(cost=300_000 + each)).left.micro for each in range(3)]
    assert lefts == [700_000, 399_999, 99_997]
    assert refusal(budgets, asked(cost=300_004)) == (99_997, 30 * DAY)
    assert ask(budgets, asked(cost=99_997)).left.micro == 0
    assert refusal(budgets, asked(cost=1)) == (0, 30 * DAY)


def test_the_same_question_is_answered_the_same_for_nothing(budgets):
    """Whoever asks again gets the first answer, which costs nothing, also when the budget is spent."""
    first = ask(budgets, asked(cost=MICRO), 7)
    again = ask(budgets, asked(cost=MICRO), 8)
    others = ask(budgets, asked(cost=MICRO), 9, key=OTHER)
    assert [each.told for each in (first, again, others)] == [{"count": 7}] * 3
    assert [each.spent for each in (first, again, others)] == [MICRO, 0, 0]
    assert [each.left.micro for each in (first, again, others)] == [0, 0, MICRO]


def test_what_makes_a_question_another(budgets):
    """Another cost, cell, kind, segment, period, version, definition or metric is another question."""
    questions = [
        asked(),
        asked(cost=300_001),
        asked("platform=linux"),
        asked(kind="popular", among="plan"),
        asked(kind="popular", among="platform"),
        asked(period="2026-11-19"),
        asked(version=2),
        asked(fingerprint="beef"),
        asked(metric="other"),
    ]
    keys = [f"{number:016x}" for number in range(len(questions))]
    answers = [ask(budgets, question, number, key) for number, (question, key) in enumerate(zip(questions, keys, strict=True))]
    assert [each.told["count"] for each in answers] == list(range(len(questions)))
    assert all(each.spent for each in answers)


def test_what_has_no_report_in_common_has_its_own_budget(budgets):
    """Disjoint cells, other periods, other metrics and other keys do not add up; cells that overlap do."""
    for question in (asked("platform=linux", MICRO), asked("platform=macos", MICRO), asked("", MICRO, period="2026-11-19")):
        assert ask(budgets, question).spent == MICRO
    assert ask(budgets, asked("", MICRO, metric="other")).spent == MICRO
    for cell in ("", "plan=free", "platform=linux,plan=paid"):
        assert refusal(budgets, asked(cell, 10_000)) == (0, 30 * DAY)
        assert ask(budgets, asked(cell, 20_000), key=OTHER).spent == 20_000


def test_what_was_spent_comes_back_when_the_window_is_over(budgets):
    """Each spend comes back 30 days later and not a second before, and the refusal has said so."""
    ask(budgets, asked(cost=600_000))
    budgets.clock.seconds += DAY
    ask(budgets, asked(cost=300_000))
    assert refusal(budgets, asked(cost=500_000)) == (100_000, 29 * DAY)
    assert refusal(budgets, asked(cost=800_000)) == (100_000, 30 * DAY)
    budgets.clock.seconds += 29 * DAY - 1
    assert refusal(budgets, asked(cost=500_000)) == (100_000, 1)
    budgets.clock.seconds += 1
    assert ask(budgets, asked(cost=500_000)).left.micro == 200_000


def test_a_clock_that_is_set_back_brings_nothing_back(budgets):
    """An account goes on from the last time that it knows."""
    ask(budgets, asked(cost=MICRO))
    budgets.clock.seconds -= 100 * DAY
    assert refusal(budgets, asked(cost=10_000)) == (0, 30 * DAY)


def test_a_longer_window_finds_what_was_spent_before(budgets, real_redis):
    """What a window does not reach is remembered for a longer one, for 400 days."""
    ask(budgets, asked(cost=600_000))
    budgets.clock.seconds += 40 * DAY
    ask(budgets, asked(cost=500_000))
    longer = Budgets(Store(real_redis, "shop"), Analysts(epsilon=1.2, window=60))
    longer._redis = budgets.clock
    assert refusal(longer, asked(cost=200_000)) == (100_000, 20 * DAY)
    budgets.clock.seconds += 400 * DAY
    ask(budgets, asked(cost=10_000))
    assert real_redis.hgetall("{shop}:spent:theme")[f"{KEY} theme|1|f00d|2026-11-20|".encode()].count(b"[") == 2


def test_more_than_the_budget_never_comes_back(budgets):
    """A question that costs more than all of it is refused without a time."""
    assert refusal(budgets, asked(cost=MICRO + 1)) == (MICRO, None)


def test_a_budget_is_read_as_it_is_written(real_redis):
    """A budget such as 0.57, of which a float has a little less, pays for a question of 0.57."""
    exact = Budgets(Store(real_redis, "shop"), Analysts(epsilon=0.57))
    assert ask(exact, asked(cost=570_000)).left.micro == 0


def test_cells_of_unknown_meaning_share_one_budget(budgets):
    """Where it is not known for sure what cells were, none are disjoint."""
    ask(budgets, asked("platform=linux", MICRO))
    with pytest.raises(BudgetSpent):
        ask(budgets, asked("platform=macos"), breakdown=None)


def test_nothing_is_drawn_for_what_is_not_answered(budgets):
    """A refused or repeated question draws no answer, which would be for nobody."""
    ask(budgets, asked(cost=MICRO))

    def never():
        raise AssertionError

    assert budgets.ask(KEY, asked(cost=MICRO), BREAKDOWN, never).spent == 0
    with pytest.raises(BudgetSpent):
        budgets.ask(KEY, asked(cost=5), BREAKDOWN, never)


def test_what_is_left_is_told_by_period(budgets):
    """Of each period on which the key has spent: what is left for the report on which it has spent most, and until when."""
    now = budgets.clock.seconds
    ask(budgets, asked("platform=linux", 300_000))
    ask(budgets, asked("platform=macos", 200_000))
    budgets.clock.seconds += DAY
    ask(budgets, asked("plan=free", 100_000))
    ask(budgets, asked("", 500_000, period="2026-11-19"), key=OTHER)
    left = budgets.left(KEY, "theme", lambda wholes: dict.fromkeys(wholes, BREAKDOWN))
    assert {whole: (each.micro, each.refills) for whole, each in left.items()} == {WHOLE: (600_000, now + 30 * DAY)}
    assert budgets.left(KEY, "theme", lambda _: {}) == budgets.left(KEY, "other", dict.fromkeys) == {}
    (unknown,) = budgets.left(KEY, "theme", dict.fromkeys).values()
    assert unknown.micro == 400_000
    budgets.clock.seconds += 40 * DAY
    (full,) = budgets.left(KEY, "theme", lambda wholes: dict.fromkeys(wholes, BREAKDOWN)).values()
    assert (full.micro, full.refills) == (MICRO, None)


def test_a_script_that_ran_twice_has_spent_once(budgets, real_redis):
    """Where the store's first answer was lost and the script is sent again, the question is paid once and answered the same."""
    send = budgets._answer

    def twice(keys, args):
        send(keys, args)
        return send(keys, args)

    budgets._answer = twice
    assert ask(budgets, asked(), 5).told == {"count": 5}
    budgets._answer = send
    assert refusal(budgets, asked(cost=MICRO)) == (700_000, 30 * DAY)
    assert real_redis.hlen("{shop}:answers:theme") == 1


def test_an_answer_is_kept_in_the_moment_in_which_it_is_paid(budgets, real_redis):
    """A spend of the same key in between makes the script do neither, and the question is looked at again."""
    send, times = budgets._answer, []

    def meanwhile(keys, args):
        if not times:
            times.append(1)
            assert send(keys, [asked(cost=900_000).field, "{}", args[2], args[3], f'[["",{budgets.clock.seconds},900000]]'])
        done = send(keys, args)
        assert done is None
        return done

    budgets._answer = meanwhile
    assert refusal(budgets, asked()) == (100_000, 30 * DAY)
    assert [*real_redis.hgetall("{shop}:answers:theme").values()] == [b"{}"]


def test_threads_that_ask_at_once_spend_no_more_than_there_is(real_redis):
    """Of twenty different questions of 0.1 nats at once ten are answered, also where some overlap only in a third cell."""
    store, start, outcomes = Store(real_redis, "shop"), Barrier(20), []

    def one(number):
        own = Budgets(store, Analysts())
        start.wait()
        try:
            outcomes.append(ask(own, asked(("", "platform=linux", "plan=free")[number % 3], 100_000 - number)).spent)
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


PROCESS = """
import sys
from deniable.analysts import Analysts
from deniable.report import Stratum
from deniable_aggregator.breakdown import Breakdown
from deniable_aggregator.budgets import Asked, Budgets, BudgetSpent
from deniable_aggregator.store import Store, connect

budgets = Budgets(Store(connect(sys.argv[1]), "shop"), Analysts())
whole, spent = Stratum("theme", 1, "f00d", "2026-11-20", ""), 0
print("ready", flush=True)
sys.stdin.readline()
for number in range(40):
    try:
        cost = 50_000 - int(sys.argv[2]) * (number % 2)
        answer = budgets.ask("00112233aabbccdd", Asked(whole, "participants", "", cost - number // 2), Breakdown({}), lambda: {})
        spent += answer.spent
    except BudgetSpent:
        pass
print(spent)
"""


def test_processes_that_ask_at_once_spend_no_more_than_there_is(real_redis, store_url):
    """Of processes that ask the same and other questions at once each answer is paid once, up to the budget."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PROCESS, store_url, str(1000 * number)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(3)
    ]
    for each in processes:
        assert each.stdout.readline() == "ready\n"
    for each in processes:
        each.stdin.write("\n")
        each.stdin.flush()
    spent = [int(each.communicate(timeout=60)[0]) for each in processes]
    (noted,) = real_redis.hgetall("{shop}:spent:theme").values()
    costs = [cost for _, _, cost in json.loads(noted)]
    assert sum(spent) == sum(costs)
    assert 0.95 * MICRO < sum(costs) <= MICRO
    assert len(costs) == real_redis.hlen("{shop}:answers:theme")
