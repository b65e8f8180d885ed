"""Which replicas an upload waits for: those that could be elected."""

from __future__ import annotations

import pytest

from deniable.errors import ConfigurationError
from deniable_aggregator.store.server.replicas import Replicas


class Pool:
    """The connections to a primary."""


class Primary:
    """What a primary tells, and a clock."""

    def __init__(self, number=2):
        self.now, self.online, self.resynced, self.id = 100.0, number, number, "a" * 40
        self.watched = Replicas(number, 35, lambda: self.now).of(Pool())

    def answer(self):
        lines = ["# Replication", "role:master", f"connected_slaves:{self.online + 1}"]
        lines += [f"slave{each}:ip=1,port={each},state=online,offset=9,lag=0" for each in range(self.online)]
        lines += ["slave9:ip=1,port=9,state=wait_bgsave,offset=0,lag=0"]  # not there yet
        lines += [f"master_replid:{self.id}", "# Stats", "sync_full:1", f"sync_partial_ok:{self.resynced}", "sync_partial_err:7"]
        return "\r\n".join(lines).encode()

    def look(self, seconds=0.0):
        self.now += seconds
        return self.watched.look(self.answer())

    def leave(self):
        self.online -= 1

    def lose_one(self):
        """Have one leave, and stay away until it is waited for no more."""
        self.leave()
        self.look()
        assert self.look(35) == 1

    def come_back(self):
        self.online += 1
        self.resynced += 1


def test_one_that_stays_away_is_waited_for_no_more():
    """After the time in which it could be elected, and not before; the last one always is."""
    primary = Primary()
    assert primary.look() == 2
    primary.leave()
    assert [primary.look(1), primary.look(34), primary.look(0.9)] == [2, 2, 2]
    assert primary.look(0.1) == 1
    assert not primary.watched.missed
    primary.leave()
    assert [primary.look(1), primary.look(1000)] == [1, 1]
    assert primary.watched.missed


def test_each_of_three_has_its_own_time():
    """The second goes when the first is not waited for any more, or sooner."""
    primary = Primary(3)
    primary.leave()
    assert primary.look() == 3
    primary.leave()
    assert primary.look(20) == 3
    assert primary.look(15) == 2
    assert primary.look(20) == 1


def test_one_that_is_back_is_waited_for():
    """At once; and when it goes again, it could be elected once more."""
    primary = Primary()
    primary.lose_one()
    primary.come_back()
    assert primary.look() == 2
    primary.leave()
    assert [primary.look(0.1), primary.look(34), primary.look(1)] == [2, 2, 1]


def test_one_that_came_and_went_unseen():
    """It had what was written meanwhile, so it could be elected: its time begins anew, though nobody saw it."""
    primary = Primary()
    primary.lose_one()
    primary.come_back()
    primary.leave()
    assert [primary.look(3600), primary.look(34.9), primary.look(0.1)] == [2, 2, 1]


def test_another_server_has_a_time_of_its_own():
    """One that was promoted, or restarted, is not taken for the one before."""
    primary = Primary()
    primary.lose_one()
    primary.id = "b" * 40
    assert [primary.look(1), primary.look(35)] == [2, 1]


def test_each_primary_is_watched_by_itself():
    """By its connections; one primary is one."""
    replicas, one, other = Replicas(), Pool(), Pool()
    assert replicas.of(one) is replicas.of(one)
    assert replicas.of(one) is not replicas.of(other)


@pytest.mark.parametrize(("number", "timeout"), [(0, 35), (2, 0)])
def test_numbers_below_one_are_refused(number, timeout):
    """Nothing would be promised."""
    with pytest.raises(ConfigurationError, match=f"{number} replicas, and {timeout} seconds .*: write 1 or more of both"):
        Replicas(number, timeout)
