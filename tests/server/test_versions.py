"""Many versions in the field at once: what older apps send is taken, counted apart, published, and shown beside the rest."""

from __future__ import annotations

import re
from base64 import b64encode
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest.mock import Mock

import pytest
from registries import metric_toml, registry_toml

from deniable.declared import Declared
from deniable.registry import published
from deniable_aggregator.audit.entry import intact_entry
from deniable_aggregator.deletion.erase import Removal
from deniable_aggregator.publish import definitions
from deniable_aggregator.publish.strata import strata_by_period
from deniable_aggregator.store.errors import StoreError
from deniable_server.access.keys import KeyStore

from .conftest import READ, Served

OLD = registry_toml(
    metric_toml("theme", values=["light", "dark"], epsilon=2.0, description="Which theme"),
    metric_toml("export", segments=["version"], description="Whether it was used"),
    metric_toml("gone", description="What the new app asks no more"),
    segments={"version": ["1.0", "1.1"]},
    publication={"min_reports": 100},
)
NEW = registry_toml(
    metric_toml("theme", version=2, values=["dark", "light", "system"], description="Which theme"),
    metric_toml("export", segments=["version"], description="Whether it was used"),
    segments={"version": ["1.1", "2.0"]},
    publication={"min_reports": 100},
)


@pytest.fixture
def folder(tmp_path):
    at = tmp_path / "registries"
    at.mkdir()
    (at / "0001.toml").write_text(OLD, "utf-8")
    return at


@pytest.fixture
def shop(settings, folder):
    """Serve both registries."""
    (folder / "0002.toml").write_text(NEW, "utf-8")
    server = Served(replace(settings, registry=str(folder), dashboard="open"))
    yield server
    server.store._client.close()


def group(shop, name, values, days=0, **changes):
    """Make a group of reports of a version, as an app makes them that has its registry."""
    question = shop.app.find(name)
    day = (datetime.now(UTC) - timedelta(days=days)).date().isoformat()
    answer = {"version": question.metric.version, "fingerprint": question.fingerprint, "period": day}
    payloads = b"".join(question.mechanism.randomize(value) for value in values)
    return shop.group(question.metric.id, [0], count=len(values), payloads=b64encode(payloads).decode(), **(answer | changes))


def accepted(shop, *groups):
    """Send groups; all of them are taken."""
    answer = shop.post({"format": 1, "app": "shop", "groups": list(groups)})
    assert (answer.status_code, answer.get_json()["rejected"]) == (202, 0), answer.get_json()
    return answer.get_json()["accepted"]


def test_a_rollout(shop):
    """Two app versions report side by side for three periods: nothing is refused, nothing is lost, the page shows both."""
    sent = Counter()
    for days, (old, new) in zip((2, 1, 0), ((400, 150), (300, 300), (110, 500)), strict=True):
        for name, light, n in (("theme@1", 0, old), ("theme@2", 1, new)):
            dark = 1 - light
            sent[name] += accepted(shop, group(shop, name, [light] * (n * 3 // 5) + [dark] * (n - n * 3 // 5), days))
    shop.drain(days=4)
    assert sum(sent.values()) == 1760
    one, two = (shop.get(f"/api/v1/metrics/theme@{version}").get_json() for version in (1, 2))
    assert {"theme@1": one["n"], "theme@2": two["n"]} == sent
    assert [[span["last"] for span in each["periods"]] for each in (one, two)] == [[span["last"] for span in one["periods"]]] * 2
    assert len(one["periods"]) == 3
    assert one["merged"] is two["merged"] is None

    body = shop.get("/api/v1/metrics/theme").get_json()
    assert (body["version"], body["n"], body["estimates"]) == (2, sent["theme@2"], two["estimates"])
    assert [(each["version"], each["n"]) for each in body["versions"]] == [(2, sent["theme@2"]), (1, sent["theme@1"])]
    merged = body["merged"]
    assert [each["version"] for each in merged["versions"]] == [2, 1]
    assert sum(each["weight"] for each in merged["versions"]) == pytest.approx(1)
    assert merged["n"] == 1760
    assert [row["value"] for row in merged["estimates"]] == ["dark", "light"]  # and not "system", which only one has
    for row, truth in zip(merged["estimates"], (0.4, 0.6), strict=True):
        own = [next(each for each in part["estimates"] if each["value"] == row["value"]) for part in (two, one)]
        weights = [each["weight"] for each in merged["versions"]]
        assert row["estimate"] == pytest.approx(sum(w * each["estimate"] for w, each in zip(weights, own, strict=True)))
        assert row["stderr"] < min(each["stderr"] for each in own)
        assert abs(row["estimate"] - truth) < 6 * row["stderr"]
    listed = {each["id"]: each for each in shop.get("/api/v1/metrics").get_json()["metrics"]}
    assert [each["n"] for each in listed["theme"]["versions"]] == [950, 810]

    page = shop.get("/m/theme").get_data(as_text=True)
    assert "Versions 2 and 1 together" in page
    assert re.search(r'<a href="/m/theme@1">version 1</a>: 810 reports', page)
    older = shop.get("/m/theme@1").get_data(as_text=True)
    assert '<a href="/m/theme@2">version 2</a>' in older
    assert "<span>810 reports on " in older
    assert "1,760 reports published" in shop.get("/").get_data(as_text=True)


def test_what_versions_do_not_detect_together_is_muted(shop):
    """A share that may be 0 is not printed as a finding."""
    day = (datetime.now(UTC) - timedelta(days=1)).date().isoformat()
    for name, light in (("theme@1", b"\0"), ("theme@2", b"\1")):  # each report names it, so that the share of "dark" is below 0
        question = shop.app.find(name)
        about = {"version": question.metric.version, "fingerprint": question.fingerprint, "period": day}
        accepted(shop, shop.group("theme", [0], count=150, payloads=b64encode(light * 150).decode(), **about))
    shop.drain(days=4)
    estimates = shop.get("/api/v1/metrics/theme").get_json()["merged"]["estimates"]
    page = shop.get("/m/theme").get_data(as_text=True).partition("Versions 2 and 1 together")[2].partition("</section>")[0]
    muted = set(re.findall(r'<tr class="faint">\s*<th scope="row"><bdi>(\w+)</bdi><span class="unseen"> \(not detected\)', page))
    assert muted == {"dark"} == {row["value"] for row in estimates if row["interval"][0] <= 0}


def answer_of(shop, status=200, **query):
    """Ask a query."""
    answer = shop.http.post("/api/v1/query", json=query, headers={"Authorization": f"Bearer {READ}"})
    assert answer.status_code == status
    return answer.get_json()["rows" if status == 200 else "code"]


def test_versions_are_pooled_in_a_query(shop):
    """A row is of the highest version, or of all together if it is asked for: as merged; where only one is there, of that."""
    accepted(shop, group(shop, "theme@1", [0] * 300 + [1] * 100, 2))
    accepted(shop, group(shop, "theme@2", [1] * 200 + [0] * 100 + [2] * 50, 2), group(shop, "theme@2", [0] * 200, 1))
    shop.drain(days=4)
    highest = answer_of(shop, metrics=["theme"], dimensions=["time", "value"])
    assert [(row["version"], row["n"]) for row in highest] == [(2, 350)] * 3 + [(2, 200)] * 3
    merged = shop.get("/api/v1/metrics/theme").get_json()["merged"]
    both = answer_of(shop, metrics=["theme"], pool=True)
    assert [(row["value"], row["estimate"], row["stderr"]) for row in both] == [
        (each["label"], each["estimate"], each["stderr"]) for each in merged["estimates"]
    ]
    assert [[row["low"], row["high"]] for row in both] == [each["interval"] for each in merged["estimates"]]
    assert [[row["low_all"], row["high_all"]] for row in both] == [
        pytest.approx(each["simultaneous"]) for each in merged["estimates"]
    ]
    assert {(row["version"], row["epsilon"], row["n"]) for row in both} == {(None, None, 950)}
    over_time = answer_of(shop, metrics=["theme"], dimensions=["time", "value"], pool=True)
    assert [(row["version"], row["n"]) for row in over_time] == [(None, 750)] * 2 + [(2, 200)] * 3
    assert [row["n"] for row in answer_of(shop, metrics=["theme"], dimensions=["time"], pool=True)] == [750, 200]
    for member in ({"include": ["trend"]}, {"target": "respondents"}, {"view": "consistent"}):
        assert answer_of(shop, 400, metrics=["theme"], pool=True, **member) == "query_conflict"


def test_a_raised_version_strands_nothing(settings, folder):
    """What waits in an open period when a version is raised is published when the period closes, with what still comes."""
    before = Served(replace(settings, registry=str(folder)))
    accepted(before, group(before, "theme@1", [0] * 70))
    before.drain()
    (folder / "0002.toml").write_text(NEW, "utf-8")
    after = before.restarted()
    accepted(after, group(after, "theme@1", [1] * 50))
    after.drain(days=4)
    answer = after.get("/api/v1/metrics/theme").get_json()
    assert (answer["version"], answer["n"], answer["merged"]) == (1, 120, None)  # the latest of which enough was published
    assert after.get("/api/v1/metrics/theme@2").get_json()["n"] == 0


def test_versions_that_do_not_exist_are_said_so(shop):
    """The answer names those that do."""
    for path in ("metrics", "live"):
        key = READ if path == "metrics" else KeyStore(shop.store).create("admin", "")[0]
        for name, code in (("theme@3", "unknown_version"), ("theme@", "unknown_version"), ("x@1", "unknown_metric")):
            answer = shop.get(f"/api/v1/{path}/{name}", key)
            assert (answer.status_code, answer.get_json()["code"]) == (404, code)
        assert shop.get(f"/api/v1/{path}/theme@3", key).get_json()["detail"] == "theme has no version '3': its versions are 2, 1"
    wrong = shop.post({"format": 1, "app": "shop", "groups": [group(shop, "theme@1", [0], version=3)]}).get_json()
    assert wrong["errors"][0]["detail"] == "theme has no version 3 here: its versions are 2, 1"


def test_a_metric_that_is_asked_no_more_keeps_its_reports(shop):
    """Older apps still ask it: it is taken, published and shown."""
    accepted(shop, group(shop, "gone", [1] * 150))
    shop.drain(days=4)
    assert shop.get("/api/v1/metrics/gone").get_json()["n"] == 150
    assert "gone" in shop.get("/").get_data(as_text=True)


def test_an_end_ends_an_older_version_alone(settings, folder):
    """The file that declares it says when: the newer version goes on."""
    (folder / "0001.toml").write_text(
        OLD.replace('description = "Which theme"', 'expires = 2026-01-01\ndescription = "t"'), "utf-8"
    )
    (folder / "0002.toml").write_text(NEW, "utf-8")
    shop = Served(replace(settings, registry=str(folder)))
    accepted(shop, group(shop, "theme@2", [0]))
    refused = shop.post({"format": 1, "app": "shop", "groups": [group(shop, "theme@1", [0])]}).get_json()
    assert refused["errors"][0]["code"] == "metric_expired"


def test_values_that_no_registry_lists_count_as_other(shop):
    """An app that is older, newer, or in wrong hands: its reports are in the total, and make no keys of their own."""
    places = ("version=1.0", "version=1.1", "version=3.7", "version=" + "x" * 5000, "version=(other)", "version=a=b")
    for place in places:
        accepted(shop, group(shop, "export", [1] * 120, segment=place))
    shop.drain()
    (strata,) = strata_by_period(shop.store, shop.app.find("export").definition).values()
    assert [each.segment for each in strata] == ["version=(other)", "version=1.1"]
    assert {each[-1] for each in shop.app.collected} == {"version=(other)", "version=1.1"}  # which are declared
    shop.drain(days=4)
    assert shop.get("/api/v1/metrics/export").get_json()["n"] == 720
    assert shop.get("/api/v1/metrics/export?segment=version%3D(other)").get_json()["n"] == 600


@pytest.mark.parametrize(
    ("old", "new", "merged"),
    [
        ({}, {}, {"light", "dark"}),
        ({"other": "dark"}, {}, {"light"}),
        ({"other": "dark"}, {"other": "dark"}, {"light"}),  # system is dark in the older one alone
        ({"none": "dark"}, {}, {"light"}),
        ({"none": "dark"}, {"none": "dark"}, {"light", "dark"}),
        ({"none": "dark", "other": "light"}, {}, None),
    ],
)
def test_values_are_merged_where_they_stand_for_the_same(settings, folder, old, new, merged):
    """What stands for undeclared answers, or for none, in one version is not merged with what does not in another."""
    texts = (OLD, 'values = ["light", "dark"]', old), (NEW, 'values = ["dark", "light", "system"]', new)
    for number, (text, listed, answer) in enumerate(texts, 1):
        more = "".join(f'\n{name} = "{value}"' for name, value in answer.items())
        (folder / f"{number:04d}.toml").write_text(text.replace(listed, listed + more), "utf-8")
    shop = Served(replace(settings, registry=str(folder)))
    accepted(shop, group(shop, "theme@1", [0] * 60 + [1] * 140), group(shop, "theme@2", [0] * 60 + [1] * 140))
    shop.drain(days=4)
    body = shop.get("/api/v1/metrics/theme").get_json()["merged"]
    shop.store._client.close()
    assert (body and {row["value"] for row in body["estimates"]}) == merged


def test_a_flag_is_no_number(settings, folder):
    """Values that are equal in Python and not of one type are not merged: the answer True, and the key 1."""
    declared = 'type = "boolean"\nepsilon = 1.0\ndescription = "What the new app asks no more"'
    keys = 'version = 2\ntype = "key"\ncandidates = "keys.txt"\nepsilon = 1.0\ndescription = "Which one"'
    assert declared in OLD
    (folder / "0002.toml").write_text(OLD.replace(declared, keys), "utf-8")
    (folder / "keys.txt").write_text("0\n1\n", "utf-8")
    shop = Served(replace(settings, registry=str(folder)))
    accepted(shop, group(shop, "gone@1", [1] * 200), group(shop, "gone@2", [1] * 200))
    shop.drain(days=4)
    body = shop.get("/api/v1/metrics/gone").get_json()
    shop.store._client.close()
    assert (len(body["versions"]), body["merged"]) == (2, None)


def test_nothing_rests_on_few_reports_of_a_version(shop):
    """Whoever looks after each report of a small version sees nothing move: neither its number nor a merged estimate."""
    accepted(shop, group(shop, "theme@2", [0] * 300, days=2))
    shop.drain(days=1)
    places = ("metrics", "metrics/theme", "metrics/theme@1", "metrics/theme@2", "metrics/theme?period={day}")
    day = (datetime.now(UTC) - timedelta(days=2)).date().isoformat()

    def seen():
        api = [shop.get(f"/api/v1/{each.format(day=day)}").get_data() for each in places]
        pages = [shop.get(each).get_data() for each in ("/", "/m/theme", "/m/theme@1")]
        clock = rb"\d+-\d+-\d+T[0-9:.+]+|(?<=looked at )\d\d:\d\d(?= UTC)"  # when somebody looks
        return [re.sub(clock, b"", each) for each in (*api, *pages)]

    before = seen()
    for _ in range(9):
        accepted(shop, group(shop, "theme@1", [1] * 11, days=1))
        shop.drain(days=4)
        assert seen() == before  # 99 reports of closed periods wait for more
    accepted(shop, group(shop, "theme@1", [1], days=1))
    shop.drain(days=10)  # the later ones came after the close, and count in the next periods
    assert seen() != before
    assert shop.get("/api/v1/metrics/theme").get_json()["merged"]["n"] == 400


def test_the_owner_sees_each_version(shop):
    """Live numbers are of one version each, and so are refusals."""
    accepted(shop, group(shop, "theme@1", [0] * 7), group(shop, "theme@2", [0] * 5))
    shop.post({"format": 1, "app": "shop", "groups": [group(shop, "theme@1", [0] * 3, period="2020-01-01")]})
    shop.drain()
    admin = KeyStore(shop.store).create("admin", "")[0]
    live = shop.get("/api/v1/live", admin).get_json()["metrics"]
    answer = [(each["id"], each["version"], each["n"], each["refused"]) for each in live if each["id"] == "theme"]
    assert answer == [("theme", 2, 5, {}), ("theme", 1, 7, {"period_closed": 3})]
    assert shop.get("/api/v1/live/theme@1", admin).get_json()["n"] == 7


def test_queries_are_logged_with_their_version(shop, real_redis):
    """An auditor sees which one was asked for."""
    shop.get("/api/v1/metrics/theme@1")
    answer = [intact_entry(line).details for line in real_redis.lrange("{shop}:audit", 0, -1)]
    assert {"metric": "theme", "version": 1}.items() <= answer[-1].items()
    assert answer[0]["digest"] == published.load(shop.service.settings.registry).digest


def test_all_fingerprints_differ(shop):
    """What two versions have in common does not make them one."""
    assert len({Declared.of(metric).fingerprint for metric in shop.app.registry.definitions}) == 4


# One file, in which the version was raised


@pytest.fixture
def edited(settings, tmp_path):
    """Serve one file, publish version 1, and have some of its reports wait; then serve it with version 2."""
    path = tmp_path / "metrics.toml"
    path.write_text(OLD, "utf-8")
    before = Served(replace(settings, registry=str(path), dashboard="open"))
    accepted(before, group(before, "theme", [0] * 150 + [1] * 50, days=2))
    before.drain(days=1)
    accepted(before, group(before, "theme", [0] * 70))
    before.drain()
    path.write_text(NEW, "utf-8")
    after = before.restarted()
    after.before = before
    yield after
    after.store._client.close()


def test_one_file_with_a_raised_version(edited):
    """What was published of the former version stays, marked; what waits and what comes late is published with it."""
    accepted(edited, group(edited, "theme@1", [1] * 50), group(edited, "theme@2", [0] * 120))
    edited.drain(days=4)
    body = edited.get("/api/v1/metrics/theme").get_json()
    ends = (datetime.now(UTC) + timedelta(days=3)).date().isoformat()  # of today's grace of two days
    assert [(each["version"], each["n"], each["former"]) for each in body["versions"]] == [(2, 120, False), (1, 320, True)]
    assert body["versions"][1]["expires"] == ends
    assert body["merged"]["n"] == 440
    assert edited.get("/api/v1/metrics/theme@1").get_json()["n"] == 320
    assert {row["n"] for row in answer_of(edited, metrics=["theme"], pool=True)} == {440}
    assert "320 reports, replaced in the registry" in edited.http.get("/m/theme").text
    assert "A higher version replaced this one in the registry." in edited.http.get("/m/theme@1").text
    assert "version 1 has 320 reports, and is replaced in the registry" in edited.http.get("/").text


def test_late_reports_of_a_former_version_end_with_its_grace(edited):
    """They are refused with its last day from then on, and the answer says so."""
    edited.drain()  # a worker has the new file
    name = "|".join(map(str, edited.before.app.find("theme").definition))
    record = definitions.Record.read(edited.store.definitions.get(name))
    assert record.replaced == pytest.approx(datetime.now(UTC).timestamp(), abs=60)
    edited.store.definitions.put({name: record._replace(replaced=record.replaced - 10 * 86400).written()})
    late = edited.restarted()
    refused = late.post({"format": 1, "app": "shop", "groups": [group(edited.before, "theme@1", [0])]}).get_json()
    assert (refused["errors"][0]["code"], "ended on" in refused["errors"][0]["detail"]) == ("metric_expired", True)
    assert late.get("/api/v1/metrics/theme@1").get_json()["n"] == 200
    with_it = late.service.settings.registry
    Path(with_it).write_text(OLD, "utf-8")  # it is the present one again
    back = late.restarted()
    back.drain()
    assert definitions.Record.read(back.store.definitions.get(name)).replaced == 0
    accepted(back, group(back, "theme", [0]))
    assert [each.metric.version for each in back.app.versions_of("theme")] == [1]  # and a higher one is none of the past


def test_an_erased_former_version_is_forgotten(edited):
    """Its definition is deleted, and no worker notes it again."""
    edited.drain()
    removal = Removal(edited.store, "theme", 1)
    removal.mark(1)
    removal.sweep()
    edited.before.drain()
    assert not [name for name in edited.store.definitions.names() if name.startswith(b"theme|1|")]
    assert edited.restarted().get("/api/v1/metrics/theme@1").status_code == 404


def test_a_former_version_keeps_its_segments(settings, tmp_path):
    """Also where the new file has no such segment any more."""
    path = tmp_path / "metrics.toml"
    path.write_text(OLD, "utf-8")
    before = Served(replace(settings, registry=str(path)))
    accepted(before, group(before, "export", [1] * 150, segment="version=1.0"))
    before.drain()
    no_segments = registry_toml(metric_toml("export", version=2), publication={"min_reports": 100})
    path.write_text(no_segments, "utf-8")
    after = before.restarted()
    accepted(after, group(before, "export", [1] * 10, segment="version=1.0"))
    after.drain(days=4)
    assert after.get("/api/v1/metrics/export@1?segment=version%3D1.0").get_json()["n"] == 160
    after.store._client.close()


def test_while_the_store_is_away_nothing_of_a_former_version_is_refused_for_good(edited, monkeypatch):
    """Nobody knows then whether there is one: 503, after which the device tries again."""
    late = edited.restarted()
    with monkeypatch.context() as away:
        away.setattr(definitions, "completed", Mock(side_effect=StoreError("away")))
        assert late.post({"format": 1, "app": "shop", "groups": [group(edited.before, "theme@1", [0])]}).status_code == 503
    accepted(late, group(edited.before, "theme@1", [0]))
