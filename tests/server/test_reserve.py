"""Uploads of many small groups, whose sums take more memory than they do: counting stops before the store is full."""

from __future__ import annotations

import gzip
import json
import time
import tracemalloc
from functools import cache
from itertools import product
from threading import Event, Thread

import numpy as np
import pytest
from machines import wait
from registries import metric_toml

from deniable.commands.entry import main
from deniable.forecast.space import STRATUM
from deniable.wire.report import Stratum
from deniable_aggregator.alarms.watcher import Watch
from deniable_aggregator.answer.live import measure
from deniable_aggregator.counting import faults
from deniable_aggregator.counting.counter import WorkerSettings
from deniable_aggregator.counting.worker import Worker
from deniable_aggregator.publish.hourly import Hourly
from deniable_aggregator.publish.publisher import Publisher
from deniable_aggregator.publish.strata import unpublished
from deniable_aggregator.store.errors import NoRoom
from deniable_aggregator.store.server import room
from deniable_aggregator.store.sums.deltas import growth
from deniable_aggregator.store.uploads import health
from deniable_server.doctor.store import memory
from deniable_server.rates import Volume

pytestmark = pytest.mark.both_stores

SEGMENTS = {"country": 30, "build": 10, "screen": 7}
REGISTRY = (
    """
format = 1
budget.per_month = 10000
budget.lifetime = 100000
app = "shop"
[segments]
"""
    + "".join(f"{name} = {json.dumps([f'{name}{each}' for each in range(number)])}\n" for name, number in SEGMENTS.items())
    + metric_toml(
        "ui.search", type="string", candidates="words.txt", epsilon=4.0, period="day", segments=["country", "build", "screen"]
    )
)
STRATA = [
    ",".join(f"{name}={name}{each}" for name, each in zip(SEGMENTS, chosen, strict=True))
    for chosen in product(*map(range, SEGMENTS.values()))
]


@pytest.fixture
def shop(serve, monkeypatch):
    """Serve a metric of 2,100 segments without limits of an address."""
    server = serve(REGISTRY, words="one\ntwo\n")
    monkeypatch.setenv("DENIABLE_REDIS_URL", server.service.settings.redis_url)
    monkeypatch.setenv("DENIABLE_REGISTRY", server.service.settings.registry)
    yield server
    server.store._client.config_set("maxmemory", 1 << 30)


@pytest.fixture
def upload(shop):
    """Return what sends an upload of a report for each segment, or for some of them."""
    group = shop.group("ui.search", [0])

    @cache
    def body(number_of_segments):
        groups = [group | {"segment": segment} for segment in STRATA[:number_of_segments]]
        return gzip.compress(json.dumps({"format": 1, "app": "shop", "groups": groups}).encode())

    return lambda number, segments=2100: shop.post(body(segments), key=f"upload {number}", Content_Encoding="gzip")


def doctor(capsys, monkeypatch):
    monkeypatch.setattr("deniable_server.doctor._START_SECONDS", 0.0)  # no server starts
    assert main(["doctor", "--json"]) in (0, 1)
    return {each["check"]: each for each in map(json.loads, capsys.readouterr().out.splitlines())}


def test_one_report_of_each_segment_leaves_little(shop, upload):
    """However many cells the metric has: no more than is charged for it."""
    assert upload(0).get_json()["accepted"] == len(STRATA)
    Worker([shop.store]).run(Event(), burst=True)
    client = shop.store._client
    full = client.info("memory")["used_memory"]
    client.flushall()
    assert full - client.info("memory")["used_memory"] < STRATUM * len(STRATA)


def test_new_groups_are_paid_for_once(shop, upload):
    """By the address that sends them first: their sums take more than the upload. Whoever is refused has not paid."""
    shop.service.limits._stored = Volume(2 << 20, 3600)
    real = shop.service.limits._number
    shop.service.limits._number = lambda _: "here"
    assert upload(0).status_code == 202  # 1.5 MB of sums, and some 200 kB that wait
    size = len(shop.store._client.xrange(shop.store.partitions[0].stream)[0][1][b"d"])
    assert size < 300_000
    taken = int(shop.store._client.get("{shop}:rate:source:here:bytes"))
    assert size + STRATUM * len(STRATA) < taken < size + 2 * STRATUM * len(STRATA)
    assert upload(1).status_code == 202  # without new groups
    assert int(shop.store._client.get("{shop}:rate:source:here:bytes")) == min(2 << 20, taken + size + 64)
    shop.app.paid.clear()
    assert [upload(2).status_code, upload(2).status_code] == [429, 429]
    assert not shop.app.paid
    shop.service.limits._number = real


def test_sums_that_fill_the_store(shop, upload, capsys, monkeypatch):
    """Counting stops and says so; keys, sessions and erasure work; when a metric is erased all goes on, and nothing is lost."""
    client = shop.store._client
    large = Stratum("ui.search", 1, "f" * 16, "2026-11-21", STRATA[0])
    assert shop.store.partitions[0].commit("w", [], {large: np.ones(8 << 20, np.int64)}, 0) == []
    assert [upload(number).status_code for number in range(3)] == [202] * 3
    # Well above what stops counting: the server gives back what connections of earlier tests held.
    client.config_set("maxmemory", int(client.info("memory")["used_memory"] / 0.92))
    shop.store._room._known.clear()
    assert upload(3).get_json()["code"] == "store_full"
    stop, worker = Event(), Worker([shop.store], WorkerSettings(batch=1, block_ms=100, min_idle_ms=500, claim_every=0.2))
    thread = Thread(target=worker.run, args=(stop,))
    thread.start()
    try:
        deadline = time.monotonic() + 300
        while faults.present(shop.store) != {"memory": "NoRoom"}:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert shop.store.backlog() == 3
        wait(lambda: health.read(shop.store).workers == 1, 300)
        findings = doctor(capsys, monkeypatch)
        assert (findings["memory"]["status"], findings["chores"]["status"]) == ("fault", "fault")
        assert "held up by memory" in findings["chores"]["seen"]
        assert findings["chores"]["meaning"].startswith("reports wait")
        assert "the finding memory" in findings["chores"]["remedy"]
        assert main(["keys", "create", "--app", "shop", "--role", "ingest"]) == 0
        assert main(["keys", "revoke", "--yes", "--app", "shop", capsys.readouterr().err.split()[1].rstrip(",")]) == 0
        assert shop.http.post("/login", data={"key": "rk_nobody_12345678"}).status_code < 500
        assert main(["erase", "--app", "shop", "--metric", "ui.search", "--yes"]) == 0
        while shop.store.backlog() or faults.present(shop.store):
            assert time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        stop.set()
        thread.join()
    shop.store._room._known.clear()
    assert upload(3).status_code == 202


@pytest.mark.slow("hundreds of megabytes of sums are read while memory is traced")
def test_sums_of_many_groups_are_read_one_at_a_time(shop, upload):
    """By the publisher, the watch and an administrator: all at once would take gigabytes, and end the worker."""
    segments = 200
    assert upload(0, segments).status_code == 202
    Worker([shop.store]).run(Event(), burst=True)
    shop.turn_the_hour()
    metric = shop.app.highest["ui.search"]
    sum_ = 8 * metric.layout.rows * (metric.layout.width + 1)
    assert sum_ * segments > 2 * (20 * sum_ + (100 << 20))
    tracemalloc.start()
    try:
        Publisher(shop.store, shop.app.registry).publish(time.time() + 40 * 86400)
        Watch(shop.store, shop.app.registry).run()
        live = measure(shop.app, metric)
        assert (live.n, len(live.counts)) == (segments, segments)
        assert unpublished(shop.store, metric) == 0
        assert tracemalloc.get_traced_memory()[1] < 20 * sum_ + (100 << 20)
    finally:
        tracemalloc.stop()


def test_sums_are_not_copied_where_there_is_no_room(shop):
    """It is a fault of the chore, and they are copied when there is."""
    shop.post({"format": 1, "app": "shop", "groups": [shop.group("ui.search", [0], segment=STRATA[0])]})
    Worker([shop.store]).run(Event(), burst=True)
    client = shop.store._client
    client.config_set("maxmemory", int(client.info("memory")["used_memory"] / 0.9))
    with pytest.raises(NoRoom):
        Hourly(shop.store).run(shop.app.registry)
    client.config_set("maxmemory", 1 << 30)
    Hourly(shop.store).run(shop.app.registry)
    assert len(Hourly(shop.store).strata("ui.search")) == 1


@pytest.mark.parametrize(("used", "meaning"), [(76, "uploads are refused"), (86, "nothing is counted")])
def test_the_doctor_says_what_is_refused(used, meaning):
    """From which share on."""
    findings = memory({"used_memory": used << 20, "maxmemory": 100 << 20})
    assert findings.status == "fault"
    assert meaning in findings.meaning


def test_batches_are_counted_one_by_one_where_their_sums_together_have_no_room(shop, upload):
    """Those that fit are counted; the next ones when there is room. Each is counted once."""
    client = shop.store._client
    for number in range(6):
        assert upload(number).status_code == 202
    sums = growth({each: np.ones(1, np.int64) for each in range(len(STRATA))})
    client.config_set("maxmemory", int((client.info("memory")["used_memory"] + 2.5 * sums) / room.COMMITS))
    stop, worker = Event(), Worker([shop.store], WorkerSettings(block_ms=100, min_idle_ms=500, claim_every=0.2))
    thread = Thread(target=worker.run, args=(stop,))
    thread.start()
    try:
        deadline = time.monotonic() + 300
        while not worker.counted:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        client.config_set("maxmemory", 1 << 30)
        while shop.store.backlog():
            assert time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        stop.set()
        thread.join()
    assert worker.counted == 6 * len(STRATA)
    strata = shop.store.strata("ui.search")
    assert len(strata) == len(STRATA)
    layout = shop.mechanism("ui.search").layout  # of so many cells that all sums together would take 12 GB here
    assert all(shop.store.read(layout, [stratum]).n == 6 for stratum in list(strata)[::100])
