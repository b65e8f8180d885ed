"""A store whose clock is set: nothing is stranded, what waits is told, and nothing is published or deleted early."""

from __future__ import annotations

import struct
import threading
import time

import pytest
from processes import Redis, preloaded, servers

from deniable.wire.layout import Layout
from deniable.wire.report import Stratum
from deniable_aggregator.counting.counter import WorkerSettings
from deniable_aggregator.counting.worker import Worker
from deniable_aggregator.store import GROUP, Store, Upload, connect
from deniable_aggregator.store.uploads import batch, health
from deniable_aggregator.store.uploads.batch import Group

INDEX = Layout(1, 5, "index")
ONE = Stratum("one", 1, "f" * 16, "2026-11-21", "")
HOUR = 3600


class Clock:
    """The clock of a store, which a test sets."""

    def __init__(self, folder):
        self._file = folder / "clock"
        self.set(0)
        self.environment = preloaded(folder, "clock") | {"CLOCK_FILE": str(self._file)}

    def set(self, seconds):
        """Set it so many seconds ahead of ours."""
        if not self._file.exists():
            self._file.write_bytes(bytes(8))
        with self._file.open("r+b") as file:
            file.write(struct.pack("d", seconds))


@pytest.fixture
def clock(tmp_path):
    """Build a clock that can be set."""
    return Clock(tmp_path)


@pytest.fixture
def store(tmp_path, clock):
    """Start a store that goes by it."""
    server = Redis(servers()["redis-server"], tmp_path, "everysec", clock.environment)
    server.start()
    client = connect(f"redis://127.0.0.1:{server.port}")
    clock.set(1000)
    assert client.time()[0] > time.time() + 990  # it does go by it
    clock.set(0)
    yield Store(client, "shop")
    client.close()
    server.kill()


def send(store, *keys):
    for key in keys:
        body = batch.encode([Group(ONE, INDEX, b"\1\2")])
        assert store.append(Upload(body, key=str(key), remember=b"-", cap=100, ttl=60)).outcome == "appended"


def strand(store):
    """Have a worker take two batches and die."""
    send(store, 1, 2)
    store.partitions[0].join()
    store._client.xreadgroup(GROUP, "dead", {store.partitions[0].stream: ">"})
    health.beat(store.partitions[0], "dead")


def run(store, seconds, **settings):
    """Run a worker until everything is counted, for so many seconds at most; return it."""
    stop, worker = threading.Event(), Worker([store], WorkerSettings(block_ms=50, claim_every=0.1, **settings))
    thread = threading.Thread(target=worker.run, args=(stop,))
    thread.start()
    deadline = time.monotonic() + seconds
    while store.backlog() and time.monotonic() < deadline:
        time.sleep(0.02)
    stop.set()
    thread.join(60)
    return worker


def test_batches_of_a_dead_worker_are_taken_over_though_the_clock_went_back(store, clock, monkeypatch):
    """Their idle time says nothing then; that their worker gives no sign of life does."""
    monkeypatch.setattr(health, "LIFE_SECONDS", 1)
    strand(store)
    clock.set(-HOUR)
    worker = run(store, 10, min_idle_ms=500)
    assert (worker.counted, store.backlog()) == (4, 0)


def test_batches_of_a_living_worker_are_left_to_it(store, clock, monkeypatch):
    """One that goes on giving signs of life keeps what it has, and nobody counts that as idle."""
    monkeypatch.setattr(health, "LIFE_SECONDS", 1)
    strand(store)
    clock.set(-HOUR)
    done = threading.Event()

    def live():
        while not done.wait(0.1):
            health.beat(store.partitions[0], "dead")

    beating = threading.Thread(target=live)
    beating.start()
    try:
        assert run(store, 3, min_idle_ms=500).counted == 0
    finally:
        done.set()
        beating.join()


def test_what_is_stranded_shows_as_lag(store, clock):
    """Where the clock went back nobody can tell the lag until a worker comes; from then on it grows, and is the least."""
    strand(store)
    clock.set(-HOUR)
    state = health.read(store)
    assert (state.backlog, state.workers, state.lag, state.known) == (2, 0, None, False)
    began = time.monotonic()
    health.beat(store.partitions[0], "new")
    clock.set(-HOUR + 90)
    health.beat(store.partitions[0], "new")
    state = health.read(store)
    most = 90 + time.monotonic() - began
    assert (state.workers, 89.99 < state.lag < most + 0.01, state.known) == (1, True, False)


def test_a_clock_that_jumps_ahead_tells_of_no_counting_that_was_not(store, clock):
    """What waits seems to wait for long, until the next signs of life; nothing is taken for counted meanwhile."""
    health.beat(store.partitions[0], "w")
    strand(store)
    clock.set(75 * HOUR)
    state = health.read(store)
    assert state.lag >= 75 * HOUR - 1
    run(store, 120, min_idle_ms=500)
    assert health.read(store).lag == 0
