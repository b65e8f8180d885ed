"""The worker on a real server: everything counted once, whoever dies."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
import redis
from machines import wait
from workers import running

from deniable.wire.layout import Layout
from deniable.wire.report import Stratum
from deniable_aggregator import tally
from deniable_aggregator.counting import worker as workers
from deniable_aggregator.counting.counter import Counter, WorkerSettings
from deniable_aggregator.counting.worker import Worker
from deniable_aggregator.store import GROUP, Partition, Store, Upload
from deniable_aggregator.store.server.servers import primaries
from deniable_aggregator.store.uploads import batch, health
from deniable_aggregator.store.uploads.batch import Group
from deniable_aggregator.store.uploads.dead_letters import DeadLetters
from deniable_aggregator.store.uploads.deliveries import Deliveries

pytestmark = [pytest.mark.both_stores, pytest.mark.divided_too]

INDEX, BITS = Layout(1, 5, "index"), Layout(1, 12, "bits")
ONE = Stratum("one", 1, "f" * 16, "2026-11-21", "")
TWO = Stratum("two", 1, "e" * 16, "2026-11-21", "platform=linux")


@pytest.fixture
def store(real_redis):
    return Store(real_redis, "shop")


def send(store, key, *groups):
    assert store.append(Upload(batch.encode(groups), key=str(key), remember=b"-", cap=10_000, ttl=60)).outcome == "appended"


def drain(store, **settings):
    worker = Worker([store], WorkerSettings(**settings))
    worker.run(threading.Event(), burst=True)
    return worker


def test_batches_of_several_metrics_are_counted(store):
    """Every report of every batch is in its own tally, and the stream is empty."""
    rng = np.random.default_rng(1)
    indices, bits = tally.empty(INDEX), tally.empty(BITS)
    for key in range(250):
        one = rng.integers(0, 5, 7).astype(np.uint8).tobytes()
        two = (rng.integers(0, 4096, 3).astype("<u2")).tobytes()
        indices, bits = tally.merge(indices, tally.count(INDEX, one)), tally.merge(bits, tally.count(BITS, two))
        send(store, key, Group(ONE, INDEX, one), Group(TWO, BITS, two))
    worker = drain(store)
    assert worker.counted == 250 * 10
    assert store.read(INDEX, [ONE]) == indices
    assert store.read(BITS, [TWO]) == bits
    assert store.backlog() == 0
    assert store._client.xinfo_consumers(store.partitions[0].stream, GROUP) == []


def test_a_poisoned_batch_is_put_aside_alone(store, caplog):
    """Broken entries and impossible payloads go to the dead letters with a reason; their neighbours are counted."""
    send(store, 1, Group(ONE, INDEX, b"\1"))
    store._client.xadd(store.partitions[0].stream, {"d": b"not a batch"})
    store._client.xadd(store.partitions[0].stream, {"other": b"no body"})
    send(store, 2, Group(ONE, INDEX, b"\2\x63"))
    send(store, 3, Group(ONE, INDEX, b"\3\3"))
    worker = drain(store)
    assert (worker.counted, worker.buried) == (3, 3)
    assert store.read(INDEX, [ONE]).counts.tolist() == [[0, 1, 0, 2, 0]]
    assert store._client.xlen(store.partitions[0].dead) == 3
    assert store.backlog() == 0
    assert "not a batch" not in caplog.text


def test_entries_of_a_dead_worker_are_taken_over(store):
    """What a worker read and never committed is claimed after the idle time and counted once."""
    for key in range(5):
        send(store, key, Group(ONE, INDEX, b"\1\1"))
    store.partitions[0].join()
    store._client.xreadgroup(GROUP, "dead", {store.partitions[0].stream: ">"}, count=3)
    time.sleep(0.02)
    worker = drain(store, min_idle_ms=10, claim_every=0.0)
    assert worker.counted == 10
    assert store.read(INDEX, [ONE]).n == 10


def test_a_worker_that_wakes_late_counts_nothing_twice(store, monkeypatch):
    """A worker stalled between reading and committing finds its entries gone, and only its own ones are added."""
    for key in range(4):
        send(store, key, Group(ONE, INDEX, b"\1\2\3"))
    commit = Partition.commit
    stalls = iter([True])

    def stalled_commit(self, consumer, ids, deltas, now, files):
        if next(stalls, False):  # another worker claims two of the entries and counts them meanwhile
            self._client.xclaim(self.stream, GROUP, "quick", 0, ids[:2])
            assert commit(self, "quick", ids[:2], {ONE: tally.count(INDEX, b"\1\2\3" * 2).cells}, now) == []
        return commit(self, consumer, ids, deltas, now, files)

    monkeypatch.setattr(Partition, "commit", stalled_commit)
    worker = drain(store)
    assert worker.counted == 6
    assert store.read(INDEX, [ONE]).n == 12


def test_a_commit_whose_answer_is_lost_is_sent_again_safely(store, monkeypatch):
    """If the connection breaks after the commit went through, sending it again adds nothing."""
    send(store, 1, Group(ONE, INDEX, b"\1\1\1"))
    commit = Partition.commit
    losses = iter([True])

    def lossy_commit(self, *arguments):
        stale = commit(self, *arguments)
        if next(losses, False):
            raise redis.ConnectionError
        return stale

    monkeypatch.setattr(Partition, "commit", lossy_commit)
    drain(store)
    assert store.read(INDEX, [ONE]).n == 3
    assert store.backlog() == 0


def test_an_entry_that_never_gets_counted_is_put_aside(store):
    """After the allowed deliveries an entry is not tried again."""
    send(store, 1, Group(ONE, INDEX, b"\1"))
    store.partitions[0].join()
    (((_, ((id_, _),)),)) = store._client.xreadgroup(GROUP, "dead", {store.partitions[0].stream: ">"})
    store._client.xclaim(store.partitions[0].stream, GROUP, "dead", 0, [id_], retrycount=9)
    time.sleep(0.02)
    worker = drain(store, min_idle_ms=10, claim_every=0.0)
    assert (worker.counted, worker.buried) == (0, 1)


def test_two_workers_share_the_work(store):
    """Several workers together count everything exactly once."""
    for key in range(300):
        send(store, key, Group(ONE, INDEX, b"\1\2"))
    workers = [Worker([store], WorkerSettings(batch=7)) for _ in range(2)]
    threads = [threading.Thread(target=worker.run, args=(threading.Event(),), kwargs={"burst": True}) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(worker.counted for worker in workers) == 600
    assert store.read(INDEX, [ONE]).n == 600


def test_stopping_ends_the_loop(store):
    """A worker told to stop leaves within its blocking read."""
    worker = Worker([store], WorkerSettings(block_ms=50))
    with running(worker):
        send(store, 1, Group(ONE, INDEX, b"\1"))
        wait(lambda: worker.counted)
    assert worker.counted == 1


def test_stopping_before_the_beginning_leaves_nothing(store, caplog):
    """A worker that is stopped before it has begun has no group to leave, and says nothing of it."""
    stop = threading.Event()
    stop.set()
    worker = Worker([store])
    worker.run(stop)
    assert (worker.counted, worker.cut_off, caplog.messages) == (0, False, [])


def test_all_that_is_in_hand_is_counted_after_answers_were_lost(store, monkeypatch):
    """Of answers that never came, all that was handed out in them is counted, though one read holds less, without waiting."""
    worker = Worker([store], WorkerSettings(batch=2))
    for key in range(5):
        send(store, key, Group(ONE, INDEX, bytes([key])))
    lost = set()
    for counter in worker.look():
        counter.join(threading.Event())
        while counter._deliveries.new(2, None):
            pass
        lost.add(counter._deliveries)
    new = Deliveries.new

    def read(self, *arguments):
        if self in lost:
            lost.remove(self)
            raise redis.ConnectionError("the answer was lost")
        return new(self, *arguments)

    monkeypatch.setattr(Deliveries, "new", read)
    worker.run(threading.Event(), burst=True)
    assert worker.counted == 5
    assert store.read(INDEX, [ONE]).counts.tolist() == [[1] * 5]


def test_a_store_emptied_under_the_worker_is_joined_again(store):
    """When the stream and its group vanish, the worker makes them anew and goes on."""
    worker = Worker([store], WorkerSettings(block_ms=50))
    with running(worker):
        wait(lambda: health.read(store).workers)
        store._client.flushall()
        send(store, 1, Group(ONE, INDEX, b"\1"))
        wait(lambda: worker.counted)
    assert worker.counted == 1


def test_a_full_store_keeps_the_worker_waiting(store):
    """While the store is out of memory nothing is committed, put aside or lost; then all is counted once."""
    for key in range(20):
        send(store, key, Group(ONE, INDEX, b"\1\2"))
    store.partitions[0].join()
    for server in primaries(store._client):
        server.config_set("maxmemory", 1)
    try:
        worker = Worker([store], WorkerSettings(min_idle_ms=1, claim_every=0.0))
        thread = threading.Thread(target=worker.run, args=(threading.Event(),), kwargs={"burst": True})
        thread.start()
        time.sleep(0.7)
        assert worker.counted == worker.buried == 0
        assert thread.is_alive()
    finally:
        for server in primaries(store._client):
            server.config_set("maxmemory", 0)
    thread.join(60)
    assert (worker.counted, worker.buried) == (40, 0)
    assert store.read(INDEX, [ONE]).n == 40


def test_a_batch_that_kills_workers_takes_no_other_with_it(store, monkeypatch):
    """Entries that were in hand with it are counted, each tried alone once they were handed out twice; it alone is put aside."""

    class Fragile(Counter):
        def _settle(self, store, entries, stop):
            if any(entry.body and b"pill" in entry.body for entry in entries):
                raise SystemExit  # as if it were killed
            super()._settle(store, entries, stop)

    for key in range(20):
        send(store, key, Group(ONE if key != 7 else ONE._replace(segment="pill"), INDEX, b"\1\2"))
    monkeypatch.setattr(workers, "Counter", Fragile)
    counted = buried = deaths = 0
    while store.backlog():
        time.sleep(0.02)
        worker = Worker([store], WorkerSettings(min_idle_ms=10, claim_every=0.0, max_deliveries=4))
        try:
            worker.run(threading.Event(), burst=True)
        except SystemExit:
            deaths += 1
        counted, buried = counted + worker.counted, buried + worker.buried
    assert (counted, buried, deaths) == (38, 1, 4)
    (letter,) = DeadLetters(store)
    assert b"pill" in letter.body


def test_an_answer_that_is_lost_while_reading_delays_nothing(store, monkeypatch):
    """Entries that the store handed out in an answer that never came are counted at once, not when they are taken over."""
    for key in range(30):
        send(store, key, Group(ONE, INDEX, b"\1"))
    read = Counter._read
    losses = iter([True])

    def lossy_read(self, *, block):
        entries = read(self, block=block)
        if next(losses, False):
            raise redis.TimeoutError
        return entries

    monkeypatch.setattr(Counter, "_read", lossy_read)
    worker = drain(store, batch=8)
    assert (worker.counted, store.backlog()) == (30, 0)


def test_an_error_of_the_disk_keeps_the_worker_waiting(store, monkeypatch):
    """While the store refuses to write, a commit is tried again; nothing is put aside, and a stop in between is told."""
    send(store, 1, Group(ONE, INDEX, b"\1"))
    commit = Partition.commit
    stop = threading.Event()

    def refused(*_):
        stop.set()
        raise redis.ResponseError("MISCONF Errors writing to the AOF file: No space left on device")

    monkeypatch.setattr(Partition, "commit", refused)
    worker = Worker([store])
    worker.run(stop)
    assert (worker.cut_off, worker.buried, store.backlog()) == (True, 0, 1)
    monkeypatch.setattr(Partition, "commit", commit)
    time.sleep(0.02)
    assert drain(store, min_idle_ms=10, claim_every=0.0).counted == 1


def test_the_reason_of_a_dead_letter_repeats_nothing_of_it(store, caplog):
    """Neither the log nor the dead letter's reason has a word of an entry that could not be read."""
    import msgspec

    wire = [("canary", 1, "f", "p", "", 1, 5, "canary-kind", b"canary")]
    for body in (b"canary", msgspec.msgpack.encode(wire), msgspec.msgpack.encode([["canary"]])):
        store._client.xadd(store.partitions[0].stream, {"d": body})
    assert drain(store).buried == 3
    assert "canary" not in caplog.text
    for _, fields in store._client.xrange(store.partitions[0].dead):
        assert b"canary" not in fields[b"reason"]
