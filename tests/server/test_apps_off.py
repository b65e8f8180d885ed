"""The files of one app have a fault: this app is off, its devices keep their reports, and all others are served."""

from __future__ import annotations

import logging
import os
from dataclasses import replace

import pytest

from deniable.errors import DeniableError
from deniable_aggregator.commands.worker import _Published
from deniable_aggregator.store import Store
from deniable_aggregator.store.uploads import registries
from deniable_aggregator.store.uploads.registries import Loaded
from deniable_server import create_app, sources
from deniable_server.agreement import Agreement
from deniable_server.doctor.config import inspect
from deniable_server.doctor.served import Served

TEXT = """
format = 1
app = "APP"

[metrics.theme]
type = "boolean"
epsilon = 1.0
description = "Whether it is dark"
owner = "a@shop.example"
expires = 2090-12-31
"""
KEYS = {app: f"pk_{app}_12345678" for app in ("shop", "blog")}


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Write the registries of two apps; gunicorn's first process has read nothing yet."""
    monkeypatch.setattr(sources, "_inherited", {})
    written = {app: tmp_path / f"{app}.toml" for app in KEYS}
    for app, path in written.items():
        path.write_text(TEXT.replace("APP", app), "utf-8")
    return written


@pytest.fixture
def two(settings, files):
    """Return the settings of a server of two apps."""
    keys = {role: ",".join(f"{app}:{key}" for app, key in KEYS.items()) for role in ("ingest_keys", "read_keys")}
    return replace(settings, registry=os.pathsep.join(map(str, files.values())), dashboard="open", **keys)


def spoil(path):
    path.write_text(path.read_text("utf-8").replace("epsilon = 1.0", "epsilon = -1"), "utf-8")


def upload(flask, app):
    headers = {"Authorization": f"Bearer {KEYS[app]}", "Idempotency-Key": f"one-upload-of-{app}"}
    return flask.test_client().post("/v1/reports", json={"format": 1, "app": app, "groups": []}, headers=headers)


def test_a_process_starts_with_the_other_apps(two, files, caplog):
    """The log, /readyz, the page and the answer to uploads say which app is off; the public answer names no file."""
    spoil(files["blog"])
    flask = create_app(two)
    assert list(flask.extensions["deniable"].apps) == ["shop"]
    (record,) = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert record.getMessage().startswith("blog is off, and devices keep its reports, until this is mended: ")
    assert "theme: epsilon = -1" in record.getMessage()
    ready = flask.test_client().get("/readyz")
    assert (ready.status_code, ready.get_json()["status"]) == (200, "degraded")
    part = ready.get_json()["parts"]["registry:blog"]
    assert (part["ok"], part["off"], "theme: epsilon = -1" in part["fault"]) == (False, True, True)
    answer = upload(flask, "blog")
    assert (answer.status_code, answer.get_json()["code"], answer.headers["Retry-After"]) == (503, "app_not_served", "60")
    assert answer.get_json()["detail"].startswith("the registry of blog cannot be used on this server now")
    assert str(files["blog"]) not in answer.text
    assert upload(flask, "shop").status_code == 422  # it has no report; its key is good
    page = flask.test_client().get("/").text
    assert "blog (off)" in page
    page = flask.test_client().get("/?app=blog")
    assert (page.status_code, "Blog is off until its registry is mended" in page.text) == (503, True)


def test_a_file_that_is_not_there(two, files):
    """Its app is not known by name; its key of the environment still keeps the reports on devices."""
    files["blog"].unlink()
    flask = create_app(two)
    assert (upload(flask, "blog").status_code, upload(flask, "shop").status_code) == (503, 422)


def test_a_mended_file_is_served_at_sighup(two, files):
    """Without a new process, and with the keys of the app."""
    spoil(files["blog"])
    flask = create_app(two)
    assert upload(flask, "blog").status_code == 503
    flask.extensions["deniable"].renew()
    assert list(flask.extensions["deniable"].off) == ["blog"]
    files["blog"].write_text(TEXT.replace("APP", "blog"), "utf-8")
    assert not flask.extensions["deniable"].renew().faulty
    assert upload(flask, "blog").status_code == 422
    assert flask.test_client().get("/?app=blog").status_code == 200
    assert "registry:blog" in flask.test_client().get("/readyz").get_json()["parts"]


def test_a_fault_of_one_keeps_no_other_from_its_edit(two, files):
    """At SIGHUP each app takes its own file, or goes on with the one before."""
    known = create_app(two).extensions["deniable"]
    before = known.apps["blog"]
    spoil(files["blog"])
    files["shop"].write_text(TEXT.replace("APP", "shop").replace("Whether it is dark", "Dark or not"), "utf-8")
    (fault,) = known.renew().faulty
    assert (fault.app, known.apps["blog"], known.off) == ("blog", before, {})
    assert known.apps["shop"].declared.metrics["theme"].description == "Dark or not"


@pytest.mark.parametrize("which", [("shop",), ("blog", "shop")])
def test_no_process_starts_without_an_app(two, files, which):
    """Where there is one app, or all have faults, the start is refused with the faults of all."""
    for app in which:
        spoil(files[app])
    settings = replace(two, registry=os.pathsep.join(str(files[app]) for app in which))
    with pytest.raises(DeniableError) as raised:
        create_app(settings)
    assert str(raised.value).count("theme: epsilon = -1") == len(which)


def test_two_files_of_one_app_stop_the_start(two, files):
    """Which of them is meant is not known."""
    files["blog"].write_text(TEXT.replace("APP", "shop"), "utf-8")
    with pytest.raises(DeniableError, match="shop has two"):
        create_app(two)


def test_a_breaking_change_is_refused_under_a_running_server(two, files):
    """As `deniable registry publish` decides it: app, metric and remedy are named, and what was loaded stays in use."""
    sources.hand_on(two)
    path, first = files["shop"], files["shop"].read_text("utf-8")
    path.write_text(first.replace("epsilon = 1.0", "epsilon = 0.5"), "utf-8")
    read = sources.hand_on(two)
    assert read.apps["shop"].registry.metrics["theme"].epsilon == "1"
    (line,) = read.lines
    remedy = "theme: epsilon was '1', is '0.5'; raise version to 2, or write it as it was"
    assert line == f"the edited registry of shop cannot be used, so the one before stays in use: {path}: {remedy}"
    path.write_text(first, "utf-8")
    assert not sources.hand_on(two).faulty
    path.write_text(first.replace("epsilon = 1.0", "epsilon = 0.5\nversion = 2"), "utf-8")
    assert not sources.hand_on(two).faulty
    path.write_text(first.replace('"shop"', '"news"'), "utf-8")
    (line,) = sources.hand_on(two).lines
    assert "of shop cannot be used" in line
    assert "app was shop, is news" in line


def test_a_breaking_change_before_the_start_is_named(two, files, monkeypatch, caplog):
    """The start of servers and workers, and the doctor, say of the file what a reload would."""
    client, first = two.opened(3.0), files["shop"].read_text("utf-8")
    shop, clock = Store(client, "shop"), [1_900_000_000]
    monkeypatch.setattr(Store, "now", lambda _: clock[0])
    every = {"DENIABLE_REDIS_URL": two.redis_url, "DENIABLE_REGISTRY": two.registry}

    def worker():
        clock[0] += 5
        return _Published(shop, sources.read(two).apps["shop"].registry, None, None).registry

    worker()
    assert list(sources.refusals(client, sources.read(two))) == inspect(every).errors == []
    files["shop"].write_text(first.replace("epsilon = 1.0", "epsilon = 0.5"), "utf-8")
    why = f"{files['shop']}: theme: epsilon was '1', is '0.5'; raise version to 2, or write it as it was"
    line = f"reports for shop of devices with the earlier definition are refused (definition_mismatch): {why}"
    for _ in range(2):
        assert list(sources.refusals(client, sources.read(two))) == inspect(every).errors == [line]
        worker()  # which knows the changed one from then on
    assert line in caplog.messages
    files["shop"].write_text(first.replace("epsilon = 1.0", "epsilon = 0.5\nversion = 2"), "utf-8")
    assert list(sources.refusals(client, sources.read(two))) == inspect(every).errors == []
    client.close()


def test_others_see_that_a_process_leaves_an_app_off(two):
    """It says so in the store of the app; such a server does not count as one that serves it."""
    source = sources.read(two).apps["blog"]
    client = two.opened(3.0)
    store = Store(client, "blog")
    registries.say(store, Loaded("server", registries.OFF, "here:1", "theme: epsilon = -1"))
    agreement = Agreement.of(store, source)
    assert (agreement.fault, len(agreement.differing)) == ("theme: epsilon = -1", 1)
    assert registries.served([store]) == []
    client.close()


def test_the_doctor_says_which_app_is_off(two, files):
    """With what follows for its reports, and what to do."""
    spoil(files["blog"])
    (finding,) = Served.read(two).faults
    assert (finding.app, finding.status) == ("blog", "fault")
    assert "leave the app off" in finding.meaning
    assert "SIGHUP" in finding.remedy
