"""Apps with several partitions: what they share, what each has, and that together they answer as one."""

from __future__ import annotations

import threading
import time
from collections import Counter

import numpy as np
import pytest
import redis
from redis.crc import key_slot
from stores import CLUSTER

from deniable.commands.entry import main
from deniable.wire.layout import Layout
from deniable.wire.report import Stratum
from deniable_aggregator import tally
from deniable_aggregator.counting.worker import Worker
from deniable_aggregator.deletion.erase import Erased, Removal
from deniable_aggregator.store import GROUP, Partition, Store, Upload, Weights, connect, schema
from deniable_aggregator.store.server.cluster import Cluster
from deniable_aggregator.store.server.servers import primaries, primary
from deniable_aggregator.store.uploads import batch, health
from deniable_aggregator.store.uploads import partition as partitions
from deniable_aggregator.store.uploads.batch import Group
from deniable_aggregator.store.uploads.dead_letters import DeadLetters
from deniable_aggregator.store.values.limit import Limit

INDEX = Layout(1, 3, "index")
BITS = Layout(1, 3, "bits")
THEME = Stratum("ui.theme", 1, "f" * 16, "2026-11-21", "")
SIZE = Stratum("ui.size", 1, "e" * 16, "2026-11-21", "")


@pytest.fixture(params=["server", CLUSTER])
def client(request, start_store):
    """Empty a single server, or a cluster of three primaries, and connect to it."""
    connection = connect(start_store(request.param))
    connection.flushall()
    yield connection
    connection.close()


@pytest.fixture
def shop(client):
    """Open an app of three partitions."""
    store = Store(client, "shop")
    assert store.divide(3) == 3
    return store


def send(store, key, *groups, cap=1000, limits=()):
    body = batch.encode([*groups] or [Group(THEME, INDEX, b"\1")])
    return store.append(Upload(body, key=str(key), remember=f"answer {key}".encode(), cap=cap, ttl=60, limits=limits))


def count(store, **options):
    worker = Worker([store], **options)
    worker.run(threading.Event(), burst=True)
    return worker


@pytest.mark.parametrize("number", [1, 2, 3, 7, 16, partitions.MOST])
def test_names_spread_over_the_slots(number):
    """Each partition lies in its own equal part of a cluster's slots, whatever the app is called."""
    for app in ("shop", "a.b", "x"):
        names = partitions.names(app, number)
        assert len(set(names)) == number
        slots = [key_slot(schema.REPORTS.of(name).encode()) for name in names]
        assert number == 1 or [slot * number >> 14 for slot in slots] == list(range(number))


def test_an_undivided_app_has_plain_keys():
    """The only partition of an app has its name, so nothing looks divided that is not."""
    assert partitions.names("shop", 1) == ["shop"]
    assert schema.REPORTS.names("{shop}:reports", "shop")
    assert schema.REPORTS.names("{shop#1f}:reports", "shop")
    assert not schema.REPORTS.names("{shop.1}:reports", "shop")
    assert not schema.REPORTS.names("{shopper#1}:reports", "shop")
    assert schema.find("{shop#2}:tally:x|1|f|2026|a=#2}", "shop") is schema.TALLY


@pytest.mark.other_store
def test_a_cluster_shares_an_app(start_store):
    """Of three partitions each primary of three has one."""
    connection = connect(start_store("cluster"))
    connection.flushall()
    store = Store(connection, "shop")
    store.divide(3)
    assert {primary(connection, each.stream) for each in store.partitions} == set(primaries(connection))
    connection.close()


def test_the_number_is_fixed_by_whoever_is_first(client):
    """A command, a worker or an upload fixes it; whoever only looks does not, and hears of it."""
    looker = Store(client, "shop")
    assert len(looker.partitions) == 1
    assert looker.backlog() == 0
    assert Store(client, "shop").divide(3) == 3
    assert Store(client, "shop").divide(16) == 3
    assert len(looker.partitions) == 3
    send(Store(client, "blog"), "k")
    assert Store(client, "blog").divide(3) == 1
    count(Store(client, "news"))
    assert Store(client, "news").divide(3) == 1


def test_a_store_that_was_emptied_is_told_the_number_again(shop):
    """With the first upload, by whoever knows it."""
    send(shop, 1)
    shop._client.flushall()
    send(shop, 2)
    assert Store(shop._client, "shop").divide() == 3
    assert count(Store(shop._client, "shop")).counted == 1


@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 1)])
def test_no_upload_goes_where_nobody_counts(client, before, after):
    """Whoever knows the number of a store that was emptied since hears of the new one before an upload is accepted."""
    known = Store(client, "shop")
    known.divide(before)
    send(known, 1)
    client.flushall()
    assert Store(client, "shop").divide(after) == after
    with pytest.raises(redis.ConnectionError):
        send(known, 2)
    assert not Store(client, "shop").backlog()
    for key in range(2, 30):
        assert send(known, key).outcome == "appended"
    assert count(Store(client, "shop")).counted == 28


def test_a_number_that_was_lost_can_be_fixed_again(shop):
    """While nobody who knows it runs, others make it 1, as the guide says; what is in the partitions stays there."""
    for key in range(30):
        send(shop, key)
    count(shop)
    shop._client.delete(schema.PARTITIONS.of("shop"))
    count(Store(shop._client, "shop"))
    assert Store(shop._client, "shop").read(INDEX, [THEME]).n == 0
    shop._client.delete(schema.PARTITIONS.of("shop"))
    assert Store(shop._client, "shop").divide(3) == 3
    assert Store(shop._client, "shop").read(INDEX, [THEME]).n == 30


def test_the_home_may_be_away_once_the_number_is_known(shop, monkeypatch):
    """Uploads of the other partitions go on."""
    for key in range(20):
        send(shop, key)

    def away(*_):
        raise redis.ConnectionError("away")

    monkeypatch.setattr("deniable_aggregator.store._SECONDS", 0.0)
    monkeypatch.setattr(Partition, "fix", away)
    assert send(shop, 20).outcome == "appended"
    with pytest.raises(redis.ConnectionError):
        send(Store(shop._client, "shop"), 21)


def test_an_upload_that_is_sent_again_comes_to_the_same_partition(shop):
    """From whichever process; so it is counted once, and recalled."""
    for key in range(60):
        assert send(shop, key).outcome == "appended"
    other = Store(shop._client, "shop")
    for key in range(60):
        again = send(other, key)
        assert (again.outcome, again.previous) == ("duplicate", f"answer {key}".encode())
        assert other.recall(str(key), 60) == again.previous
    waiting = [each.backlog() for each in shop.partitions]
    assert sum(waiting) == shop.backlog() == 60
    assert min(waiting) >= 8  # binomial of 60 and a third: fewer in one of 2,000 choices of keys, and these are always the same
    assert count(other).counted == 60
    assert shop.read(INDEX, [THEME]).n == 60


def test_sums_are_those_of_one_partition(shop):
    """Whatever is asked of counted reports, in pieces or not, the answer is the one that an undivided app gives."""
    single = Store(shop._client, "blog")
    for key in range(50):
        groups = [Group(THEME, INDEX, bytes([key % 3])), Group(SIZE, BITS, bytes([key % 8]))]
        for store in (shop, single):
            send(store, key, *groups)
    count(shop)
    count(single)
    for of, layout in ((THEME, INDEX), (SIZE, BITS)):
        assert shop.read(layout, [of]) == single.read(layout, [of])
        sums = [[each.tally() for each in store.sums(layout, [of, of._replace(period="x")])] for store in (shop, single)]
        assert sums[0] == sums[1]
        assert shop.strata(of.metric).keys() == single.strata(of.metric).keys() == {of}
    assert shop.read_weights(BITS, [SIZE]).tolist() == single.read_weights(BITS, [SIZE]).tolist()
    assert shop.read(INDEX, []) == tally.empty(INDEX)


def test_a_commit_in_pieces_in_any_partition_is_waited_for(shop, monkeypatch):
    """What is read meanwhile would be a part of it."""
    for partition in shop.partitions:
        assert shop.settled("ui.theme") is not None
        with monkeypatch.context() as patch:
            patch.setattr("deniable_aggregator.store.sums.deltas.AT_ONCE", 0)
            patch.setattr(partition.staging, "apply", lambda: None)
            assert partition.commit("w", [], {THEME: np.array([1, 2, 3])}, 0) == []
        assert shop.settled("ui.theme") is shop.settled() is None
        assert shop.settled("ui.size") == 0
        assert not shop.seal(THEME[:3], "2026-11-22")
        partition.staging.apply()
    assert shop.settled("ui.theme") == shop.settled()
    assert shop.settled() >= 3
    assert shop.read(INDEX, [THEME]).counts.tolist() == [[3, 6, 9]]


def test_a_sealed_period_takes_no_report_in_any_partition(shop):
    """Late ones count in the first period that is not sealed, wherever they come."""
    assert shop.seal(THEME[:3], "2026-11-22")
    assert shop.seal(THEME[:3], "2026-11-20")  # a publisher that lags opens nothing again
    assert [value for name, value in shop.published.all().items() if name.endswith(b"|open")] == [b"2026-11-22"]
    for key in range(30):
        send(shop, key)
    count(shop)
    assert shop.read(INDEX, [THEME]).n == 0
    assert shop.read(INDEX, [THEME._replace(period="2026-11-22")]).n == 30


def test_health_is_that_of_the_slowest(shop):
    """The wait of any batch counts, and what only one partition knows."""
    worker = Worker([shop])
    for counter in worker.look():
        counter.join(threading.Event())
    for partition in shop.partitions:
        health.beat(partition, worker.name)
    assert health.read(shop) == health.Health(0, 0, 0.0, 0, 1)
    for key in range(9):
        send(shop, key)
    slow = next(partition for partition in shop.partitions if partition.backlog())
    shop._client.set(slow.caught, time.time() - 100)
    state = health.read(shop)
    assert (state.backlog, state.workers, state.known) == (9, 1, True)
    assert state.lag >= 99
    shop._client.delete(slow.caught)
    assert health.read(shop).lag is None
    health.stop(slow, worker.name)
    assert health.read(shop).workers == 0  # one partition is not counted


def test_limits_are_parts_of_the_whole(shop, client):
    """All partitions together let through a little more than the limit, and chance alone seldom meets the part of one."""
    alone = Partition(client, "blog", "blog")
    assert [alone.part(amount) for amount in (1, 600, 300_000)] == [1, 600, 300_000]
    one = Partition(client, "blog", "blog#1", 16)
    assert one.part(1) == 1
    assert [one.part(amount) for amount in (600, 300_000)] == [38 + 4 * 6 + 1, 18_750 + 4 * 136 + 1]
    assert one.part(1_000_000, 10_000) == 62_500 + 4 * 25_000 + 10_000  # of bytes, in uploads of so many
    assert one.part(1_000_000, 400_000) == 1_000_000
    outcomes = Counter()
    for key in range(300):
        chosen = shop.partition(str(key))
        limit = Limit(schema.RATE_KEY.of(chosen.name, "k"), chosen.part(90), 60)
        outcomes[send(shop, key, limits=[limit]).outcome] += 1
    assert outcomes["appended"] == 3 * (30 + 4 * 5 + 1)
    assert outcomes["limited"] == 300 - outcomes["appended"]


def test_the_backlog_is_shared(shop):
    """Of a cap each partition has its equal part."""
    outcomes = Counter(send(shop, key, cap=30).outcome for key in range(200))
    assert outcomes == {"appended": 30, "full": 170}
    assert [each.backlog() for each in shop.partitions] == [10, 10, 10]


def test_dead_letters_of_all_partitions_are_shown(shop):
    """An id says which partition it is of, and leads to that one alone, also where two have the same."""
    bodies = {}
    for place, partition in enumerate(shop.partitions):
        partition.join()
        body = batch.encode([Group(THEME, INDEX, bytes([place]))])
        shop._client.xadd(partition.stream, {"d": body}, id="1-1")
        shop._client.xreadgroup(GROUP, "w", {partition.stream: ">"})
        assert partition.bury("w", b"1-1", "no")
        bodies[place] = body
    letters = DeadLetters(shop)
    inventory = {letter.id: letter.body for letter in letters}
    assert sorted(inventory) == sorted(f"{place}/{letter.id.partition('/')[2]}" for place, letter in enumerate(letters))
    assert list(inventory.values()) == list(bodies.values())
    assert len(letters) == 3
    for id_, body in inventory.items():
        assert letters.get(id_).body == body
        assert letters.get(id_.partition("/")[2]) is None
        assert letters.get(f"7/{id_.partition('/')[2]}") is None
    first, second, third = inventory
    assert letters.rewrite({second: b"new", third: b""}) == 2
    assert letters.get(second).body == b"new"
    assert letters.requeue(first, 10) == "requeued"
    assert letters.requeue("9/1-1", 10) == "missing"
    assert [partition.backlog() for partition in shop.partitions] == [1, 0, 0]
    assert letters.purge([first, second]) == 1
    assert len(letters) == 0


def test_dead_letters_are_no_more_than_of_one_partition(shop, monkeypatch):
    """Each partition keeps its part of as many as an undivided app keeps; a block of the stream may be too many."""
    monkeypatch.setattr(partitions, "_DEAD_LETTERS", 300)
    first, *_ = shop.partitions
    first.join()
    for _ in range(250):
        shop._client.xadd(first.stream, {"d": b"no batch"})
    ((_, entries),) = shop._client.xreadgroup(GROUP, "w", {first.stream: ">"})
    assert all(first.bury("w", id_, "no") for id_, _ in entries)
    assert 100 <= len(DeadLetters(shop)) <= 200


def test_erasure_reaches_every_partition(shop):
    """Data, and what comes later; the other metric stays."""
    for partition in shop.partitions:
        added = {THEME: np.array([1, 2, 3]), SIZE: np.array([1, 0, 0]), Weights(SIZE): np.array([1])}
        assert partition.commit("w", [], added, 0) == []
    shop.metrics.add(["ui.theme", "ui.size"])
    for key in range(30):
        send(shop, key)
    removal = Removal(shop, "ui.theme")
    inventory = removal.find()
    assert (inventory.versions, inventory.periods) == ((1,), 1)
    assert inventory.keys == 3 + 3  # a sum and its field in the index, of each partition
    removal.mark(1)
    removal.sweep()
    count(shop)
    assert Erased(shop.erased.all()).has("ui.theme", 1)
    assert shop.read(INDEX, [THEME]).n == 0
    assert shop.strata("ui.theme") == {}
    assert shop.metrics.all() == {"ui.size"}
    assert shop.read(Layout(1, 3, "index"), [SIZE]).counts.tolist() == [[3, 0, 0]]
    assert not [key for key in shop._client.scan_iter("*") if b"ui.theme" in key]


@pytest.mark.parametrize("steps", range(3))
def test_an_erasure_that_is_begun_again_reaches_every_partition(shop, monkeypatch, steps):
    """One that ended half-way does not pass for done; one that a primary lost with its last second is written there again."""
    removal, left = Removal(shop, "ui.theme"), list(range(steps))
    mark = shop._mark

    def dying(keys, arguments):
        if not left:
            raise redis.ConnectionError
        left.pop()
        mark(keys, arguments)

    with monkeypatch.context() as patch:
        patch.setattr(shop, "_mark", dying)
        with pytest.raises(redis.ConnectionError):
            removal.mark(1)
    assert not shop.erased.all()
    removal.mark(1)
    shop._client.delete(shop.partitions[0].erased.key)
    Removal(shop, "ui.theme").mark(1)
    for key in range(30):
        send(shop, key)
    count(shop)
    assert shop.read(INDEX, [THEME]).n == 0


def test_a_full_store_that_nobody_has_used_refuses(client):
    """The number cannot be fixed there, and the upload may come again."""
    store = Store(client, "shop")
    for server in primaries(client):
        server.config_set("maxmemory", 1)
    try:
        assert send(store, 1).outcome == "no room"
    finally:
        for server in primaries(client):
            server.config_set("maxmemory", 0)
    assert send(store, 1).outcome == "appended"


@pytest.mark.parametrize(("words", "status", "message"), [("3", 0, "shop: 3 partitions"), ("16", 1, "3 partitions for good")])
def test_the_command_divides_once(shop, start_store, capsys, words, status, message):
    """Asked for the same number again it agrees, and another one it refuses."""
    assert (
        main(
            [
                "divide",
                "--redis-url",
                start_store("cluster" if isinstance(shop._client, Cluster) else "server"),
                "--app",
                "shop",
                "--into",
                words,
            ]
        )
        == status
    )
    out, err = capsys.readouterr()
    assert message in (err if status else out)


@pytest.mark.parametrize("options", [["--into", "0"], ["--into", "65"], ["--into", "3", "--app", "blog"]])
def test_the_command_says_what_it_takes(options, start_store, capsys):
    """A number beyond the bounds, and two apps at once, change nothing."""
    assert main(["divide", "--redis-url", start_store("server"), "--app", "shop", *options]) == 2
    assert (
        "divide takes one app at a time" in (err := capsys.readouterr().err) or "write 1 to 64, the number of partitions" in err
    )
