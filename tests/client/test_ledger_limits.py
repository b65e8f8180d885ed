"""The ledger at its limits: the last moment of a window, the last report of a budget, the last millionth of a nat."""

from __future__ import annotations

from contextlib import contextmanager
from datetime import UTC, datetime

import pytest

from deniable.device.ledger import Ledger, account
from deniable.device.prepared import Occasion
from deniable.device.state import State
from deniable.errors import StateError
from deniable.limits.allowance import MICRO, Allowance
from deniable.registry import period
from deniable.registry.tables import Budget
from deniable.wire.report import Stratum

DAY = 86_400


class Device:
    """A device whose clock a test sets, in seconds after the beginning of the 15th of January 2027."""

    def __init__(self, directory, **bounds) -> None:
        self.now = 0
        budget = Budget(**({"per_window": None, "lifetime": None} | bounds))
        self.ledger = Ledger(State(directory), budget, lambda: 1_799_971_200 + self.now)

    def occasion(self, tag):
        name = period.of(datetime.fromtimestamp(self.ledger._clock(), UTC), "day")
        return Occasion(Stratum(tag, 1, tag, name, ""), int(period.bounds(name, "day")[1].timestamp()))

    def spend(self, allowance):
        return self.ledger.spend(allowance, self.occasion(allowance.tag))


@pytest.fixture
def device(tmp_path):
    """Make a device with some bounds of its budget."""
    return lambda **bounds: Device(tmp_path / "shop", **bounds)


def asks(tag="m", **values):
    known = {"cost": MICRO, "per_period": 5, "answers": 0, "window": 5 * MICRO, "lifetime": None} | values
    return Allowance(tag, tag, **known)


def test_a_period_counts_until_its_window_is_over_and_no_longer(device):
    """A window has its last moment but not its first: a period that ended just when it begins is no part of it."""
    one = device(window=2, per_window=1)
    assert one.spend(asks("first")) is None
    one.now = 3 * DAY - 1
    assert one.spend(asks("second")) == "budget"
    one.now = 3 * DAY
    assert one.spend(asks("third")) is None


def test_no_more_is_spent_than_whole_millionths_of_the_bound(device):
    """A bound is rounded down: a device never spends more than it says."""
    one = device(window=2, per_window=1.0000004)
    assert one.spend(asks(cost=MICRO + 1)) == "budget"
    assert one.ledger.spent().window_left == 1


def test_a_new_period_is_asked_for_anew(device):
    """A refusal is remembered for a minute, for its own period only."""
    one = device()
    allowance = asks(per_period=1)
    assert [one.spend(allowance) for _ in range(3)] == [None, "this_period", "this_period"]
    one.now = DAY
    assert one.spend(allowance) is None


def test_what_is_left_of_the_window_and_of_the_lifetime(device):
    one = device(window=2, per_window=5, lifetime=50)
    for day in (0, 10):
        one.now = day * DAY
        assert one.spend(asks(lifetime=50 * MICRO)) is None
    left = one.ledger.spent()
    assert (left.window, left.window_left, left.lifetime, left.lifetime_left) == (1, 4, 2, 48)


def test_a_lease_of_yesterday_is_given_back_to_yesterday(device):
    """Another process has reported today meanwhile: its reports still count, so that today has no more than it may."""
    one, other = device(), device()
    allowance = asks(per_period=1000)
    assert one.spend(allowance) is None
    one.now = other.now = DAY
    assert other.spend(allowance) is None
    with other.ledger._state.transaction() as db:
        before = account(db, "m")
    one.ledger.return_leases()
    with other.ledger._state.transaction() as db:
        period_, reports, spent = account(db, "m")
    assert (period_, reports) == before[:2]
    assert spent < before[2]


def test_the_newest_spends_are_remembered(device):
    one = device(window=30, per_window=100)
    for day in range(6):
        one.now = day * DAY
        assert one.spend(asks(remembered=3)) is None
    assert one.ledger.spent().window == 4  # the last one, and three before it


def test_what_could_not_be_written_pays_for_nothing(device, monkeypatch):
    """A transaction that fails at its end leaves no lease behind."""
    one, allowance = device(), asks(per_period=1000)
    begin = one.ledger._state.transaction

    @contextmanager
    def fail_at_the_end():
        with begin() as db:
            yield db
            raise StateError("the disk is full")

    with monkeypatch.context() as broken:
        broken.setattr(one.ledger._state, "transaction", fail_at_the_end)
        assert one.spend(allowance) == "state"
    assert one.spend(allowance) == "state"
    assert one.ledger.spent().lifetime == 0
