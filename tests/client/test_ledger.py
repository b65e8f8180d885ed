"""The ledger: never more than the budget, whatever dies, races or turns back the clock."""

from __future__ import annotations

import os
import subprocess
import sys
from fractions import Fraction
from math import exp, log
from shutil import rmtree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deniable import mechanisms
from deniable.budget import Budget
from deniable.ledger import MICRO, Ledger, cost
from deniable.state import State

DAY = 86_400.0

SPEND = """
import os, sys
from pathlib import Path
from deniable import state
from deniable.budget import Budget
from deniable.ledger import MICRO, Ledger
from deniable.state import State
state._PATIENCE = 60.0  # what is asked is what they spend, not how long they wait
ledger = Ledger(State(Path(sys.argv[1])), Budget(window=30, per_window=40, lifetime=None))
done = sum(ledger.spend(MICRO // 10) is None for _ in range(int(sys.argv[2])))
ledger.settle()
print(done)
"""


class Clock:
    """A wall clock that a test sets."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock():
    """Give a clock."""
    return Clock()


@pytest.fixture
def open_ledger(tmp_path, clock):
    """Open the ledger of one device, again and again, as its processes would."""

    def open_(*, window=30.0, per_window=None, lifetime=None):
        budget = Budget(window=window, per_window=per_window, lifetime=lifetime)
        return Ledger(State(tmp_path / "shop"), budget, clock)

    return open_


def granted(ledger: Ledger, amount: int, tries: int) -> int:
    return sum(ledger.spend(amount) is None for _ in range(tries))


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


def test_the_cap_is_reached_exactly(open_ledger):
    """Ten reports of one nat fit into a budget of ten, and the eleventh does not; what is left is told."""
    ledger = open_ledger(per_window=10, lifetime=100)
    assert granted(ledger, MICRO, 20) == 10
    assert ledger.spend(MICRO) == "budget"
    ledger.settle()
    spent = ledger.spent()
    assert (spent.window, spent.window_left, spent.lifetime, spent.lifetime_left) == (10, 0, 10, 90)


def test_a_small_report_fits_where_a_large_one_does_not(open_ledger):
    """A refusal of one cost is no refusal of a smaller one."""
    ledger = open_ledger(per_window=3)
    assert ledger.spend(2 * MICRO) is None
    assert ledger.spend(2 * MICRO) == "budget"
    assert ledger.spend(MICRO) is None
    assert ledger.spend(1) == "budget"


def test_tiny_debits_do_not_drift(open_ledger):
    """A hundred thousand debits of a micronat are a tenth of a nat, to the unit."""
    ledger = open_ledger(per_window=0.1)
    assert granted(ledger, 1, 100_001) == 100_000
    ledger.settle()
    assert ledger.spent().lifetime == 0.1


def test_the_lifetime_never_refills(open_ledger, clock):
    """Whatever time passes, the lifetime's bound holds."""
    total = 0
    for _ in range(10):
        ledger = open_ledger(window=1, per_window=3, lifetime=7)
        total += granted(ledger, MICRO, 10)
        ledger.settle()
        clock.now += 10 * DAY
    assert total == 7


def test_the_window_slides(open_ledger, clock):
    """No stretch of a day has more than its budget, wherever it begins: midnight means nothing."""
    moments = []
    for _ in range(200):
        ledger = open_ledger(window=1, per_window=5)
        moments += [clock.now] * granted(ledger, MICRO, 3)
        ledger.settle()
        clock.now += DAY / 17
    assert len(moments) > 40  # and yet it refills
    for start in moments:
        assert sum(start <= moment < start + DAY for moment in moments) <= 5


def test_a_lease_counts_until_it_ends(open_ledger, clock):
    """What a lease pays for late in its life is still in the window that follows."""
    ledger = open_ledger(window=1, per_window=6400)
    assert ledger.spend(MICRO) is None  # a lease of a hundred
    clock.now += DAY * 0.0099  # just before it ends
    assert granted(ledger, MICRO, 99) == 99
    clock.now += DAY * 0.995  # they are less than a day old
    other = open_ledger(window=1, per_window=6400)
    assert granted(other, 6301 * MICRO, 1) == 0
    assert granted(other, 6300 * MICRO, 1) == 1


def test_a_clock_set_back_brings_nothing_back(open_ledger, clock):
    """A device whose clock goes back years has spent what it has spent, then and later."""
    ledger = open_ledger(window=1, per_window=2)
    assert granted(ledger, MICRO, 5) == 2
    clock.now -= 1000 * DAY
    assert granted(open_ledger(window=1, per_window=2), MICRO, 5) == 0
    clock.now += 500 * DAY
    assert granted(open_ledger(window=1, per_window=2), MICRO, 5) == 0


def test_a_crash_loses_the_lease(open_ledger):
    """What a process had taken ahead is spent when it dies, and never more than a 64th of what was left."""
    crashed = open_ledger(lifetime=64)
    assert crashed.spend(MICRO // 100) is None
    del crashed  # without settling
    spent = open_ledger(lifetime=64).spent()
    assert MICRO // 100 / MICRO < spent.lifetime <= 1


def test_settling_gives_the_rest_back(open_ledger):
    """A process that ends as it should has spent what it used, and can go on spending."""
    ledger = open_ledger(lifetime=64)
    assert granted(ledger, MICRO // 100, 3) == 3
    ledger.settle()
    ledger.settle()
    assert open_ledger(lifetime=64).spent().lifetime == 0.03
    assert granted(ledger, MICRO // 100, 1) == 1
    ledger.settle()
    assert open_ledger(lifetime=64).spent().lifetime == 0.04


def test_a_lease_ends(open_ledger, monkeypatch):
    """A lease is not used beyond its time, whatever the wall clock says; its rest is given back with the next one."""
    ledger = open_ledger(window=1, lifetime=64)
    now = 0.0
    monkeypatch.setattr("deniable.ledger.time.monotonic", lambda: now)
    assert ledger.spend(MICRO // 100) is None
    now = 0.02 * DAY
    assert ledger.spend(MICRO // 100) is None
    ledger.settle()
    assert ledger.spent().lifetime == 0.02


def test_a_lease_ends_while_the_device_sleeps(open_ledger, clock, monkeypatch):
    """What was taken ahead before a device was suspended, which stops the monotonic clock, is not spent in a later window."""
    monkeypatch.setattr("deniable.ledger.time.monotonic", lambda: 0.0)
    asleep, awake = open_ledger(window=1, per_window=64), open_ledger(window=1, per_window=64)
    assert asleep.spend(MICRO // 10) is None
    clock.now += 2 * DAY
    assert granted(awake, MICRO, 100) == 64
    assert asleep.spend(MICRO // 10) == "budget"


def test_a_new_device_gets_nothing_back(open_ledger, tmp_path):
    """What an old lease has left is not taken off the spends of a device that has begun anew, though their rows are alike."""
    old = open_ledger(lifetime=64)
    assert old.spend(MICRO // 100) is None
    rmtree(tmp_path / "shop")
    new = open_ledger(lifetime=64)
    new._clock = lambda: 1_900_000_000.0
    assert granted(new, MICRO // 100, 3) == 3
    before = new.spent().lifetime
    old.settle()
    assert new.spent().lifetime == before
    new.settle()
    assert new.spent().lifetime == 0.03


def test_processes_share_it(tmp_path):
    """Eight processes that each want half of the budget get it once, to the unit."""
    script = [sys.executable, "-c", SPEND, str(tmp_path / "shop"), "200"]
    running = [subprocess.Popen(script, stdout=subprocess.PIPE) for _ in range(8)]
    done = sum(int(process.communicate()[0]) for process in running)
    spent = Ledger(State(tmp_path / "shop"), Budget(per_window=40)).spent()
    assert 300 < done <= 400  # what one gives back too late for another is lost time, not budget
    assert done * 0.1 == pytest.approx(spent.lifetime, abs=1e-6)


def test_a_forked_child_has_no_lease(open_ledger, in_child):
    """What the parent has taken ahead is the parent's."""
    ledger = open_ledger(lifetime=64)
    assert ledger.spend(MICRO // 100) is None
    before = ledger.spent().lifetime
    in_child(lambda: str(ledger.spend(MICRO // 100)).encode())
    assert ledger.spent().lifetime > before
    ledger.settle()  # gives back the parent's own, and nothing of the child's
    assert ledger.spent().lifetime > 0.01


def test_a_child_of_the_same_number_has_no_lease(open_ledger, in_child, monkeypatch):
    """A child whose number is its parent's, as in another namespace, has not what the parent has taken ahead either."""
    ledger = open_ledger(lifetime=64)
    assert ledger.spend(MICRO // 100) is None
    before = ledger.spent().lifetime
    number = os.getpid()
    monkeypatch.setattr("os.getpid", lambda: number)
    in_child(lambda: str(ledger.spend(MICRO // 100)).encode())
    assert ledger.spent().lifetime > before


def test_without_a_state_nothing_is_spent(tmp_path):
    """Where the ledger cannot be written, no report may exist, and it says why; not every report asks again."""
    (tmp_path / "shop").mkdir()
    ledger = Ledger(State(tmp_path / "shop"), Budget())
    assert [ledger.spend(1), ledger.spend(1)] == ["state", "state"]
    assert ledger._state.trouble is not None
    assert "was deleted" in ledger._state.trouble


def test_trouble_passes(tmp_path, monkeypatch):
    """When the state can be used again, reports are made again."""
    (tmp_path / "shop").mkdir()
    ledger = Ledger(State(tmp_path / "shop"), Budget())
    now = 0.0
    monkeypatch.setattr("deniable.ledger.time.monotonic", lambda: now)
    assert ledger.spend(1) == "state"
    (tmp_path / "shop").rmdir()
    now = 11.0
    assert ledger.spend(1) is None
    assert ledger._state.trouble is None


def test_a_refusal_keeps_its_reason(tmp_path):
    """Until it is tried again, a report that the state refused is not said to be one that the budget refused."""
    (tmp_path / "shop").mkdir()
    ledger = Ledger(State(tmp_path / "shop"), Budget())
    assert ledger.spend(1) == "state"
    (tmp_path / "shop").rmdir()
    with ledger._state.transaction():  # somebody else's, and it can be used again
        pass
    assert ledger._state.trouble is None
    assert ledger.spend(1) == "state"


def test_a_damaged_file_stops(open_ledger, tmp_path):
    """A file that was overwritten grants nothing."""
    ledger = open_ledger(lifetime=1)
    assert ledger.spend(1) is None
    file = tmp_path / "shop" / "state.db"
    file.write_bytes(b"\xff" * file.stat().st_size)
    assert open_ledger(lifetime=1).spend(1) == "state"


def test_looking_begins_nothing(open_ledger, tmp_path):
    """To ask what was spent makes no file."""
    spent = open_ledger(per_window=4).spent()
    assert (spent.window, spent.window_left, spent.lifetime, spent.lifetime_left) == (0, 4, 0, float("inf"))
    assert not (tmp_path / "shop").exists()
