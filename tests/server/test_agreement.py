"""Running processes and files agree, or say so."""

from __future__ import annotations

import os
import socket
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from unittest.mock import Mock

import pytest
import redis

from deniable_aggregator.store import outage, schema
from deniable_aggregator.store.uploads import registries
from deniable_aggregator.store.uploads.registries import Loaded, Signs
from deniable_server import sources
from deniable_server.agreement import Agreement
from deniable_server.doctor import pipeline
from deniable_server.serving import renewal

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
    return Agreement.of(shop.store, shop.app.source)


def test_processes_say_what_they_have_loaded(shop):
    """As long as they live. One that ends takes it back, and one that was killed is forgotten after a minute."""
    digest = shop.app.source.identity
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


@pytest.mark.parametrize(("serves", "role"), [("all", "server"), ("ingest", "ingest-server"), ("query", "query-server")])
def test_a_server_says_which_kind_it_is(shop, serves, role):
    """So that somebody misses the uploads while another kind lives."""
    known = replace(shop.service, settings=replace(shop.service.settings, serves=serves))
    with renewal.renewing(Mock(extensions={"deniable": known}), SimpleQueue()):
        while not registries.running(shop.store):
            pass
        assert [each.role for each in registries.running(shop.store)] == [role]


def test_a_server_that_nobody_asks_says_that_it_cannot_use_the_store(shop, monkeypatch, caplog):
    """After new passwords its log says so before the first request; when the store can be used again, it lives again soon."""
    monkeypatch.setattr(registries, "AGAIN_SECONDS", 0.01)
    monkeypatch.setattr(outage, "_CALM_SECONDS", 0.0)
    refused = redis.AuthenticationError("WRONGPASS")
    with monkeypatch.context() as before:
        before.setattr(registries, "say", Mock(side_effect=refused))
        with renewal.renewing(Mock(extensions={"deniable": shop.service}), SimpleQueue()):
            while not caplog.messages:
                pass
            assert "it refuses the user or the password. To mend that: " in caplog.messages[0]
            assert "start this process again" in caplog.messages[0]
            assert not registries.running(shop.store)
            before.undo()
            while len(caplog.messages) < 2:
                pass
            assert caplog.messages[1:] == ["the store can be used again"]
            assert registries.running(shop.store)


def test_a_file_that_was_edited_is_told(shop):
    """By the page, by /readyz and by what the doctor asks, as is a list of candidates and a worker with another registry."""
    path = Path(shop.service.settings.registry)
    digest = shop.app.source.identity
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
    sentence = (
        "Warning about the registry: the file was edited. The one before is still in use by all processes (1 server, 1 worker)."
    )
    assert agreement(shop).doubt == sentence
    assert sentence in shop.http.get("/").text
    registries.say(shop.store, Loaded("worker", shop.restarted().app.source.identity, "here:2"))
    assert "in use by 1 server, 1 worker of 1 server, 2 workers." in agreement(shop).doubt
    path.unlink()
    assert "the file cannot be read. The" in agreement(shop).doubt


def test_a_file_with_faults_is_told_by_who_refuses_it(shop):
    """Servers of `deniable serve` run from a copy, so it says itself that the file is another one, and why it is refused."""
    digest, fault = shop.app.source.identity, "metrics.toml:6: page: epsilon is a number"
    registries.say(shop.store, Loaded("server", digest, "here:1"))
    for sign, end in (
        (Loaded("serve", "0" * 64, "here:2", fault), "."),
        (Loaded("serve", "0" * 64, "here:2"), " for a few seconds."),
    ):
        registries.say(shop.store, sign)
        faults = " and was refused" if sign.fault else ""
        word = "Fault" if sign.fault else "Warning"
        part = shop.http.get("/readyz").get_json()["parts"]["registry:shop"]
        finding = pipeline.processes(agreement(shop), app="shop", path="metrics.toml")
        assert part["status"] == finding.status == word.lower()
        assert part["ok"] == (word == "Warning")
        use = f"The one before is still in use by all processes (1 server){end}"
        sentence = f"{word} about the registry: the file was edited{faults}. {use}"
        assert sentence in shop.http.get("/").text
        assert part["fault"] == (sign.fault or None)
        assert agreement(shop).numbers == {"server": 1}
        registries.take_back(shop.store, sign)
    assert agreement(shop).doubt == ""


def test_a_server_reads_an_edited_registry_under_its_requests(shop):
    """A fault changes nothing and is in /readyz; what has none is in use at once, and the audit log has it."""
    path = Path(shop.service.settings.registry)
    before, app = shop.app.source.identity, shop.app
    path.write_text(TEXT.replace("epsilon = 2.0", "epsilon = -2.0"), "utf-8")
    assert [each.app for each in shop.service.renew().faulty] == ["shop"]
    assert shop.service.apps["shop"] is app
    registries.say(shop.store, Loaded("server", before, "here:1", "page: epsilon"))
    assert shop.http.get("/readyz").get_json()["parts"]["registry:shop"]["fault"] == "page: epsilon"
    path.write_text(TEXT.replace("epsilon = 2.0", "epsilon = 1.0\nversion = 2"), "utf-8")
    shop.service.renew()
    assert shop.get("/api/v1/metrics/page").get_json()["epsilon"] == 1.0
    served = shop.store.get(schema.AUDIT_SERVED).decode()
    assert served == shop.service.apps["shop"].declared.digest
    path.write_text(TEXT.replace('"shop"', '"blog"'), "utf-8")
    (fault,) = shop.service.renew().faulty
    assert "app was shop, is blog" in str(fault.error)


@pytest.mark.parametrize(("old", "new"), [("epsilon = 2.0", "epsilon = -2.0"), ('"shop"', '"blog"')])
def test_a_fault_is_told_once_by_the_first_process(shop, monkeypatch, caplog, old, new):
    """Whatever stops its processes from reading the files stops gunicorn's first one, which says so; they do not."""
    monkeypatch.setattr(sources, "_inherited", {})
    path, settings = Path(shop.service.settings.registry), shop.service.settings
    sources.hand_on(settings)
    path.write_text(TEXT.replace(old, new), "utf-8")
    assert len(list(sources.hand_on(settings).lines)) == 1
    caplog.set_level("INFO")
    edits = Mock(get=Mock(side_effect=[None, SystemExit]))
    with pytest.raises(SystemExit):
        renewal._renew(shop.http.application, shop.service, edits, signs := Mock())
    assert signs.change.call_args.args[1]  # it says so in the store
    assert caplog.messages == []
