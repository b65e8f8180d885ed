"""A worker of many apps, on one server or several: none of them waits for another."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from functools import partial

import pytest
from machines import move, wait

from deniable.wire.layout import Layout
from deniable.wire.report import Stratum
from deniable_aggregator.counting import worker as workers
from deniable_aggregator.counting.chores import Chore
from deniable_aggregator.counting.counter import WorkerSettings
from deniable_aggregator.counting.faults import Faults
from deniable_aggregator.counting.worker import Worker
from deniable_aggregator.store import Store, Upload, connect
from deniable_aggregator.store.server.servers import primary
from deniable_aggregator.store.uploads import batch, deliveries
from deniable_aggregator.store.uploads.batch import Group
from deniable_aggregator.store.uploads.deliveries import Deliveries

INDEX = Layout(1, 5, "index")
ONE = Stratum("one", 1, "f" * 16, "2026-11-21", "")
APPS = [f"app-{number}" for number in range(12)]


def send(store, key, reports=b"\1"):
    assert (
        store.append(Upload(batch.encode([Group(ONE, INDEX, reports)]), key=str(key), remember=b"-", cap=999, ttl=60)).outcome
        == "appended"
    )


@contextmanager
def running(worker):
    """Run a worker; end it in the end, and raise what it raised."""
    stop, raised = threading.Event(), []

    def run():
        try:
            worker.run(stop)
        except BaseException as error:  # noqa: BLE001 - raised again
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(60)
        assert not thread.is_alive()
    if raised:
        raise raised[0]


def test_apps_go_on_while_the_primary_of_others_hangs(machines, monkeypatch):
    """What comes to the other primaries is counted, and their apps' chores are done; the rest follows when it is back."""
    monkeypatch.setattr(workers, "_LOOK_SECONDS", 0.1)
    client = connect(machines.cluster(3, 0), timeout=1.0)
    stores = [Store(client, app) for app in APPS]
    for store in stores:
        send(store, "first")
    done = set()

    def look(store):
        store.backlog()
        done.add(store.app)

    chores = [Chore("look", 0.05, partial(look, store), Faults(store)) for store in stores]
    hung = next(machine for machine in machines.all if machine.primary)
    there = {
        store.app for store in stores if primary(client, store.audit.key).connection_pool.connection_kwargs["port"] == hung.port
    }
    others = set(APPS) - there
    assert there
    assert others
    worker = Worker(stores, WorkerSettings(block_ms=50), chores=chores)
    with running(worker):
        wait(lambda: worker.counted == len(APPS))
        hung.stop()
        try:
            done.clear()
            for store in stores:
                if store.app in others:
                    for key in range(3):
                        send(store, key)
            wait(lambda: worker.counted == len(APPS) + 3 * len(others))
            wait(lambda: done >= others)
            assert not done & there
        finally:
            hung.go_on()
        for store in stores:
            if store.app in there:
                wait(lambda store=store: send(store, "last") or True)
        wait(lambda: worker.counted == len(APPS) + 3 * len(others) + len(there), 60)
    assert not any(store.backlog() for store in stores)
    client.close()


def test_a_slot_that_was_moved_is_counted_where_it_is(machines, monkeypatch):
    """A counter that has partitions of two primaries is divided, and nothing is lost."""
    monkeypatch.setattr(workers, "_LOOK_SECONDS", 0.05)
    client = connect(machines.cluster(2, 0), timeout=2.0)
    stores = [Store(client, app) for app in APPS]
    worker = Worker(stores, WorkerSettings(block_ms=50))
    before = {frozenset(counter._partitions) for counter in worker.look()}
    assert len(before) == 2
    with running(worker):
        for store in stores:
            send(store, "first")
        wait(lambda: worker.counted == len(APPS))
        moved = stores[0].partitions[0].stream
        move(client, moved)
        wait(lambda: {frozenset(streams) for streams in worker._counters} != before)
        for store in stores:
            send(store, "second")
        wait(lambda: worker.counted == 2 * len(APPS))
    client.close()


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
