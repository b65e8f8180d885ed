"""Reports that a relay has mixed: each counts once, in whatever upload it comes, on fakeredis and on the real server alike."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime, timedelta

import fakeredis
import pytest
from stores import EVERY

from deniable.wire.layout import Layout
from deniable.wire.report import Stratum
from deniable_aggregator.store import Store, connect
from deniable_aggregator.store.uploads import batch
from deniable_aggregator.store.uploads.batch import Admitted, Opened

LAYOUT = Layout(1, 64, "bits")
UNTIL = datetime(2130, 1, 2, 12, tzinfo=UTC)


@pytest.fixture(params=EVERY)
def client(request, start_store):
    """Empty each server in turn."""
    client = fakeredis.FakeRedis() if request.param == "fake" else connect(start_store(request.param))
    client.flushall()
    yield client
    client.close()


@pytest.fixture
def store(client):
    return Store(client, "shop")


def stratum(metric="theme", period="2030-01-01"):
    return Stratum(metric, 1, "0" * 16, period, "")


def reports(count):
    return [(os.urandom(57), os.urandom(8)) for _ in range(count)]


def opened(pairs, of=None, cap=1000):
    return Opened(of or stratum(), LAYOUT, [sealed for sealed, _ in pairs], [payload for _, payload in pairs], cap, UNTIL)


def waiting(client):
    """Return the groups that wait to be counted."""
    return [group for _, fields in client.xrange("{shop}:reports") for group in batch.decode(fields[b"d"])]


def test_a_report_counts_once_in_whatever_upload_it_comes(store, client):
    """The entry has the new payloads in their order, as any other batch."""
    pairs = reports(5)
    assert store.admit(opened(pairs[:3])) == Admitted("appended", 3)
    assert store.admit(opened([pairs[1], pairs[3], pairs[1], pairs[4]])) == Admitted("appended", 2)
    assert store.admit(opened(pairs)) == Admitted("appended", 0)
    assert [group.stratum for group in waiting(client)] == [stratum()] * 2
    assert [group.layout for group in waiting(client)] == [LAYOUT] * 2
    payloads = [payload for _, payload in pairs]
    assert [group.payloads for group in waiting(client)] == [b"".join(payloads[:3]), b"".join(payloads[3:])]


def test_a_report_of_another_place_is_another_one(store):
    """It would not open there; the store does not rely on it."""
    pairs = reports(2)
    for of in (stratum(), stratum(metric="other"), stratum(period="2030-01-02")):
        assert store.admit(opened(pairs, of)) == Admitted("appended", 2)


def test_a_large_part(store, client):
    """As many as a relay sends at once; the store has some ten bytes for each, and nothing that lasts longer than the period."""
    pairs = reports(20_000)
    for first in range(0, len(pairs), 500):
        assert store.admit(opened(pairs[first : first + 500])).new == 500
    sets = list(client.scan_iter("{shop}:opened:*", count=2000))
    assert sum(client.scard(key) for key in sets) == 20_000
    assert len(sets) == 1000
    assert {client.expiretime(key) for key in sets} == {int((UNTIL.replace(hour=0) + timedelta(days=2)).timestamp())}
    if not isinstance(client, fakeredis.FakeRedis):
        assert client.object("encoding", sets[0]) == b"intset"


def test_a_full_backlog_takes_nothing(store, client):
    """Nothing is noted then, so the same part is taken later."""
    pairs = reports(3)
    assert store.admit(opened(reports(1), cap=1)).outcome == "appended"
    assert store.admit(opened(pairs, cap=1)) == Admitted("full", 0)
    client.delete("{shop}:reports")
    assert store.admit(opened(pairs, cap=1)) == Admitted("appended", 3)


def test_partitions_share_the_digests_of_a_stratum(store):
    """All parts of a stratum come to one partition, however they are named."""
    store.divide(3)
    pairs = reports(4)
    for first in range(4):
        assert store.admit(opened(pairs[: first + 1])).new == 1
    assert sum(partition.backlog() for partition in store.partitions) == 4
    assert max(partition.backlog() for partition in store.partitions) == 4


def test_the_hour_of_the_last_upload_is_noted(store):
    """As for any other upload."""
    store.admit(opened(reports(1)))
    (partition,) = store.partitions
    assert partition.last_upload() in {int(time.time()) // 3600 * 3600 - ago for ago in (0, 3600)}


def test_a_store_without_memory_takes_nothing(store, client):
    """No digest is noted without its report."""
    if isinstance(client, fakeredis.FakeRedis):
        pytest.skip("it has no limit of memory")
    store.admit(opened(reports(1)))
    pairs = reports(3)
    limit = client.config_get("maxmemory")["maxmemory"]
    client.config_set("maxmemory", 1)
    try:
        assert store.admit(opened(pairs)) == Admitted("no room", 0)
    finally:
        client.config_set("maxmemory", limit)
    assert store.admit(opened(pairs)) == Admitted("appended", 3)
