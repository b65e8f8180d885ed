"""What a privacy report says of a store: every key there is, and what was published, by its releases alone."""

from __future__ import annotations

import re
from base64 import b64encode
from datetime import UTC, datetime
from pathlib import Path
from threading import Event
from time import time

import pytest
import redis
from registries import metric_toml, registry_toml

from deniable.commands import entry as cli
from deniable.wire.report import Stratum
from deniable_aggregator.alarms.watcher import Watch
from deniable_aggregator.archive.folder import Folder
from deniable_aggregator.audit import history
from deniable_aggregator.audit.log import AuditLog
from deniable_aggregator.counting.events import Events
from deniable_aggregator.counting.faults import Faults
from deniable_aggregator.counting.worker import Worker
from deniable_aggregator.deletion.retention import Retention
from deniable_aggregator.publish import release
from deniable_aggregator.publish.publisher import Publisher
from deniable_aggregator.questions.budgets import Budgets
from deniable_aggregator.store import schema
from deniable_aggregator.store.server import snapshot
from deniable_aggregator.store.uploads import health, latest_reports, registries
from deniable_aggregator.store.uploads.archived import LastRecount
from deniable_aggregator.store.uploads.batch import Opened
from deniable_server.access.keys import KeyStore
from deniable_server.http.visit import Visit
from deniable_server.privacy import compose, elsewhere, gather
from deniable_server.privacy.published import read_published

from .conftest import INGEST, READ

ACL = Path(__file__).parents[2] / "deploy" / "users.acl"
ELSEWHERE = {"REMOTE_ADDR": "203.0.113.9"}
REGISTRY = registry_toml(
    metric_toml("theme", values=["light", "dark", "system", "other"], mechanism="oue", description="Which theme"),
    metric_toml("export", segments=["platform"]),
    metric_toml("gone"),
    segments={"platform": ["linux", "mac"]},
    publication={"min_reports": 10},
    retention={"tallies": 7, "releases": 800, "alarms": 50},
)


@pytest.fixture
def shop(serve):
    return serve(REGISTRY)


def send(shop, metric, values, **changes):
    answer = shop.post({"format": 1, "app": "shop", "groups": [shop.group(metric, values, **changes)]})
    assert answer.status_code == 202, answer.json


def count(shop, archive=None):
    Worker([shop.store], archive=archive).run(Event(), burst=True)


def close(shop, days=8):
    """Publish what is closed in so many days."""
    return Publisher(shop.store, shop.app.registry).publish(time() + 86400 * days)


def ask(shop, **question):
    query = {"period": today(), "cells": ["platform=mac"], "epsilon": 0.5} | question
    return shop.http.post("/api/v1/metrics/export/withheld", json=query, headers={"Authorization": f"Bearer {READ}"})


def today():
    return datetime.now(UTC).date().isoformat()


def beat_and_recount(store):
    health.beat(store.partitions[0], "worker")
    registries.say(store, registries.Loaded.here("worker", "6f0c2a9e51b3"))
    LastRecount(int(time()), 1, 0, 0).note(store)
    snapshot.note(store._client, time())
    latest_reports.add(store, [latest_reports.LatestReport(0, "export", 1, "", b"0")])  # as in a trial
    history.note(AuditLog(store), {"theme": {"question": "Which theme"}})  # as where results are public


def admit(shop):
    """Take a report as a relay forwards it."""
    of, layout = Stratum("theme", 1, "0" * 16, "2026-11-01", ""), shop.mechanism("theme").layout
    assert shop.store.admit(Opened(of, layout, [b"sealed"], [b"\x01"], 50, datetime.now(UTC))).new == 1


def test_the_schema_is_complete(shop, store_url, tmp_path):
    """After a run in which everything happens, every key of the store is in the schema, and everything in it is found."""
    store, declared = shop.store, shop.app.registry
    seen = set()

    def scan():
        seen.update(key.decode() for key in store._client.scan_iter())

    # A period that is published before it closes, then closes, with questions about it and an alarm.
    for result in (False, True):
        send(shop, "theme", [0] * 250, payloads=b64encode(b"\x0f" * 250).decode())
        count(shop, Folder(str(tmp_path / "archive")))
        assert bool(Publisher(store, declared).publish(time())) == result
    assert Watch(store, declared).check(int(time()))
    scan()
    send(shop, "export", [0, 1] * 30)
    assert shop.post({"format": 1, "app": "shop", "groups": [shop.group("export", [1], version=9)]}).status_code == 422
    send(shop, "gone", [1] * 50)
    shop.turn_the_hour()
    scan()
    count(shop)
    assert {stratum.metric for stratum in close(shop)} == {"theme", "export", "gone"}
    assert ask(shop).status_code == 200
    # What is too large for one step is made in pieces.
    with pytest.MonkeyPatch.context() as patch:
        apply = store.partitions[0].staging.apply
        patch.setattr("deniable_aggregator.store.sums.deltas.AT_ONCE", 0)
        patch.setattr(store.partitions[0].staging, "apply", lambda: (scan(), apply()))
        send(shop, "export", [0])
        count(shop)
    with Faults(store, Events()).alone("publisher", "export"):
        raise ValueError
    beat_and_recount(store)
    store.put(schema.SIMULATED, "2026-11-01 to 2026-11-25")
    scan()
    # Its sums go, and a metric is erased.
    assert Retention(store, declared, Publisher(store, declared)).delete(time() + 86400 * 30)
    assert cli.main(["erase", "--redis-url", store_url, "--app", "shop", "--metric", "gone", "--yes"]) == 0
    # What cannot be counted.
    store._client.xadd(store.partitions[0].stream, {"d": b"nonsense"})
    count(shop)
    scan()
    # Keys, and those who knock.
    KeyStore(store).create("read", "somebody")
    shop.http.get("/api/v1/metrics", headers={"Authorization": f"Bearer {READ}"}, environ_base=ELSEWHERE)
    shop.http.get("/api/v1/metrics", headers={"Authorization": "Bearer rk_of_nobody_1234"}, environ_base=ELSEWHERE)
    batch = {"format": 1, "app": "shop", "groups": [shop.group("export", [1])]}
    headers = {"Authorization": f"Bearer {INGEST}", "Idempotency-Key": "from-elsewhere"}
    assert shop.http.post("/v1/reports", json=batch, headers=headers, environ_base=ELSEWHERE).status_code == 202
    admit(shop)
    shop.service.limits.login(Visit(dict(ELSEWHERE)))
    store._client.hset("{shop}:keys:used", "somebody", today())
    shop.service.sessions.open("shop", "somebody")
    assert shop.service.sessions.secret()
    scan()
    unknown = sorted(key for key in seen if schema.find(key, "shop") is None)
    assert unknown == []
    results = {schema.find(key, "shop") for key in seen}
    assert [kind.name for kind in schema.ALL if kind not in results] == []


def test_what_is_not_listed_is_not_found():
    """Keys of another app, or of another name, are none of the schema."""
    assert schema.find("{shop}:seen:20780:a1b", "shop") == schema.SEEN
    assert schema.find("{deniable}:source:2026-11-21", "shop") == schema.SOURCE
    for key in ("{blog}:reports", "{shop}:devices", "{shop}:keys:more", "{deniable}:reports", "reports"):
        assert schema.find(key, "shop") is None


def test_the_storage_table_has_the_registry_s_days(shop):
    """Each thing that is kept is in the report, under the app's name and with the days that the registry says."""
    text = written(shop)[-1]
    section = text[text.index("### 6. ") : text.index("### 7. ")].replace("\\", "")
    cells = {name: until for name, _, until in re.findall(r"^\| (.+?) \| (.+?) \| (.+?) \|$", section, re.MULTILINE)}
    listed = [stored.name.replace("{app}", "{shop}") for stored in (*schema.ALL, *elsewhere.SERVERS, *elsewhere.DEVICE)]
    assert [name for name in cells if name not in ("Name", "---")] == listed
    assert cells["{shop}:tally:*"].startswith("7 days")
    assert cells["{shop}:weights:*"] == "the same"
    assert cells["{shop}:release:*"].startswith("800 days")
    assert cells["{shop}:alarms"].startswith("50 days")
    assert not [until for until in cells.values() if "{" in until]
    assert "such as {shop#2}" in section  # of an app that is divided


def written(shop):
    """Write the report of a store."""
    facts = gather(path_of(shop))
    published = [read_published(shop.store, each) for each in facts.metrics]
    spent = Budgets(shop.store, facts.registry.analysts).spent()
    result = datetime(2026, 11, 21, tzinfo=UTC)
    return published, spent, compose(facts, now=result, software="1", published=published, spent=spent)


def path_of(shop):
    return Path(shop.service.settings.registry)


def test_what_was_published(shop):
    """Releases are counted by metric, with the reports that are in them."""
    send(shop, "theme", [0] * 200)
    send(shop, "export", [0, 1] * 100)
    count(shop)
    close(shop)
    (theme, export, gone), _, text = written(shop)
    question = shop.app.highest["theme"]
    listed = release.listed(shop.store, "theme")
    n = shop.store.releases.read(question.mechanism.layout, list(listed)).n
    (note,) = listed.values()
    assert (theme.periods, theme.closed, theme.releases, theme.cells) == ((today(),), 1, 1, 0)
    assert theme.reports == n == 200
    assert theme.latest.timestamp() == note.published
    assert (export.closed, export.cells) == (1, 1)
    assert (gone.periods, gone.reports, gone.latest) == ((), 0, None)
    assert f"| theme | 1 | {today()} | {today()} | 1 | 1 | 0 | {n} |" in text
    assert "Store: read" in text
    assert "store was looked at" not in text


def test_nothing_is_told_but_what_was_published(shop):
    """The report is the same whatever was counted and is not published: exact numbers have no part in it."""
    send(shop, "theme", [0] * 60)
    count(shop)
    close(shop)
    *_, before = written(shop)
    send(shop, "export", [0, 1] * 300)
    send(shop, "gone", [0] * 37)
    count(shop)
    *_, after = written(shop)
    assert after == before
    for key in list(shop.store._client.scan_iter()):
        if schema.find(key.decode(), "shop") in (schema.TALLY, schema.TALLIES, schema.WEIGHTS, schema.SNAPSHOT):
            shop.store._client.delete(key)
    assert written(shop)[-1] == before


def test_what_was_spent(shop):
    """What questions of all keys cost is told by month, and how much of that is one key's."""
    send(shop, "export", [0, 1] * 30)
    count(shop)
    close(shop)
    for epsilon in (0.125, 0.25, 0.25):
        assert ask(shop, epsilon=epsilon).status_code == 200
    other, _ = KeyStore(shop.store).create("read", "another")
    question = {"period": today(), "cells": ["platform=mac"], "epsilon": 0.5}
    headers = {"Authorization": f"Bearer {other}"}
    assert shop.http.post("/api/v1/metrics/export/withheld", json=question, headers=headers).status_code == 200
    assert f"| {today()[:7]} | 2 | 0.875 | 0.5 |" in written(shop)[-1]


def test_former_definitions_are_told_apart(shop, serve):
    """What was published under another definition is named, and not counted with that of today."""
    send(shop, "theme", [0] * 60)
    count(shop)
    close(shop)
    changed = serve(REGISTRY.replace('"other"]', '"other"]\nversion = 2'))
    (theme, *_), _, text = written(changed)
    assert (theme.periods, theme.former) == ((), 1)
    assert "theme (1 release)" in text


def test_the_user_of_queries_may_read_all_of_it(shop):
    """The store's user `query`, as shipped, can read whatever a report tells of a store."""
    send(shop, "export", [0, 1] * 30)
    count(shop)
    close(shop)
    assert ask(shop).status_code == 200
    full, admin = written(shop), shop.store._client
    (rules,) = (line for line in ACL.read_text("utf-8").splitlines() if line.startswith("user query "))
    admin.execute_command("ACL", "SETUSER", "reviewer", *re.findall(r"\([^)]*\)|\S+", rules)[2:], "on", "nopass")
    try:
        admin.execute_command("AUTH", "reviewer", "any")
        assert written(shop) == full
        with pytest.raises(redis.exceptions.NoPermissionError):
            admin.execute_command("XRANGE", "{shop}:reports", "-", "+")
    finally:
        admin.connection_pool.disconnect()
        admin.execute_command("ACL", "DELUSER", "reviewer")


def test_the_command_reads_a_store(shop, store_url, tmp_path):
    """With --redis-url the report has what was published; the command changes nothing in the store."""
    send(shop, "theme", [0] * 60)
    count(shop)
    close(shop)
    before = {key: shop.store._client.dump(key) for key in shop.store._client.scan_iter()}
    output = tmp_path / "report.html"
    arguments = ["--registry", str(path_of(shop)), "--redis-url", store_url, "--output", str(output)]
    assert cli.main(["report", "privacy", *arguments]) == 0
    assert "store was looked at" not in output.read_text("utf-8")
    assert {key: shop.store._client.dump(key) for key in shop.store._client.scan_iter()} == before
