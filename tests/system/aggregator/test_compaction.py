"""Compaction: what was counted is gone from the disk of a real store."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from machines import wait
from redis.exceptions import NoPermissionError

from deniable.wire.report import Stratum
from deniable_aggregator.deletion.erase import Removal
from deniable_aggregator.store import GROUP, Store, Upload, connect
from deniable_aggregator.store.server import embedded
from deniable_aggregator.store.uploads.compaction import Compaction

SECRET = b"an-entry-that-was-counted"
THEME = Stratum("ui.theme", 1, "f" * 16, "2026-11-21", "")


@pytest.fixture(scope="module", params=["wheel", "redis-server"])
def folder_and_store(request, tmp_path_factory):
    """Start a store of our own with its data where we can look."""
    from pathlib import Path
    from shutil import which

    executable = None
    if request.param == "redis-server":
        if which("redis-server") is None:
            pytest.skip("no redis-server on PATH")
        executable = Path(which("redis-server"))
    folder = tmp_path_factory.mktemp("store")
    with embedded.open_store(directory=folder, executable=executable) as server, connect(server.url) as client:
        yield folder, Store(client, "shop")


def on_disk(folder):
    # A rewritten file begins with a dump, in a file of its own.
    return b"".join(path.read_bytes() for ending in ("aof", "rdb") for path in folder.rglob(f"*.{ending}"))


def await_rewriting(store):
    def done():
        info = store._client.info("persistence")
        return not info["aof_rewrite_in_progress"] and not info["aof_rewrite_scheduled"]

    wait(done)
    return store._client.info("persistence")["aof_rewrites"]


def test_what_was_counted_leaves_the_disk(folder_and_store):
    """The file has an entry when it is counted, and not after the next look; what is not counted yet stays."""
    folder, store = folder_and_store
    store.partitions[0].join()
    store.append(Upload(SECRET, key="a", remember=b"-", cap=10, ttl=60))
    ((_, ((id_, _),)),) = store._client.xreadgroup(GROUP, "w", {store.partitions[0].stream: ">"})
    assert store.partitions[0].commit("w", [id_], {THEME: np.array([1, 2])}, 1) == []
    store.append(Upload(b"an-entry-that-waits", key="b", remember=b"-", cap=10, ttl=60))
    wait(lambda: SECRET in on_disk(folder))  # written within a second
    Compaction(store).run()
    await_rewriting(store)
    assert SECRET not in on_disk(folder)
    assert store.strata("ui.theme")
    assert store.backlog() == 1


def test_an_erased_metric_leaves_the_disk(folder_and_store):
    """After the next look not even its name is in the file; another metric's is."""
    folder, store = folder_and_store
    for metric in (b"to.forget", b"to.keep"):
        store.partitions[0].commit("w", [], {THEME._replace(metric=metric.decode()): np.array([1, 2])}, 1)
    wait(lambda: b"to.forget" in on_disk(folder) and b"to.keep" in on_disk(folder))  # written within a second
    removal = Removal(store, "to.forget")
    removal.mark(1)
    removal.sweep()
    Compaction(store).run()
    await_rewriting(store)
    assert b"to.forget" not in on_disk(folder)
    assert b"to.keep" in on_disk(folder)


def test_many_ask_no_more_often_than_one(folder_and_store):
    """A look asks for nothing if there was a rewriting since the last one, and does if there was none."""
    _, store = folder_and_store
    one, two = Compaction(store), Compaction(store)
    one.run()
    first = await_rewriting(store)
    two._seen = {store._client: first - 1}
    two.run()
    assert await_rewriting(store) == first
    two.run()
    assert await_rewriting(store) == first + 1


def test_a_store_that_refuses_is_told_of(folder_and_store, monkeypatch, caplog):
    """Where the store lets nobody ask, the log says what stays on its disk, and reports are counted all the same."""
    _, store = folder_and_store

    def refuse(*_):
        raise NoPermissionError("user worker")

    monkeypatch.setattr(store._client, "bgrewriteaof", refuse)
    with caplog.at_level(logging.WARNING):
        Compaction(store).run()
    assert "append-only file" in caplog.text
