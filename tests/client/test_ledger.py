"""The ledger: never more than a metric's part, nor than the budget, whatever dies, races or turns back the clock."""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime
from shutil import rmtree

import pytest

from deniable.device.ledger import Ledger, account
from deniable.device.prepared import Occasion
from deniable.device.state import State
from deniable.limits.allowance import MICRO, Allowance
from deniable.registry import period
from deniable.registry.tables import Budget
from deniable.wire.report import Stratum

DAY = 86_400.0

FREE = Budget(per_month=None, lifetime=None)


class Clock:
    """A wall clock that a test sets."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0  # the 15th of January 2027, eight in the morning

    def __call__(self) -> float:
        return self.now


class On(Ledger):
    """A ledger of a device, and its clock."""

    def __init__(self, state, budget, clock) -> None:
        super().__init__(state, budget)
        self.clock = clock

    @property
    def now(self) -> datetime:
        return datetime.fromtimestamp(self.clock(), UTC)

    def today(self):
        """Return what was spent in the month that it is, and ever."""
        return self.spent(period.of(self.now, "month"))


@pytest.fixture
def clock():
    """Give a clock."""
    return Clock()


@pytest.fixture
def open_ledger(tmp_path, clock):
    """Open the ledger of one device, again and again, as its processes would."""
    return lambda **bounds: On(State(tmp_path / "shop"), Budget(**({"per_month": None, "lifetime": None} | bounds)), clock)


def asks(
    tag: str = "m", *, cost: int = MICRO, per_period: int = 1000, lifetime: int | None = None, answers: int = 0
) -> Allowance:
    month = cost * answers if answers else 31 * per_period * cost
    return Allowance(tag, tag, cost, per_period, answers, month, lifetime)


def on(ledger: On, tag: str = "m", length: str = "day") -> Occasion:
    name = period.of(ledger.now, length)
    return Occasion(Stratum(tag, 1, tag, name, ""), period.month_of(name, length))


def spend(ledger: On, allowance: Allowance, length: str = "day") -> str | None:
    return ledger.spend(allowance, on(ledger, allowance.tag, length))


def granted(ledger: On, allowance: Allowance, tries: int) -> int:
    return sum(spend(ledger, allowance) is None for _ in range(tries))


def reserve(ledger: On, allowance: Allowance) -> bool:
    with ledger._state.transaction() as db:
        return ledger.reserve(db, allowance, on(ledger, allowance.tag))


def test_so_many_reports_a_period(open_ledger, clock):
    """A metric makes as many reports in a period as it declares, over restarts and processes, and as many in the next."""
    three = asks(per_period=3)
    for _ in range(3):
        ledgers = [open_ledger(), open_ledger()]
        assert sum(granted(ledger, three, 5) for ledger in ledgers) == 3
        assert spend(ledgers[0], three) == "this_period"
        assert granted(open_ledger(), three, 5) == 0
        clock.now += DAY
    assert open_ledger().today().lifetime == 9


def test_metrics_do_not_share_their_parts(open_ledger):
    """What one metric has spent does not show in another, as long as all parts fit."""
    ledger = open_ledger(per_month=100, lifetime=100)
    assert granted(ledger, asks("one", lifetime=3 * MICRO), 9) == 3
    assert granted(ledger, asks("two", lifetime=4 * MICRO), 9) == 4
    assert spend(ledger, asks("one", lifetime=3 * MICRO)) == "budget"


def test_the_month_holds_after_an_update(open_ledger, clock):
    """When an update has changed the parts, what was spent before counts, and all metrics together stay within the month."""
    assert granted(open_ledger(per_month=10, lifetime=100), asks("old"), 8) == 8
    clock.now += DAY
    assert granted(open_ledger(per_month=10, lifetime=100), asks("new"), 8) == 2
    assert spend(open_ledger(per_month=10, lifetime=100), asks("new")) == "budget"
    clock.now += 15 * DAY  # the last day of the month
    assert granted(open_ledger(per_month=10, lifetime=100), asks("new"), 8) == 0
    clock.now += DAY
    assert granted(open_ledger(per_month=10, lifetime=100), asks("new"), 8) == 8


def test_the_lifetime_holds_after_an_update(open_ledger, clock):
    """The same of the lifetime, which never refills."""
    assert granted(open_ledger(per_month=10, lifetime=10), asks("old"), 8) == 8
    clock.now += 1000 * DAY
    assert granted(open_ledger(per_month=10, lifetime=10), asks("new"), 8) == 2
    clock.now += 1000 * DAY
    assert granted(open_ledger(per_month=10, lifetime=10), asks("new"), 8) == 0


def test_the_cap_is_reached_exactly(open_ledger):
    """Ten reports of one nat fit into a budget of ten, and the eleventh does not; what is left is told."""
    ledger = open_ledger(per_month=10, lifetime=100)
    assert granted(ledger, asks(), 20) == 10
    assert spend(ledger, asks()) == "budget"
    ledger.return_leases()
    spent = ledger.today()
    assert (spent.month, spent.month_left, spent.lifetime, spent.lifetime_left) == (10, 0, 10, 90)


def test_tiny_debits_do_not_drift(open_ledger):
    """Ten thousand debits of a micronat are a hundredth of a nat, to the unit."""
    ledger = open_ledger(per_month=0.01)
    assert granted(ledger, asks(cost=1, per_period=10**9), 10_001) == 10_000
    ledger.return_leases()
    assert ledger.today().lifetime == 0.01


def test_a_clock_set_back_brings_nothing_back(open_ledger, clock):
    """A device whose clock goes back years makes no report until it is where it was, and has spent what it has spent."""
    two = asks(per_period=2)
    assert granted(open_ledger(), two, 5) == 2
    for days in (-1000, 500, 499):
        clock.now += days * DAY
        assert spend(open_ledger(), two) == "this_period"
    clock.now += 2 * DAY
    assert granted(open_ledger(), two, 5) == 2
    assert open_ledger().today().lifetime == 4


def test_half_spent_back_and_forth(open_ledger, clock):
    """Spending half, setting the clock back, trying again and setting it right does not give the other half twice."""
    ten = asks(per_period=10)
    first = open_ledger()
    assert granted(first, ten, 5) == 5
    first.return_leases()
    clock.now -= 3 * DAY
    assert granted(open_ledger(), ten, 20) == 0
    assert granted(first, ten, 20) == 0
    clock.now += 3 * DAY
    assert granted(open_ledger(), ten, 20) == 5


def test_a_crash_loses_the_lease(open_ledger):
    """What a process had taken ahead is spent when it dies, and never more than a 64th of what was left."""
    many = asks(per_period=6400)
    crashed = open_ledger()
    assert spend(crashed, many) is None
    del crashed  # without settling
    assert open_ledger().today().lifetime == 100
    assert granted(open_ledger(), asks(), 1) == 1


def test_a_lease_is_renewed_before_it_ends(open_ledger, monkeypatch):
    """While half is left, the sending thread pays for more: the app's thread does not wait for the disk again."""
    ledger, many, calls = open_ledger(), asks(per_period=6400), []
    ledger.nearly_used = lambda: calls.append(1)
    assert granted(ledger, many, 50) == 50
    assert not calls
    assert granted(ledger, many, 1) == 1
    assert calls == [1]
    ledger.renew_ahead()
    ledger.renew_ahead()  # of nothing
    assert open_ledger().today().lifetime == 100 + 98
    with monkeypatch.context() as closed:
        closed.setattr(State, "transaction", lambda _: pytest.fail("the app's thread waits for the disk"))
        assert granted(ledger, many, 49 + 98) == 49 + 98
    ledger.return_leases()
    assert open_ledger().today().lifetime == 198


def test_a_lease_that_was_given_back_is_not_renewed(open_ledger):
    """What the sending thread has paid for a lease that ended meanwhile is given back."""
    ledger, many = open_ledger(), asks(per_period=6400)
    assert granted(ledger, many, 76) == 76
    ledger.return_leases()
    ledger.renew_ahead()
    assert open_ledger().today().lifetime == 76


def test_settling_gives_the_rest_back(open_ledger):
    """A process that ends as it should has spent what it used, and can go on spending."""
    ledger = open_ledger()
    assert granted(ledger, asks(), 3) == 3
    ledger.return_leases()
    ledger.return_leases()
    assert open_ledger().today().lifetime == 3
    assert granted(ledger, asks(), 1) == 1
    ledger.return_leases()
    assert open_ledger().today().lifetime == 4


def test_a_lease_ends_with_its_period(open_ledger, clock):
    """What was taken ahead in one period is not used in the next, and is given back: its spends, and no report of the next."""
    ledger = open_ledger()
    assert spend(ledger, asks(per_period=128)) is None  # and another taken ahead
    clock.now += DAY
    assert granted(ledger, asks(per_period=128), 200) == 128
    ledger.return_leases()
    assert ledger.today().lifetime == 129
    with ledger._state.transaction() as db:
        assert account(db, "m") == ("2027-01-16", 128, 129 * MICRO)
        assert db.execute("SELECT * FROM spends").fetchall() == [("2027-01", "m", 129 * MICRO)]


def test_what_is_not_sampled_takes_a_place_and_costs_nothing(open_ledger, clock):
    """An answer that is not to be reported uses up the period like one that is, and what was taken ahead for it comes back."""
    for per_period in (1, 3, 1000):
        ledger, allowance = open_ledger(), asks(f"{per_period}", per_period=per_period)
        before = ledger.today().lifetime
        reasons = [ledger.spend(allowance, on(ledger), sampled=number % 2 == 1) for number in range(per_period + 1)]
        assert reasons == [None] * per_period + ["this_period"]
        ledger.return_leases()
        assert ledger.today().lifetime == before + per_period // 2
        assert ledger.spend(allowance, on(ledger)) == "this_period"
        clock.now += DAY


def test_a_lease_is_short_of_everything(open_ledger):
    """A lease never takes more than 1,024 reports, however many there are."""
    ledger = open_ledger()
    assert spend(ledger, asks(cost=1, per_period=10**9)) is None
    assert ledger.today().lifetime == 1024 / MICRO


def test_a_new_device_gets_nothing_back(open_ledger, tmp_path):
    """What an old lease has left is not taken off the spends of a device that has begun anew, though their rows are alike."""
    old = open_ledger()
    assert spend(old, asks()) is None
    rmtree(tmp_path / "shop")
    new = open_ledger()
    assert granted(new, asks(), 3) == 3
    before = new.today().lifetime
    old.return_leases()
    assert new.today().lifetime == before
    new.return_leases()
    assert new.today().lifetime == 3


def test_kept_responses_are_paid_for_at_once(open_ledger, clock):
    """A metric with kept responses spends all that is reserved at its first report, and later only its part of each new month."""
    permanent = asks("kept", cost=2 * MICRO, answers=2, lifetime=10 * MICRO)
    ledger = open_ledger(per_month=5, lifetime=50)
    for _ in range(5):
        assert reserve(ledger, permanent)
        assert (ledger.today().month, ledger.today().lifetime) == (4, 10)
        clock.now += DAY
    assert granted(ledger, asks("plain"), 5) == 1
    clock.now += 11 * DAY  # the last day of the month
    assert ledger.today().month == 5
    clock.now += DAY
    assert ledger.today().month == 0
    assert reserve(ledger, permanent)
    assert (ledger.today().month, ledger.today().lifetime) == (4, 11)


@pytest.mark.parametrize("bounds", [{"per_month": 3, "lifetime": 50}, {"per_month": 5, "lifetime": 9}])
def test_kept_responses_without_room(open_ledger, bounds):
    """Where their part does not fit, as may be after an update, nothing of it is spent."""
    ledger = open_ledger(**bounds)
    metric = asks("kept", cost=2 * MICRO, answers=2, lifetime=10 * MICRO)
    assert not reserve(ledger, metric)
    assert ledger.today().lifetime == 0
    assert ledger.ended(metric) is (bounds["lifetime"] < 10)


def test_a_larger_part_is_paid_for_when_it_comes(open_ledger, clock):
    """If a part has grown since, the difference is spent; if it has shrunk, nothing comes back."""
    ledger = open_ledger(lifetime=None)
    for lifetime, spent in ((10, 10), (14, 14), (6, 14)):
        assert reserve(ledger, asks("kept", cost=2 * MICRO, answers=2, lifetime=lifetime * MICRO))
        assert ledger.today().lifetime == spent
        clock.now += DAY


def test_without_a_state_nothing_is_spent(tmp_path):
    """Where the ledger cannot be written, no report may exist, and it says why; not every report asks again."""
    (tmp_path / "shop").mkdir()
    ledger = On(State(tmp_path / "shop"), FREE, Clock())
    assert [spend(ledger, asks()), spend(ledger, asks())] == ["state", "state"]
    assert ledger._state.trouble is not None
    assert "was deleted" in ledger._state.trouble


def test_trouble_passes(tmp_path, monkeypatch):
    """When the state can be used again, reports are made again."""
    (tmp_path / "shop").mkdir()
    ledger = On(State(tmp_path / "shop"), FREE, Clock())
    now = 0.0
    monkeypatch.setattr("deniable.device.ledger.time.monotonic", lambda: now)
    assert spend(ledger, asks()) == "state"
    (tmp_path / "shop").rmdir()
    now = 11.0
    assert spend(ledger, asks()) is None
    assert ledger._state.trouble is None


def test_a_refusal_keeps_its_reason(tmp_path):
    """Until it is tried again, a report that the state refused is not said to be one that the budget refused."""
    (tmp_path / "shop").mkdir()
    ledger = On(State(tmp_path / "shop"), FREE, Clock())
    assert spend(ledger, asks()) == "state"
    (tmp_path / "shop").rmdir()
    assert spend(ledger, asks()) == "state"


def test_looking_does_not_end_trouble(open_ledger):
    """That the state can be read says nothing of whether it can be written: only a write ends the trouble that one began."""
    ledger = open_ledger()
    assert spend(ledger, asks(per_period=1)) is None
    ledger._state.trouble = "the disk is full"
    ledger.today()
    assert ledger._state.trouble == "the disk is full"
    assert spend(ledger, asks("other")) is None
    assert ledger._state.trouble is None


@pytest.mark.parametrize(
    "column", ["UPDATE facts SET value = NULL", "UPDATE facts SET value = 'x'", "UPDATE facts SET value = x'00'"]
)
def test_a_cell_that_no_ledger_writes_stops(open_ledger, column):
    """What cannot be read as what was spent grants nothing, and is told as trouble."""
    ledger = open_ledger(lifetime=100, per_month=100)
    assert spend(ledger, asks(per_period=1)) is None
    with ledger._state.transaction() as db:
        db.execute(f"{column} WHERE name = 'lifetime'")
    assert spend(open_ledger(lifetime=100, per_month=100), asks("other")) == "state"
    assert ledger._state.trouble is None


def test_a_damaged_file_stops(open_ledger, tmp_path):
    """A file that was overwritten grants nothing."""
    ledger = open_ledger()
    assert spend(ledger, asks()) is None
    file = tmp_path / "shop" / "state.db"
    file.write_bytes(b"\xff" * file.stat().st_size)
    assert spend(open_ledger(), asks()) == "state"


def test_looking_begins_nothing(open_ledger, tmp_path):
    """To ask what was spent makes no file."""
    spent = open_ledger(per_month=4).today()
    assert (spent.month, spent.month_left, spent.lifetime, spent.lifetime_left) == (0, 4, 0, float("inf"))
    assert not (tmp_path / "shop").exists()


def test_no_finer_time_than_the_period_is_kept(open_ledger, clock):
    """Two devices that answered at different times of the same periods have the same ledger."""
    clock.now += 12_345.678
    ledger = open_ledger()
    assert spend(ledger, asks("monthly"), "month") is None
    assert reserve(ledger, asks("kept", answers=2))
    ledger.return_leases()
    with ledger._state.transaction() as db:
        rows = [db.execute(f"SELECT * FROM {table} ORDER BY tag").fetchall() for table in ("accounts", "spends")]
    assert rows == [
        [("kept", "2027-01-15", 1, 2 * MICRO), ("monthly", "2027-01", 1, MICRO)],
        [("2027-01", "kept", 2 * MICRO), ("2027-01", "monthly", MICRO)],
    ]


def test_a_clock_that_is_wrong_for_a_while_forgets_nothing(open_ledger, clock):
    """While the clock is far ahead, another metric's report erases nothing; it counts in its own month when that comes."""
    ledger = open_ledger(per_month=10)
    assert granted(ledger, asks("old"), 8) == 8
    ledger.return_leases()
    clock.now += 450 * DAY
    assert granted(ledger, asks("other", per_period=1), 1) == 1
    assert ledger.today().month == 1
    clock.now -= 449 * DAY
    assert ledger.today().month == 8
    assert granted(ledger, asks("new"), 8) == 2
    clock.now += 449 * DAY
    assert granted(ledger, asks("newer"), 12) == 9


def test_a_clock_that_is_set_back_gives_no_budget_back(open_ledger, clock):
    """Each month has one budget: what is spent while the clock is behind counts in the month that it says, then and ever."""
    ledger = open_ledger(per_month=10)
    assert granted(ledger, asks("before"), 5) == 5
    ledger.return_leases()
    clock.now -= 100 * DAY
    assert granted(ledger, asks("behind"), 12) == 10
    ledger.return_leases()
    clock.now += 100 * DAY
    assert granted(ledger, asks("now"), 8) == 5
    ledger.return_leases()
    clock.now -= 100 * DAY
    assert granted(open_ledger(per_month=10), asks("behind again"), 8) == 0
    assert ledger.today().month == 10


def test_kept_responses_are_paid_for_once(open_ledger, clock):
    """The first report of a kept response spends its part of the lifetime; the next ones spend nothing of it."""
    ledger = open_ledger(lifetime=100, per_month=10)
    permanent = asks("kept", answers=2, lifetime=20 * MICRO)
    for _ in range(3):
        assert reserve(ledger, permanent)
        assert (ledger.today().lifetime, ledger.today().month) == (20, 2)
        clock.now += DAY


def test_no_month_is_forgotten(open_ledger, clock):
    """What was spent in a month counts however long ago it was, if the clock goes back to it."""
    for _ in range(120):
        assert granted(open_ledger(per_month=2), asks("monthly", per_period=1), 1) == 1
        clock.now += 31 * DAY
    clock.now -= 120 * 31 * DAY
    ledger = open_ledger(per_month=2)
    assert ledger.today().month == 1
    assert granted(ledger, asks("new"), 5) == 1


def test_a_held_state_refuses_and_keeps_what_it_has(open_ledger, tmp_path):
    """While another process holds the file, a lease still pays; when it is used up, the reason is the state."""
    ledger = open_ledger()
    assert spend(ledger, asks(per_period=128)) is None
    holder = sqlite3.connect(tmp_path / "shop" / "state.db", isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    assert [spend(ledger, asks(per_period=128)) for _ in range(2)] == [None, "state"]
    holder.execute("ROLLBACK")
    holder.close()
