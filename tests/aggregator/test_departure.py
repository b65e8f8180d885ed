"""Workers that were killed are forgotten by those that live, and nothing that they had in hand is."""

from __future__ import annotations

import logging
import threading
import time

import pytest
from machines import wait

from deniable.wire.layout import Layout
from deniable.wire.report import Stratum
from deniable_aggregator.counting.chores import Chore
from deniable_aggregator.counting.counter import WorkerSettings
from deniable_aggregator.counting.events import Events
from deniable_aggregator.counting.faults import Faults
from deniable_aggregator.counting.worker import Worker
from deniable_aggregator.store import GROUP, Store, Upload, connect
from deniable_aggregator.store.outage import Outage
from deniable_aggregator.store.uploads import batch
from deniable_aggregator.store.uploads.batch import Group
from deniable_aggregator.store.uploads.deliveries import forget_dead

pytestmark = pytest.mark.both_stores

LAYOUT = Layout(1, 5, "index")
THEME = Stratum("ui.theme", 1, "f" * 16, "2026-11-21", "")


@pytest.fixture
def store(real_redis):
    return Store(real_redis, "shop")


def send(store, key):
    entry = batch.encode([Group(THEME, LAYOUT, b"\1\2")])
    assert store.append(Upload(entry, key=key, remember=b"-", cap=100, ttl=60)).outcome == "appended"


def consumers(store):
    return {
        consumer["name"].decode(): consumer["pending"]
        for consumer in store._client.xinfo_consumers(store.partitions[0].stream, GROUP)
    }


def test_what_a_killed_worker_had_in_hand_is_counted_first(store):
    """Entries of a consumer that is gone keep it in the list until they are taken over; each is counted once, and it goes."""
    store.partitions[0].join()
    for key in ("a", "b", "c"):
        send(store, key)
    store._client.xreadgroup(GROUP, "killed", {store.partitions[0].stream: ">"})
    forget_dead(store, idle=0.0)
    assert consumers(store) == {"killed": 3}
    chore = Chore("departures", 0.0, lambda: forget_dead(store, idle=0.02), Faults(store))
    time.sleep(0.03)  # the time after which entries are taken over is measured by the store
    Worker([store], WorkerSettings(min_idle_ms=20, claim_every=0.0), chores=[chore]).run(threading.Event(), burst=True)
    chore.do()
    assert "killed" not in consumers(store)
    assert store.read(LAYOUT, [THEME]).counts.tolist() == [[0, 3, 3, 0, 0]]
    assert store.backlog() == 0


def test_a_worker_that_only_waited_goes_on(store, store_url):
    """A living worker whose name was taken out while it waited for entries gets the next one, and counts it once."""
    stop = threading.Event()
    with connect(store_url) as client:
        worker = Worker([Store(client, "shop")], WorkerSettings(block_ms=5000))
        thread = threading.Thread(target=worker.run, args=(stop,), daemon=True)
        thread.start()
        try:
            # Blocked in the store, where it has no name until it is given something (Redis 7.0), or has one (Valkey).
            wait(lambda: any(connection["cmd"] == "xreadgroup" for connection in store._client.client_list()))
            store.partitions[0].forget(0.0)
            store._client.xgroup_createconsumer(store.partitions[0].stream, GROUP, worker.name)
            assert store.partitions[0].forget(0.0) == 1
            send(store, "a")
            wait(lambda: worker.counted == 2)
        finally:
            stop.set()
            send(store, "b")  # wakes it
            thread.join(60)
    assert not thread.is_alive()
    assert store.read(LAYOUT, [THEME]).n + 2 * store.backlog() == 4


def test_a_store_that_does_not_allow_it_is_no_reason_to_stop(store, store_url, caplog):
    """A worker whose user may not ask for consumers says so and counts on."""
    store.partitions[0].join()
    store._client.execute_command("ACL", "SETUSER", "older", "on", "nopass", "~*", "+@all", "-xinfo|consumers")
    client = connect(store_url.replace("://", "://older:x@"))
    try:
        older = Store(client, "shop")
        send(store, "a")
        worker = Worker([older], chores=[Chore("departures", 600.0, lambda: forget_dead(older), Faults(older))])
        with caplog.at_level(logging.WARNING, "deniable.worker"):
            worker.run(threading.Event(), burst=True)
        assert worker.counted == 2
        assert "stay in the store's list" in caplog.text
    finally:
        client.close()
        store._client.acl_deluser("older")


@pytest.mark.parametrize("right", ["xgroup|create", "setnx"])
def test_a_worker_that_runs_as_another_user_logs_one_line_with_what_to_do(store, store_url, caplog, right):
    """Its chores, which would fail one by one, wait until its user may read the reports."""
    store._client.execute_command("ACL", "SETUSER", "ingest", "on", "nopass", "~*", "+@all", f"-{right}")
    url, stop, done = store_url.replace("://", "://ingest:x@"), threading.Event(), threading.Event()
    client, events = connect(url), Events()
    events.failed = stop.set
    try:
        chore = Chore("departures", 600.0, done.set, Faults(store))
        with caplog.at_level(logging.WARNING, "deniable.worker"):
            Worker([Store(client, "shop")], chores=[chore], events=events, outage=Outage(url)).run(stop, burst=True)
        (line,) = caplog.messages
        assert "this ran as the user 'ingest': run it as 'worker'" in line
        assert not done.is_set()
    finally:
        client.close()
        store._client.acl_deluser("ingest")


def test_where_nobody_has_joined_nobody_is_forgotten(store, caplog):
    """An app without uploads, or whose stream no worker has joined, has no consumers; that is no failure."""
    forget_dead(store)
    store.append(Upload(b"batch", key="key", remember=b"-", cap=10, ttl=60))
    forget_dead(store)
    assert caplog.text == ""
