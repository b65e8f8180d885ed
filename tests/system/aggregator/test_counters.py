"""A worker of many apps on several servers, of which one hangs or slots are moved."""

from __future__ import annotations

from functools import partial

from machines import move, wait
from workers import running, send

from deniable_aggregator.counting import worker as workers
from deniable_aggregator.counting.chores import Chore
from deniable_aggregator.counting.counter import WorkerSettings
from deniable_aggregator.counting.faults import Faults
from deniable_aggregator.counting.worker import Worker
from deniable_aggregator.store import Store, connect
from deniable_aggregator.store.server.servers import primary

APPS = [f"app-{number}" for number in range(12)]


def test_apps_go_on_while_the_primary_of_others_hangs(machines, monkeypatch):
    """What comes to the other primaries is counted, and their apps' chores are done; the rest follows when it is back."""
    monkeypatch.setattr(workers, "_LOOK_SECONDS", 0.1)
    client = connect(machines.cluster(3, 0), timeout=3.0)
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
        wait(lambda: worker.counted == len(APPS) + 3 * len(others) + len(there))
    assert not any(store.backlog() for store in stores)
    client.close()


def test_a_slot_that_was_moved_is_counted_where_it_is(machines, monkeypatch):
    """A counter that has partitions of two primaries is divided, and nothing is lost."""
    monkeypatch.setattr(workers, "_LOOK_SECONDS", 0.05)
    client = connect(machines.cluster(2, 0), timeout=10.0)
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
