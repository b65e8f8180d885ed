"""The pulse: what waits, for how long, and who works on it."""

from __future__ import annotations

import json
import threading
import time

import pytest

from deniable.cli import main
from deniable_aggregator import pulse
from deniable_aggregator.store import GROUP, Store
from deniable_aggregator.worker import Worker, WorkerSettings


@pytest.fixture
def store(real_redis):
    return Store(real_redis, "shop")


def append(store, key):
    store.append(b"not a batch", key=str(key), remember=b"-", cap=10, ttl=60)


def test_an_app_that_nobody_uses(store):
    """Nothing waits, nobody works."""
    assert pulse.feel(store) == pulse.Pulse(0, 0, 0.0, 0, 0)


def test_what_waits_for_a_worker_that_never_came(store):
    """Nobody can tell how long it waits."""
    append(store, 1)
    assert pulse.feel(store) == pulse.Pulse(1, 0, None, 0, 0)


def test_lag_is_since_the_workers_had_everything(store):
    """What waits came after that, so it bounds how long anything waits."""
    pulse.beat(store, "w", time.time(), time.time() - 30)
    assert pulse.feel(store).lag == 0
    append(store, 1)
    assert 30 <= pulse.feel(store).lag < 40
    assert pulse.feel(store).workers == 1


def test_lag_of_entries_in_hand(store):
    """An entry that a worker took and does not count makes a lag, too."""
    append(store, 1)
    store.join()
    ((_, ((id_, _),)),) = store.redis.xreadgroup(GROUP, "w", {store.stream: ">"})
    store.redis.xclaim(store.stream, GROUP, "w", 0, [id_], idle=20_000)
    felt = pulse.feel(store)
    assert felt.pending == 1
    assert 20 <= felt.lag < 30


def test_workers_are_believed_for_a_minute(store):
    """One that gave no sign of life for longer is not counted; one that left is not, at once."""
    now = time.time()
    pulse.beat(store, "old", now - 90, 0)
    pulse.beat(store, "new", now, 0)
    assert pulse.feel(store).workers == 1
    pulse.stop(store, "new")
    assert pulse.feel(store).workers == 0
    pulse.beat(store, "new", now, 0)
    assert 0 < store.redis.ttl(store.workers) <= pulse.LIFE_SECONDS


def test_a_worker_shows_and_leaves(store):
    """A running worker is seen, and is not once it has stopped."""
    stop = threading.Event()
    worker = Worker([store], WorkerSettings(block_ms=50))
    thread = threading.Thread(target=worker.run, args=(stop,))
    thread.start()
    deadline = time.monotonic() + 10
    while not pulse.feel(store).workers and time.monotonic() < deadline:
        time.sleep(0.01)
    seen = pulse.feel(store).workers
    stop.set()
    thread.join(10)
    assert (seen, pulse.feel(store).workers, worker.cut_off) == (1, 0, False)


def test_status_tells(store, store_url, capsys):
    """`deniable status` shows each app; its exit status is 1 while batches wait for nobody."""
    options = ["status", "--redis-url", store_url, "--app", "shop", "--app", "blog"]
    assert main(options) == 0
    append(store, 1)
    assert main(options) == 1
    pulse.beat(store, "w", time.time(), time.time())
    capsys.readouterr()
    assert main([*options, "--json"]) == 0
    shop, blog = map(json.loads, capsys.readouterr().out.splitlines())
    assert (shop["app"], shop["backlog"], shop["workers"], blog["backlog"]) == ("shop", 1, 1, 0)
    assert main(options) == 0
    header, first, _ = capsys.readouterr().out.splitlines()
    assert header.split()[:3] == ["app", "workers", "backlog"]
    assert first.split()[:3] == ["shop", "1", "1"]
