"""The store's scripts, on fakeredis and on the real server alike."""

from __future__ import annotations

import time

import fakeredis
import numpy as np
import pytest
from stores import EVERY, REAL

from deniable import mechanisms
from deniable.wire.layout import Layout
from deniable.wire.report import Stratum
from deniable_aggregator import tally
from deniable_aggregator.store import GROUP, Store, Upload, connect
from deniable_aggregator.store.uploads import batch
from deniable_aggregator.store.uploads.batch import Group
from deniable_aggregator.store.values.limit import Limit

THEME = Stratum("ui.theme", 1, "f" * 16, "2026-11-21", "")
OTHER = Stratum("ui.theme", 1, "f" * 16, "2026-11-22", "platform=linux")


@pytest.fixture(params=EVERY)
def store(request, start_store):
    """Open an app's store on each server in turn."""
    client = fakeredis.FakeRedis() if request.param == "fake" else connect(start_store(request.param))
    client.flushall()
    yield Store(client, "shop")
    client.close()


def read(store, consumer, count=100):
    store.partitions[0].join()
    reply = store._client.xreadgroup(GROUP, consumer, {store.partitions[0].stream: ">"}, count=count)
    return [id_ for _, entries in reply for id_, _ in entries]


def append(store, key, entry=b"entry", cap=10):
    return store.append(Upload(entry, key=key, remember=f"answer {key}".encode(), cap=cap, ttl=60))


def test_an_upload_is_appended_once(store):
    """A repeated key appends nothing and gives back what was remembered, also when the body differs."""
    assert append(store, "k1").outcome == "appended"
    again = append(store, "k1", entry=b"another")
    assert (again.outcome, again.previous) == ("duplicate", b"answer k1")
    assert store.recall("k1", 60) == b"answer k1"
    assert store.recall("k2", 60) is None
    assert store.backlog() == 1


def test_a_full_backlog_refuses_and_remembers_nothing(store):
    """At the cap an upload is refused, nothing is trimmed, and the same upload succeeds later."""
    for i in range(3):
        append(store, f"k{i}", cap=3)
    assert append(store, "k3", cap=3).outcome == "full"
    assert store.backlog() == 3
    assert store.recall("k3", 60) is None
    assert append(store, "k3", cap=4).outcome == "appended"


def test_entries_tell_the_hour_of_their_arrival(store):
    """The id of an entry is that of its hour with a number, which goes on counting where a clock was set back."""
    append(store, "a")
    append(store, "b")
    (first, _), (second, _) = store._client.xrange(store.partitions[0].stream)
    now = int(time.time())
    milliseconds, number = map(int, first.split(b"-"))
    assert milliseconds in {1000 * (now - now % 3600 - 3600 * ago) for ago in (0, 1)}
    assert second == f"{milliseconds}-{number + 1}".encode()
    later = milliseconds + 48 * 3600 * 1000
    store._client.xadd(store.partitions[0].stream, {"d": b"x"}, id=f"{later}-7")
    assert append(store, "c").outcome == "appended"
    assert store._client.xrevrange(store.partitions[0].stream, count=1)[0][0] == f"{later}-8".encode()


def test_commit_adds_and_deletes_together(store):
    """A commit adds each stratum's cells, and its entries leave the stream and the pending list."""
    append(store, "a")
    append(store, "b")
    ids = read(store, "w1")
    layout = Layout(1, 5, "index")
    deltas = {THEME: np.array([1, 0, 0, 2, 0]), OTHER: np.array([0, 7, 0, 0, 0])}
    assert store.partitions[0].commit("w1", ids, deltas, 1000) == []
    assert store.backlog() == 0
    assert store._client.xpending(store.partitions[0].stream, GROUP)["pending"] == 0
    assert store.read(layout, [THEME]).counts.tolist() == [[1, 0, 0, 2, 0]]
    assert store.read(layout, [THEME, OTHER]).counts.tolist() == [[1, 7, 0, 2, 0]]
    assert store.strata("ui.theme") == {THEME: 0, OTHER: 0}  # the hour, no more
    append(store, "c")
    assert store.partitions[0].commit("w1", read(store, "w1"), {THEME: np.array([0, 0, 0, 0, 9])}, 9000) == []
    assert store.read(layout, [THEME]).counts.tolist() == [[1, 0, 0, 2, 9]]
    assert store.strata("ui.theme")[THEME] == 7200


def test_a_stale_commit_writes_nothing(store):
    """Entries that another worker claimed, or that are counted already, are named, and nothing is added."""
    append(store, "a")
    append(store, "b")
    first, second = read(store, "w1")
    store._client.xclaim(store.partitions[0].stream, GROUP, "w2", 0, [first])
    delta = {THEME: np.array([1, 1])}
    assert store.partitions[0].commit("w1", [first, second], delta, 1) == [first]
    assert store.read(Layout(1, 2, "index"), [THEME]).n == 0
    assert store.partitions[0].commit("w1", [second], delta, 1) == []
    assert store.partitions[0].commit("w1", [second], delta, 1) == [second]
    assert store.read(Layout(1, 2, "index"), [THEME]).n == 2


@pytest.mark.parametrize("every", [1, 7, 20])
def test_large_deltas_are_added_whole(store, every):
    """Deltas of thousands of cells, dense or sparse, are added to what is there, be it shorter or longer."""
    if isinstance(store._client, fakeredis.FakeRedis) and every < 10:
        pytest.skip("fakeredis has no struct in its Lua")
    rng = np.random.default_rng(3)
    total = np.zeros(5003, np.int64)
    for number, (first, end) in enumerate([(0, 3000), (2500, 5003), (40, 77), (0, 5003)]):
        delta = np.zeros(5003, np.int64)
        large = 1 << (30 if isinstance(store._client, fakeredis.FakeRedis) else 40)
        delta[first:end:every] = rng.integers(1, large, len(delta[first:end:every]))
        append(store, f"{number}")
        assert store.partitions[0].commit("w1", read(store, "w1"), {THEME: delta}, 1) == []
        total += delta
        assert store.read(Layout(1, 5003, "index"), [THEME]).counts.tolist() == [total.tolist()]


@pytest.mark.parametrize("store", REAL, indirect=True)
def test_many_entries_are_committed_at_once(store):
    """More entries than Lua can unpack leave together, in any order, unless one of them is not owned."""
    pipeline = store._client.pipeline(transaction=False)
    for _ in range(4100):
        pipeline.xadd(store.partitions[0].stream, {"d": b"x"})
    pipeline.execute()
    ids = read(store, "w1", count=4100)
    store._client.xclaim(store.partitions[0].stream, GROUP, "w2", 0, [ids[7]])
    assert store.partitions[0].commit("w1", ids, {}, 1) == [ids[7]]
    assert store.backlog() == 4100
    assert store.partitions[0].commit("w1", [*ids[:-9:-1], *ids[:7], *ids[8:-8]], {}, 1) == []
    assert store.backlog() == 1


@pytest.mark.parametrize("limited_by", ["first", "second"])
def test_an_upload_counts_for_its_limits(store, limited_by):
    """An upload, also a repeated one, counts up to the first limit that is used up, and is then not appended."""
    limits = [Limit("{shop}:rate:a", 2 if limited_by == "first" else 9, 60), Limit("{shop}:rate:b", 2, 60)]

    def upload(key):
        return store.append(Upload(b"entry", key=key, remember=b"answer", cap=10, ttl=60, limits=limits))

    assert [upload(key).outcome for key in ("k1", "k1", "k2")] == ["appended", "duplicate", "limited"]
    excess = upload("k2").excess
    assert limits[excess.place].key == "{shop}:rate:a" if limited_by == "first" else "{shop}:rate:b"
    assert 0 < excess.ms <= 60_000
    assert store.backlog() == 1
    assert store.recall("k2", 60) is None
    assert store._client.mget(limit.key for limit in limits) == ([b"4", b"2"] if limited_by == "first" else [b"4", b"4"])
    assert all(0 < store._client.ttl(limit.key) <= 60 for limit in limits)


def test_bits_keep_their_report_counts(store):
    """The reports of each row are stored beside the bits."""
    mechanism = mechanisms.make("oue", domain_size=9, epsilon=1)
    counted = tally.count(mechanism.layout, b"".join(mechanism.randomize(i % 9) for i in range(50)))
    append(store, "a")
    store.partitions[0].commit("w1", read(store, "w1"), {THEME: counted.cells}, 1)
    assert store.read(mechanism.layout, [THEME]) == counted


def test_bury_moves_an_owned_entry(store):
    """An entry is put aside with its reason, once, and only by its owner."""
    append(store, "a", entry=b"poison")
    (id_,) = read(store, "w1")
    assert not store.partitions[0].bury("w2", id_, "no")
    assert store.partitions[0].bury("w1", id_, "entry: bad")
    assert not store.partitions[0].bury("w1", id_, "entry: bad")
    assert store.backlog() == 0
    ((buried, fields),) = store._client.xrange(store.partitions[0].dead)
    assert int(buried.split(b"-")[0]) % 3_600_000 == 0  # the hour, no more
    assert fields == {b"reason": b"entry: bad", b"id": id_, b"d": b"poison"}


def test_leaving_with_entries_in_hand_is_refused(store):
    """A consumer that has entries pending is not forgotten, else they would be lost."""
    append(store, "a")
    ids = read(store, "w1")
    assert not store.partitions[0].leave("w1")
    store.partitions[0].commit("w1", ids, {THEME: np.array([1, 0])}, 1)
    assert store.partitions[0].leave("w1")


def consumers(store):
    return {consumer["name"].decode() for consumer in store._client.xinfo_consumers(store.partitions[0].stream, GROUP)}


def test_only_consumers_with_nothing_in_hand_are_forgotten(store):
    """Of consumers that are idle, those that have entries pending are kept, and so are their entries."""
    append(store, "a")
    append(store, "b")
    store.partitions[0].join()
    for consumer in ("killed with one", "killed with none"):
        ids = read(store, consumer, count=1)
    store.partitions[0].commit("killed with none", ids, {THEME: np.array([1, 0])}, 1)
    assert store.partitions[0].forget(3600.0) == 0
    assert consumers(store) == {"killed with one", "killed with none"}
    assert store.partitions[0].forget(0.0) == 1
    assert consumers(store) == {"killed with one"}
    assert store._client.xpending(store.partitions[0].stream, GROUP)["pending"] == store.backlog() == 1


def test_joining_twice_keeps_what_was_sent_before(store):
    """The group reads from the first entry ever, and joining again changes nothing."""
    append(store, "early")
    store.partitions[0].join()
    store.partitions[0].join()
    assert len(read(store, "w1")) == 1


def test_all_keys_of_an_app_share_a_hash_tag(store):
    """One script may touch them all on a cluster."""
    append(store, "a", entry=b"x")
    store.partitions[0].commit("w1", read(store, "w1"), {THEME: np.array([1, 0])}, 1)
    append(store, "b", entry=b"x")
    store.partitions[0].bury("w1", read(store, "w1")[0], "r")
    assert {key.partition(b"}")[0] for key in store._client.scan_iter()} == {b"{shop"}


def test_batches_round_trip():
    """What the ingest writes the worker reads."""
    groups = [Group(THEME, Layout(1, 3, "index"), b"\0\1\2"), Group(OTHER, Layout(2, 12, "bits"), b"\0\1\2")]
    assert batch.decode(batch.encode(groups)) == groups
    assert [group.reports for group in groups] == [3, 1]


@pytest.mark.parametrize(
    "entry",
    [
        *(b"", b"\xff", b"\x91\x01", b"\x80"),
        batch.join([(b"", b"\0")]),
        batch.join([(b"\xc0", b"\0")]),
        batch.join([(batch.kind(THEME, Layout(1, 3, "index"))[:-1], b"\0")]),
        batch.join([(batch.kind(THEME, Layout(1, 3, "index")).replace(b"\x03\xa5index", b"\x01\xa5index"), b"\0")]),
        batch.join([(batch.kind(THEME, Layout(1, 3, "index")).replace(b"index", b"indey"), b"\0")]),
    ],
)
def test_entries_that_no_ingest_writes_are_refused(entry):
    """A broken or impossible entry is an error with a code, whatever its bytes."""
    from deniable.errors import PayloadError

    with pytest.raises(PayloadError) as caught:
        batch.decode(entry)
    assert caught.value.code == "entry"
