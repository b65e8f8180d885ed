"""Scripts keep connections for the next call: a few for each process and client, however many scripts there are."""

from __future__ import annotations

import gc
import threading
import time

import pytest

from deniable_aggregator.store import Store, Upload, connect
from deniable_aggregator.store.script import Script
from deniable_aggregator.store.uploads import health

pytestmark = pytest.mark.both_stores

APPS, THREADS = 200, 4


@pytest.fixture
def client(store_url, real_redis):  # noqa: ARG001 - emptied for each test
    client = connect(store_url)
    client.client_setname("test")
    yield client
    client.close()


def connections(client):
    return int(client.info("clients")["connected_clients"])


def append(store):
    return store.append(Upload(b"entry", key="key", remember=b"-", cap=10, ttl=60)).outcome


def test_many_stores_share_a_few_connections(client):
    """200 apps in one process, each asked by several threads, open a connection for each thread and no more."""
    stores = [Store(client, f"app-{number}") for number in range(APPS)]
    before = connections(client)
    outcomes = []

    def ask():
        for store in stores:
            outcomes.append(append(store))
            health.read(store)

    threads = [threading.Thread(target=ask) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (outcomes.count("appended"), outcomes.count("duplicate")) == (APPS, (THREADS - 1) * APPS)
    assert connections(client) <= before + THREADS


def test_a_command_whose_connection_is_closed_is_sent_once_more(client, store_url):
    """Who waits for an answer while the store closes the connection gets it all the same: over a new one."""
    answers = []
    waiting = threading.Thread(target=lambda: answers.append(client.blpop("list", 20)))
    waiting.start()
    with connect(store_url) as other:
        while not (blocked := [each for each in other.client_list() if each["cmd"] == "blpop"]):
            time.sleep(0.01)
        other.client_kill_filter(_id=blocked[0]["id"])
        other.rpush("list", "told")
        waiting.join()
    assert answers == [(b"list", b"told")]


def test_a_script_for_one_call_leaves_no_connection(client):
    """What it opened is there for the next one."""
    before = connections(client)
    for _ in range(150):  # more than a pool has
        Script(client, "replace")(["hash"], ["field", "was", "shall be"])
    assert connections(client) <= before + 1


def test_connections_go_with_their_client(store_url, real_redis):
    """Nothing keeps a client alive that nobody has any more."""

    def named():
        return [each for each in real_redis.client_list() if each["name"] == "mine"]

    client = connect(store_url)
    client.connection_pool.connection_kwargs["client_name"] = "mine"
    append(Store(client, "shop"))
    assert len(named()) == 1
    client.close()
    del client
    gc.collect()
    deadline = time.monotonic() + 120
    while named() and time.monotonic() < deadline:  # the store hears of it a little later
        time.sleep(0.01)
    assert named() == []
