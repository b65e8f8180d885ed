"""The query API: one question, flat rows, in each format; nothing that the other endpoints do not tell."""

from __future__ import annotations

import csv
import gzip
import io
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from urllib.parse import urlencode

import numpy as np
import pandas as pd
import polars as pl
import pytest
from fillings import once
from pyarrow import feather, parquet
from registries import metric_toml, registry_toml

from deniable.registry import period
from deniable_aggregator.answer import figures
from deniable_aggregator.answer.model.query import Filter, Query
from deniable_aggregator.answer.question.cells import value_filter
from deniable_aggregator.answer.readings.numbers_differing import alone
from deniable_aggregator.answer.select import Published, state_of
from deniable_aggregator.audit.entry import intact_entry
from deniable_aggregator.decode.multiple_testing import holm, holm_adjusted
from deniable_server.api.answers.export import _harmless

from .conftest import READ
from .test_openapi import check

REGISTRY = registry_toml(
    metric_toml("theme", values=["light", "dark", "=cmd()"], epsilon=4, segments=["platform"], description="Which theme"),
    metric_toml("update", epsilon=4, segments=["version"], description="Whether it was updated"),
    metric_toml("wait", estimate="distribution", range=[0, 1000], unit="ms", epsilon=4),
    metric_toml("tools", type="set", values=["pen", "brush"], epsilon=4, description="Which tools"),
    metric_toml("url", type="string", discover=True, epsilon=8, max_length=2, min_reports=2, description="Which page"),
    segments={"platform": ["linux", "macos", "beos"], "version": ["1.0", "1.1", "2.0"]},
    generalize={"version": "."},
    publication={"min_reports": 50, "early": False, "grace": "30d"},
)
NOW = datetime.now(UTC)


def day(ago):
    return period.of(NOW - timedelta(days=ago), "day")


RANGE = [day(6), day(2)]


@pytest.fixture
def shop(serve):
    return serve(REGISTRY)


def send(shop, metric, values, of, **changes):
    declared = shop.app.registry.metrics[metric]
    values = [declared.position(value) if declared.type in ("number", "set", "string") else value for value in values]
    assert (
        shop.post({"format": 1, "app": "shop", "groups": [shop.group(metric, values, period=of, **changes)]}).status_code == 202
    )


@pytest.fixture
def filled(shop, store_url):
    """Five days of themes on two platforms, of which the second is withheld on one day; a gap, and a joined day."""
    once("rows", store_url, shop.store._client, lambda: fill(shop))
    return shop


def fill(shop):
    for ago in (6, 3, 2):
        send(shop, "theme", [0] * 150 + [1] * 50 * (7 - ago), day(ago))
        send(shop, "theme", [0] * 100 + [2] * (60 if ago != 3 else 0), day(ago), segment="platform=macos")
    send(shop, "theme", [1] * 10, day(3), segment="platform=beos")
    send(shop, "theme", [1] * 10, day(4))
    for ago in (6, 2):
        send(shop, "wait", [300.0 + 10 * ago] * 400, day(ago))
        send(shop, "tools", [["pen"]] * 200 + [[]] * 100, day(ago))
    shop.drain(days=40)


def ask(shop, status=200, **query):
    answer = shop.http.post("/api/v1/query", json=query, headers={"Authorization": f"Bearer {READ}"})
    assert answer.status_code == status, answer.get_json()
    if status == 200:
        check("Rows", answer.get_json())
    return answer.get_json()


def get(shop, status=200, headers=None, **parameters):
    arguments = {"Authorization": f"Bearer {READ}", **(headers or {})}
    answer = shop.http.get(f"/api/v1/query?{urlencode(parameters)}", headers=arguments)
    assert answer.status_code == status, answer.get_data()
    return answer


def rows(shop, **query):
    return ask(shop, **query)["rows"]


def test_rows_are_the_estimates_of_the_other_endpoints(filled):
    """Without time a row is what the metric's own endpoint says over all periods; with time what its series says."""
    body = filled.get("/api/v1/metrics/theme").get_json()
    table_rows = rows(filled, metrics=["theme"])
    assert [(row["value"], row["n"], row["closed"]) for row in table_rows] == [
        (item["label"], body["n"], True) for item in body["estimates"]
    ]
    for row, item in zip(table_rows, body["estimates"], strict=True):
        assert (row["estimate"], row["stderr"], row["detected"]) == (item["estimate"], item["stderr"], item["detected"])
        assert [row["low_all"], row["high_all"]] == pytest.approx(item["simultaneous"])
        assert row["low_all"] < row["low"] < row["estimate"] < row["high"] < row["high_all"]
    series = filled.get("/api/v1/metrics/theme/series?segment=platform=linux").get_json()
    table_rows = rows(
        filled, metrics=["theme"], dimensions=["time", "value", "platform"], filters=[["is", "platform", ["linux"]]]
    )
    lines = {line["label"]: line["points"] for line in series["lines"]}
    names = [answer["period"] for answer in series["periods"]]
    page = [row for row in table_rows if row["period"] in names]
    for row in page:
        if row["state"] != "published":
            assert {row[name] for name in ("value", "n", "estimate", "low", "closed", "version")} == {None}
            continue
        point = lines[row["value"]][names.index(row["period"])]
        assert row["estimate"] == point["estimate"]
        assert [row["low"], row["high"]] == point["interval"]
    assert {(row["period"], row["state"]) for row in page} == {
        (answer["period"], answer["state"]) for answer in series["periods"]
    }
    assert page[0]["time"] == f"{names[0]}T00:00:00Z"


def test_a_value_of_a_segment_is_compared_with_another(filled):
    """Differences are those of the comparison of the same two segments, over the periods in which both are published."""
    body = filled.get("/api/v1/metrics/theme/compare?a=platform=linux&b=platform=macos").get_json()
    compare = {"dimension": "platform", "base": "linux"}
    table_rows = rows(filled, metrics=["theme"], dimensions=["value", "platform"], compare=compare)
    assert {row["difference"] for row in table_rows if row["platform"] == "linux"} == {None}
    macos = {row["value"]: row for row in table_rows if row["platform"] == "macos"}
    assert len(body["differences"]) == len(macos) == 3
    for item in body["differences"]:
        row = macos[item["label"]]
        assert [row["diff_low_all"], row["diff_high_all"]] == pytest.approx(item["simultaneous"])
        assert [row["difference"], row["diff_low"], row["diff_high"], row["p_value"]] == [
            item["difference"],
            *item["interval"],
            item["p_value"],
        ]
    assert [row["state"] for row in table_rows if row["platform"] == "beos"] == ["withheld"]
    assert {row["difference"] for row in table_rows if row["platform"] in ("beos", "(other)")} == {None}


def test_yes_and_no_are_one_hypothesis(shop):
    """The p-value of a boolean is not doubled, and its interval is as wide as that of one value."""
    for version, yes in (("1.0", 150), ("2.0", 190)):
        send(shop, "update", [1] * yes + [0] * (300 - yes), day(2), segment=f"version={version}")
    shop.drain(days=40)
    query = {"metrics": ["update"], "dimensions": ["segment_version", "value"]}
    query["filters"] = [["is", "segment_version", ["1.0", "2.0"]]]
    compared = ask(shop, **query, compare={"dimension": "segment_version", "base": "1.0"})["rows"]
    tested = [row for row in compared if row["p_value"] is not None]
    assert [row["value"] for row in tested] == ["no", "yes"]
    assert [row["p_holm"] for row in tested] == pytest.approx([row["p_value"] for row in tested])
    one = ask(shop, metrics=["update"], filters=[["is", "segment_version", ["2.0"]]])["rows"]
    assert [row["low_all"] for row in one] == pytest.approx([row["low"] for row in one])
    headers = {"Authorization": f"Bearer {READ}"}
    answer = shop.http.get("/api/v1/metrics/update/compare?a=version=1.0&b=version=2.0", headers=headers).get_json()
    for item in answer["differences"]:
        assert item["simultaneous"] == pytest.approx(item["interval"])


def test_a_time_is_compared_with_the_range_before(filled):
    """The range before has the same length; by weekday it is whole weeks away."""
    body = filled.get(f"/api/v1/metrics/wait/compare?a={day(6)}&b={day(2)}").get_json()["differences"][0]
    query = {"metrics": ["wait"], "compare": {"date_range": "previous"}, "filters": [["is", "value", ["mean"]]]}
    table_rows = rows(filled, **query, dimensions=["time", "value"], date_range=[day(5), day(2)])
    last = table_rows[-1]
    assert (last["period"], last["difference"], last["p_value"]) == (day(2), body["difference"], body["p_value"])
    assert [last["diff_low"], last["diff_high"]] == body["interval"]
    assert {row["difference"] for row in table_rows[:-1]} <= {None}
    assert rows(filled, **query, date_range=[day(5), day(2)])[0]["difference"] == body["difference"]
    query["compare"]["match"] = "weekday"
    assert rows(filled, **query, date_range=[day(5), day(2)])[0]["difference"] is None
    assert ask(filled, 400, **query)["code"] == "query_conflict"


def test_the_slope_is_that_of_the_series(filled):
    """The trend of each value is that of the series, on every row of its version."""
    series = filled.get("/api/v1/metrics/theme/series").get_json()
    for dimensions in (["time", "value"], ["value"]):
        table_rows = rows(filled, metrics=["theme"], dimensions=dimensions, include=["trend"])
        for line in series["lines"]:
            slopes = {
                (row["trend"], row["trend_low"], row["trend_high"])
                for row in table_rows
                if row["value"] == line["label"] and row["state"] == "published"
            }
            assert slopes == {(line["trend"]["slope"], *line["trend"]["interval"])}


def test_of_a_number_values_are_its_mean_and_quantiles(filled):
    body = filled.get("/api/v1/metrics/wait").get_json()["number"]
    mean, *quantiles = rows(filled, metrics=["wait"])
    assert (mean["value"], mean["estimate"], mean["stderr"]) == ("mean", body["mean"], body["stderr"])
    assert [mean["low"], mean["high"]] == body["interval"]
    assert [(row["value"], row["estimate"], row["low"], row["high"]) for row in quantiles] == [
        (f"p{round(100 * each['share']):02}", each["value"], *each["interval"]) for each in body["quantiles"]
    ]
    assert {row["stderr"] for row in quantiles} == {None}
    assert {row["value"]: row["detected"] for row in quantiles} == {row["value"]: row["note"] is None for row in quantiles}
    (only,) = rows(filled, metrics=["wait"], dimensions=[], target="respondents")
    assert [only["low"], only["high"]] == body["respondents"]
    assert "value" not in only
    about = ask(filled, metrics=["wait", "theme"])["metrics"]
    assert [(each["id"], each["unit"]) for each in about] == [("wait", "ms"), ("theme", "share")]
    updated = [filled.get(f"/api/v1/metrics/{id_}").get_json()["updated"] for id_ in ("wait", "theme")]
    assert [datetime.fromisoformat(each["updated"]) for each in about] == [*map(datetime.fromisoformat, updated)]


def test_a_count_is_the_estimate_of_all_reports(filled):
    """Also of a set, whose estimates rest on fewer; of a number there is none."""
    for metric in ("theme", "tools"):
        body = filled.get(f"/api/v1/metrics/{metric}").get_json()
        n = body["n"]
        for row, one in zip(rows(filled, metrics=[metric]), body["estimates"], strict=True):
            assert (row["n"], row["count"]) == (one["n"], pytest.approx(one["count"]))
            assert [row["count_low"], row["count_high"]] == pytest.approx([n * row["low"], n * row["high"]])
    assert {row["count"] for row in rows(filled, metrics=["wait"])} == {None}


def test_options_of_a_set_are_values(filled):
    body = filled.get("/api/v1/metrics/tools").get_json()["estimates"]
    table_rows = rows(filled, metrics=["tools"], view="consistent")
    assert [(row["value"], row["estimate"]) for row in table_rows] == [(each["label"], each["consistent"]) for each in body]


def test_what_a_search_found_is_a_value(shop):
    """Of a search only what was detected is a row; where it found nothing there is one, with the number of reports."""
    send(shop, "url", ["a"] * 300, day(3))
    send(shop, "url", ["a", "b"] * 25, day(2))
    shop.drain(days=40)
    table_rows = rows(shop, metrics=["url"], dimensions=["time", "value"])
    assert [table_rows[0][name] for name in ("period", "value")] == [day(3), "a"]
    assert 35 < table_rows[0]["n"] < 120  # those that confirm, a quarter
    assert all(row["detected"] for row in table_rows if row["value"])
    last = [row for row in table_rows if row["period"] == day(2)]
    assert last
    assert all(row["n"] == 50 if row["value"] is None else row["n"] < 30 for row in last)


def test_the_consistent_view_and_the_respondents(filled):
    """Shares are possible, with the raw intervals; those of respondents are narrower."""
    body = filled.get("/api/v1/metrics/theme").get_json()["estimates"]
    raw, table_rows = (rows(filled, metrics=["theme"], view=view) for view in ("raw", "consistent"))
    assert [row["estimate"] for row in table_rows] == [each["consistent"] for each in body]
    assert [(row["low"], row["stderr"]) for row in table_rows] == [(row["low"], row["stderr"]) for row in raw]
    those = rows(filled, metrics=["theme"], target="respondents")
    assert all(own["high"] - own["low"] < row["high"] - row["low"] for own, row in zip(those, raw, strict=True))


def test_without_values_a_row_tells_how_many_reports(filled):
    table_rows = rows(filled, metrics=["theme"], dimensions=["time"])
    assert [row["n"] for row in table_rows if row["state"] == "published"] == [360, 470, 560]
    assert {row["estimate"] for row in table_rows} == {None}


def test_filters_keep_values_and_segments(filled):
    table_rows = rows(filled, metrics=["theme"], filters=[["is_not", "value", ["dark"]], ["is", "platform", ["linux"]]])
    assert [row["value"] for row in table_rows] == ["light", "=cmd()"]
    assert {row["n"] for row in table_rows} == {filled.get("/api/v1/metrics/theme?segment=platform=linux").get_json()["n"]}
    table_rows = rows(filled, metrics=["theme"], dimensions=["platform"], filters=[["is_not", "platform", ["beos", "(other)"]]])
    assert [row["platform"] for row in table_rows] == ["linux", "macos"]


def test_a_segment_whose_name_is_taken_has_another_column(shop):
    """A general word is a value where it is named, and is not compared with a value in it."""
    for version in ("1.0", "1.1", "2.0"):
        send(shop, "update", [1] * 80, day(3), segment=f"version={version}")
    shop.drain(days=40)
    query = {"metrics": ["update"], "dimensions": ["segment_version"]}
    table_rows = rows(shop, **query)
    assert {row["version"] for row in table_rows if row["state"] == "published"} == {1}
    assert [row["segment_version"] for row in table_rows] == ["1.0", "1.1", "2.0"]
    table_rows = rows(shop, **query, filters=[["is", "segment_version", ["1", "2.0"]]])
    assert [(row["segment_version"], row["n"]) for row in table_rows] == [("1", 160), ("2.0", 80)]
    query["dimensions"].append("value")
    query["filters"] = [["is", "segment_version", ["1", "1.0"]]]
    refused = ask(shop, 400, **query, compare={"dimension": "segment_version", "base": "1"})
    assert refused["code"] == "incomparable"


@pytest.mark.parametrize(
    ("code", "changes"),
    [
        ("query_shape", {"metric": "theme"}),
        ("query_shape", {"level": 2}),
        ("query_shape", {"filters": [["has", "value", ["dark"]]]}),
        ("query_shape", {"pagination": {"limit": 0}}),
        ("query_shape", {"metrics": []}),
        ("unknown_metric", {"metrics": ["themes"]}),
        ("unknown_version", {"metrics": ["theme@7"]}),
        ("date_range", {"date_range": ["2026-10-02", "2026-10-01"]}),
        ("date_range", {"date_range": ["2026-10-01T00:00:00", "2026-10-02"]}),
        ("date_range", {"date_range": "0d"}),
        ("dimension", {"dimensions": ["device"]}),
        ("dimension", {"dimensions": ["value", "value"]}),
        ("dimension", {"dimensions": ["time"], "filters": [["is", "value", ["dark"]]]}),
        ("value", {"filters": [["is", "platform", ["amiga"]]]}),
        ("filter", {"filters": [["is", "platform", ["linux", "macos"]]]}),
        ("filter", {"filters": [["is_not", "platform", ["linux"]]]}),
        ("incomparable", {"compare": {}}),
        ("incomparable", {"compare": {"dimension": "platform", "base": "linux"}}),
        ("incomparable", {"compare": {"dimension": "platform", "base": "linux", "date_range": "previous"}}),
        ("query_conflict", {"view": "consistent", "include": ["trend"]}),
        ("query_conflict", {"compare": {"date_range": "previous"}}),
        ("query_conflict", {"dimensions": [], "include": ["trend"]}),
        ("query_too_large", {"compare": {"date_range": "previous"}, "date_range": ["2000-01-01", "2199-12-31"], "hourly": True}),
    ],
)
def test_what_cannot_be_answered_has_a_code(shop, serve, code, changes):
    if changes.pop("hourly", False):
        shop = serve(REGISTRY.replace('type = "boolean"', 'type = "boolean"\nperiod = "hour"'))
        changes["metrics"] = ["update"]
    status = 404 if code.startswith("unknown") else 400
    assert ask(shop, status, **{"metrics": ["theme"]} | changes)["code"] == code


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"level": 95}, "level is a confidence between 0.5 and 0.999999; this is 95; did you mean 0.95?"),
        ({"level": "99%"}, 'this is "99%"; did you mean 0.99?'),
        ({"date_range": "0d"}, "a range has 1 to 36,500 last days; this is '0d'"),
        ({"date_range": "2026-W00"}, "'2026-W00' is no range: 2026 has weeks 01 to 53"),
        ({"date_range": "2025-W53"}, "'2025-W53' is no range: 2025 has weeks 01 to 52"),
        ({"date_range": ["2026-11", "2026-13"]}, "'2026-11..2026-13' is no range: there is no month 13"),
        ({"date_range": "2026-00-12"}, "'2026-00-12' is no range: there is no month 00"),
        ({"date_range": "2026-02-30..2026-03-01"}, "'2026-02-30..2026-03-01' is no range: February 2026 has 28 days"),
        ({"date_range": "2025"}, "'2025' is no range: write 2025-01..2025-12"),
        ({"date_range": "2025..2026-03"}, "'2025..2026-03' is no range: write 2025-01..2026-03"),
        ({"date_range": ["2024", "2025"]}, "'2024..2025' is no range: write 2024-01..2025-12"),
        ({"date_range": "0000-01-01"}, "'0000-01-01' is no range: write the last days or weeks"),
        ({"date_range": "2026-11-01..2026-11-02..2026-11-03"}, "is no range: write the last days or weeks"),
        ({"date_range": ["1999-11-01", "2026-11-02"]}, "'1999-11-01..2026-11-02' does not lie between 2000 and 2200"),
        ({"date_range": ["2026-11-01T10:00", "2026-11-02"]}, "A time in place of a day is of RFC 3339, with its offset"),
        ({"dimensions": ["time", "time"]}, "dimensions names each dimension once; 'time' is named twice"),
        (
            {"dimensions": ["time"], "filters": [["is", "value", ["dark"]]]},
            "where value is one of the dimensions: name it there, or leave the filter out",
        ),
        (
            {"dimensions": ["platform", "value"], "compare": {"dimension": "platfrom", "base": "linux"}},
            "'platfrom' is no segment among platform, value; did you mean 'platform'?",
        ),
        (
            {"dimensions": ["value"], "compare": {"dimension": "platform", "base": "linux"}},
            "'platform' is no segment among value: add by('platform'), or the member of dimensions",
        ),
        (
            {"dimensions": ["value", "time"], "compare": {"dimension": "time", "base": "2026-W46"}},
            "two periods are compared by the page /m/<id>/compare, and by GET /api/v1/metrics/<id>/compare?a=...&b=...",
        ),
        (
            {"filters": [["is", "time", ["2026-W47"]]]},
            "no filter is of time: days are chosen by date_range, in Python by between()",
        ),
        ({"filters": [["is", "period", ["2026-W47"]]]}, "no filter is of period: days are chosen by date_range, in Python by"),
        ({"dimensions": ["period"]}, "theme has no dimension 'period': its dimensions are time, value, platform, and"),
        ({"metrics": ["wait"], "filters": [["is", "value", ["median"]]]}, "; median is written 'p50'"),
        ({"level": "high"}, 'level is a confidence between 0.5 and 0.999999; this is "high"'),
        ({"metrics": None}, 'metrics is missing: it is a list of 1 to 10 ids, such as ["ui.theme"]'),
        ({"metrics": []}, 'metrics is a list of 1 to 10 ids, such as ["ui.theme"]; this is []'),
        ({"metrics": ["theme"] * 11}, 'such as ["ui.theme"]; this is ["theme", "theme"'),
        ({"metrics": "theme"}, 'metrics is a list of 1 to 10 ids, such as ["ui.theme"]; this is "theme"'),
        ({"dimension": ["platform"]}, "a query has no member 'dimension': its members are metrics, date_range, dimensions"),
        ({"dimension": ["platform"]}, "; did you mean 'dimensions'?"),
        (
            {"filters": [{"platform": "linux"}]},
            'or [["is_not", "value", ["dark"]]]; this is [{"platform": "linux"}]',
        ),
        ({"pagination": {"limit": "abc"}}, 'limit is a whole number from 1 to 100,000; this is "abc"'),
        ({"pagination": {"limits": 1}}, 'pagination is an object, such as {"limit": 1000, "offset": 0}; this is {"limits": 1}'),
        ({"compare": {"dimension": 1}}, 'compare is an object, such as {"dimension": "platform", "base": "linux"}'),
        ({"x` - at `$.compare.y": 1}, "a query has no member 'x` - at `$.compare.y': its members are metrics"),
        (
            {"compare": {"date_range": "previous"}},
            "compare_previous is with the time before a range: add between(...) or last(...), or the member date_range",
        ),
        ({"date_range": "90000d"}, "a range has 1 to 36,500 last days; this is '90000d'"),
        ({"date_range": ["01.11.2026", "15.11.2026"]}, "'01.11.2026..15.11.2026' is no range: write 2026-11-01..2026-11-15"),
        ({"date_range": "2026/11/1"}, "'2026/11/1' is no range: write 2026-11-01"),
        ({"date_range": "31.02.2026"}, "'31.02.2026' is no range: February 2026 has 28 days"),
        ({"date_range": "6000w"}, "a range has 1 to 36,500 last days; this is '6000w'"),
        ({"date_range": "w"}, "'w' is no range: write the last days or weeks"),
        ({"date_range": "90dd"}, "'90dd' is no range: write the last days or weeks"),
        ({"filters": [["is", "value", ["Dark"]]]}, "theme has no value 'Dark': its values are light, dark, =cmd()"),
        ({"filters": [["is_not", "value", ["nvim"]]]}, "theme has no value 'nvim': its values are light, dark, =cmd()"),
        ({"metrics": ["update"], "filters": [["is", "value", ["True"]]]}, "update has no value 'True': its values are no, yes"),
        ({"metrics": ["wait"], "filters": [["is", "value", ["p51"]]]}, "wait has no value 'p51': its values are "),
        (
            {"filters": [["is", "value", ["light"]], ["is", "value", ["dark"]]]},
            "the filters of value exclude each other: write one filter with all values that have rows",
        ),
        ({"date_range": ["2026-11-03", "2026-10-01"]}, "2026-11-03 is after 2026-10-01: write the earlier one first"),
        ({"dimensions": ["platfrom"]}, "theme has no dimension 'platfrom': its dimensions are time, value, platform, and"),
        ({"dimensions": ["week"]}, "'time' has a row for each day, the metric's period"),
        (
            {"metrics": ["wait"], "dimensions": ["platform"]},
            "wait has no segment 'platform': it has no segments, and reports carry no other",
        ),
        ({"dimensions": ["platfrom"]}, "; did you mean 'platform'?"),
        ({"filters": [["is", "platform", ["linus"]]]}, "segment platform has no value 'linus': write one of linux, macos, beos"),
        ({"filters": [["is", "platform", ["linus"]]]}, "; did you mean 'linux'?"),
        ({"filters": [["is", "platform", ["bills"]]]}, "write one of linux, macos, beos, (other)"),
        ({"filters": [["is", "value", ["drak"]]]}, "; did you mean 'dark'?"),
        (
            {"metrics": ["theme", "update"], "filters": [["is", "value", ["drak"]]]},
            "theme, update has no value 'drak': its values are light, dark",
        ),
        (
            {"dimensions": ["value", "platform"], "filters": [[op, "platform", ["linux"]] for op in ("is", "is_not")]},
            "the filters of platform leave none of its values: linux, macos, beos, (other)",
        ),
        (
            {
                "dimensions": ["platform", "value"],
                "compare": {"dimension": "platform", "base": "linux", "date_range": "previous"},
            },
            "with one of their segments or with the range before, not with both: ask twice",
        ),
    ],
    ids=str,
)
def test_a_refusal_says_what_is_possible(shop, changes, words):
    """In words of the query, with what was given."""
    query = {name: arguments for name, arguments in ({"metrics": ["theme"]} | changes).items() if arguments is not None}
    assert words in ask(shop, 400, **query)["detail"]


def test_a_value_of_any_metric_asked_for_is_known(filled):
    """What a search may find is not known before; a value of one metric is no fault of the other."""
    table_rows = rows(filled, metrics=["theme", "wait"], filters=[["is", "value", ["dark", "mean"]]])
    assert [row["value"] for row in table_rows] == ["dark", "mean"]
    assert rows(filled, metrics=["url"], filters=[["is", "value", ["x"]]])[0]["value"] is None


def test_of_many_values_the_nearest_is_told(serve):
    shop = serve(REGISTRY.replace('["light", "dark", "=cmd()"]', json.dumps([f"theme{each:03}" for each in range(100)])))
    refused = ask(shop, 400, metrics=["theme"], filters=[["is", "value", ["tehme042"]]])
    assert refused["detail"] == "theme has no value 'tehme042'; did you mean 'theme042'?"


def test_the_level_of_the_address_is_told_alike(shop):
    body = shop.get("/api/v1/metrics/theme?level=95").get_json()["detail"]
    assert body == "level is a confidence between 0.5 and 0.999999; this is 95; did you mean 0.95?"


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("thme", "the registry of shop declares no metric 'thme': its metrics are theme, update, wait, tools, url; did you mean"),
        ("theme@7", "theme has no version '7': its versions are 1"),
        ("theme?period=yesterday", "of length day; this is 'yesterday'"),
        ("theme?levle=0.9", "parameters are date_range, period, segment, value, level, only, bands; did you mean 'level'?"),
        ("theme?only=all", "only is detected, or not given; this is all"),
        ("theme/compare?a=platform=linux", "two periods, or two segments; b is missing"),
        ("theme/compare?a=platform=linux&b=2026-11-01", "these are 'platform=linux' and '2026-11-01'"),
        ("theme/compare?a=platform=linux&b=platform=linux", "both sides are the same, platform=linux: choose two"),
        ("theme/compare?a=2026-11-01&b=2026-11-01", "both sides are the same, 2026-11-01: choose two"),
    ],
)
def test_a_refusal_about_one_metric_says_what_was_given(shop, address, words):
    """Its rule, the value, and what is near or possible."""
    assert words in shop.get(f"/api/v1/metrics/{address}").get_json()["detail"]


def test_what_is_no_json_is_named(shop):
    """With the parameter that it is, and what it looks like."""
    words = "filters is not valid JSON, in which texts stand in double quotes: write it like [["
    assert words in get(shop, 400, metrics="theme", filters="value=2").get_json()["detail"]
    header = {"Authorization": f"Bearer {READ}"}
    answer = shop.http.post("/api/v1/query", data="{'metrics': ['theme']}", content_type="application/json", headers=header)
    words = """the body is not valid JSON, in which texts stand in double quotes: write it like {"metrics": ["ui.theme"]}"""
    assert (answer.get_json()["code"], answer.get_json()["detail"]) == ("json", words)


def test_a_period_that_lies_ahead_has_a_reason(shop):
    send(shop, "theme", [1] * 100, day(3))
    shop.drain(days=40)
    body = shop.get("/api/v1/metrics/theme?period=2999-01-01").get_json()
    assert (body["n"], body["reason"][:25]) == (0, "1 January 2999 lies ahead")
    assert shop.get("/api/v1/metrics/theme").get_json()["reason"] is None


def test_a_segment_without_a_value_is_told_how_to_write_it(shop):
    assert (
        "'Linux' is no segment: write name=value, several joined by commas"
        in shop.get("/api/v1/metrics/theme?segment=Linux").get_json()["detail"]
    )


def test_what_is_nested_too_deeply_is_refused(shop):
    nested = "[" * 3000 + "]" * 3000
    headers = {"Authorization": f"Bearer {READ}", "Content-Type": "application/json"}
    assert shop.http.post("/api/v1/query", data=nested, headers=headers).get_json()["code"] == "json"
    assert get(shop, 400, metrics="theme", filters=nested).get_json()["code"] == "json"


def test_an_unknown_parameter_or_type_is_refused(shop):
    assert get(shop, 400, metrics="theme", metric="theme").get_json()["code"] == "unknown_parameter"
    assert get(shop, 400, metrics="theme", format="xlsx").get_json()["code"] == "format"
    assert get(shop, 400, metrics="theme", filters="[").get_json()["code"] == "json"
    plain = shop.http.post("/api/v1/query", data=b"{}", headers={"Authorization": f"Bearer {READ}"})
    assert (plain.status_code, plain.get_json()["code"]) == (415, "media_type")
    assert shop.http.post("/api/v1/query", json={"metrics": ["theme"]}).status_code == 401


def test_pages_together_are_the_whole(filled):
    """Each page has its rows; intervals and tests allow for all of them, whichever page is asked for."""
    query = {"metrics": ["theme", "wait"], "dimensions": ["time", "value"], "compare": {"date_range": "previous"}}
    query["date_range"] = RANGE
    answer = ask(filled, **query)
    results, offset = [], 0
    while offset is not None:
        page = ask(filled, **query, pagination={"limit": 4, "offset": offset})
        assert (page["total"], page["releases"]) == (answer["total"], answer["releases"])
        results += page["rows"]
        offset = page["next"]
    assert results == answer["rows"]
    assert len(results) == answer["total"] > 12
    following = get(filled, metrics="theme", limit=2).headers["Link"]
    assert following == '</api/v1/query?metrics=theme&limit=2&offset=2>; rel="next"'


def test_the_address_asks_the_same_as_the_body(filled):
    query = {
        "metrics": ["theme"],
        "date_range": "..".join(RANGE),
        "dimensions": ["time", "value", "platform"],
        "filters": [["is_not", "value", ["dark"]]],
        "compare": {"dimension": "platform", "base": "linux"},
        "target": "respondents",
        "level": 0.9,
        "include": ["trend"],
        "pagination": {"limit": 7, "offset": 1},
    }
    answer = {name: json.dumps(query[name]) for name in ("filters", "compare")}
    answer |= {name: ",".join(query[name]) for name in ("metrics", "dimensions", "include")}
    answer |= {"date_range": query["date_range"], "target": "respondents", "level": 0.9, "limit": 7, "offset": 1}
    assert get(filled, **answer).get_json() == ask(filled, **query)
    assert get(filled, metrics="theme", pool="true").get_json()["query"]["pool"] is True
    assert get(filled, metrics="theme", date_range="30d").get_json()["query"]["date_range"] == "30d"


def test_what_is_known_is_not_sent_again(filled):
    """The same question is answered 304 until a release, the question or the format changes."""
    first = get(filled, metrics="theme")
    known = {"If-None-Match": first.headers["ETag"]}
    assert first.headers["Cache-Control"] == "private, no-cache"
    again = get(filled, 304, known, metrics="theme")
    assert (again.get_data(), again.headers["ETag"]) == (b"", first.headers["ETag"])
    for changed in ({"level": 0.9}, {"format": "csv"}, {"metrics": "wait"}, {"date_range": "9d"}):
        assert get(filled, 200, known, **{"metrics": "theme"} | changed).headers["ETag"] != first.headers["ETag"]
    send(filled, "theme", [1] * 100, day(1))
    filled.drain()
    get(filled, 304, known, metrics="theme")  # counted, and not published
    filled.drain(days=40)
    assert get(filled, 200, known, metrics="theme").get_json()["releases"] != first.get_json()["releases"]
    posted = filled.http.post("/api/v1/query", json={"metrics": ["theme"]}, headers={"Authorization": f"Bearer {READ}", **known})
    assert (posted.status_code, "ETag" in posted.headers) == (200, False)


@pytest.mark.parametrize("path", ["theme", "theme?segment=platform=linux", "theme/series", "theme/compare?a={}&b={}"])
def test_each_answer_about_a_metric_is_sent_once(filled, path):
    """Whoever has the answer gets 304, until something is published of the metric, or the question is another."""

    def fetch(status, path, **headers):
        answer = filled.http.get(f"/api/v1/metrics/{path.format(day(6), day(2))}", headers=headers | authorized)
        assert answer.status_code == status, answer.get_data()
        return answer

    authorized = {"Authorization": f"Bearer {READ}"}
    first = fetch(200, path)
    assert first.headers["Cache-Control"] == "private, no-cache"
    known = {"If-None-Match": first.headers["ETag"]}
    assert fetch(304, path, **known).get_data() == b""
    fetch(200, f"{path}{'&' if '?' in path else '?'}level=0.9", **known)
    fetch(200, path.replace("theme", "theme@1"), **known)
    send(filled, "theme", [1] * 100, day(1))
    filled.drain()
    fetch(304, path, **known)  # counted, and not published
    filled.drain(days=40)
    assert fetch(200, path, **known).headers["ETag"] != first.headers["ETag"]


def test_another_list_of_candidates_is_another_state(filled):
    """A registry names the file of candidates, and does not contain it: its digest stays the same."""
    declared = filled.app.find("theme")
    states = {state_of(filled.app, [Published(filled.app, replace(declared, candidates=each), {})]) for each in ((1,), (2,))}
    assert len(states) == 2


def same(one, other):
    """Compare the rows of two formats."""
    return len(one) == len(other) and all(
        left == right or (isinstance(left, float) and float(right) == left)
        for row, those in zip(one, other, strict=True)
        for left, right in zip(row.values(), those.values(), strict=True)
    )


def test_every_format_has_the_same_rows(filled):
    query = {"metrics": "theme,wait", "dimensions": "time,value", "compare": '{"date_range":"previous"}'}
    query["date_range"] = "..".join(RANGE)
    answer = get(filled, **query).get_json()
    full, names = answer["rows"], [each["name"] for each in answer["columns"]]
    assert [list(row) for row in full] == [names] * len(full)

    written = get(filled, **query, format="csv")
    assert written.content_type == "text/csv; charset=utf-8"
    header, *lines = csv.reader(io.StringIO(written.get_data(as_text=True)))
    assert header == names
    for line, row in zip(lines, full, strict=True):
        expected = [
            {None: "", True: "true", False: "false"}.get(each, each) if type(each) in (bool, type(None)) else each
            for each in row.values()
        ]
        expected = [f"'{each}" if each == "=cmd()" else each for each in expected]
        assert line == [repr(each) if isinstance(each, float) else str(each) for each in expected]
    assert pl.read_csv(written.get_data())["n"].to_list() == [row["n"] for row in full]
    frame = pd.read_csv(io.BytesIO(written.get_data()), parse_dates=["time"])
    assert frame["estimate"].tolist() == pytest.approx(
        [np.nan if row["estimate"] is None else row["estimate"] for row in full], nan_ok=True
    )

    for name, read in (("parquet", parquet.read_table), ("arrow", feather.read_table)):
        answer = get(filled, **query, format=name)
        assert answer.headers["Content-Disposition"] == f'attachment; filename="rows.{name}"'
        table = read(io.BytesIO(answer.get_data()))
        assert table.column_names == names
        results = table.to_pylist()
        for row in results:
            row["time"] = f"{row['time']:%Y-%m-%dT%H:%M:%SZ}"
            row |= {name: row[name].isoformat() if row[name] else None for name in ("from", "to")}
        assert results == full
        frame = {"parquet": pl.read_parquet, "arrow": pl.read_ipc}[name](io.BytesIO(answer.get_data()))
        assert frame["estimate"].to_list() == [row["estimate"] for row in full]
        assert json.loads(table.schema.metadata[b"deniable"])["query"]["metrics"] == ["theme", "wait"]


def test_an_answer_is_compressed_if_the_client_takes_it(filled):
    """Rows are much alike, so gzip makes them small; each encoding has its own ETag. Parquet is compressed by itself."""
    for name in ("json", "csv", "arrow"):
        query = {"metrics": "theme", "dimensions": "time,value", "format": name}
        plain, packed = get(filled, **query), get(filled, 200, {"Accept-Encoding": "br, gzip"}, **query)
        assert "Content-Encoding" not in plain.headers
        assert (packed.headers["Content-Encoding"], "Accept-Encoding" in packed.headers["Vary"]) == ("gzip", True)
        assert gzip.decompress(packed.get_data()) == plain.get_data()
        assert 2 * len(packed.get_data()) < len(plain.get_data())
        assert packed.headers["ETag"] != plain.headers["ETag"]
    answer = get(filled, 200, {"Accept-Encoding": "gzip"}, metrics="theme", format="parquet")
    assert "Content-Encoding" not in answer.headers
    assert "Content-Encoding" not in get(filled, 200, {"Accept-Encoding": "gzip;q=0"}, metrics="theme").headers


def test_the_header_accept_chooses_the_format(filled):
    for accept, page in (
        ("text/csv", "text/csv"),
        ("application/vnd.apache.parquet", "application/vnd.apache.parquet"),
        ("text/html, */*;q=0.8", "application/json"),
        ("text/csv;q=0.5, application/json", "application/json"),
    ):
        answer = get(filled, headers={"Accept": accept}, metrics="theme")
        assert (answer.mimetype, "Accept," in answer.headers["Vary"]) == (page, True)


def test_no_text_is_run_as_a_formula():
    """A spreadsheet gets an apostrophe before what it would run, and plain numbers as they are."""
    for text in ("=1+1", "+A1", "-A1", "@SUM(A1)", " =1+1", "\uff1dA1"):
        assert _harmless(text) == f"'{text}"
    for text in ("-5", "+1.5", "dark", "a=b", "2.10"):
        assert _harmless(text) == text


def test_a_server_without_the_extra_says_so(shop, monkeypatch):
    monkeypatch.setattr("deniable_server.api.answers.export.find_spec", lambda _: None)
    refused = get(shop, 501, metrics="theme", format="parquet").get_json()
    assert refused["code"] == "no_export"
    assert "deniable[export]" in refused["detail"]
    get(shop, metrics="theme", format="csv")


def test_too_much_is_refused_before_it_is_read(filled, monkeypatch):
    monkeypatch.setattr("deniable_aggregator.answer.table.cost.MOST_VALUES", 9)
    monkeypatch.setattr(filled.app.store.releases, "some", lambda *_: pytest.fail("it was read"), raising=False)
    assert ask(filled, 400, metrics=["theme"], dimensions=["time", "value", "platform"])["code"] == "query_too_large"
    monkeypatch.setattr("deniable_aggregator.answer.table.MOST_ROWS", 9)
    assert ask(filled, 400, metrics=["theme"], dimensions=["time", "platform"])["code"] == "query_too_large"


def test_filters_with_many_values_cost_little():
    """A value is looked up, and not compared with each of twenty thousand."""
    looked = []

    class Label(str):
        __slots__ = ()

        def __eq__(self, other):
            looked.append(other)
            return str.__eq__(self, other)

        __hash__ = str.__hash__

    listed = tuple(f"value{number}" for number in range(1000))
    query = Query(metrics=("theme",), filters=(Filter("is", "value", listed), *[Filter("is_not", "value", listed[:999])] * 19))
    keeps = value_filter(query)
    assert keeps(Label("value999"))
    assert not keeps(Label("value998"))
    assert not keeps(Label("other"))
    assert len(looked) < 100


def logged(shop):
    return dict(intact_entry(shop.store._client.lindex("{shop}:audit", -1)).details)


def test_the_audit_log_tells_what_was_asked(filled):
    """What the registry declares stands in it, and nothing else that was sent."""
    filters = [["is_not", "platform", ["beos"]], ["is", "value", ["light", "=cmd()"]]]
    compare = {"dimension": "platform", "base": "linux"}
    ask(filled, metrics=["theme"], date_range=RANGE, dimensions=["value", "platform"], filters=filters, compare=compare)
    assert logged(filled) == {
        "by": "api",
        "question": "rows",
        "metric": "theme",
        "period": f"{day(6)}/{day(2)}",
        "segment": "platform",
        "filters": '[["is_not","platform",["beos"]],["is","value",["light","=cmd()"]]]',
        "compare": "platform=linux",
        "level": "0.95",
    }
    ask(filled, 400, metrics=["theme"], dimensions=["secret"])
    assert logged(filled) == {"by": "api", "question": "rows", "metric": "theme", "problem": "dimension"}
    ask(filled, 404, metrics=["theme", "secret"])
    assert logged(filled) == {"by": "api", "problem": "unknown_metric"}


def test_the_audit_log_tells_all_metrics_the_earlier_range_and_the_pool(filled):
    """Metrics of other periods have the dates in their own; an earlier range is told in dates, too."""
    ask(filled, metrics=["theme", "tools@1"], date_range=RANGE, pool=True)
    answer = logged(filled)
    assert (answer["metric"], answer["pool"], answer["period"]) == ("theme,tools@1", "true", f"{day(6)}/{day(2)}")
    assert "filters" not in answer
    ask(filled, metrics=["theme", "wait"], date_range=RANGE, compare={"date_range": "previous"})
    assert logged(filled)["compare"] == f"{day(11)}/{day(7)}"


def test_the_audit_log_has_dates_in_each_length_of_period(serve):
    weekly = REGISTRY.replace('[metrics."tools"]', '[metrics."tools"]\nperiod = "week"')
    shop = serve(weekly)
    ask(shop, metrics=["theme", "wait", "tools"], date_range=["2026-10-05", "2026-10-18"], compare={"date_range": "previous"})
    answer = logged(shop)
    assert answer["period"] == "2026-10-05/2026-10-18,2026-W41/2026-W42"
    assert answer["compare"] == "2026-09-21/2026-10-04,2026-W39/2026-W40"


def test_texts_that_a_search_may_find_are_not_logged(filled):
    """No registry declares them: they are what an analyst typed."""
    ask(filled, metrics=["url"], filters=[["is", "value", ["secret", "/a"]]])
    assert logged(filled)["filters"] == '[["is","value",2]]'
    assert b"secret" not in b"".join(filled.store._client.lrange("{shop}:audit", 0, -1))


def test_a_value_that_cannot_be_printed_is_logged_as_its_code(serve):
    """An entry has printable characters only."""
    shop = serve(REGISTRY.replace('"dark"', '"\N{WOMAN}\N{ZERO WIDTH JOINER}\N{PERSONAL COMPUTER}"'))
    (_, label, _) = (shop.app.registry.metrics["theme"].label(position) for position in range(3))
    ask(shop, metrics=["theme"], filters=[["is", "value", [label]]])
    assert "\\u200d" in logged(shop)["filters"]


def test_a_long_text_is_cut_in_the_audit_log(serve):
    """Its length and its SHA-256 are told, so that whoever has the query can see that it was this one."""
    words = [f"os{number:03}" for number in range(300)]
    shop = serve(REGISTRY.replace('["linux", "macos", "beos"]', str(words).replace("'", '"')))
    ask(shop, metrics=["theme"], dimensions=["platform"], filters=[["is", "platform", words]])
    text = logged(shop)["filters"]
    whole_text = json.dumps([["is", "platform", words]], separators=(",", ":"))
    assert len(text) == 1000
    assert text.startswith(whole_text[:800])
    assert text.endswith(f"... ({len(whole_text)} characters, SHA-256 {sha256(whole_text.encode()).hexdigest()})")


def test_adjusted_p_values_are_the_levels_at_which_holm_rejects():
    results = np.array([0.04, 0.001, np.nan, 0.02, 0.9])
    adjusted = holm_adjusted(results)
    assert adjusted.tolist() == pytest.approx([0.08, 0.004, np.nan, 0.06, 0.9], nan_ok=True)
    for alpha in (0.003, 0.05, 0.07, 0.95):
        assert holm(results[~np.isnan(results)], alpha).tolist() == (adjusted[~np.isnan(results)] <= alpha).tolist()


def test_nothing_counted_but_not_published_shows(shop):
    """No byte of any answer changes before a release, neither states nor the list of periods."""
    send(shop, "theme", [1] * 100, day(20))
    shop.drain(days=15)
    query = [
        {"metrics": "theme", "dimensions": "time,value,platform"},
        {"metrics": "theme", "dimensions": "platform"},
        {"metrics": "theme,wait", "include": "trend"},
    ]
    before = [get(shop, **each).get_data() for each in query]
    send(shop, "theme", [1] * 300, day(3))
    send(shop, "theme", [1] * 300, day(3), segment="platform=beos")
    shop.drain()
    assert [get(shop, **each).get_data() for each in query] == before


def test_a_row_says_which_days_it_rests_on(filled):
    """Rows, metrics, series and comparisons name the same days; a comparison those of its base, too."""
    since, last = day(6), day(2)
    (row, *_) = rows(filled, metrics=["theme"])
    assert (row["from"], row["to"]) == (None, last)  # the first release has what came before, too
    assert filled.get("/api/v1/metrics/theme").get_json()["days"] == {"from": None, "to": last}
    table_rows = rows(filled, metrics=["theme"], dimensions=["time", "value"], date_range=[day(3), last])
    assert {(row["from"], row["to"]) for row in table_rows} == {(day(5), day(3)), (last, last)}  # with the days that were joined
    compared = rows(filled, metrics=["theme"], date_range=[last, last], compare={"date_range": "previous"})
    assert {(row["from"], row["to"], row["base_from"], row["base_to"]) for row in compared} == {(last, last, day(5), day(3))}
    periods = filled.get("/api/v1/metrics/theme/series").get_json()["periods"]
    assert [each["days"] for each in periods if each["period"] in (day(3), last)] == [
        {"from": day(5), "to": day(3)},
        {"from": last, "to": last},
    ]
    sides = filled.get(f"/api/v1/metrics/theme/compare?a={since}&b={last}").get_json()
    assert [sides[side]["days"] for side in "ab"] == [{"from": None, "to": since}, {"from": last, "to": last}]


def test_few_reports_of_a_segment_are_refused_like_none_at_all(filled):
    """A segment that is withheld on one day, one that never had enough reports, and one of which nothing ever came are alike."""

    def refused(segment):
        answer = filled.get(f"/api/v1/metrics/theme?segment={segment}&period={day(3)}")
        return answer.status_code, {**answer.get_json(), "instance": None}

    assert refused("platform=macos") == refused("platform=beos") == refused("platform=(other)")
    assert refused("platform=macos")[0] == 403


def test_what_has_no_answer_says_why(filled):
    """No answer is empty: there is a row with the reason, of an estimate and of a difference."""

    def reasons(**query):
        return {row["reason"] for row in rows(filled, **query)}

    long_ago = {"metrics": ["theme"], "date_range": ["2001-01-01", "2001-01-31"]}
    nothing = f"nothing of theme is published in this range, but from the beginning to {day(2)}"
    assert reasons(**long_ago) == reasons(**long_ago, dimensions=["time", "value"]) == {nothing}
    (yet,) = reasons(metrics=["update"])
    assert yet.startswith("nothing of update is published yet: 50 reports are needed, and the next release is due ")
    assert reasons(metrics=["theme"]) == {None}
    by_platform = {row["platform"]: row["reason"] for row in rows(filled, metrics=["theme"], dimensions=["platform"])}
    assert by_platform["linux"] == "no estimate is asked for, only the number of reports: add value to dimensions"
    assert by_platform["beos"].startswith("this segment is withheld: what is published rests on 50 reports (min_reports), and")
    assert "POST /api/v1/metrics/theme/withheld" in by_platform["beos"]
    assert "(other)" not in by_platform  # nobody is known to have sent an undeclared value
    named = rows(filled, metrics=["theme"], dimensions=["platform"], filters=[["is", "platform", ["(other)"]]])
    assert [row["state"] for row in named] == ["withheld"]
    before = rows(
        filled, metrics=["theme"], date_range=[day(2), day(2)], compare={"date_range": "previous"}, dimensions=["value"]
    )
    assert {row["reason"] for row in before} == {None}
    base = rows(filled, metrics=["theme"], dimensions=["value", "platform"], compare={"dimension": "platform", "base": "linux"})
    assert {row["reason"] for row in base if row["platform"] == "linux"} == {"it is the base"}
    alone = {"metrics": ["theme"], "date_range": [day(6), day(5)], "compare": {"date_range": "previous"}}
    assert reasons(**alone) == {f"nothing is published on {day(7)}, the range before"}


def test_a_number_over_time_has_its_means(serve):
    """A year of days in segments is answered; of quantiles those that a filter names, and of a log scale both means."""
    shop = serve(
        registry_toml(
            metric_toml("load", estimate="distribution", range=[1, 1000], scale="log", unit="ms", epsilon=8),
            publication={"min_reports": 1, "trial": True},
        )
    )
    for ago in (1, 0):
        send(shop, "load", [10.0, 1000.0] * 200, day(ago))
    shop.drain()
    table = {row["value"]: row for row in rows(shop, metrics=["load"], level=0.9999)}
    assert list(table) == ["geometric_mean", "mean", "p05", "p10", "p25", "p50", "p75", "p90", "p95", "p99"]
    for name, true in (("geometric_mean", 100), ("mean", 505)):
        assert table[name]["low"] < true < table[name]["high"]
    assert table["mean"]["stderr"] > 0
    days = [day(1), day(0)]
    over_time = rows(shop, metrics=["load"], dimensions=["time", "value"], date_range=days, compare={"date_range": "previous"})
    assert [row["value"] for row in over_time] == ["geometric_mean", "mean"] * 2
    medians = rows(shop, metrics=["load"], dimensions=["time", "value"], filters=[["is", "value", ["p50"]]])
    assert [row["value"] for row in medians] == ["p50"] * 2
    (only,) = rows(shop, metrics=["load"], filters=[["is", "value", ["mean"]]])
    assert only["estimate"] == table["mean"]["estimate"]
    (row,) = rows(shop, metrics=["load"], dimensions=[])
    assert row["estimate"] == table["geometric_mean"]["estimate"]
    before = {"date_range": [day(0), day(0)], "compare": {"date_range": "previous"}}
    compared = {row["value"]: row for row in rows(shop, metrics=["load"], **before)}
    assert compared["geometric_mean"]["diff_low"] < 1 < compared["geometric_mean"]["diff_high"]
    assert (compared["mean"]["difference"], compared["mean"]["reason"]) == (None, "of a number the geometric mean is compared")


def test_a_segment_called_like_a_column_may_be_asked_for_by_its_name(shop):
    """Rows have a column version; the segment of that name is segment_version, also where a query says version."""
    send(shop, "update", [1] * 100, day(2), segment="version=1.0")
    shop.drain(days=40)
    compare = {"dimension": "version", "base": "1.0"}
    table_rows = rows(
        shop, metrics=["update"], dimensions=["value", "version"], filters=[["is", "version", ["1.0"]]], compare=compare
    )
    assert {row["segment_version"] for row in table_rows} == {"1.0"}


@pytest.mark.parametrize(
    ("reports", "reason"),
    [
        (12, "no answer is frequent enough to be found in 12 reports: about 120 reports find an answer that 10% of people have"),
        (400, "no answer was found in 400 reports: one that "),
    ],
)
def test_why_a_search_found_nothing(shop, reports, reason):
    """No answer is asked for by name, so the row says what a search needs."""
    words = [
        first + second for first in "abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ-_" for second in "abcdefgh"
    ]
    send(shop, "url", (words * (reports // len(words) + 1))[:reports], day(2))
    shop.drain(days=40)
    (row,) = rows(shop, metrics=["url"])
    assert row["reason"].startswith(reason)
    (row,) = rows(shop, metrics=["url"], filters=[["is", "value", ["x"]]])
    assert row["reason"].startswith(reason)


LOAD = registry_toml(
    metric_toml("load", estimate="distribution", range=[1, 1000], scale="log", unit="ms", epsilon=8),
    metric_toml("wait", estimate="distribution", range=[0, 1000], unit="ms", epsilon=4),
    metric_toml("url", type="string", discover=True, epsilon=8, max_length=2),
    metric_toml("mode", epsilon=4, segments=["platform"]),
    segments={"platform": ["linux", "macos"]},
    publication={"min_reports": 1, "trial": True, "grace": "30d"},
)


@pytest.fixture
def over_days(serve, store_url):
    """Serve numbers and searched answers of four closed days."""
    shop = serve(LOAD)
    once("rows over days", store_url, shop.store._client, lambda: fill_days(shop))
    return shop


def fill_days(shop):
    for ago in (9, 8, 7, 6):
        for metric in ("load", "wait"):
            send(shop, metric, [10.0, 900.0] * 200, day(ago))
        send(shop, "url", ["a"] * 300, day(ago))
    send(shop, "mode", [1] * 50, day(6))
    shop.drain(days=40)


def test_a_trial_withholds_nothing_and_each_place_says_so(over_days):
    """A segment that nobody sent is missing; no rule of fewest reports is told, and no undeclared value is listed."""
    by_platform = rows(over_days, metrics=["mode"], dimensions=["value", "platform"])
    assert {(row["platform"], row["state"]) for row in by_platform} == {("linux", "published"), ("macos", "missing")}
    for value in ("macos", "(other)"):
        assert over_days.get(f"/api/v1/metrics/mode?segment=platform={value}").get_json()["n"] == 0


def test_a_trial_begins_with_its_first_release(over_days):
    """There no period waits for others, so nothing is shown of a period before the first."""
    body = over_days.get("/api/v1/metrics/wait?period=2020-01-01").get_json()
    assert (body["n"], body["reason"]) == (
        0,
        f"1 January 2020 lies before the first day published, {figures.moment(day(9), 'day')}",
    )


def test_periods_that_are_not_published_yet_are_compared_with_nothing(over_days):
    """The last of a range may be open: as many periods before it are taken as of the range are published."""
    compared = {"compare": {"date_range": "previous"}, "filters": [["is", "value", ["mean"]]], "metrics": ["wait"]}
    (row,) = rows(over_days, date_range=[day(7), day(2)], **compared)
    assert (row["from"], row["to"], row["base_from"], row["base_to"]) == (day(7), day(6), day(9), day(8))
    assert row["note"] is None
    by_day = rows(over_days, date_range=[day(7), day(2)], dimensions=["time", "value"], **compared)
    assert [(each["period"], each["base_to"]) for each in by_day] == [(day(7), day(9)), (day(6), day(8))]


def test_a_shorter_range_before_is_remarked_upon(over_days):
    compared = {"date_range": [day(8), day(5)], "compare": {"date_range": "previous"}, "filters": [["is", "value", ["mean"]]]}
    (row,) = rows(over_days, metrics=["wait"], **compared)
    assert row["note"] == "3 days compared with 1 day: of the range before no more is published"
    assert row["reason"] is None
    assert row["difference"] is not None


@pytest.mark.parametrize("include", [{"compare": {"date_range": "previous"}}, {"include": ["trend"]}], ids=["compare", "trend"])
@pytest.mark.parametrize("dimensions", [["value"], ["time", "value"]], ids=str)
@pytest.mark.parametrize(("metric", "value", "mean"), [("load", "mean", "geometric mean")])
def test_of_two_means_the_geometric_one_is_compared_and_followed(over_days, metric, value, mean, dimensions, include):
    """A line that is no such mean has its estimate and the reason, whether the mean is asked for or not."""
    query = {"metrics": [metric], "dimensions": dimensions, "date_range": [day(9 - 2 * ("compare" in include)), day(6)]} | include
    reason = f"of a number the {mean} {'is compared' if 'compare' in include else 'has a trend'}"
    for words in ([value], [value, mean.replace(" ", "_")]):
        answered = rows(over_days, **query, filters=[["is", "value", words]])
        own = [row for row in answered if row["value"] == value and row["period" if "time" in dimensions else "to"] >= day(7)]
        assert {(row["reason"], row["estimate"] is None) for row in own} == {(reason, False)}


@pytest.mark.parametrize("values", [["p50"], ["mean", "p50", "p75"]], ids=str)
def test_quantiles_are_compared_and_say_that_they_have_no_trend(over_days, values):
    """Each quantile has its difference with an interval, which holds together with the test; and what to ask for a trend."""
    query = {"metrics": ["wait"], "filters": [["is", "value", values]]}
    previous = {"date_range": [day(7), day(6)], "compare": {"date_range": "previous"}}
    compared = rows(over_days, **query, **previous)
    assert [row["value"] for row in compared] == values
    assert all(row["diff_low"] <= row["difference"] <= row["diff_high"] and row["reason"] is None for row in compared)
    assert all((row["diff_low"] <= 0 <= row["diff_high"]) == (row["p_value"] >= 0.05) for row in compared)
    assert all(row["p_holm"] >= row["p_value"] for row in compared)
    trend = {row["value"]: row for row in rows(over_days, **query, date_range=[day(9), day(6)], include=["trend"])}
    assert (trend["p50"]["trend"], trend["p50"]["reason"]) == (
        None,
        "a quantile has no trend: ask for that of the mean, or compare the quantile with the time before",
    )
    assert "mean" not in trend or trend["mean"]["trend"] is not None


def test_quantiles_of_arms_and_of_permanent_responses_say_what_to_compare(serve):
    shop = serve(
        registry_toml(
            metric_toml("wait", estimate="distribution", range=[0, 100], unit="ms", epsilon=8, segments=["arm"]),
            metric_toml(
                "kept", estimate="distribution", range=[0, 100], unit="ms", epsilon=2, epsilon_permanent=4, segments=["arm"]
            ),
            segments={"arm": ["old", "new"]},
            experiments={"arm": {"base": "old", "planned": 0.05}},
            publication={"min_reports": 1, "trial": True},
        )
    )
    for arm in ("old", "new"):
        send(shop, "wait", [20.0] * 300, day(0), segment=f"arm={arm}")
    shop.drain()
    query = {"metrics": ["wait"], "dimensions": ["value", "arm"], "filters": [["is", "value", ["mean", "p50"]]]}
    answered = rows(shop, **query, compare={"dimension": "arm", "base": "old"})
    reasons = {(row["arm"], row["value"]): row["reason"] for row in answered if row["n"]}
    why = "quantiles of arms are not compared, for no interval of theirs holds at every look: compare the mean"
    assert reasons[("new", "p50")] == why
    assert reasons[("new", "mean")] is None
    assert reasons[("old", "p50")] == "it is the base"
    assert alone(shop.app.registry.metrics["kept"], None) == "quantiles of permanent responses are not compared: compare the mean"


def test_a_trend_says_which_rule_it_breaks(over_days):
    """Too few periods, with their number, or a search, but never both."""

    def reason(metric, first):
        query = {"metrics": [metric], "date_range": [day(first), day(6)], "include": ["trend"]}
        return {row["reason"] for row in rows(over_days, **query, filters=[["is_not", "value", ["mean"]]])}

    few = "a trend takes 3 closed periods or more, and there"
    quantile = "a quantile has no trend: ask for that of the geometric mean, or compare the quantile with the time before"
    assert reason("load", 6) == {f"{few} is 1", quantile}
    query = {"metrics": ["load"], "dimensions": [], "include": ["trend"]}
    assert {row["reason"] for row in rows(over_days, **query, date_range=[day(6), day(6)])} == {f"{few} is 1"}
    assert {row["reason"] for row in rows(over_days, **query, date_range=[day(7), day(6)])} == {f"{few} are 2"}
    assert reason("url", 9) == {"answers that are searched for have no trend: each period finds its own"}


def test_searched_answers_are_compared_nowhere_and_each_place_says_so(over_days):
    why = "answers that are searched for are not compared: each side finds its own"
    compared = over_days.get(f"/api/v1/metrics/url/compare?a={day(7)}&b={day(6)}").get_json()
    check("Comparison", compared)
    assert (compared["differences"], compared["reason"]) == ([], why)
    previous = {"date_range": [day(7), day(6)], "compare": {"date_range": "previous"}}
    assert {row["reason"] for row in rows(over_days, metrics=["url"], **previous)} == {why}


def test_a_failure_says_what_fits_the_request(shop, monkeypatch):
    """A query that fails says nothing about an upload."""
    monkeypatch.setattr("deniable_server.api.answers.rows.questions", lambda *_: 1 / 0)
    failed = ask(shop, 500, metrics=["theme"])
    assert (failed["code"], failed["detail"]) == ("internal", "the server failed; its log has the error; ask again later")
