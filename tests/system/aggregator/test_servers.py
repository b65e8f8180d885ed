"""Stores of several servers: clusters, and primaries that Sentinels name. Servers die, slots move, nothing is counted twice."""

from __future__ import annotations

import importlib.util
import re
import threading
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import redis
from machines import REPLICA_TIMEOUT, SLOTS, await_replicas, move, wait
from redis.crc import key_slot

from deniable.wire.report import Stratum
from deniable_aggregator.store import Store, Upload, connect
from deniable_aggregator.store.errors import StoreError, reason, transient, user
from deniable_aggregator.store.server import about
from deniable_aggregator.store.server.about import refusals
from deniable_aggregator.store.server.cluster import Cluster
from deniable_aggregator.store.server.durability import Durability
from deniable_aggregator.store.server.room import is_full
from deniable_aggregator.store.server.servers import primaries, primary
from deniable_aggregator.store.uploads import health
from deniable_aggregator.store.uploads.compaction import Compaction
from deniable_aggregator.store.uploads.deliveries import Deliveries

DEPLOY = Path(__file__).parents[3] / "deploy"
THEME = Stratum("ui.theme", 1, "f" * 16, "2026-11-21", "")
APPS = [f"app{number}" for number in range(8)]


def append(store, key):
    return store.append(Upload(b"entry", key=key, remember=b"answer", cap=100_000, ttl=60)).outcome


@pytest.fixture
def cluster(start_store):
    """Empty the cluster of three primaries, and connect to it."""
    client = connect(start_store("cluster"))
    client.flushall()
    yield client
    client.close()


class Uploads(threading.Thread):
    """Uploads one after another, each again until it is answered, as devices do."""

    def __init__(self, store):
        super().__init__()
        self.store, self.over = store, threading.Event()
        self.answered, self.errors = [], []

    def run(self):
        """Upload until it is over."""
        number = 0
        while not self.over.is_set():
            key = f"{self.name} {number}"
            try:
                self.answered.append((key, append(self.store, key)))
                number += 1
            except StoreError as error:
                self.errors.append(error)
                time.sleep(0.02)


def entries(store):
    """Count what waits, whoever answers now."""
    counted = []
    wait(lambda: counted.append(store.backlog()) or True)
    return counted[-1]


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("redis+ring://a:1", "redis.cluster:// or redis.sentinel://"),
        ("redis+cluster://a:1/3", "one database"),
        ("redis+sentinel://a:1,b:2", "name"),
        ("redis+cluster://a:port", "."),
    ],
)
def test_a_url_that_means_nothing_is_refused(url, message):
    """What is wrong with it is said, and its password is not."""
    with pytest.raises(ValueError, match=message) as caught:
        connect(url)
    assert "a:1" not in str(caught.value)


def test_a_url_may_have_a_user_tls_and_several_places():
    """All of it reaches the connections of each server."""
    url = "rediss+cluster://me:p%40ss@one:7000,two,[::1]:7002/?ssl_ca_certs=/ca.pem"
    assert user(url) == "the user 'me'"
    client = connect(url)
    assert isinstance(client, Cluster)
    assert client._places == [("one", 7000), ("two", 6379), ("::1", 7002)]
    assert {"username": "me", "password": "p@ss", "ssl": True, "ssl_ca_certs": "/ca.pem"}.items() <= client._options.items()
    watched = connect("redis+sentinel://me:secret@one,two:1/shop/2?sentinel_password=other").connection_pool
    assert {"username": "me", "password": "secret", "db": 2}.items() <= watched.connection_kwargs.items()
    assert watched.service_name == "shop"
    settings = [each.connection_pool.connection_kwargs for each in watched.sentinel_manager.sentinels]
    assert [(each["host"], each["port"], each["password"]) for each in settings] == [("one", 26379, "other"), ("two", 1, "other")]


def test_a_cluster_that_is_away_is_an_error_of_the_store():
    """Nothing is reached before it is used; then it is the error that all code expects, and it passes."""
    store = Store(connect("redis+cluster://127.0.0.1:1"), "shop")
    for use in (lambda: append(store, "k"), store.backlog, lambda: primaries(store._client)):
        with pytest.raises(StoreError) as caught:
            use()
        assert transient(caught.value)


def test_the_apps_lie_on_all_primaries(cluster):
    """Each app has its uploads, its health and its clock at its own primary; a worker of all of them misses none."""
    stores = [Store(cluster, app) for app in APPS]
    assert {primary(cluster, store.partitions[0].stream) for store in stores} == set(primaries(cluster))
    for store in stores:
        store.partitions[0].join()
        assert [append(store, key) for key in ("a", "b", "a")] == ["appended", "appended", "duplicate"]
        assert health.read(store).backlog == 2
        assert abs(store.now() - time.time()) < 1
    everything = Deliveries([store.partitions[0] for store in stores], "one")
    assert {stream: len(each) for stream, each in everything.new(10, None).items()} == {
        store.partitions[0].stream: 2 for store in stores
    }
    assert everything.new(10, None) == {}
    assert len(everything.again(10)) == len(APPS)


def test_a_reader_that_waits_hears_of_each_stream(cluster):
    """It waits as long as it was told, and returns soon after something comes, wherever that is."""
    stores = [Store(cluster, app) for app in APPS]
    for store in stores:
        store.partitions[0].join()
    reader = Deliveries([store.partitions[0] for store in stores], "one")
    began = time.monotonic()
    assert reader.new(10, 300) == {}
    assert time.monotonic() - began > 0.15
    late = threading.Timer(0.2, lambda: append(stores[3], "k"))
    late.start()
    assert list(reader.new(10, 120_000)) == [stores[3].partitions[0].stream]
    assert time.monotonic() - began < 100
    late.join()


def test_many_stores_share_the_connections(cluster):
    """Three hundred apps need one connection to each primary, and so does each of their scripts."""
    before = [int(server.info("clients")["connected_clients"]) for server in primaries(cluster)]
    for number in range(300):
        store = Store(cluster, f"app{number}")
        append(store, "k")
        health.read(store)
    after = [int(server.info("clients")["connected_clients"]) for server in primaries(cluster)]
    assert sum(after) - sum(before) <= len(after)


def test_each_primary_is_asked(cluster):
    """A promise, room, readiness and rewriting are about every primary, and one that breaks it is enough."""
    second = primaries(cluster)[1]
    theirs = [app for app in APPS if primary(cluster, Store(cluster, app).partitions[0].stream) is second]
    Durability("memory").check(cluster)
    second.config_set("maxmemory-policy", "allkeys-lru")
    try:
        with pytest.raises(Exception, match="noeviction"):
            Durability("memory").check(cluster)
    finally:
        second.config_set("maxmemory-policy", "noeviction")
    assert not any(map(is_full, primaries(cluster)))
    second.config_set("maxmemory", 1)
    try:
        assert [server for server in primaries(cluster) if is_full(server)] == [second]
        assert {server: type(error) for server, error in refusals(cluster, theirs).items()} == {second: redis.OutOfMemoryError}
        assert append(Store(cluster, theirs[0]), "k") == "no room"
        other = next(app for app in APPS if app not in theirs)
        assert append(Store(cluster, other), "k") == "appended"
    finally:
        second.config_set("maxmemory", 0)
    assert refusals(cluster, APPS) == {}
    about.ping(cluster)
    Compaction(Store(cluster, "shop")).run()


def test_a_server_without_the_script_is_given_it(cluster):
    """A promoted replica does not know the scripts."""
    store = Store(cluster, "shop")
    append(store, "a")
    cluster.script_flush()
    assert append(store, "b") == "appended"


def test_the_shipped_user_takes_uploads_on_a_cluster(cluster):
    """With what `deploy/passwords.py` adds for a cluster, and not without."""
    spec = importlib.util.spec_from_file_location("passwords", DEPLOY / "passwords.py")
    passwords = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(passwords)
    shipped = (DEPLOY / "users.acl").read_text("utf-8")
    before, after = (
        next(line for line in acl.splitlines() if line.startswith("user ingest "))
        for acl in (shipped, passwords.clustered(shipped))
    )
    url = "redis+cluster://me:any@" + ",".join(f"127.0.0.1:{about.connection(each)['port']}" for each in primaries(cluster))
    for line, works in ((before, False), (after, True)):
        for server in primaries(cluster):
            server.execute_command("ACL", "SETUSER", "me", "reset", *re.findall(r"\([^)]*\)|\S+", line)[2:], "on", "nopass")
        store = Store(connect(url), "shop")
        if works:
            assert append(store, "a") == "appended"
        else:
            with pytest.raises(StoreError):
                append(store, "a")
    for server in primaries(cluster):
        server.execute_command("ACL", "DELUSER", "me")


def test_a_slot_is_moved_under_load(cluster):
    """Uploads go on while an app moves to another primary and back: all that were answered are there, none twice."""
    store = Store(cluster, "shop")
    store.partitions[0].join()
    threads = [Uploads(Store(cluster, "shop")) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(4):
        wait(lambda: all(thread.is_alive() for thread in threads))
        time.sleep(0.1)
        before = sum(len(thread.answered) for thread in threads)
        move(cluster, store.partitions[0].stream)
        wait(lambda before=before: sum(len(thread.answered) for thread in threads) > before + 10)
    for thread in threads:
        thread.over.set()
        thread.join()
    accepted = [key for thread in threads for key, _ in thread.answered]
    assert len(accepted) == len(set(accepted)) > 40
    assert store.backlog() == len(accepted)
    assert all(transient(error) for thread in threads for error in thread.errors)


def questions(servers):
    """Count how often servers were asked which of them has what."""
    return sum(server.info("commandstats").get("cmdstat_cluster|slots", {"calls": 0})["calls"] for server in servers)


def test_the_cluster_is_asked_once_a_second(cluster, monkeypatch):
    """A first failure asks at once. What others hear meanwhile or soon after, they have from it."""
    now = [1000.0]
    monkeypatch.setattr("deniable_aggregator.store.server.cluster.time.monotonic", lambda: now[0])
    for elapsed in (0, 1, 3600):
        now[0] += elapsed
        before = questions(primaries(cluster))
        threads = [threading.Thread(target=cluster.refresh) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert questions(primaries(cluster)) == before + 1


def test_a_moved_slot_is_followed_without_asking(cluster):
    """Right after the cluster was asked, what a primary says of one slot is enough."""
    store = Store(cluster, "shop")
    cluster.refresh()
    for _ in range(2):
        new = move(cluster, store.partitions[0].stream)
        before = questions(primaries(cluster))
        assert append(store, "a") in {"appended", "duplicate"}
        assert questions(primaries(cluster)) == before
        assert primary(cluster, store.partitions[0].stream).echo("here") == b"here"
        assert about.connection(primary(cluster, store.partitions[0].stream))["port"] == about.connection(new)["port"]


@pytest.mark.parametrize("kind", ["cluster", "sentinels"])
def test_a_primary_dies_under_load(machines, kind):
    """Its replica takes over: uploads and commits go on by themselves, what was answered is counted once, no error surprises."""
    url = machines.cluster(3, 1) if kind == "cluster" else machines.sentinels(3, 1)
    client = connect(url)
    store = Store(client, "shop")
    store.partitions[0].join()
    assert append(store, "first") == "appended"
    idle = Store(connect(url), "shop")
    assert idle.now() > 0
    dying = machines.at(primary(client, store.partitions[0].stream))
    threads = [Uploads(Store(client, "shop")) for _ in range(2)]
    for thread in threads:
        thread.start()
    time.sleep(0.5)
    # The replica has all by now: what is answered while it lags is not promised without `replicated`.
    for thread in threads:
        thread.over.set()
        thread.join()
    answered = sum(len(thread.answered) for thread in threads)
    wait(lambda: dying.client.wait(1, 1000))
    again = [Uploads(Store(client, "shop")) for _ in range(2)]
    dying.kill()
    for thread in again:
        thread.start()
    machines.await_promotion(dying)
    wait(idle.now)  # nothing else has told its client that another server has the app
    wait(lambda: sum(len(thread.answered) for thread in again) > 50)
    for thread in again:
        thread.over.set()
        thread.join()
    total = 1 + answered + sum(len(thread.answered) for thread in again)
    assert entries(store) == total
    assert all(transient(error) for thread in again for error in thread.errors)
    with suppress(StoreError):
        store.partitions[0].join()
    reader, counted = Deliveries(store.partitions, "one"), 0
    while read := reader.new(500, None).get(store.partitions[0].stream):
        ids = [each.id for each in read]
        assert store.partitions[0].commit("one", ids, {THEME: np.array([len(ids), 0], np.int64)}, 1_795_000_000) == []
        counted += len(ids)
    assert counted == total
    assert store.backlog() == 0
    assert int(store._client.get("{shop}:tally:" + "|".join(map(str, THEME)))[:8].hex(), 16) == total
    client.close()
    idle._client.close()


def test_the_slots_are_all_there():
    """The number that the tests' own clusters are made with is the real one."""
    assert key_slot(b"") < SLOTS == 1 << 14


@pytest.fixture
def pair(machines):
    """Start a primary with one replica; return both, and a store that promises that a replica has what was answered."""
    first = machines.start("--appendonly", "yes")
    second = machines.start("--replicaof", "127.0.0.1", str(first.port))
    await_replicas(first, 1)
    return second, Store(connect(f"redis://127.0.0.1:{first.port}"), "shop", Durability("replicated", 1))


def test_an_upload_is_answered_when_a_replica_has_it(pair):
    """While it has it not, the upload is refused, and so is the same upload again; nothing is appended twice."""
    replica, store = pair
    assert append(store, "a") == "appended"
    assert replica.client.xlen(store.partitions[0].stream) == 1
    replica.stop()
    for _ in range(2):
        with pytest.raises(StoreError, match="NOREPLICAS") as caught:
            append(store, "b")
        assert transient(caught.value)
        assert reason(caught.value) == "replicas"
    with pytest.raises(StoreError, match="NOREPLICAS"):
        store.recall("b", 60)
    replica.go_on()
    wait(lambda: append(store, "b") == "duplicate")
    assert store.recall("b", 60) == b"answer"
    assert store.backlog() == 2


def test_a_refused_script_leaves_the_answers_in_order(pair):
    """An error of the script, or a script that is not known yet, is not taken for the answer about replicas."""
    _, store = pair
    store._client.script_flush()
    assert append(store, "a") == "appended"
    store._client.set(store.partitions[0].stream, "no stream")
    for _ in range(2):
        with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
            append(store, "b")
    store._client.delete(store.partitions[0].stream)
    assert append(store, "b") == "appended"
    assert health.read(store).backlog == 1


def test_a_primary_that_became_a_replica_says_so(pair):
    """It refuses to wait, too. That is not taken for the reason, which is the one that lets another server be looked for."""
    replica, store = pair
    assert append(store, "a") == "appended"
    replica.client.replicaof("NO", "ONE")
    store._client.replicaof("127.0.0.1", replica.port)
    with pytest.raises(redis.ReadOnlyError):
        append(store, "b")


def promised():
    """Return what is promised on a cluster of the tests. Each server has one of its own."""
    return Durability("replicated", 2, REPLICA_TIMEOUT)


def test_an_upload_waits_for_each_replica_that_could_be_elected(machines):
    """Until one that is away no longer could be; that one is waited for again when it is back, and so is the last of all."""
    first = machines.start("--appendonly", "yes")
    one, other = (machines.start("--replicaof", "127.0.0.1", str(first.port)) for _ in range(2))
    await_replicas(first, 2)
    store = Store(connect(f"redis://127.0.0.1:{first.port}"), "shop", Durability("replicated", 2, 2))
    assert append(store, "a") == "appended"
    one.kill()
    began = time.monotonic()
    with pytest.raises(StoreError, match="NOREPLICAS not 2"):
        append(store, "b")
    wait(lambda: append(store, "b") == "duplicate")
    assert time.monotonic() - began >= 2
    assert append(store, "c") == "appended"
    one.start()
    await_replicas(first, 2)
    one.stop()
    for _ in range(2):
        with pytest.raises(StoreError, match="NOREPLICAS not 2"):
            append(store, "d")
    one.go_on()
    wait(lambda: append(store, "d") == "duplicate")
    one.kill()
    other.kill()
    time.sleep(3)
    for _ in range(2):
        with pytest.raises(StoreError, match="NOREPLICAS"):
            append(store, "e")


def test_nothing_answered_is_lost_with_its_machine(machines):
    """One replica is gone for long, comes back as the primary dies, and is not elected: all that was answered is there."""
    url = machines.cluster(3, 2, "--appendonly", "yes")
    client = connect(url)
    store = Store(client, "shop", promised())
    append(store, "first")
    dying = machines.at(primary(client, store.partitions[0].stream))
    away = next(upload for upload in machines.all if upload.client.info("replication").get("master_port") == dying.port)
    away.kill()
    uploads = [Uploads(Store(client, "shop", promised())) for _ in range(2)]
    for upload in uploads:
        upload.start()
    wait(lambda: sum(len(upload.answered) for upload in uploads) > 200)
    dying.kill()
    away.start()
    machines.await_promotion(dying)
    before = sum(len(upload.answered) for upload in uploads)
    dying.start()
    wait(lambda: sum(len(upload.answered) for upload in uploads) > before + 50)
    for upload in uploads:
        upload.over.set()
    for upload in uploads:
        upload.join()
    answered = 1 + sum(len(upload.answered) for upload in uploads)
    # An upload that was refused may be there as well: one for each thread, if its last try failed.
    assert answered <= entries(store) <= answered + len(uploads)
    assert all(transient(error) for upload in uploads for error in upload.errors)
    client.close()


def test_calls_that_fail_cost_no_connections(machines):
    """A cluster that is down answers each upload with an error, and does not get one more connection for each."""
    client = connect(machines.cluster(3, 0))
    stores = {primary(client, store.partitions[0].stream): store for store in (Store(client, app) for app in APPS)}
    (one, store), (other, _), *_ = stores.items()
    assert append(store, "a") == "appended"
    machines.at(other).kill()
    wait(lambda: one.execute_command("CLUSTER INFO")["cluster_state"] == "fail")
    living = [server for server in primaries(client) if server is not other]
    before, asked_before, began = int(one.info("clients")["connected_clients"]), questions(living), time.monotonic()
    for number in range(30):
        with pytest.raises(redis.exceptions.ClusterDownError):
            append(store, f"b{number}")
    assert int(one.info("clients")["connected_clients"]) <= before + 1
    assert questions(living) - asked_before <= 2 + time.monotonic() - began
    client.close()


def test_a_late_answer_is_not_taken_for_the_next_one(machines):
    """A primary that Sentinels name is slow once: whoever asks next gets the answer to what was asked next."""
    client = connect(machines.sentinels(1, 0), timeout=1.0)
    store = Store(client, "shop")
    assert append(store, "a") == "appended"
    primary_, sentinel = machines.all
    sentinel.client.execute_command("SENTINEL SET", "shop", "down-after-milliseconds", 600_000)  # it does not count as down
    primary_.stop()
    with pytest.raises(redis.TimeoutError):
        append(store, "b")
    with pytest.raises(redis.TimeoutError):
        client.get("{shop}:none")
    primary_.go_on()
    assert append(store, "a") == "duplicate"
    assert client.echo("c") == b"c"
    client.close()
