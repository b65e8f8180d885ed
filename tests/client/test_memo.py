"""Permanent responses: drawn once, kept for good, reported once a period, paid for once."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from contextlib import suppress
from random import Random

import pytest

from deniable import mechanisms
from deniable.budget import Budget
from deniable.ledger import MICRO, Ledger, cost
from deniable.memo import Memo
from deniable.state import State

DAY = 86_400.0

RACE = """
import sys
from pathlib import Path
from deniable import mechanisms
from deniable.budget import Budget
from deniable.ledger import Ledger
from deniable.memo import Memo
from deniable.state import State
state = State(Path(sys.argv[1]))
memo = Memo(state, Ledger(state, Budget()))
chain = mechanisms.make("rappor", domain_size=8, epsilon=1, permanent=2)
for day in range(1, 21):
    made = memo.respond("tag", chain, 3, f"2026-11-{day:02}")
    print(f"{day:02}", made if isinstance(made, str) else "report")
"""


class Clock:
    """A wall clock that a test sets."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


class Device:
    """A device that can be started again and again."""

    def __init__(self, directory, **budget) -> None:
        self.clock = Clock()
        self.budget = Budget(**({"per_window": None, "lifetime": None} | budget))
        self.directory = directory
        self.start()

    def start(self) -> None:
        self.state = State(self.directory)
        self.ledger = Ledger(self.state, self.budget, self.clock)
        self.memo = Memo(self.state, self.ledger)

    def rows(self, table: str) -> list[tuple]:
        with self.state.transaction() as db:
            return db.execute(f"SELECT * FROM {table}").fetchall()


@pytest.fixture
def device(tmp_path):
    """Make a device with a given budget."""
    return lambda **budget: Device(tmp_path / "shop", **budget)


# Its report is the permanent response itself: what is kept can be seen.
BARE = mechanisms.make("rappor", domain_size=16, epsilon=2, permanent=2)
CHAIN = mechanisms.make("rappor", domain_size=16, epsilon=1, permanent=2)
COST = cost(CHAIN.permanent_ratio)


def periods(count: int) -> list[str]:
    return [f"{2000 + number // 12}-{number % 12 + 1:02}" for number in range(count)]


def test_the_same_answer_has_the_same_response(device):
    """Over restarts and any number of periods, an answer's permanent response never changes, and is paid for once."""
    mine = device()
    seen = set()
    for period in periods(50):
        mine.start()
        seen.add(mine.memo.respond("tag", BARE, 5, period))
    assert len(seen) == 1
    assert len(mine.rows("responses")) == 1
    assert mine.ledger.spent().lifetime == COST / MICRO


def test_reports_of_it_differ(device):
    """Each period's report is drawn anew from the response that is kept."""
    mine = device()
    seen = {mine.memo.respond("tag", CHAIN, 5, period) for period in periods(50)}
    assert len(seen) > 10
    assert len(mine.rows("responses")) == 1


def test_the_response_is_kept_before_a_report_exists(device, monkeypatch):
    """If the process dies while the report is drawn, the response is on disk and paid for."""
    mine = device()
    monkeypatch.setattr(type(CHAIN), "respond_instantly", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        mine.memo.respond("tag", CHAIN, 5, "2026-11")
    monkeypatch.undo()
    mine.start()
    assert len(mine.rows("responses")) == 1
    assert mine.ledger.spent().lifetime == COST / MICRO


def test_another_answer_is_another_spend(device):
    """Each answer has a response of its own, which costs the permanent epsilon once; going back to one costs nothing."""
    mine = device()
    for number, period in enumerate(periods(30)):
        assert isinstance(mine.memo.respond("tag", CHAIN, number % 3, period), bytes)
    assert mine.ledger.spent().lifetime == 3 * COST / MICRO


def test_another_version_is_another_spend(device):
    """With the fingerprint, everything begins anew."""
    mine = device()
    assert isinstance(mine.memo.respond("one", CHAIN, 5, "2026-11"), bytes)
    assert isinstance(mine.memo.respond("two", CHAIN, 5, "2026-11"), bytes)
    assert mine.ledger.spent().lifetime == 2 * COST / MICRO


def test_a_lost_response_is_a_new_spend(device):
    """If the response is gone and the ledger is not, the next one is paid for like the first."""
    mine = device(lifetime=2 * COST / MICRO)
    assert isinstance(mine.memo.respond("tag", CHAIN, 5, "2026-10"), bytes)
    for period, outcome in (("2026-11", bytes), ("2026-12", str)):
        with mine.state.transaction() as db:
            db.execute("DELETE FROM responses")
        assert isinstance(mine.memo.respond("tag", CHAIN, 5, period), outcome)
    assert mine.ledger.spent().lifetime == 2 * COST / MICRO


def test_a_deleted_state_is_no_free_redraw(device):
    """If ledger and responses are gone together, nothing is reported."""
    mine = device()
    assert isinstance(mine.memo.respond("tag", CHAIN, 5, "2026-10"), bytes)
    (mine.directory / "state.db").unlink()
    mine.start()
    assert mine.memo.respond("tag", CHAIN, 5, "2026-11") == "state"
    assert mine.state.trouble is not None


def test_once_a_period(device):
    """In a period there is one report, whatever is answered, also after a restart, and when the clock goes back."""
    mine = device()
    assert isinstance(mine.memo.respond("tag", CHAIN, 5, "2026-11"), bytes)
    for restart in (False, True):
        if restart:
            mine.start()
        assert mine.memo.respond("tag", CHAIN, 5, "2026-11") == "this_period"
        assert mine.memo.respond("tag", CHAIN, 6, "2026-11") == "this_period"
        assert mine.memo.respond("tag", CHAIN, 5, "2026-09") == "this_period"
    assert len(mine.rows("responses")) == 1


def test_a_period_that_is_not_sampled_is_over(device):
    """The toss is made once a period: trying again does not help."""
    mine = device()
    assert mine.memo.respond("tag", CHAIN, None, "2026-11") == "not_sampled"
    assert mine.memo.respond("tag", CHAIN, 5, "2026-11") == "this_period"
    assert mine.rows("responses") == []
    assert isinstance(mine.memo.respond("tag", CHAIN, 5, "2026-12"), bytes)


def test_a_spent_budget_keeps_the_last_answer(device):
    """When no new response can be paid for, the last one is reported: silence would tell that the answer has changed."""
    mine = device(lifetime=2)
    first = mine.memo.respond("tag", BARE, 5, "2026-10")
    assert isinstance(first, bytes)
    mine.start()
    assert mine.memo.respond("tag", BARE, 6, "2026-11") == first
    assert mine.memo.respond("tag", BARE, 5, "2026-11") == "this_period"
    assert mine.memo.respond("tag", BARE, None, "2026-12") == "not_sampled"
    assert mine.memo.respond("tag", BARE, 7, "2027-01") == first
    assert len(mine.rows("responses")) == 1
    assert mine.ledger.spent().lifetime == COST / MICRO


def would_report(mine: Device, value: int) -> bool:
    """Tell whether an answer would be reported now, and leave everything as it was."""
    reported = False
    with suppress(ZeroDivisionError), mine.state.transaction() as db:
        reported = isinstance(mine.memo._kept(db, "one", CHAIN, value, "2100-01"), bytes)
        raise ZeroDivisionError
    return reported


def test_whether_there_is_a_report_does_not_depend_on_the_answer(device):
    """Whatever was answered and when, whether the next answer is reported is the same for all answers."""
    chance = Random(20261121)  # of the times and answers, not of what is drawn
    spoken = Counter()
    for run in range(60):
        mine = device(window=5, per_window=chance.choice((2, 4)), lifetime=chance.choice((None, 6, 12)))
        mine.directory = mine.directory.with_name(f"shop{run}")
        mine.start()
        for number in range(chance.randrange(2, 12)):
            mine.clock.now += DAY * chance.choice((1, 1, 1, 2, 6))
            mine.memo.respond(chance.choice(("one", "two", "three")), CHAIN, chance.randrange(3), periods(99)[number])
        mine.clock.now += DAY * chance.choice((1, 2))
        outcomes = {would_report(mine, value) for value in range(4)}
        assert len(outcomes) == 1
        spoken += Counter(outcomes)
    assert min(spoken[True], spoken[False]) > 3


def test_a_lost_spend_is_a_new_one(device):
    """If a response is kept and its entry in the ledger is gone, it is paid for like the first time."""
    mine = device()
    assert isinstance(mine.memo.respond("tag", CHAIN, 5, "2026-10"), bytes)
    with mine.state.transaction() as db:
        db.execute("DELETE FROM spends")
    assert isinstance(mine.memo.respond("tag", CHAIN, 5, "2026-11"), bytes)
    assert mine.ledger.spent().lifetime == 2 * COST / MICRO


def test_a_held_state_takes_no_time_twice(device, monkeypatch):
    """After a try that was in vain, the state is left alone for some seconds: each try takes the app's time."""
    mine = device()
    assert isinstance(mine.memo.respond("tag", CHAIN, 5, "2026-10"), bytes)
    now = 0.0
    monkeypatch.setattr("deniable.memo.time.monotonic", lambda: now)
    (mine.directory / "state.db").rename(mine.directory / "elsewhere")
    assert mine.memo.respond("tag", CHAIN, 5, "2026-11") == "state"
    (mine.directory / "elsewhere").rename(mine.directory / "state.db")
    assert mine.memo.respond("tag", CHAIN, 5, "2026-11") == "state"
    now = 11.0
    assert isinstance(mine.memo.respond("tag", CHAIN, 5, "2026-11"), bytes)


def test_a_response_counts_in_every_window_that_uses_it(device):
    """Two kept responses do not fit into a window for one, however long ago they were drawn."""
    mine = device(window=1, per_window=2)
    tags = ("one", "two")
    for tag, period in zip(tags, ("2026-01", "2026-02"), strict=True):
        assert isinstance(mine.memo.respond(tag, CHAIN, 5, period), bytes)
        mine.clock.now += 2 * DAY
    assert isinstance(mine.memo.respond("one", CHAIN, 5, "2026-03"), bytes)
    mine.clock.now += 0.9 * DAY
    assert mine.memo.respond("two", CHAIN, 5, "2026-03") == "budget"
    assert isinstance(mine.memo.respond("one", CHAIN, 5, "2026-04"), bytes)
    mine.clock.now += 0.9 * DAY  # its last report is less than a day old, though its first in this window is not
    assert mine.memo.respond("two", CHAIN, 5, "2026-04") == "budget"
    mine.clock.now += 0.2 * DAY
    assert isinstance(mine.memo.respond("two", CHAIN, 5, "2026-05"), bytes)
    assert mine.ledger.spent().lifetime == 2 * COST / MICRO


def test_the_row_stays(device):
    """A device uses one cohort for a metric, for all answers and for good; devices together use all."""
    chain = mechanisms.make("rappor", domain_size=1000, epsilon=1, permanent=2, cohorts=4, bits=16, hashes=2)
    mine = device()
    for number, period in enumerate(periods(20)):
        mine.start()
        mine.memo.respond("tag", chain, number % 4, period)
    rows = [chain.layout.unpack(bytes(content))[0] for _, content in mine.rows("responses")]
    assert len(rows) == 4
    assert len(set(rows)) == 1
    drawn = Counter()
    for _ in range(60):
        state = State(None)
        made = Memo(state, Ledger(state, Budget())).respond("tag", chain, 5, "2026-11")
        drawn[chain.layout.unpack(made)[0]] += 1
    assert set(drawn) == set(range(4))  # fails once in 10^7


def test_what_is_kept_does_not_name_the_answer(device):
    """The file holds neither the metric's tag with an answer nor the same account on two devices."""
    first, second = device(), Device(device().directory.with_name("other"))
    for mine in (first, second):
        mine.memo.respond("tag", BARE, 5, "2026-11")
    accounts = [mine.rows("responses")[0][0] for mine in (first, second)]
    assert accounts[0] != accounts[1]


def test_processes_share_it(tmp_path):
    """Eight processes that report every day report once a day between them, from one response."""
    script = [sys.executable, "-c", RACE, str(tmp_path / "shop")]
    running = [subprocess.Popen(script, stdout=subprocess.PIPE, text=True) for _ in range(6)]
    lines = Counter(line for process in running for line in process.communicate()[0].splitlines())
    days = Counter(line.split()[0] for line in lines.elements() if line.endswith("report"))
    assert {line.split()[1] for line in lines} <= {"report", "this_period", "state"}
    assert all(times == 1 for times in days.values())
    assert days
    mine = Device(tmp_path / "shop")
    assert len(mine.rows("responses")) == 1
    assert mine.ledger.spent().lifetime == COST / MICRO


def test_both_steps_are_the_declared_ones(chi_square):
    """Over many devices the first report has the distribution that the decoder assumes."""
    chain = mechanisms.make("rappor", domain_size=2, epsilon=1, permanent=2)
    seen = Counter()
    for _ in range(1500):
        state = State(None)
        seen[Memo(state, Ledger(state, Budget())).respond("tag", chain, 1, "2026-11")] += 1
    one, other = chain.one, chain.other
    shares = {
        chain.layout.pack(0, bits): (one if bits & 2 else 1 - one) * (other if bits & 1 else 1 - other) for bits in range(4)
    }
    chi_square(seen, shares)
