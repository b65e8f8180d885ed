"""Noise drawn ahead: for one answer each, for the process that drew it, and for a second."""

from __future__ import annotations

import sys
from itertools import count
from threading import Thread

import pytest

from deniable import mechanisms
from deniable.mechanisms import base
from deniable.mechanisms.listed.direct import Grr


class Numbered(Grr):
    """Its noise is a number that is never drawn again, and so is its report."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._set(numbers=count(), counts=[])

    def noise(self, source, count):
        source.below(2)
        self.counts.append(count)
        return [next(self.numbers) for _ in range(count)]

    def respond(self, value, noise):  # noqa: ARG002
        return noise


@pytest.fixture
def clock(monkeypatch):
    """Replace the clock by one that stands still until it is set."""
    now = [1000.0]
    monkeypatch.setattr(base, "monotonic", lambda: now[0])
    return now


@pytest.fixture
def mechanism():
    """Make one that shows which noise it used."""
    return Numbered(domain_size=4, epsilon=1)


@pytest.mark.parametrize("moved", [1.0, 1.001, 3600.0])
def test_noise_is_not_kept_for_more_than_a_second(mechanism, clock, moved):
    """What was drawn a second ago is drawn again, and less of it."""
    for _ in range(10):
        mechanism.randomize(0)
    old = set(mechanism._hand[2])
    assert old
    clock[0] += 0.999
    assert mechanism.randomize(0) in old
    clock[0] += moved - 0.999
    assert not {mechanism.randomize(0) for _ in range(20)} & old
    assert mechanism.counts == [1, 4, 16, 1, 4, 16]


def test_an_app_that_asks_rarely_has_no_noise_in_hand(mechanism, clock):
    """Who asks once a second draws once a second."""
    for _ in range(20):
        mechanism.randomize(0)
        assert not mechanism._hand[2]
        clock[0] += 1
    assert mechanism.counts == [1] * 20


@pytest.mark.usefixtures("clock")
def test_an_app_that_asks_often_draws_more_at_once(mechanism):
    """The amount drawn grows while all of it is used within its second, up to 256, and each is used once."""
    taken = [mechanism.randomize(0) for _ in range(1 + 4 + 16 + 64 + 256 + 256)]
    assert mechanism.counts == [1, 4, 16, 64, 256, 256]
    assert len(set(taken)) == len(taken)


@pytest.mark.usefixtures("clock")
def test_large_reports_are_drawn_few_at_once():
    """No more than 4,096 bits or so are drawn at once, so that no call takes long."""
    mechanism = mechanisms.make("oue", domain_size=1000, epsilon=1)
    for _ in range(200):
        mechanism.randomize(0)
    assert mechanism._hand[3] == 4096 // 1000


def test_a_fork_amid_a_draw(mechanism, monkeypatch):
    """A child that was forked amid a draw keeps none of it: of one that shares a part of it, both reports can tell the answer."""
    homes = iter(["parent", "child", "child", "child", "child"])
    monkeypatch.setattr(base, "process_mark", lambda: next(homes))
    monkeypatch.setattr(base, "mark_process", lambda: next(homes))
    assert mechanism.randomize(0) == 1
    assert mechanism._hand[0] == "child"


def test_a_fork_between_taking_and_looking(mechanism, monkeypatch):
    """Noise that was taken before a fork is not used by the child, nor by any thread of the parent for another answer."""
    while not mechanism._hand[2]:
        mechanism.randomize(0)
    ahead = list(mechanism._hand[2])
    held = []

    def fork():
        held.append(list(mechanism._hand[2]))
        return "child"

    monkeypatch.setattr(base, "process_mark", fork)
    monkeypatch.setattr(base, "mark_process", fork)
    assert mechanism.randomize(0) not in ahead
    assert held[0] == ahead[:-1], "it was taken before anything was compared"


def test_threads_share_noise_without_a_lock(mechanism):
    """Of eight threads that draw at once, no two use the same noise."""
    taken = [[] for _ in range(8)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [Thread(target=lambda mine=mine: mine.extend(mechanism.randomize(0) for _ in range(5000))) for mine in taken]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert len(set().union(*taken)) == sum(map(len, taken)) == 40_000
