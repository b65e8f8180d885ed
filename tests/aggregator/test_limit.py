"""Limits and the scripts that count them: on a kept connection, through all that may happen to it."""

from __future__ import annotations

from threading import Thread

import pytest
import redis

from deniable_aggregator.store import connect
from deniable_aggregator.store.values.limit import Limit, Limiter

pytestmark = pytest.mark.both_stores

FEW = Limit("{shop}:rate:few", 3, 60)
MANY = Limit("{shop}:rate:many", 1000, 60)


@pytest.fixture
def limiter(real_redis):
    """Count on a real server."""
    return Limiter(real_redis)


def test_the_first_limit_that_is_used_up_is_named(limiter, real_redis):
    """Each is counted up to the first that is used up, which is named with the time until it is open again."""
    assert [limiter.take([MANY, FEW]) for _ in range(3)] == [None] * 3
    place, ms = limiter.take([MANY, FEW])
    assert place == 1
    assert 0 < ms <= 60_000
    assert limiter.take([FEW, MANY]).place == 0
    assert real_redis.mget(MANY.key, FEW.key) == [b"4", b"5"]
    assert 0 < real_redis.ttl(MANY.key) <= 60


def test_a_counter_without_an_end_gets_one(limiter, real_redis):
    """One that lost its expiry gets a new one once it is used up."""
    real_redis.set(FEW.key, 100)
    assert limiter.take([FEW]).ms == 60_000
    assert 0 < real_redis.ttl(FEW.key) <= 60


def test_lost_connections_and_forgotten_scripts_are_no_trouble(limiter, real_redis, store_url):
    """A call whose connection was closed meanwhile, or whose script the server has forgotten, is made all the same."""
    with connect(store_url) as another:
        for trouble in (another.script_flush, lambda: another.client_kill_filter(skipme=True), another.script_flush):
            assert limiter.take([MANY]) is None
            trouble()
            assert limiter.take([MANY]) is None
    assert real_redis.get(MANY.key) == b"6"


def test_an_error_of_the_script_is_told(limiter, real_redis):
    """What the server refuses is raised, and the next call is not disturbed."""
    real_redis.rpush(FEW.key, "a list")
    for _ in range(2):
        with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
            limiter.take([FEW])
        assert limiter.take([MANY]) is None


def test_an_answer_that_came_too_late_is_not_taken_for_another(store_url, real_redis):
    """A call that was not answered in time is given up, and what it would have been answered is never read."""
    with connect(store_url, timeout=2.0) as hasty:
        limiter = Limiter(hasty)
        for _ in range(4):
            limiter.take([FEW])  # from here on an excess is the answer
        real_redis.client_pause(30_000, all=False)  # none that write
        with pytest.raises(redis.TimeoutError):
            limiter.take([FEW])
        real_redis.client_unpause()
        assert limiter.take([MANY]) is None
        assert limiter.take([FEW]).place == 0


def test_threads_count_together(limiter, real_redis):
    """Calls of many threads at once each have a connection of their own, and none is lost."""
    outcomes = []

    def count():
        outcomes.extend(limiter.take([MANY]) for _ in range(50))

    threads = [Thread(target=count) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes == [None] * 400
    assert real_redis.get(MANY.key) == b"400"
