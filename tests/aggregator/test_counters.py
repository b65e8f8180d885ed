"""A worker of many apps, on one server or several: none of them waits for another."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest
from machines import wait
from workers import running, send

from deniable_aggregator.counting import worker as workers
from deniable_aggregator.counting.chores import Chore
from deniable_aggregator.counting.counter import WorkerSettings
from deniable_aggregator.counting.faults import Faults
from deniable_aggregator.counting.worker import Worker
from deniable_aggregator.store import Store
from deniable_aggregator.store.uploads import deliveries
from deniable_aggregator.store.uploads.deliveries import Deliveries

APPS = [f"app-{number}" for number in range(12)]


@pytest.mark.parametrize("apps", [1, 300])
def test_counting_does_not_wait_for_chores(real_redis, apps):
    """However long the chores of an app take, what comes is counted, also with hundreds of apps."""
    stores = [Store(real_redis, f"app-{number}") for number in range(apps)]
    counted, began = threading.Event(), threading.Event()

    def chore():
        began.set()
        counted.wait(60)

    worker = Worker(stores, WorkerSettings(block_ms=50), chores=[Chore("long", 60.0, chore, Faults(store)) for store in stores])
    with running(worker):
        assert began.wait(60)
        for number in range(50):
            send(stores[number % apps], number)
        try:
            wait(lambda: worker.counted == 50, 60)
        finally:
            counted.set()


def test_chores_of_a_server_go_on_if_another_server_bars_the_user(real_redis):
    """For example a node of a cluster that was started without the file of users: elsewhere is published and deleted."""
    worker, barred = Worker([Store(real_redis, "shop")]), []
    worker._chores = [SimpleNamespace(app="shop")]
    (counter,) = worker.look()
    worker._counters[frozenset({"elsewhere"})] = SimpleNamespace(barred=True, run=print)
    for own in (True, False):
        counter.barred = own
        barred.append(worker._tasks()[frozenset({"shop"})].keywords["barred"]())
    assert barred == [True, False]


def test_an_error_of_ours_ends_the_worker(real_redis, monkeypatch):
    """A bug in counting is no reason to go on without it: whoever started the worker sees it."""

    def broken(*_, **__):
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(workers.Counter, "turn", broken)
    with pytest.raises(ZeroDivisionError, match="a bug"):
        Worker([Store(real_redis, "shop")]).run(threading.Event())


def test_a_worker_holds_few_entries_at_once(real_redis, monkeypatch):
    """Of many streams that are full, no answer holds more entries than fit, nor does what is read on of one of them."""
    stores = [Store(real_redis, app) for app in APPS[:6]]
    for store in stores:
        store.partitions[0].join()
        for key in range(20):
            send(store, key, b"\1" * 1000)
    monkeypatch.setattr(deliveries, "_AT_ONCE", 4)
    monkeypatch.setattr(deliveries, "_LARGEST", 1500)  # so that two of these entries may be as large as three
    reader, seen = Deliveries([store.partitions[0] for store in stores], "one"), 0
    while read := reader.new(100, None):
        assert sum(map(len, read.values())) <= 4
        for stream, entries in read.items():
            more = reader.more(stream, entries, 100)
            assert more[: len(entries)] == entries
            assert len(more) <= 5
            seen += len(more)
    assert seen == 120
    assert not reader.new(100, 10)


def test_all_of_a_worker_s_streams_have_their_turn(real_redis, monkeypatch):
    """While one stream is never empty, the others are read, too."""
    monkeypatch.setattr(deliveries, "_AT_ONCE", 2)
    stores = [Store(real_redis, app) for app in APPS[:5]]
    for store in stores:
        store.partitions[0].join()
    reader, read = Deliveries([store.partitions[0] for store in stores], "one"), set()
    send(stores[-1], "key")
    for number in range(6):
        send(stores[0], number)
        read |= set(reader.new(1, None))
    assert read == {stores[0].partitions[0].stream, stores[-1].partitions[0].stream}
