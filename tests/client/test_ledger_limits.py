"""The ledger at its limits: the last moment of a month, the last report of a budget, the last millionth of a nat."""

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
        self.ledger = Ledger(State(directory), Budget(**({"per_month": None, "lifetime": None} | bounds)))

    @property
    def moment(self):
        return datetime.fromtimestamp(1_799_971_200 + self.now, UTC)

    def spent(self):
        return self.ledger.spent(period.of(self.moment, "month"))

    def occasion(self, tag, length):
        name = period.of(self.moment, length)
        return Occasion(Stratum(tag, 1, tag, name, ""), period.month_of(name, length))

    def spend(self, allowance, length="day"):
        return self.ledger.spend(allowance, self.occasion(allowance.tag, length))


@pytest.fixture
def device(tmp_path):
    """Make a device with some bounds of its budget."""
    return lambda **bounds: Device(tmp_path / "shop", **bounds)


def asks(tag="m", **values):
    known = {"cost": MICRO, "per_period": 5, "answers": 0, "month": 5 * MICRO, "lifetime": None} | values
    return Allowance(tag, tag, **known)


def test_a_month_has_its_last_moment_and_no_more(device):
    one = device(per_month=1)
    assert one.spend(asks("first")) is None
    one.now = 17 * DAY - 1
    assert one.spend(asks("second")) == "budget"
    one.now = 17 * DAY
    assert one.spend(asks("third")) is None


def test_a_week_counts_in_the_month_of_its_sunday(device):
    """The week of Monday, the 25th of January 2027 ends on the 31st; that of Monday, the 29th of March in April."""
    one = device(per_month=1)
    one.now = 10 * DAY
    assert one.spend(asks("first"), "week") is None
    assert one.spend(asks("second")) == "budget"
    one.now = 73 * DAY
    assert one.spend(asks("third"), "week") is None
    assert one.spend(asks("fourth")) is None
    assert one.spend(asks("fifth")) == "budget"
    one.now = 76 * DAY
    assert one.spend(asks("sixth")) == "budget"


def test_no_more_is_spent_than_whole_millionths_of_the_bound(device):
    """A bound is rounded down: a device never spends more than it says."""
    one = device(per_month=1.0000004)
    assert one.spend(asks(cost=MICRO + 1)) == "budget"
    assert one.spent().month_left == 1


def test_a_bound_is_as_it_is_written(device):
    """8.2 is 8,200,000 millionths, although the floating-point product is less."""
    one = device(per_month=8.2)
    assert one.spent().month_left == 8.2
    assert one.spend(asks(cost=8_200_000)) is None


def test_a_new_period_is_asked_for_anew(device):
    """A refusal is remembered for a minute, for its own period only."""
    one = device()
    allowance = asks(per_period=1)
    assert [one.spend(allowance) for _ in range(3)] == [None, "this_period", "this_period"]
    one.now = DAY
    assert one.spend(allowance) is None


def test_what_is_left_of_the_month_and_of_the_lifetime(device):
    one = device(per_month=5, lifetime=50)
    for day in (0, 20):
        one.now = day * DAY
        assert one.spend(asks(lifetime=50 * MICRO)) is None
    left = one.spent()
    assert (left.month, left.month_left, left.lifetime, left.lifetime_left) == (1, 4, 2, 48)


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
    assert one.spent().lifetime == 0
