"""The numbers of a worker: all there from the start, right to the unit, and shown without a word about who asks."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from threading import Event, Thread
from urllib.error import HTTPError
from urllib.request import ProxyHandler, build_opener

import pytest
import redis

from deniable import mechanisms
from deniable.errors import ConfigurationError
from deniable.wire.report import Stratum
from deniable_aggregator.counting.counter import Counter, WorkerSettings
from deniable_aggregator.counting.prometheus import Vitals
from deniable_aggregator.counting.worker import Worker
from deniable_aggregator.store import Partition, Store, Upload
from deniable_aggregator.store.uploads import batch

pytestmark = pytest.mark.both_stores

GRR = mechanisms.make("grr", domain_size=3, epsilon=1.0)


def entry(reports):
    stratum = Stratum("ui.theme", 1, "f" * 16, datetime.now(UTC).date().isoformat(), "")
    return batch.encode([batch.Group(stratum, GRR.layout, b"".join(GRR.randomize(0) for _ in range(reports)))])


def value(vitals, name, app="shop"):
    return vitals.registry.get_sample_value(f"deniable_worker_{name}", {"app": app} if app else {})


def test_every_app_is_there_from_the_start():
    """Rates begin at 0 for each app, before anything has happened."""
    vitals = Vitals(["shop", "blog"])
    for app in ("shop", "blog"):
        for name in ("reports_counted", "batches_counted", "dead_letters", "takeovers"):
            assert value(vitals, f"{name}_total", app) == 0
        assert value(vitals, "commit_duration_seconds_count", app) == 0
    assert value(vitals, "store_errors_total", None) == 0


def test_a_worker_tells_what_it_counts(real_redis):
    """Reports, batches, commits and batches put aside are those of the run."""
    stores = [Store(real_redis, "shop"), Store(real_redis, "blog")]
    for number in (3, 4):
        stores[0].append(Upload(entry(number), key=f"{number}", remember=b"{}", cap=10, ttl=60))
    real_redis.xadd(stores[1].partitions[0].stream, {"d": b"no batch"})
    vitals = Vitals(["shop", "blog"])
    Worker(stores, events=vitals).run(Event(), burst=True)
    assert value(vitals, "reports_counted_total") == 7
    assert value(vitals, "batches_counted_total") == 2
    assert value(vitals, "commit_duration_seconds_count") == 1
    assert value(vitals, "dead_letters_total") == 0
    assert value(vitals, "dead_letters_total", "blog") == 1
    assert value(vitals, "reports_counted_total", "blog") == 0


def test_a_worker_tells_of_takeovers_and_failures(real_redis, monkeypatch):
    """What is taken over from a worker that died is counted as such, and so is every failure of the store."""
    store = Store(real_redis, "shop")
    store.partitions[0].join()
    store.append(Upload(entry(5), key="k", remember=b"{}", cap=10, ttl=60))
    assert real_redis.xreadgroup("agg", "ghost", {store.partitions[0].stream: ">"})
    commit, failures = store.partitions[0].commit, iter([redis.TimeoutError("away"), redis.OutOfMemoryError("full")])

    def sometimes(*arguments):
        for failure in failures:
            raise failure
        return commit(*arguments)

    monkeypatch.setattr(Partition, "commit", lambda _, *arguments: sometimes(*arguments))
    vitals = Vitals(["shop"])
    Worker([store], WorkerSettings(min_idle_ms=0), events=vitals).run(Event(), burst=True)
    assert value(vitals, "takeovers_total") == 1
    assert value(vitals, "store_errors_total", None) == 2
    assert value(vitals, "reports_counted_total") == 5
    assert value(vitals, "commit_duration_seconds_count") == 1


def test_numbers_are_shown_and_nothing_is_printed(capfd):
    """They are served in the format of Prometheus; neither a request nor one that breaks off leaves an address in the log."""
    server = Vitals(["shop"]).serve("127.0.0.1:0")
    try:
        with build_opener(ProxyHandler({})).open(f"http://127.0.0.1:{server.server_port}/metrics", timeout=60) as answer:
            assert answer.headers["Content-Type"].startswith("text/plain")
            assert b'deniable_worker_reports_counted_total{app="shop"} 0.0' in answer.read()
        server.handle_error(None, ("203.0.113.7", 4711))  # as it is called when a connection breaks off
    finally:
        server.shutdown()
        server.server_close()
    assert capfd.readouterr() == ("", "")


def test_a_worker_that_stands_still_is_not_well(monkeypatch):
    """A thread that counts and turns no more is told at /healthz; one that ended, or has not begun, is not missed."""
    vitals = Vitals(["shop"])
    server = vitals.serve("127.0.0.1:0")

    def health():
        try:
            with build_opener(ProxyHandler({})).open(f"http://127.0.0.1:{server.server_port}/healthz", timeout=60) as answer:
                return answer.status, answer.read()
        except HTTPError as error:
            return error.code, error.read()

    try:
        assert health() == (200, b"ok\n")  # it compiles, or waits for its archive
        vitals.turned()
        assert health() == (200, b"ok\n")
        monkeypatch.setattr("deniable_aggregator.counting.prometheus.STILL_SECONDS", -1.0)
        status, body = health()
        assert (status, body[:27]) == (503, b"counting has stood still fo")
        vitals.ended()
        assert health() == (200, b"ok\n")
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("away", [False, True])
def test_a_worker_turns(real_redis, monkeypatch, away):
    """While it runs each thread turns, also while the store is away; at the end none is left."""
    vitals, stop = Vitals(["shop"]), Event()

    def refused(*_, **__):
        raise redis.ConnectionError

    if away:
        monkeypatch.setattr(Counter, "_read", refused)
    worker = Thread(target=Worker([Store(real_redis, "shop")], WorkerSettings(block_ms=50), events=vitals).run, args=[stop])
    worker.start()
    turns = vitals._turns
    first = until(lambda: dict(turns))
    assert until(lambda: turns and max(turns.values()) > max(first.values()))
    stop.set()
    worker.join(60)
    assert not worker.is_alive()
    assert vitals.still() == 0
    assert turns == {}


def until(done):
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        if answer := done():
            return answer
        time.sleep(0.02)
    raise TimeoutError


@pytest.mark.parametrize("bind", ["", "9464", "127.0.0.1", "127.0.0.1:", "127.0.0.1:123456", "127.0.0.1:65536", "::1:9464"])
def test_an_address_is_checked(bind):
    """What is no HOST:PORT, or none that can be had, is refused by name."""
    with pytest.raises(ConfigurationError, match="--metrics-bind"):
        Vitals(["shop"]).serve(bind)


def test_an_address_may_be_of_ipv6():
    """An IPv6 address is written in brackets."""
    try:
        server = Vitals(["shop"]).serve("[::1]:0")
    except ConfigurationError as error:
        pytest.skip(f"no IPv6 here: {error}")
    server.shutdown()
    server.server_close()
