"""A definition that was changed in the same version: what was published before is shown, marked, and mixed with nothing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from mixing import relay_toml
from registries import metric_toml, registry_toml

from deniable.registry import load, parse
from deniable.wire.report import Stratum
from deniable_aggregator.answer.select import Selection
from deniable_aggregator.deletion.erase import Removal
from deniable_aggregator.publish import definitions
from deniable_aggregator.publish.release import Release
from deniable_aggregator.store import schema

TEXT = registry_toml(
    metric_toml("theme", values=["light", "dark", "system"], epsilon=2.0, segments=["platform"]),
    metric_toml("size", range=[0, 100], unit="MB", estimate="distribution", epsilon=2.0),
    segments={"platform": ["linux", "mac"]},
    publication={"min_reports": 10},
)


def publish(shop, metric, values):
    segment = {"segment": "platform=linux"} if metric == "theme" and shop.app.registry.metrics["theme"].segments else {}
    assert shop.post({"format": 1, "app": "shop", "groups": [shop.group(metric, values, **segment)]}).status_code == 202
    return shop.drain(days=3)


@pytest.fixture
def changed(serve):
    """Publish under one definition, change it, and publish under the other one."""
    first = serve(TEXT)
    publish(first, "theme", [1] * 400)
    publish(first, "size", [50] * 40)
    before = {name: first.get(f"/api/v1/metrics/{name}").get_json() for name in ("theme", "size")}
    assert [answer["earlier"] for answer in before.values()] == [[], []]
    second = serve(TEXT.replace("epsilon = 2.0", "epsilon = 1.0").replace('segments = ["platform"]\n', ""))
    return second, before


def test_what_was_published_before_is_shown_apart(changed):
    """Its numbers are those that were shown before the change; of the new definition only its own reports are counted."""
    shop, before = changed
    for name in ("theme", "size"):
        answer = shop.get(f"/api/v1/metrics/{name}").get_json()
        (earlier,) = answer["earlier"]
        assert (answer["n"], answer["included"], answer["versions"][0]["earlier"]) == (0, [], before[name]["n"])
        assert earlier["says"] == f"published under an earlier definition of version 1 (until {earlier['until']})"
        for member in ("n", "estimates", "number", "epsilon", "mechanism", "updated", "included"):
            assert earlier[member] == before[name][member], member
    assert shop.get("/api/v1/metrics").get_json()["metrics"][0]["versions"][0]["earlier"] == 400
    publish(shop, "theme", [0] * 300)
    answer = shop.get("/api/v1/metrics/theme").get_json()
    assert (answer["n"], answer["earlier"][0]["n"]) == (300, 400)
    light, dark, _ = (row["estimate"] for row in answer["estimates"])
    assert light - dark > 0.4
    assert answer["earlier"][0]["estimates"] == before["theme"]["estimates"]


def test_pages_mark_it(changed):
    """The page has it under a heading that says so, and the list says how many reports there are."""
    shop, _ = changed
    page = shop.http.get("/m/theme").text
    assert "Published under an earlier definition of version 1 (until 2" in page
    assert "is the most frequent answer" in page
    assert "400 reports of the definition <code>" in page
    assert "the mean is" in shop.http.get("/m/size").text
    assert "400 reports published under an earlier definition of version 1" in shop.http.get("/").text


def test_every_answer_names_it(changed):
    """Also series, comparisons and rows, whose numbers are without it; and all say for which days people were simulated."""
    shop, before = changed
    yesterday = (datetime.now(UTC) - timedelta(days=1)).date().isoformat()
    assert (
        shop.post({"format": 1, "app": "shop", "groups": [shop.group("theme", [0] * 300, period=yesterday)]}).status_code == 202
    )
    publish(shop, "theme", [0] * 300)
    until = before["theme"]["included"][0]["last"]
    note = f"theme: 400 reports published under an earlier definition of version 1 (until {until})"
    days = "2026-01-01 to 2026-01-30"
    for simulated in (None, days):
        if simulated:
            shop.store.put(schema.SIMULATED, days)
        answers = [shop.get(f"/api/v1/metrics/theme{path}") for path in ("/series", f"/compare?a={yesterday}&b={until}")]
        query = {"metrics": ["theme"]}
        answers.append(shop.http.post("/api/v1/query", json=query, headers={"Authorization": "Bearer rk_test_12345678"}))
        for answer in answers:
            assert (answer.status_code, answer.get_json()["earlier"]) == (200, [note])
        answers += [shop.get("/api/v1/metrics/theme"), shop.get("/api/v1/metrics")]
        assert {answer.get_json()["simulated"] for answer in answers} == {simulated}
        says = shop.get("/api/v1/metrics/theme/diagnosis").get_json()["says"]
        assert (f"Those for {days} are of simulated people, which no device uploaded" in says) == bool(simulated)
        files = [shop.http.get("/m/theme/values.csv"), shop.get("/api/v1/query?metrics=theme&format=csv")]
        assert [("simulated.csv" in each.headers["Content-Disposition"]) for each in files] == [bool(simulated)] * 2


def test_an_open_period_is_no_end():
    """An earlier definition is told until its last closed period, though a step of an open one was published."""
    periods = {"2026-W47": True, "2026-W48": False}
    strata = {Stratum("theme", 1, "f" * 16, name, ""): Release(closed=closed, n=5) for name, closed in periods.items()}
    selection = Selection(None, None, strata)
    assert (selection.last, selection.until) == ("2026-W48", "2026-W47")


def test_periods_and_segments(changed):
    """A period that it covers has it, another one has not; of segments it is not asked."""
    shop, before = changed
    last = before["theme"]["included"][0]["last"]
    assert shop.get(f"/api/v1/metrics/theme?period={last}").get_json()["earlier"][0]["n"] == 400
    assert shop.get("/api/v1/metrics/theme?period=2090-01-01").get_json()["earlier"] == []


def test_the_answer_changes_when_it_does(changed):
    """A client with an ETag gets a new answer once it is erased, and nothing of it is left then."""
    shop, _ = changed
    answer = shop.get("/api/v1/metrics/theme")
    tag = {"If-None-Match": answer.headers["ETag"], "Authorization": "Bearer rk_test_12345678"}
    assert shop.http.get("/api/v1/metrics/theme", headers=tag).status_code == 304
    Removal(shop.store, "theme").sweep()
    again = shop.http.get("/api/v1/metrics/theme", headers=tag)
    assert (again.status_code, again.get_json()["earlier"]) == (200, [])
    assert [name for name in shop.store.definitions.names() if name.startswith(b"theme")] == []


def test_definitions_are_read_as_they_were_written(registry_file):
    """For every type; what cannot be read is left out, and is no error."""
    registry = load(registry_file)
    for metric in registry.metrics.values():
        record = definitions.Record.of(registry, metric, 0)
        assert definitions.Record.read(record.written()) == record
    mixed = parse(relay_toml())
    record = definitions.Record.of(mixed, mixed.metrics["m"], 0)
    assert definitions.Record.read(record.written()) == record


def test_what_cannot_be_read_is_left_out(changed):
    """As an earlier version of the software may have written it."""
    shop, _ = changed
    for name in shop.store.definitions.names():
        shop.store.definitions.put({name.decode(): '{"id": "theme", "colour": 1}'})
    assert shop.get("/api/v1/metrics/theme").get_json()["earlier"] == []
