"""What is counted and not published: for who holds an admin key, in the API and on pages, and for nobody else."""

from __future__ import annotations

import json
import re
import time
from base64 import b64encode
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from hashlib import sha256
from threading import Event

import pytest
import redis
from registries import metric_toml, registry_toml

from deniable.commands.entry import main
from deniable_aggregator.alarms.watcher import Watch
from deniable_aggregator.audit.entry import intact_entry
from deniable_aggregator.counting.events import Events
from deniable_aggregator.counting.faults import Faults
from deniable_aggregator.counting.worker import Worker
from deniable_aggregator.publish.hourly import Hourly
from deniable_aggregator.store import schema
from deniable_aggregator.store.uploads import refused_reports
from deniable_server.access.keys import KeyStore, id_of

from .conftest import INGEST, READ, Served

pytestmark = pytest.mark.divided_too

REGISTRY = registry_toml(
    metric_toml(
        "plugin", values=["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"], mechanism="oue", segments=["platform"]
    ),
    metric_toml("export.used"),
    segments={"platform": ["linux", "macos"]},
    publication={"min_reports": 100},
)
LIVE = ("/api/v1/live", "/api/v1/live/plugin")


@pytest.fixture
def shop(settings, tmp_path):
    """Serve an app that publishes as it should, with pages that ask for a key."""
    path = tmp_path / "shop.toml"
    path.write_text(REGISTRY, "utf-8")
    server = Served(replace(settings, registry=str(path)))
    yield server
    server.store._client.close()


@pytest.fixture
def admin(shop):
    """Make an admin key."""
    return KeyStore(shop.store).create("admin", "owner")[0]


def signed_in(shop, key):
    """Sign in with a key; return what shows a page."""
    http = shop.flask.test_client()
    token = re.search(r'name="token" value="([^"]+)"', http.get("/login").get_data(as_text=True))[1]
    assert http.post("/login", data={"token": token, "key": key}).status_code == 303
    return http.get


@pytest.fixture
def browse(shop):
    return partial(signed_in, shop)


def made_up(served, segment, n=1):
    """Upload reports that no device makes: every bit is set."""
    layout = served.mechanism("plugin").layout
    bits = (1 << layout.width) - 1
    payloads = bits.to_bytes(layout.payload_size, "little") * n
    group = served.group("plugin", [], segment=segment, count=n, payloads=b64encode(payloads).decode())
    assert served.post({"format": 1, "app": "shop", "groups": [group]}).get_json()["accepted"] == n


def test_alarms_give_no_withheld_count_away(shop, admin, browse):
    """Who sends and reads fills a segment until an alarm tells of it, and would know how many were in it; an admin could."""
    honest = [shop.group("plugin", [0] * n, segment=f"platform={name}") for name, n in (("linux", 300), ("macos", 37))]
    assert shop.post({"format": 1, "app": "shop", "groups": honest}).status_code == 202
    made_up(shop, "platform=macos", 60)
    analyst, owner = browse(READ), browse(admin)
    seen = {"analyst": [], "owner": []}
    for sent in range(60, 66):
        shop.drain()
        Watch(shop.store, shop.app.registry).check(int(time.time()))
        places = [analyst(path) for path in ("/", "/m/plugin")]
        places += [shop.get(f"/api/v1/{path}") for path in ("pipeline", "metrics", "metrics/plugin", "budgets")]
        texts = [re.sub(r'"(looked|lag_seconds)": ?[^,}]*', "", place.get_data(as_text=True)) for place in places]
        seen["analyst"].append((sent, texts))
        seen["owner"].append((sent, "platform=macos" in str(shop.get("/api/v1/live", admin).get_json().get("alarms"))))
        assert ("platform = macos:</b>" in owner("/m/plugin/live").get_data(as_text=True)) == seen["owner"][-1][1]
        made_up(shop, "platform=macos")
    first = next(sent for sent, answer in seen["owner"] if answer)
    assert 100 - first == 37
    assert len({str(texts) for _, texts in seen["analyst"]}) == 1
    assert "made up" not in str(seen["analyst"])


@pytest.fixture
def filled(shop):
    """Count reports of which few are published, leave one batch waiting, and refuse some."""
    linux = shop.group("plugin", [0] * 30)
    macos = shop.group("plugin", [1] * 12, segment="platform=macos")
    bad = shop.group("plugin", [1] * 5, version=9), shop.group("export.used", [1] * 4), shop.group("plugin", [1] * 2, metric="x")
    assert shop.post({"format": 1, "app": "shop", "groups": [linux, macos, *bad]}).get_json()["accepted"] == 46
    assert shop.post({"format": 1, "app": "shop", "groups": bad[:1]}).get_json()["code"] == "all_rejected"
    shop.drain()
    again = {"format": 1, "app": "shop", "groups": [shop.group("plugin", [2] * 3), bad[0]]}
    for _ in range(2):  # a repeated upload counts once, and so does what is refused of it
        assert shop.post(again, "the same").get_json()["accepted"] == 3
    return shop


def test_an_owner_sees_what_was_accepted_and_refused(filled, admin):
    """What is counted is told exactly, published or not, what waits as batches, what was refused by reason and metric."""
    filled.turn_the_hour()
    body = filled.get("/api/v1/live", admin).get_json()
    plugin, used = body["metrics"]
    assert (body["live"], body["backlog"], body["refused"], body["alarms"]) == (True, 1, {"unknown_metric": 2}, [])
    assert (plugin["n"], plugin["unpublished"], plugin["refused"]) == (42, 42, {"unknown_version": 15})
    assert (used["n"], used["unpublished"], used["refused"]) == (4, 4, {})
    filled.drain()
    one = filled.get("/api/v1/live/plugin", admin).get_json()
    assert [(each["segment"], each["n"]) for each in one["counts"]] == [("platform=linux", 33), ("platform=macos", 12)]
    assert (one["n"], one["live"], len(one["estimates"])) == (45, True, 12)
    assert one["estimates"][0]["stderr"] > 0
    today = one["periods"][0]
    assert filled.get(f"/api/v1/live/plugin?period={today}&level=0.5", admin).get_json()["n"] == 45
    assert filled.get("/api/v1/live/plugin?period=2001-01-01", admin).get_json()["estimates"][0]["estimate"] is None
    assert filled.get("/api/v1/metrics/plugin").get_json()["n"] == 0


LOOKS = ("/api/v1/live", "/api/v1/live/plugin", "/api/v1/live/plugin?level=0.5")


def looks(shop, admin, browse):
    """Everything that a holder of an admin key is told of what is counted, but for the batches that wait."""
    body = [shop.get(path, admin).get_json() for path in LOOKS]
    del body[0]["backlog"]
    pages = [browse(admin)(path).get_data(as_text=True) for path in ("/live", "/m/plugin/live")]
    return body, [re.sub(r"nonce=\S+|name=.token. value=\S+", "", page) for page in pages]


def test_two_looks_show_no_report(shop, admin, browse):
    """Whatever comes within an hour, an administrator sees the same, to the byte: reports, segments, new ones, and refusals."""
    shop.post({"format": 1, "app": "shop", "groups": [shop.group("plugin", [1] * 40)]})
    shop.drain()
    before = looks(shop, admin, browse)
    for group in (
        shop.group("plugin", [3]),
        shop.group("plugin", [4], segment="platform=macos"),  # a segment without any report so far
        shop.group("plugin", [4], version=7),
    ):
        shop.post({"format": 1, "app": "shop", "groups": [group]})
        Worker([shop.store]).run(Event(), burst=True)
        Hourly(shop.store).run(shop.app.registry)  # the hour has not passed
        assert looks(shop, admin, browse) == before
    shop.turn_the_hour()
    (answer, *_), _ = looks(shop, admin, browse)
    assert (answer["metrics"][0]["n"], answer["metrics"][0]["refused"]) == (42, {"unknown_version": 1})


def test_numbers_say_of_when_they_are(shop, admin, browse, capsys):
    """Before the first copy there are none; later they are never fewer than what is published; `deniable status` agrees."""
    shop.post({"format": 1, "app": "shop", "groups": [shop.group("plugin", [1] * 150)]})
    Worker([shop.store]).run(Event(), burst=True)
    body, page = shop.get("/api/v1/live", admin).get_json(), browse(admin)("/live").get_data(as_text=True)
    assert (body["as_of"], body["next_copy"], body["metrics"][0]["n"]) == (None, None, None)
    assert "no copy yet" in page
    assert " 0 reports" not in page
    before = shop.store.now()
    shop.drain(days=5)
    body, page = shop.get("/api/v1/live", admin).get_json(), browse(admin)("/live").get_data(as_text=True)
    as_of, due = (datetime.fromisoformat(body[name]) for name in ("as_of", "next_copy"))
    assert 0 <= before - as_of.timestamp() < 60 or as_of.timestamp() >= before
    assert (due.minute, due > as_of) == (0, True)
    assert f"as of {as_of.day} {as_of:%b, %H:%M} UTC" in page
    assert f"The next numbers come at {due.day} {due:%b, %H:%M} UTC" in page
    one = shop.get("/api/v1/live/plugin", admin).get_json()
    assert (one["as_of"], one["next_copy"]) == (body["as_of"], body["next_copy"])
    for copy in shop.store._client.scan_iter("*:tally:*"):
        shop.store._client.delete(copy)  # as retention does
    assert shop.get("/api/v1/live", admin).get_json()["metrics"][0]["n"] == 150
    capsys.readouterr()
    main(["status", "--redis-url", shop.service.settings.redis_url, "--app", "shop", "--json"])
    row = json.loads(capsys.readouterr().out)
    assert (row["counted"], row["counted_at"]) == (150, f"{as_of:%Y-%m-%dT%H:%MZ}")
    main(["status", "--redis-url", shop.service.settings.redis_url, "--app", "shop"])
    assert f"the 150 reports were counted by {as_of:%H:%M} UTC" in capsys.readouterr().out


def test_each_full_hour_has_one_pass(shop, monkeypatch):
    """A pass comes with the first look after a full hour, and none within 55 minutes after another."""
    start, clock, until, passes = time.time() // 3600 * 3600, [0.0], [0], []

    def claim(_, end):
        if clock[0] < until[-1]:
            return False
        until.append(end)
        passes.append((clock[0] - start) / 60)
        return True

    monkeypatch.setattr(shop.store, "now", lambda: clock[0])
    monkeypatch.setattr(shop.store, "claim", claim)
    for minute in range(50, 250):
        clock[0] = start + 60 * minute
        Hourly(shop.store).run(shop.app.registry)
    assert passes == [50, 120, 180, 240]


def test_a_pass_that_fails_is_made_up_for(shop, admin, monkeypatch):
    """What a pass could not copy is copied by the next look; what it did copy stays as it is until the next hour."""
    shop.post({"format": 1, "app": "shop", "groups": [shop.group("export.used", [1] * 30), shop.group("plugin", [1] * 20)]})
    Worker([shop.store]).run(Event(), burst=True)
    copy = type(shop.store.partitions[0]).copy

    def fail(partition, names, metric, hour):
        if metric == "plugin":
            raise redis.ConnectionError
        copy(partition, names, metric, hour)

    with monkeypatch.context() as patch:
        patch.setattr(type(shop.store.partitions[0]), "copy", fail)
        with pytest.raises(redis.ConnectionError):
            Hourly(shop.store).run(shop.app.registry)
    shop.post({"format": 1, "app": "shop", "groups": [shop.group("export.used", [1])]})
    Worker([shop.store]).run(Event(), burst=True)
    Hourly(shop.store).run(shop.app.registry)
    body = {each["id"]: each["n"] for each in shop.get("/api/v1/live", admin).get_json()["metrics"]}
    assert body == {"export.used": 30, "plugin": 20}


def test_no_alarm_comes_within_the_hour(shop, monkeypatch):
    """Alarms are looked for once an hour: one more report of a segment raises none before."""
    looks = []
    monkeypatch.setattr(Watch, "check", lambda _, now: looks.append(now) or shop.store.put(schema.WATCHED, now))
    clock = time.time() // 3600 * 3600
    for minute in range(0, 130, 1):
        monkeypatch.setattr(time, "time", lambda minute=minute: clock + 60 * minute + 30)
        Watch(shop.store, shop.app.registry).run()
    assert [(each - clock) // 60 for each in looks] == [0, 60, 120]


def test_sealed_periods_need_no_copy(shop, admin):
    """Once nothing more can come for a period, its copy goes, and the sums themselves show."""
    shop.post({"format": 1, "app": "shop", "groups": [shop.group("plugin", [1] * 200)]})
    shop.drain()
    assert list(shop.store._client.scan_iter("*:copy:*"))
    shop.drain(days=5)
    shop.turn_the_hour()
    assert shop.get("/api/v1/live/plugin", admin).get_json()["n"] == 200
    shop.turn_the_hour()
    assert not list(shop.store._client.scan_iter("*:copy:*"))
    assert shop.get("/api/v1/live/plugin", admin).get_json()["n"] == 200


def test_what_workers_fail_at_shows(filled, admin, browse):
    """What fails at present is told by name, in the answer and on the page, and no longer once it passes."""
    get, failing = browse(admin), Faults(filled.store, Events())

    def page():
        return get("/health").get_data(as_text=True)

    assert filled.get("/api/v1/live", admin).get_json()["faults"] == {}
    assert "Something fails" not in page()
    with failing.alone("publisher", "plugin"):
        raise ValueError("7 reports")
    assert filled.get("/api/v1/live", admin).get_json()["faults"] == {"publisher of plugin": "ValueError"}
    assert "publisher of plugin" in page()
    assert "Something fails" in get("/live").get_data(as_text=True)
    assert "7 reports" not in page()
    with failing.alone("publisher", "plugin"):
        pass
    assert filled.get("/api/v1/live", admin).get_json()["faults"] == {}


def test_published_and_live_numbers_fit_together(shop, admin):
    """Once a period has closed all of it is published, and nothing is left that is live alone."""
    shop.post({"format": 1, "app": "shop", "groups": [shop.group("export.used", [0, 1] * 100)]})
    shop.drain()
    assert shop.get("/api/v1/live/export.used", admin).get_json()["unpublished"] == 200
    shop.drain(days=5)
    live, published = (shop.get(f"/api/v1/{where}/export.used", admin).get_json() for where in ("live", "metrics"))
    assert (live["n"], live["unpublished"]) == (200, 0)
    for name in ("n", "estimates", "detection_frequency", "unallocated"):
        assert live[name] == published[name]


@pytest.mark.parametrize("path", LIVE)
def test_live_numbers_are_for_admin_keys(filled, path):
    """Read and ingest keys are known and refused, unknown ones are not known."""
    for key, expected in ((READ, 403), (INGEST, 403), ("ak_of_nobody_1234", 401), (None, 401)):
        answer = filled.get(path, key)
        assert answer.status_code == expected
        assert (answer.get_json()["code"] == "admin_only") == (expected == 403)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("plugin?segment=platform%3Dlinux", (400, "unknown_parameter")),
        ("plugin?question=withheld", (400, "unknown_parameter")),
        ("?period=2026-11-20", (400, "unknown_parameter")),
        ("plugin?level=7", (400, "level")),
        ("plugin?period=2026", (400, "period")),
        ("secret", (404, "unknown_metric")),
    ],
)
def test_bad_live_queries_are_refused(shop, admin, query, expected):
    """They are refused as those of what was published."""
    answer = shop.get(f"/api/v1/live/{query}".replace("/?", "?"), admin)
    assert (answer.status_code, answer.get_json()["code"]) == expected


def test_who_looked_at_live_numbers_is_in_the_audit_log(filled, admin, browse):
    """An answer, a refusal of a read key and a page are logged as live queries; the public key is nobody's and leaves nothing."""
    for path in LIVE:
        for key in (admin, READ, INGEST):
            filled.get(path, key)
    browse(admin)("/m/plugin/live")
    log = [intact_entry(line) for line in filled.store._client.lrange("{shop}:audit", 0, -1)]
    owner, reader = (f"key:{id_of(sha256(key.encode()).digest())}" for key in (admin, READ))
    live, of_plugin = {"by": "api", "question": "live"}, {"by": "api", "question": "live", "metric": "plugin"}
    assert [(e.event, e.actor, e.details) for e in log if e.event.startswith("query.")] == [
        ("query.answered", owner, live),
        ("query.refused", reader, live | {"problem": "admin_only"}),
        ("query.answered", owner, of_plugin),
        ("query.refused", reader, of_plugin | {"problem": "admin_only"}),
        ("query.answered", owner, of_plugin | {"by": "page"}),
    ]


@pytest.mark.parametrize("path", [*LIVE, "/live", "/m/plugin/live"])
@pytest.mark.parametrize("more", ["question=withheld&among=John+Doe", "spent=1", f"among={'x' * 1500}", "epsilon=0.1&by=x"])
def test_parameters_change_nothing_in_the_audit_log(shop, admin, browse, path, more):
    """Whatever a look says besides, it is refused and logged as a look, and none of its text is."""
    pages = path[:5] != "/api/"
    for key in (admin, READ):
        answer = browse(key)(f"{path}?{more}") if pages else shop.get(f"{path}?{more}", key)
        assert answer.status_code == (400 if key == admin else 403)
    log = [intact_entry(line) for line in shop.store._client.lrange("{shop}:audit", 0, -1)]
    expected = {"by": "page" if pages else "api", "question": "live"} | ({"metric": "plugin"} if "plugin" in path else {})
    assert [(e.event, e.details) for e in log if e.event.startswith("query.")] == [
        ("query.refused", expected | {"problem": problem}) for problem in ("unknown_parameter", "admin_only")
    ]


def test_a_look_is_logged_with_its_period_and_level(shop, admin):
    """What such a query can ask is in the log."""
    assert shop.get("/api/v1/live/plugin?period=2001-01-01&level=0.90", admin).status_code == 200
    entry = intact_entry(shop.store._client.lindex("{shop}:audit", -1))
    assert entry.details == {"by": "api", "question": "live", "metric": "plugin", "period": "2001-01-01", "level": "0.9"}


def test_pages_link_to_live_numbers_for_an_admin_only(filled, admin, browse):
    """An admin finds the pages, which say that they are live; a read key sees no link, and is refused."""
    filled.drain()
    owner, reader = browse(admin), browse(READ)
    for page, link in (("/", "/live"), ("/m/plugin", "/m/plugin/live")):
        assert f'href="{link}"' in owner(page).get_data(as_text=True)
        assert "live" not in reader(page).get_data(as_text=True).lower()
        assert reader(link).status_code == 403
        html = owner(link).get_data(as_text=True)
        assert "These numbers are live" in html
        assert "15 for <code>unknown_version</code>" in html
    assert "<b>45</b>" in html
    assert "platform = macos: 12" in html
    assert owner("/m/plugin/live?period=2001-01-01").status_code == 200
    assert owner("/m/secret/live").status_code == 404


def test_hundreds_of_metrics_have_pages(settings, tmp_path):
    """No page is above 200 KB; together they show all metrics."""
    path = tmp_path / "shop.toml"
    more = (f'[metrics."m{at:03}"]\ntype = "boolean"\nepsilon = 1\ndescription = "d"\nowner = "o"\n' for at in range(120))
    path.write_text(f'format = 1\nbudget.per_month = 10000\nbudget.lifetime = 100000\napp = "shop"\n{"".join(more)}', "utf-8")
    shop = Served(replace(settings, registry=str(path)))
    owner = signed_in(shop, KeyStore(shop.store).create("admin", "owner")[0])
    results, address = [], "/live"
    while address:
        answer = owner(address)
        html = answer.get_data(as_text=True)
        assert (answer.status_code, len(html.encode()) < 100_000) == (200, True)
        results += re.findall(r'href="/m/([^"]*)@1/live"', html)
        address = next(iter(re.findall(r'href="(/live[^"]*)" rel="next"', html)), "")
    assert results == [f"m{at:03}" for at in range(120)]
    assert owner("/live?page=12").status_code == 404
    shop.store._client.close()


def test_open_pages_show_nothing_live(settings, shop):
    """Where pages ask for no key nobody has signed in as an admin."""
    opened = Served(replace(settings, registry=shop.service.settings.registry, dashboard="open"))
    assert [opened.http.get(path).status_code for path in ("/m/plugin", "/live", "/m/plugin/live")] == [200, 403, 403]
    opened.store._client.close()


def test_refused_reports_that_cannot_be_counted_fail_nothing(shop, monkeypatch, caplog):
    """An upload is answered as ever where the store does not take the number of what was refused."""

    def full(*_):
        raise redis.OutOfMemoryError

    monkeypatch.setattr(refused_reports, "add", full)
    groups = [shop.group("export.used", [1]), shop.group("export.used", [1], version=9)]
    assert shop.post({"format": 1, "app": "shop", "groups": groups}).status_code == 202
    assert shop.post({"format": 1, "app": "shop", "groups": groups[1:]}).status_code == 422
    assert "cannot be used: it has no memory left" in caplog.text


@pytest.mark.parametrize("trial", [True, False])
def test_a_trial_is_marked_in_every_answer_and_on_every_page(settings, tmp_path, trial):
    """Whoever reads numbers of a trial is told that they are, wherever they look; elsewhere nothing is said of it."""
    path = tmp_path / "trial.toml"
    path.write_text(REGISTRY.replace("min_reports = 100", f"min_reports = 1\ntrial = {str(trial).lower()}"), "utf-8")
    shop = Served(replace(settings, registry=str(path)))
    admin = KeyStore(shop.store).create("admin", "owner")[0]
    both = [f"platform={name}" for name in ("linux", "macos")]
    shop.post({"format": 1, "app": "shop", "groups": [shop.group("plugin", [1] * 50, segment=segment) for segment in both]})
    shop.drain(days=5)
    today = shop.get("/api/v1/metrics/plugin").get_json()["periods"][0]["last"]
    for answer in ("metrics", "metrics/plugin", "pipeline", "budgets", "live", "live/plugin"):
        assert shop.get(f"/api/v1/{answer}", admin).get_json()["trial"] is trial
    query, headers = {"period": today, "cells": ["platform=(other)"], "epsilon": 0.1}, {"Authorization": f"Bearer {READ}"}
    assert shop.http.post("/api/v1/metrics/plugin/withheld", json=query, headers=headers).get_json()["trial"] is trial
    token = re.search(r'name="token" value="([^"]+)"', shop.http.get("/login").get_data(as_text=True))[1]
    assert shop.http.post("/login", data={"token": token, "key": admin}).status_code == 303
    for page in ("/", "/m/plugin", "/m/export.used", "/m/secret", "/live", "/m/plugin/live"):
        assert ("<b>Trial</b>" in shop.http.get(page).get_data(as_text=True)) is trial
    shop.store._client.close()


def test_empty_cards_say_what_is_awaited(shop, browse):
    """Of what is not published the list says what is needed and when it is due: in the same words for few reports and none."""
    seen = []
    for _ in range(2):
        seen.append(browse(READ)("/").get_data(as_text=True))
        shop.post({"format": 1, "app": "shop", "groups": [shop.group("export.used", [1] * 40)]})
        shop.drain()
    assert seen[0].count("100 reports are needed, and the next release is due") == 2
    assert re.sub(r'name="token" value="[^"]+"', "", seen[0]) == re.sub(r'name="token" value="[^"]+"', "", seen[1])


def test_the_page_of_health(shop, admin, browse):
    """For admin keys: what waits, what was refused and what to do, and what looks made up. Others are refused."""
    get = browse(admin)
    fresh = get("/health").get_data(as_text=True)
    assert "<td>0 workers</td>" in fresh
    assert "None. Numbers of all metrics are what honest devices send." in fresh
    shop.post({"format": 1, "app": "shop", "groups": [shop.group("plugin", [0] * 300, segment="platform=linux")]})
    shop.post(
        {
            "format": 1,
            "app": "shop",
            "groups": [shop.group("plugin", [0], version=7), shop.group("export.used", [0] * 2, metric="gone")],
        }
    )
    made_up(shop, "platform=macos", 200)
    assert "<td>2 batches" in get("/health").get_data(as_text=True)
    shop.drain()
    Watch(shop.store, shop.app.registry).check(int(time.time()))
    page = get("/health").get_data(as_text=True)
    assert re.search(r'<th scope="row">plugin version 1</th><td>1</td><td><code>unknown_version</code>: ', page)
    assert re.search(r'<th scope="row">metrics that are not declared</th><td>2</td><td><code>unknown_metric</code>: ', page)
    assert '<h3><a href="/m/plugin/live">plugin</a></h3>' in page
    assert "made for another definition" in page
    assert browse(READ)("/health").status_code == 403
    assert shop.http.get("/health").status_code == 303
    assert '<a href="/health">Health</a>' in get("/").get_data(as_text=True)
    assert "/health" not in browse(READ)("/").get_data(as_text=True)


def test_the_strip_says_of_what_reports_were_refused(shop, browse, monkeypatch):
    """Of which metrics within a day, as of the last full hour: for a read key as well, without any number."""
    get = browse(READ)
    begin = time.time()
    hour = datetime.fromtimestamp(begin - begin % 3600, UTC)
    until = f"none in the day to {hour:%H:%M} UTC; this hour shows at {hour + timedelta(hours=1):%H:%M}"
    monkeypatch.setattr("deniable_aggregator.store.Store.now", lambda _: begin)
    assert f'<dt>Refused</dt><dd class="ok">{until}</dd>' in get("/").get_data(as_text=True)
    shop.post(
        {
            "format": 1,
            "app": "shop",
            "groups": [shop.group("plugin", [0] * 23, version=7), shop.group("plugin", [0], metric="gone")],
        }
    )
    assert until in get("/").get_data(as_text=True)  # of this hour nothing is said
    later = begin + 3600
    monkeypatch.setattr("deniable_aggregator.store.Store.now", lambda _: later)
    page = get("/").get_data(as_text=True)
    assert '<dt>Refused</dt><dd class="no">reports of a metric that is not declared and plugin</dd>' in page
    assert "23" not in re.sub(r"[\w-]{16,}", "", page)
