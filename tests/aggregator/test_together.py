"""Batches that are appended together: each once, whatever the store does, and no failure touches the others."""

from __future__ import annotations

from threading import Event, Thread

import pytest
import redis

from deniable_aggregator.store import Store, connect
from deniable_aggregator.store.server.durability import Durability
from deniable_aggregator.store.uploads import together
from deniable_aggregator.store.uploads.partition import Appended, Upload
from deniable_aggregator.store.values.limit import Limit

pytestmark = pytest.mark.both_stores


@pytest.fixture
def client(store_url, real_redis):  # noqa: ARG001 - emptied for each test
    client = connect(store_url, timeout=2.0)
    yield client
    client.close()


def upload(key, **more):
    return Upload(**({"entry": f"batch {key}".encode(), "key": key, "remember": key.encode(), "cap": 100, "ttl": 60} | more))


def outcomes(answers):
    return [answer.outcome if isinstance(answer, Appended) else type(answer) for answer in answers]


def entries(store):
    return [entry[b"d"] for each in store.partitions for _, entry in store._client.xrange(each.stream)]


def test_batches_of_several_apps_in_one_round_trip(client):
    """In their order; one that is there twice is appended once, and told so."""
    first, second = Store(client, "first"), Store(client, "second")
    first.append(Upload(b"", key="before", remember=b"", cap=100, ttl=60))
    second.append(Upload(b"", key="before", remember=b"", cap=100, ttl=60))
    before = client.info("stats")["total_net_input_bytes"], client.info("commandstats")["cmdstat_evalsha"]["calls"]
    answers = together.append([(first, upload("a")), (second, upload("a")), (first, upload("b")), (first, upload("a"))])
    assert outcomes(answers) == ["appended", "appended", "appended", "duplicate"]
    assert answers[3].previous == b"a"
    assert client.info("commandstats")["cmdstat_evalsha"]["calls"] == before[1] + 4
    assert (entries(first)[1:], entries(second)[1:]) == ([b"batch a", b"batch b"], [b"batch a"])


def test_limits_of_each(client):
    """One above its limit, or at a full backlog, is refused, and the others are not."""
    store = Store(client, "shop")
    limit = Limit("{shop}:rate:x", 1, 60)
    uploads = [upload("a", limits=[limit]), upload("b", limits=[limit]), upload("c", cap=1), upload("d")]
    answers = together.append([(store, each) for each in uploads])
    assert outcomes(answers) == ["appended", "limited", "full", "appended"]
    assert answers[1].excess.place == 0


def test_an_empty_store_and_one_that_forgot_its_scripts(client):
    """A new store has no secret; one that was emptied has another; a restart forgets scripts."""
    store = Store(client, "shop")
    for round_, forget in enumerate([lambda: None, client.flushall, client.script_flush]):
        forget()
        uploads = [upload(f"{round_} {number}") for number in range(5)]
        assert outcomes(together.append([(store, each) for each in uploads])) == ["appended"] * 5
        assert outcomes(together.append([(store, each) for each in uploads])) == ["duplicate"] * 5
    assert len(entries(store)) == 10


def test_connections_that_were_closed(client):
    """As after a restart of the store: another is opened."""
    store = Store(client, "shop")
    together.append([(store, upload(key)) for key in "ab"])
    other = redis.Redis(connection_pool=None, unix_socket_path=client.connection_pool.connection_kwargs["path"])
    other.client_kill_filter(skipme=True)
    assert outcomes(together.append([(store, upload(key)) for key in "abcd"])) == [
        "duplicate",
        "duplicate",
        "appended",
        "appended",
    ]
    other.close()


def test_a_store_that_hangs(client):
    """All get the error after one time-out, and count once when they are sent again."""
    store = Store(client, "shop")
    uploads = [(store, upload(key)) for key in "abc"]
    together.append([(store, upload("before")), (store, upload("then"))])
    client.client_pause(60_000, all=False)  # none that write
    assert outcomes(together.append(uploads)) == [redis.TimeoutError] * 3
    client.client_unpause()
    assert set(outcomes(together.append(uploads))) <= {"appended", "duplicate"}
    assert sorted(entries(store)) == sorted(f"batch {key}".encode() for key in ("before", "then", *"abc"))


def test_a_store_that_is_away():
    """All get the error; when the first is refused, the others are not tried."""
    store = Store(connect("unix:///nowhere/store.sock", timeout=1.0), "shop")
    assert outcomes(together.append([(store, upload(key)) for key in "abc"])) == [redis.ConnectionError] * 3


def test_a_promise_that_is_broken(client):
    """A store that does not keep the promise takes none."""
    store = Store(client, "shop", Durability("always"))
    before = client.config_get("appendonly")
    client.config_set("appendonly", "no")
    try:
        answers = together.append([(store, upload(key)) for key in "abc"])
    finally:
        client.config_set("appendonly", before["appendonly"])
    assert all(isinstance(answer, redis.RedisError) for answer in answers)
    assert entries(store) == []


def test_a_store_that_is_full(client):
    """None is appended, and each is told why; one that was appended before is known."""
    store = Store(client, "shop")
    together.append([(store, upload("a")), (store, upload("b"))])
    before = client.config_get("maxmemory")
    client.config_set("maxmemory", 1)
    try:
        assert outcomes(together.append([(store, upload(key)) for key in "bcd"])) == ["duplicate", *["no room"] * 2]
    finally:
        client.config_set("maxmemory", before["maxmemory"])
    assert len(entries(store)) == 2


def test_many_threads_send_the_same(client):
    """Each batch is appended once, though each thread sends all of them, in groups of other sizes."""
    store, begin, answers = Store(client, "shop"), Event(), []
    keys = [f"{number}" for number in range(60)]

    def send(size):
        begin.wait()
        for first in range(0, len(keys), size):
            answers.extend(outcomes(together.append([(store, upload(key)) for key in keys[first : first + size]])))

    threads = [Thread(target=send, args=(size,)) for size in (1, 7, 16, 60)]
    for thread in threads:
        thread.start()
    begin.set()
    for thread in threads:
        thread.join()
    assert (answers.count("appended"), answers.count("duplicate")) == (60, 180)
    assert sorted(entries(store)) == sorted(f"batch {key}".encode() for key in keys)


def test_an_app_that_was_divided_again_fails_alone(client):
    """The store was emptied, and the app has another number of partitions since; others are appended."""
    shop, cafe = Store(client, "shop"), Store(client, "cafe")
    together.append([(shop, upload("a")), (cafe, upload("a"))])
    client.flushall()
    Store(client, "shop").divide(4)
    answers = together.append([(shop, upload("b")), (cafe, upload("b")), (shop, upload("c"))])
    assert isinstance(answers[0], redis.RedisError)
    assert isinstance(answers[1], Appended)
    assert outcomes(together.append([(shop, upload("b")), (shop, upload("c"))])) in (["appended"] * 2, ["appended", "duplicate"])
