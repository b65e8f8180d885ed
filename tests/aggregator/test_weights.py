"""The weight tally: counted right by both kernels, and once, whatever becomes of the worker."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

from deniable.wire.layout import Layout
from deniable.wire.report import Stratum
from deniable_aggregator.counting.counter import WorkerSettings
from deniable_aggregator.counting.worker import Worker
from deniable_aggregator.store import GROUP, Partition, Store, Upload, Weights
from deniable_aggregator.store.uploads import batch
from deniable_aggregator.store.uploads.batch import Group
from deniable_aggregator.tally import kernels, set_bits

pytestmark = pytest.mark.both_stores

BITS, INDEX = Layout(3, 12, "bits"), Layout(1, 5, "index")
ONE = Stratum("one", 1, "f" * 16, "2026-11-21", "")
TWO = Stratum("two", 1, "e" * 16, "2026-11-21", "")


def reports(layout, n, seed=1):
    """Make random payloads, and the numbers of their ones by the slow and plain way."""
    rng = np.random.default_rng(seed)
    payloads, ones = [], np.zeros(layout.width + 1, np.int64)
    for _ in range(n):
        bits = sum(1 << int(place) for place in np.flatnonzero(rng.random(layout.width) < rng.random()))
        payloads.append(layout.pack(int(rng.integers(layout.rows)), bits))
        ones[bits.bit_count()] += 1
    return b"".join(payloads), ones


@pytest.mark.parametrize("backend", ["numba", "numpy"])
@pytest.mark.parametrize(("rows", "width"), [(1, 1), (1, 8), (1, 64), (1, 65), (1, 200), (3, 12), (300, 31), (70_000, 50)])
def test_both_kernels_count_ones(monkeypatch, backend, rows, width):
    """Whatever the width and the bytes of the row, each report is in the cell of its number of ones; rows have no part in it."""
    if backend == "numpy":
        monkeypatch.setattr(kernels, "_compiled", lambda: None)
    layout = Layout(rows, width, "bits")
    payloads, ones = reports(layout, 300)
    assert kernels.backend() == backend
    assert set_bits.count(layout, payloads).tolist() == ones.tolist()
    assert set_bits.count(layout, b"").tolist() == [0] * (width + 1)


def send(store, key, *groups):
    store.append(Upload(batch.encode(groups), key=str(key), remember=b"-", cap=10_000, ttl=60))


@pytest.fixture
def store(real_redis):
    return Store(real_redis, "shop")


def drain(store, **settings):
    worker = Worker([store], WorkerSettings(**settings))
    worker.run(threading.Event(), burst=True)
    return worker


def test_the_worker_counts_weights_beside_the_bits(store):
    """Each stratum of bits gets its weights in the commit of its tally; cells have none."""
    total = np.zeros(13, np.int64)
    for key in range(30):
        payloads, ones = reports(BITS, 5, key)
        total += ones
        send(store, key, Group(ONE, BITS, payloads), Group(TWO, INDEX, b"\1\2"))
    drain(store, batch=7)
    assert store.read_weights(BITS, [ONE]).tolist() == total.tolist()
    assert store.read_weights(BITS, [ONE]).sum() == store.read(BITS, [ONE]).n == 150
    assert store.read_weights(INDEX, [TWO]).sum() == 0
    assert set(store.strata("one")) == {ONE}


def test_weights_are_counted_once(store, monkeypatch):
    """Entries of a dead worker, a stalled worker that wakes late, and a commit whose answer is lost: nothing is added twice."""
    import redis

    total = np.zeros(13, np.int64)
    for key in range(8):
        payloads, ones = reports(BITS, 4, key)
        total += ones
        send(store, key, Group(ONE, BITS, payloads))
    store.partitions[0].join()
    store._client.xreadgroup(GROUP, "dead", {store.partitions[0].stream: ">"}, count=3)
    time.sleep(0.02)
    commit = Partition.commit
    calls = iter(range(100))

    def troubled(self, consumer, ids, deltas, now, files):
        call = next(calls)
        if call == 0:  # this worker stalls, and another one claims and counts the first of its entries
            entry = dict(self._client.xrange(self.stream, ids[0], ids[0])[0][1])
            (group,) = batch.decode(entry[b"d"])
            self._client.xclaim(self.stream, GROUP, "quick", 0, ids[:1])
            assert commit(self, "quick", ids[:1], {Weights(ONE): set_bits.count(BITS, group.payloads)}, now) == []
        stale = commit(self, consumer, ids, deltas, now, files)
        if call == 1:
            raise redis.ConnectionError
        return stale

    monkeypatch.setattr(Partition, "commit", troubled)
    drain(store, min_idle_ms=10, claim_every=0.0)
    assert store.backlog() == 0
    assert store.read_weights(BITS, [ONE]).tolist() == total.tolist()
