"""Running processes and files agree, or say so."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from deniable_aggregator.store.uploads import registries
from deniable_aggregator.store.uploads.registries import Loaded, Signs
from deniable_server.agreement import Agreement, Sources

TEXT = """
format = 1
app = "shop"
budget = { per_month = 10000.0, lifetime = 100000.0 }

[metrics.page]
type = "string"
candidates = "pages.txt"
max_length = 40
epsilon = 2.0
description = "Which page"
owner = "a@shop.example"
"""


@pytest.fixture
def shop(serve):
    return serve(TEXT, pages="a.example\nb.example\n")


def agreement(shop):
    return Agreement.of(shop.store, shop.service.sources)


def test_processes_say_what_they_have_loaded(shop):
    """As long as they live. One that ends takes it back, and one that was killed is forgotten after a minute."""
    digest = shop.service.sources.loaded("shop")
    signs = Signs("server", {shop.store: digest})
    signs.start()
    registries.say(shop.store, Loaded("worker", digest, "elsewhere:1"))
    while len(registries.running(shop.store)) < 2:
        pass
    here = Loaded("server", digest, f"{socket.gethostname()}:{os.getpid()}")
    assert registries.running(shop.store) == [here, Loaded("worker", digest, "elsewhere:1")]
    assert agreement(shop).numbers == {"server": 1, "worker": 1}
    assert agreement(shop).doubt == ""
    signs.stop()
    assert registries.running(shop.store) == [Loaded("worker", digest, "elsewhere:1")]
    client, key = shop.store._client, shop.store.registries
    client.zadd(key, {f"worker {digest} elsewhere:1": client.time()[0] - 61})
    assert registries.running(shop.store) == []
    registries.say(shop.store, here)
    assert client.zcard(key) == 1
    assert client.ttl(key) == 60


def test_a_file_that_was_edited_is_told(shop):
    """By the page, by /readyz and by what the doctor asks, as is a list of candidates and a worker with another registry."""
    path = Path(shop.service.settings.registry)
    digest = shop.service.sources.loaded("shop")
    for role in ("server", "worker"):
        registries.say(shop.store, Loaded(role, digest, "here:1"))
    part = shop.http.get("/readyz").get_json()["parts"]["registry:shop"]
    assert part["agrees"]
    assert part["processes"] == [{"role": role, "loaded": digest[:12], "number": 1} for role in ("server", "worker")]
    assert "another registry" not in shop.http.get("/").text
    (path.parent / "pages.txt").write_text("c.example\n", "utf-8")
    assert agreement(shop).differing
    path.write_text(path.read_text("utf-8") + "# another\n", "utf-8")
    ready = shop.http.get("/readyz")
    assert (ready.status_code, ready.get_json()["status"]) == (200, "ok")  # reports can be taken
    assert not ready.get_json()["parts"]["registry:shop"]["agrees"]
    sentence = "1 server, 1 worker: they run with another registry than the file, which has changed since."
    assert agreement(shop).doubt == sentence
    assert sentence in shop.http.get("/").text
    registries.say(
        shop.store, Loaded("worker", Sources(str(path), shop.restarted().service.settings.registries()).loaded("shop"), "here:2")
    )
    assert "2 of them run with another registry" in agreement(shop).doubt
    path.unlink()
    assert "the file, which cannot be read" in agreement(shop).doubt


def test_a_file_with_faults_is_told_by_who_refuses_it(shop):
    """Servers of `deniable serve` run from a copy, so it says itself that the file is another one."""
    digest = shop.service.sources.loaded("shop")
    registries.say(shop.store, Loaded("server", digest, "here:1"))
    registries.say(shop.store, Loaded("file", "0" * 64, "here:2"))
    sentence = "The registry&#39;s file was edited and has faults. All processes run with the one before."
    assert sentence in shop.http.get("/").text
    assert agreement(shop).numbers == {"server": 1}
    registries.take_back(shop.store, Loaded("file", "0" * 64, "here:2"))
    assert agreement(shop).doubt == ""
