"""Series and comparisons of every kind of metric: logarithmic numbers, kept answers, sets, and two versions of one metric."""

from __future__ import annotations

import csv
from base64 import b64encode
from dataclasses import replace
from math import sqrt

import pytest
from registries import metric_toml, registry_toml

from .conftest import READ, Served
from .test_series import ask as answered
from .test_series import day, page, send

PUBLICATION = {"min_reports": 50, "early": False, "grace": "30d"}
REGISTRY = registry_toml(
    metric_toml("wait", range=[1, 10000], scale="log", unit="ms", estimate="distribution", epsilon=4),
    metric_toml("kept", values=["light", "dark", "system"], epsilon_permanent=6, epsilon=4),
    metric_toml("flights", range=[0, 10], unit="flights", estimate="mean", epsilon_permanent=8, epsilon=4),
    metric_toml("memory", range=[0, 16], unit="GB", estimate="distribution", epsilon_permanent=8, epsilon=4),
    metric_toml("plugins", type="set", values=["git", "spelling", "preview"], epsilon=4),
    metric_toml("together", type="set", values=["git", "spelling", "preview"], joint=True, epsilon=4),
    metric_toml("mood", type="ordinal", values=["bad", "fair", "good"], estimate="mean", epsilon=4),
    publication=PUBLICATION,
)
OLD = registry_toml(
    metric_toml("theme", values=["light", "dark"], least_shift=0, epsilon=4),
    metric_toml("size", range=[0, 100], unit="kB", estimate="mean", epsilon=4),
    publication=PUBLICATION,
)
NEW = registry_toml(
    metric_toml("theme", version=2, values=["system", "dark", "light"], least_shift=0, epsilon=4),
    metric_toml("size", version=2, range=[0, 200], unit="kB", estimate="mean", epsilon=4),
    publication=PUBLICATION,
)


@pytest.fixture
def shop(serve):
    return serve(REGISTRY)


@pytest.fixture
def versions(settings, tmp_path):
    """Serve two registries, each with a version of every metric."""
    folder = tmp_path / "registries"
    folder.mkdir()
    (folder / "0001.toml").write_text(OLD, "utf-8")
    (folder / "0002.toml").write_text(NEW, "utf-8")
    server = Served(replace(settings, registry=str(folder), dashboard="open"))
    yield server
    server.store._client.close()


def ask(shop, path):
    """Ask at a level at which intervals hardly ever miss."""
    return answered(shop, f"{path}{'&' if '?' in path else '?'}level=0.99999")


def covers(interval, truth):
    low, high = interval
    return low < truth < high


def every_point_is_ordered(line):
    for point in filter(None, line["points"]):
        (lowest, highest), (low, high) = point["simultaneous"], point["interval"]
        assert lowest <= low < point["estimate"] < high <= highest


def test_medians_of_the_last_periods_only_are_told(shop, monkeypatch):
    """On the page and in the answer, and by empty lines of the file, which names them as rows of a query do."""
    monkeypatch.setattr("deniable_aggregator.answer.over_time.numbers._MOST_MEDIANS", 2)
    position = shop.app.registry.metrics["wait"].position
    for ago in (4, 3, 2):
        send(shop, "wait", [position(40)] * 600, day(ago))
    shop.drain(days=40)
    mean, median = ask(shop, "wait/series")["lines"]
    assert (mean["left_out"], median["points"][0]) == ("", None)
    assert median["left_out"] == (
        "The median is estimated for the last 2 of 3 days only, because each takes a while. A query for p50 by time has all."
    )
    html = shop.http.get("/m/wait").get_data(as_text=True)
    assert median["left_out"] in html
    first = html.partition('class="periods"')[2].partition("</tbody>")[0].rpartition("<tr>")[2]
    assert "<td>\N{EN DASH}</td>" in first
    assert "no median: it is estimated for the last 2 days only" in first
    rows = list(csv.DictReader(shop.http.get("/m/wait/series.csv").get_data(as_text=True).splitlines()))
    assert [(row["value"], bool(row["estimate"])) for row in rows] == [
        ("geometric_mean", True),
        ("p50", False),
        *[("geometric_mean", True), ("p50", True)] * 2,
    ]
    assert [row["reason"] for row in rows] == ["", "no median: it is estimated for the last 2 days only", *[""] * 4]


def test_a_logarithmic_number_changes_by_factors(shop):
    position = shop.app.registry.metrics["wait"].position
    for ago, number in ((4, 10), (3, 40), (2, 160)):
        send(shop, "wait", [position(number)] * 600, day(ago))
    shop.drain(days=40)
    body = ask(shop, "wait/series")
    assert (body["unit"], body["scale"]) == ("ms", "log")
    mean, median = body["lines"]
    assert (mean["kind"], mean["label"]) == ("geometric_mean", "geometric_mean")
    every_point_is_ordered(mean)
    assert covers(mean["points"][0]["interval"], 10)
    assert covers(mean["change"]["interval"], 4)
    assert mean["change"]["difference"] == pytest.approx(mean["change"]["second"] / mean["change"]["first"])
    assert mean["change"]["differs"]
    assert covers(mean["trend"]["interval"], 4)
    assert covers(median["points"][2]["interval"], 160)
    assert covers(median["change"]["interval"], 4)
    compared = ask(shop, f"wait/compare?a={day(4)}&b={day(2)}")["differences"]
    assert [(each["label"], covers(each["interval"], 16)) for each in compared] == [("geometric_mean", True), ("median", True)]
    headers = {"Authorization": f"Bearer {READ}"}
    for value, status in (("geometric_mean", 200), ("mean", 200), ("median", 400)):
        question = {"metrics": ["wait"], "filters": [["is", "value", [value]]]}
        answer = shop.http.post("/api/v1/query", json=question, headers=headers)
        assert answer.status_code == status
        assert status != 200 or [row["value"] for row in answer.get_json()["rows"]] == [value]
    html = page(shop, "wait")
    assert "The geometric mean rose by a factor of " in html
    assert "a factor of " in html[html.index('class="changed"') :][:300]


def test_a_logarithmic_number_that_stays_has_a_factor_of_one(shop):
    position = shop.app.registry.metrics["wait"].position
    for ago in (4, 3, 2):
        send(shop, "wait", [position(50)] * 300, day(ago))
    shop.drain(days=40)
    mean = ask(shop, "wait/series")["lines"][0]
    assert covers(mean["change"]["simultaneous"], 1)
    assert covers(mean["trend"]["simultaneous"], 1)


def test_kept_answers_have_wider_intervals_and_the_same_course(shop):
    """What a device keeps is part of the error of each period."""
    for ago, dark in ((4, 200), (3, 200), (2, 600)):
        send(shop, "kept", [1] * dark + [0] * (1000 - dark), day(ago))
    shop.drain(days=40)
    lines = {line["value"]: line for line in ask(shop, "kept/series")["lines"]}
    for line in lines.values():
        every_point_is_ordered(line)
    dark = lines["dark"]
    assert dark["change"]["differs"]
    assert covers(dark["change"]["interval"], 0.4)
    assert covers(dark["trend"]["simultaneous"], 0.2)
    mechanism = shop.mechanism("kept")
    alone = sqrt(mechanism.variance(0.6, 1000) + 0.24 / 1000)
    low, high = dark["points"][2]["interval"]
    assert high - low == pytest.approx(2 * 4.42 * alone, rel=0.25)
    body = ask(shop, f"kept/compare?a={day(4)}&b={day(2)}")
    assert body["overall"]["test"] in ("chi_square", "smallest")
    assert body["overall"]["differs"]


def test_kept_numbers_have_a_course(shop):
    """A mean of which each device rounds at its own point, and a distribution in equal parts."""
    registry = shop.app.registry
    parts = registry.metrics["memory"].position
    for ago, high in ((4, 300), (3, 300), (2, 700)):
        send(shop, "flights", [1] * high + [0] * (1000 - high), day(ago))
        send(shop, "memory", [parts(12)] * high + [parts(4)] * (1000 - high), day(ago))
    shop.drain(days=40)
    body = ask(shop, "flights/series")
    (mean,) = body["lines"]
    every_point_is_ordered(mean)
    assert covers(mean["points"][0]["simultaneous"], 3)
    assert covers(mean["change"]["simultaneous"], 4)
    assert mean["change"]["differs"]
    body = ask(shop, "memory/series")
    mean = body["lines"][0]
    every_point_is_ordered(mean)
    assert covers(mean["change"]["simultaneous"], 0.4 * 8)
    assert ask(shop, f"memory/compare?a={day(4)}&b={day(2)}")["overall"] is None


@pytest.mark.parametrize("metric", ["plugins", "together"])
def test_options_of_a_set_are_lines(shop, metric):
    """Each option alone: their shares need not sum to 1."""
    for ago, both in ((4, 200), (3, 200), (2, 800)):
        send(shop, metric, [0b011] * both + [0b001] * (1500 - both), day(ago))
    shop.drain(days=40)
    lines = {line["value"]: line for line in ask(shop, f"{metric}/series")["lines"]}
    assert set(lines) == {"git", "spelling", "preview"}
    for line in lines.values():
        every_point_is_ordered(line)
    assert covers(lines["git"]["points"][2]["simultaneous"], 1)
    assert lines["spelling"]["change"]["differs"]
    assert covers(lines["spelling"]["change"]["simultaneous"], 0.4)
    assert not lines["preview"]["change"]["differs"]
    assert covers(lines["spelling"]["trend"]["simultaneous"], 0.2)
    body = ask(shop, f"{metric}/compare?a={day(4)}&b={day(2)}")
    assert {each["value"]: each["differs"] for each in body["differences"]}["spelling"]
    assert body["overall"] == body["overall"] | {"test": "smallest", "statistic": None, "differs": True}


def test_the_mean_of_ordered_answers_has_a_course(shop):
    for ago, good in ((4, 200), (3, 200), (2, 700)):
        send(shop, "mood", [2] * good + [0] * (1000 - good), day(ago))
    shop.drain(days=40)
    body = ask(shop, "mood/series")
    (mean,) = body["lines"]
    every_point_is_ordered(mean)
    assert covers(mean["points"][0]["simultaneous"], 1.4)
    assert covers(mean["change"]["simultaneous"], 1.0)
    assert covers(mean["trend"]["simultaneous"], 0.5)


def send_version(shop, name, values, ago):
    """Upload reports of a version, as an app makes them that has its registry."""
    declared = shop.app.find(name)
    payloads = b"".join(declared.mechanism.randomize(value) for value in values)
    answer = {"version": declared.metric.version, "fingerprint": declared.fingerprint, "period": day(ago)}
    answer |= {"count": len(values), "payloads": b64encode(payloads).decode()}
    group = shop.group(declared.metric.id, [0], **answer)
    assert shop.post({"format": 1, "app": "shop", "groups": [group]}).get_json()["accepted"] == len(values)


def test_two_versions_are_one_course(versions):
    """Values keep their line, wherever a version lists them; what changed is told within the last version."""
    for ago in (7, 6, 5, 4):
        send_version(versions, "theme@1", [1] * 300 + [0] * 100, ago)
    for ago in (4, 3, 2):
        send_version(versions, "theme@2", [1] * 100 + [2] * 200 + [0] * 100, ago)
    versions.drain(days=40)
    body = ask(versions, "theme/series")
    assert body["version"] == 2
    assert [each["version"] for each in body["periods"]] == [1, 1, 1, 2, 2, 2]
    assert [each["n"] for each in body["periods"]] == 6 * [400]
    lines = {line["value"]: line for line in body["lines"]}
    assert set(lines) == {"system", "dark", "light"}
    assert [point is None for point in lines["system"]["points"]] == 3 * [True] + 3 * [False]
    for value, shares in {"dark": (0.75, 0.25), "light": (0.25, 0.5)}.items():
        for point, truth in zip(lines[value]["points"], 3 * shares[:1] + 3 * shares[1:], strict=True):
            assert covers(point["simultaneous"], truth)
        assert (lines[value]["change"]["since"], lines[value]["trend"]["since"]) == (day(3), day(4))
        assert not lines[value]["change"]["differs"]
        assert lines[value]["shifts"] == []  # another question is no shift
    older = ask(versions, "theme@1/series")
    assert [each["version"] for each in older["periods"]] == 4 * [1]
    assert {line["value"] for line in older["lines"]} == {"light", "dark"}
    html = page(versions, "theme")
    assert html.count('<line class="version"') == 3


def test_periods_are_compared_within_one_version(versions):
    for ago in (6, 5):
        send_version(versions, "theme@1", [1] * 300 + [0] * 100, ago)
    for ago in (4, 3):
        send_version(versions, "theme@2", [1] * 300 + [0] * 100, ago)
    versions.drain(days=40)
    answer = ask(versions, f"theme/compare?a={day(6)}&b={day(5)}")
    assert (answer["version"], answer["a"]["n"], answer["b"]["n"]) == (1, 400, 400)
    assert ask(versions, f"theme/compare?a={day(4)}&b={day(3)}")["version"] == 2
    across = ask(versions, f"theme/compare?a={day(6)}&b={day(3)}")  # the first release of a version covers what was before it
    assert (across["version"], across["a"]["included"]) == (2, [{"first": None, "last": day(4)}])
    older = ask(versions, f"theme@1/compare?a={day(6)}&b={day(3)}")
    assert (older["a"]["n"], older["b"]["n"], older["differences"], older["overall"]) == (400, 0, [], None)


def test_a_version_that_refuses_is_heard_if_no_other_has_reports(versions):
    """One release of version 2 covers both periods, and version 1 has only one of them: the answer is the refusal."""
    send_version(versions, "theme@1", [1] * 400, 6)
    send_version(versions, "theme@2", [1] * 400, 4)
    versions.drain(days=40)
    answer = versions.get(f"/api/v1/metrics/theme/compare?a={day(6)}&b={day(5)}")
    assert (answer.status_code, answer.get_json().get("code")) == (400, "incomparable")
    assert ask(versions, f"theme@1/compare?a={day(6)}&b={day(5)}")["b"]["n"] == 0


def test_numbers_on_another_axis_have_no_points(versions):
    """A version with another range has a mean of another kind: numbers beyond the old one were reported as its end."""
    for name, ago in (("size@1", 5), ("size@1", 4), ("size@2", 3), ("size@2", 2)):
        position = versions.app.find(name).metric.position
        send_version(versions, name, [position(60)] * 300, ago)
    versions.drain(days=40)
    (mean,) = ask(versions, "size/series")["lines"]
    assert [point is None for point in mean["points"]] == [True, True, False, False]
    assert mean["change"]["since"] == day(3)
