"""The query client, against a real server: rows, frames, pages, and errors in words."""

from __future__ import annotations

import csv
import inspect
import json
import pickle
import re
import socket
import sys
import threading
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
import requests
from registries import metric_toml, registry_toml
from werkzeug.serving import make_server

import deniable_query
from deniable.commands.parser import Parser
from deniable.commands.terminal import guarded
from deniable.registry import period
from deniable_aggregator.answer import digits as of_pages
from deniable_aggregator.answer import figures
from deniable_aggregator.answer.model.metric import Listed
from deniable_aggregator.store import schema
from deniable_query import Answer, Metric, Query, QueryError, digits, table
from deniable_query.commands.query import _about_differences
from deniable_query.commands.query import query as command_query
from deniable_query.sentences import differences, sentences
from deniable_query.table import lines, remarks_of
from deniable_query.trends import trends_by_segment

from .conftest import READ
from .test_rows import NOW, RANGE, ask, day, filled, send, shop  # noqa: F401 - fixtures
from .test_rows import REGISTRY as MONTHLY

FRAMES = ("pandas", "polars")
PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "query.md").read_text("utf-8")


@contextmanager
def listening(application):
    """Serve an application at an address of this machine."""
    server = make_server("127.0.0.1", 0, application)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def url(filled):  # noqa: F811
    with listening(filled.flask) as address:
        yield address


def test_rows_are_those_of_the_server(url, filled):  # noqa: F811
    """What each method asks for is what it says."""
    query = (
        Query(url, READ)
        .metric("theme")
        .by("time", "platform")
        .between(*RANGE)
        .where(platform=["linux", "macos"])
        .where_not(value="dark")
        .compare("platform", base="linux")
        .trend()
        .level(0.9)
        .respondents()
    )
    assert (
        query.rows()
        == ask(
            filled,
            metrics=["theme"],
            dimensions=["time", "platform", "value"],
            date_range=RANGE,
            filters=[["is", "platform", ["linux", "macos"]], ["is_not", "value", ["dark"]]],
            compare={"dimension": "platform", "base": "linux"},
            include=["trend"],
            level=0.9,
            target="respondents",
        )["rows"]
    )
    (row,) = Query(url, READ).metric("wait").last(30).where(value="mean").compare_previous(weekday=True).rows()
    assert (row["metric"], row["difference"]) == ("wait", None)
    assert all(0 <= row["estimate"] <= 1 for row in Query(url, READ).metric("theme").consistent().rows())
    assert [row["version"] for row in Query(url, READ).metric("tools").pool().rows()] == [1, 1]
    assert [row["n"] for row in Query(url, READ).metric("theme", "wait").by(values=False).rows()] == [1390, 800]


def test_pages_are_put_together(url, monkeypatch):
    """All rows come, however many pages there are; if something is published in between, it asks again."""
    query = Query(url, READ).metric("theme").by("time")
    rows = query.rows()
    monkeypatch.setattr(deniable_query, "_PAGE", 4)
    assert query.rows() == rows
    states = iter("ab" + 10 * "c")
    monkeypatch.setattr("deniable_aggregator.answer.table.state_of", lambda *_: next(states))
    assert query.rows() == rows
    assert len(list(states)) == 12 - 2 * 3
    monkeypatch.setattr("deniable_aggregator.answer.table.state_of", lambda *_: str(next(numbers)))
    numbers = iter(range(100))
    with pytest.raises(QueryError, match="between the pages"):
        query.rows()


def test_all_metrics_are_listed(url, filled, monkeypatch):  # noqa: F811
    """The list is the server's, over all of its pages, with the members that the type says."""
    listed = Query(url, READ).metrics()
    assert listed == filled.get("/api/v1/metrics").get_json()["metrics"]
    assert [each["id"] for each in listed] == ["theme", "update", "wait", "tools", "url"]
    assert {name for each in listed for name in each} == set(Metric.__annotations__) == set(Listed.__struct_fields__)
    monkeypatch.setattr("deniable_server.api.answers.metrics._MOST_LISTED", 2)
    assert Query(url, READ).metrics() == listed
    with pytest.raises(QueryError, match="unknown_key"):
        Query(url, "rk_wrong_12345678").metrics()
    with pytest.raises(QueryError, match="cannot be reached"):
        Query("http://127.0.0.1:9", READ).metrics()


def test_which_value_leads_is_asked_of_each_metric(url, filled):  # noqa: F811
    """It is what the page says; at the level asked for, and null of a number."""
    answers = Query(url, READ).metric("theme", "wait").level(0.9).leading()
    assert answers == {"theme": filled.get("/api/v1/metrics/theme?level=0.9").get_json()["leading"], "wait": None}
    assert answers["theme"]["says"]
    with pytest.raises(QueryError, match="metric"):
        Query(url, READ).metric("no/such").leading()


def test_a_frame_has_the_types_of_its_columns(url):
    """Both libraries get times, whole numbers and truths as such, and null where nothing is known."""
    query = Query(url, READ).metric("theme", "wait").by("time")
    rows, frame, polars = query.rows(), query.frame(), query.frame("polars")
    assert isinstance(frame, pd.DataFrame)
    assert {name: str(dtype) for name, dtype in frame.dtypes.items()} | {"time": ""} == {
        **dict.fromkeys(("metric", "period", "value", "unit", "state", "reason", "note", "mechanism"), "string"),
        **dict.fromkeys(("version", "n"), "Int64"),
        **dict.fromkeys(("from", "to"), "datetime64[s]"),
        **dict.fromkeys(("estimate", "stderr", "low", "high", "level", "low_all", "high_all", "epsilon"), "float64"),
        **dict.fromkeys(("count", "count_low", "count_high"), "float64"),
        **dict.fromkeys(("detected", "closed"), "boolean"),
        "time": "",
    }
    assert frame["time"][0] == pd.Timestamp(rows[0]["time"])
    page = frame.astype(object).where(frame.notna(), None)
    assert [page[name].tolist() for name in ("n", "estimate", "detected")] == [
        [row[name] for row in rows] for name in ("n", "estimate", "detected")
    ]
    assert [None if pd.isna(day) else str(day.date()) for day in frame["to"]] == [row["to"] for row in rows]
    assert {(row["value"], row["unit"], row["level"]) for row in rows} >= {("dark", "share", 0.95), ("mean", "ms", 0.95)}
    assert (polars.schema["time"], polars.schema["from"]) == (pl.Datetime("us", "UTC"), pl.Date())
    assert polars["estimate"].to_list() == [row["estimate"] for row in rows]
    assert polars["closed"].to_list() == [row["closed"] for row in rows]


CLAUSES = {
    "metric": lambda query: query.metric("wait"),
    "by": lambda query: query.by("time"),
    "between": lambda query: query.between(day(6)),
    "last": lambda query: query.last(14),
    "where": lambda query: query.where(platform="linux"),
    "where of several": lambda query: query.where(platform=["linux", "macos"]),
    "where of a value": lambda query: query.where(value="dark"),
    "where_not": lambda query: query.where_not(platform="linux"),
    "compare": lambda query: query.compare("platform", base="linux"),
    "compare_previous": lambda query: query.compare_previous(),
    "pool": lambda query: query.pool(),
    "trend": lambda query: query.trend(),
    "level": lambda query: query.level(0.9),
    "respondents": lambda query: query.respondents(),
    "consistent": lambda query: query.consistent(),
}
APPLIED = {
    "says": (lambda query: query.says(), {"metric", "between", "last", "where", "level"}),
    "leading": (lambda query: query.leading(), {"metric", "between", "last", "where", "level"}),
    "comparison of times": (lambda query: query.comparison(day(6), day(5)), {"metric", "where", "level"}),
    "comparison of segments": (
        lambda query: query.comparison("platform=linux", "platform=macos"),
        {"metric", "between", "where", "level"},
    ),
    "experiment": (lambda query: query.experiment(), {"metric", "level"}),
    "diagnosis": (lambda query: query.diagnosis(), {"metric"}),
    "withheld": (lambda query: query.withheld(day(6), "platform=beos", epsilon=1), {"metric"}),
    "metrics": (lambda query: query.metrics(), set()),
    "budgets": (lambda query: query.budgets(), set()),
    **{name: (lambda query, name=name: getattr(query, name)(), set(CLAUSES)) for name in ("rows", "frame", "answer", "csv")},
}


@pytest.mark.parametrize("clause", CLAUSES)
@pytest.mark.parametrize("method", APPLIED)
def test_a_method_applies_a_clause_or_names_it(method, clause):
    """None is ignored: what is sent differs from what is sent without it, or nothing is sent."""
    ask_, applied = APPLIED[method]
    bare = ["metric"] if method not in ("metrics", "budgets") and clause != "metric" else []
    before = Query("http://127.0.0.1:9", READ)
    for name in bare:
        before = CLAUSES[name](before)
    query = CLAUSES[clause](before)
    if clause in applied:
        sent = [sent_by(ask_, each) for each in (before, query)]
        assert sent[1] not in ([], sent[0])
    else:
        call = repr(query).rpartition(").")[2]
        with pytest.raises(QueryError, match=rf"^{method.split()[0]}\(\) .* it cannot apply .*{re.escape(call)}"):
            ask_(query)


def sent_by(ask_, query):
    """Return what a method sends first."""
    sent = []

    def send_(_session, method, address, **options):
        sent.append((method, address, options.get("params"), options.get("json")))
        raise requests.ConnectionError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(requests.Session, "request", send_)
        with pytest.raises(QueryError, match=r"cannot be reached|names no metric"):
            ask_(query)
    return sent


def test_the_table_of_methods_is_whole():
    """Each method that asks has its row, and each that gives a clause its column."""
    methods = {name for name, each in vars(Query).items() if callable(each) and not name.startswith("_")}
    assert methods == {name.split()[0] for name in (*APPLIED, *CLAUSES)}


def test_both_sides_of_a_comparison_have_the_segment_of_the_query(url, filled):  # noqa: F811
    """Of two times as the parameter, of two segments in each side."""
    query = Query(url, READ).metric("theme").where(platform="linux").level(0.9)
    address = f"/api/v1/metrics/theme/compare?a={day(6)}&b={day(5)}&segment=platform=linux&level=0.9"
    assert query.comparison(day(6), day(5))["theme"] == filled.get(address).get_json()
    sides = "platform=linux", "platform=macos"
    address = f"/api/v1/metrics/theme/compare?a={sides[0]}&b={sides[1]}&period={day(6)}"
    assert Query(url, READ).metric("theme").between(day(6)).comparison(*sides)["theme"] == filled.get(address).get_json()
    ranged = Query(url, READ).metric("theme").between(day(6), day(5))
    with pytest.raises(QueryError, match=r"comparison\(\) .* cannot apply between\(.*write between\('2026-W47'\)"):
        ranged.comparison(*sides)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("mean", "a query has no method 'mean': a figure of a number is asked for with where(value='mean').rows()"),
        ("median", "a query has no method 'median': a figure of a number is asked for with where(value='p50').rows()"),
        ("wher", "a query has no method 'wher'; did you mean where()?"),
        ("group_by", "a query has no method 'group_by'; did you mean by()?"),
    ],
)
def test_a_method_that_there_is_not_has_a_near_one(name, words):
    query = Query("http://127.0.0.1:9", READ)
    with pytest.raises(AttributeError) as results:
        getattr(query, name)
    assert str(results.value) == words
    assert pickle.loads(pickle.dumps(query)) == query


def test_an_answer_without_estimates_says_why(url):
    """It has a row with the reason, as list, as frame and in words; nothing is asked for twice in silence."""
    query = Query(url, READ).metric("theme").by("time").between("2001-01-01", "2001-01-31")
    (row,) = query.rows()
    assert (row["estimate"], row["time"]) == (None, None)
    assert query.frame()["reason"][0] == query.frame("polars")["reason"][0] == row["reason"]
    assert repr(query.answer()) == f"<Answer: 1 row of theme; 1 row: {row['reason']}>"
    assert repr(Query(url, READ).metric("tools").answer()).endswith(f"of tools, the beginning to {RANGE[1]}>")
    both = Query(url, READ).metric("theme").by("platform").last(14).compare("platform", base="linux").compare_previous()
    with pytest.raises(QueryError, match="not with both: ask twice"):
        both.rows()
    previous = Query(url, READ).metric("theme").last(14).compare_previous
    assert previous(weekday=True).compare_previous() == previous()


def test_without_pandas_and_polars(url, monkeypatch):
    """Rows need neither; a frame is that of the one which is there, and else says what it needs."""
    query = Query(url, READ).metric("tools")
    monkeypatch.setitem(sys.modules, "pandas", None)
    assert isinstance(query.frame(), pl.DataFrame)
    monkeypatch.setitem(sys.modules, "polars", None)
    for library, words in (
        (None, "pandas or polars: pip install pandas"),
        *((each, f"{each}: pip install {each}") for each in FRAMES),
    ):
        with pytest.raises(ImportError, match=rf"^frame\(\) needs {words}; rows\(\) needs none$"):
            query.frame(library)
    assert len(query.rows()) == 2


@pytest.mark.parametrize("library", [1, "duckdb", pl])
def test_a_frame_is_of_pandas_or_polars(library):
    answer = Answer([], [], [], trial=False)
    with pytest.raises(QueryError, match=r"^frame\(\) takes 'pandas' or 'polars', or nothing; this is "):
        answer.frame(library)


def test_a_problem_is_told_in_the_servers_words(url):
    query = Query(f"{url}/", READ).metric("theme")
    with pytest.raises(QueryError, match="did you mean 'theme") as results:
        Query(url, READ).metric("themes").rows()
    assert (results.value.status, results.value.code, results.value.retry_after) == (404, "unknown_metric", None)
    with pytest.raises(QueryError, match="segments are not added up: name one value of platform, or break rows down by it: "):
        query.where(platform=["linux", "macos"]).rows()
    with pytest.raises(QueryError, match="unknown_key"):
        Query(url, "rk_wrong_12345678").metric("theme").rows()
    assert READ not in repr(query)


def test_an_address_with_a_path_is_told(url):
    with pytest.raises(QueryError, match="Query takes the server's address alone"):
        Query(f"{url}/shop", READ).metric("theme").rows()


@pytest.mark.parametrize(
    ("ask_", "words"),
    [
        (lambda query: query.last(2.5), "last() takes a whole number of days, such as 30 or '30d'; this is 2.5"),
        (
            lambda query: query.between(None, "2026-11-01"),
            "between() takes a day, week, month or time, such as '2026-W47'; this is None",
        ),
        (
            lambda query: query.between("2026-11-01", None),
            "between() takes a day, week, month or time, such as '2026-W47'; this is None",
        ),
        (lambda query: query.metric(["theme"]), "metric() takes ids, such as 'ui.theme', one or several; this is ['theme']"),
        (
            lambda _: Query("https://rk_secret@telemetry.example.org/shop", "rk_x").metrics(),
            "the address has a key or a name in it: give Query the address alone, and the key as `key`",
        ),
        (
            lambda _: Query("http://127.0.0.1:9/?app=shop", READ).metric("theme").rows(),
            "the address has a ? or # in it: Query takes the server's address alone, such as https://telemetry.example.org",
        ),
        (lambda _: Query("http://127.0.0.1:9", "").metrics(), "the key is empty: give Query a read key, which begins with rk_"),
        (
            lambda query: query.by("time", "platform").leading(),
            (
                "leading() is of all values, and of all reports or of one value of each segment, so it cannot apply "
                "by('time', 'platform'): leave it out, or ask for rows()"
            ),
        ),
        (
            lambda _: Query("http://127.0.0.1:9"),
            "give Query both an address and a key, or neither: it then reads them from the environment",
        ),
        (
            lambda query: query.where(platform=["linux", "macos"]).says(),
            (
                "says() is of all values, and of all reports or of one value of each segment, so it cannot apply "
                "where(platform=['linux', 'macos']): leave it out, or ask for rows()"
            ),
        ),
        (
            lambda query: query.where("p50"),
            (
                "where('p50') says nothing of what it is: name what is chosen: a segment, such as where(platform='linux'), "
                "or where(value='p50')"
            ),
        ),
    ],
    ids=["last", "between", "one end", "metric", "address", "question", "key", "by", "address alone", "segments", "unnamed"],
)
def test_a_mistake_in_a_call_is_told_before_anything_is_asked(ask_, words):
    """Rule and value, as one kind of error, whatever was written in place of a text."""
    with pytest.raises(QueryError) as results:
        ask_(Query("http://127.0.0.1:9", READ).metric("theme"))
    assert str(results.value) == words


def test_what_is_no_server_of_ours_is_told():
    """Neither a page nor a redirect is taken for an answer; a redirect gets no key."""

    def elsewhere(environ, start):
        status, environment = (
            ("302 Found", [("Location", "/other")]) if environ["PATH_INFO"].startswith("/moved") else ("200 OK", [])
        )
        environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))
        body = {"/list": b"[1, 2]", "/null": b"null  "}.get(environ["PATH_INFO"].removesuffix("/api/v1/query"), b"<html>")
        start(status, [*environment, ("Retry-After", "7"), ("Content-Length", "6")])
        return [body]

    with listening(elsewhere) as url:
        for address, status in ((url, 200), (f"{url}/moved", 302), (f"{url}/list", 200), (f"{url}/null", 200)):
            with pytest.raises(QueryError, match="did not answer like a server of deniable") as results:
                Query(address, READ).metric("theme").rows()
            assert (results.value.status, results.value.retry_after) == (status, 7)


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("telemetry.example.org", "the address 'telemetry.example.org' is no server's: begin it with https:// or http://"),
        (
            "ftp://telemetry.example.org",
            "the address 'ftp://telemetry.example.org' is no server's: begin it with https:// or http://",
        ),
        ("http://127.0.0.1:9", "http://127.0.0.1:9 cannot be reached: is a server running there?"),
    ],
)
def test_who_is_not_there_is_told(address, words):
    with pytest.raises(QueryError) as results:
        Query(address, READ).metric("theme").rows()
    assert str(results.value) == words
    assert (results.value.status, results.value.code) == (0, "")


@pytest.mark.parametrize("key", ["rk_\N{HORIZONTAL ELLIPSIS}", "rk_two\nlines"])
def test_what_cannot_be_a_key_is_told_and_not_repeated(key):
    with pytest.raises(QueryError) as results:
        Query("http://127.0.0.1:9", key).metric("theme").rows()
    assert str(results.value) == "a read key has printable ASCII characters only, and this one has others: copy it anew"
    assert results.value.__cause__ is results.value.__context__ is None


def test_https_to_a_plain_server_is_told():
    with (
        listening(lambda *_: []) as url,
        pytest.raises(QueryError, match="without https, or with a certificate"),
    ):
        Query(url.replace("http:", "https:"), READ).metric("theme").rows()


def test_a_certificate_that_is_not_trusted_names_the_variable(monkeypatch, tmp_path):
    """It holds the file of an authority, as for the SDK; one that is missing is named."""
    with listening(lambda *_: []) as url:
        query = Query(url.replace("http:", "https:"), READ).metric("theme")
        with pytest.raises(QueryError, match=r"name the file of your own authority in SSL_CERT_FILE$"):
            query.rows()
        monkeypatch.delenv("REQUESTS_CA_BUNDLE", raising=False)
        monkeypatch.delenv("CURL_CA_BUNDLE", raising=False)
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none.pem"))
        with pytest.raises(QueryError, match=r"^the certificates in SSL_CERT_FILE or .*none\.pem"):
            query.rows()


def test_what_pages_say_is_asked_by_one_call(url, filled):  # noqa: F811
    """Sentences, a comparison and a diagnosis of each metric named: the members of the API."""
    query = Query(url, READ).metric("theme", "wait")
    sentences_of = query.says()
    assert list(sentences_of) == ["theme", "wait"]
    for name, words in sentences_of.items():
        assert words[0] == filled.get(f"/api/v1/metrics/{name}").get_json()["says"]
        series = filled.get(f"/api/v1/metrics/{name}/series").get_json()
        assert words[1:] == [each for each in (series["says"], series["trend_says"]) if each]
    sides = "platform=linux", "platform=macos"
    compared = Query(url, READ).metric("theme").level(0.9).comparison(*sides)["theme"]
    assert compared == filled.get("/api/v1/metrics/theme/compare?a=platform=linux&b=platform=macos&level=0.9").get_json()
    assert query.diagnosis()["wait"]["cause"] == filled.get("/api/v1/metrics/wait/diagnosis").get_json()["cause"]
    with pytest.raises(QueryError, match="both sides are the same"):
        query.comparison(*sides[:1] * 2)


def test_what_is_said_is_of_the_same_reports_as_the_rows(url, filled):  # noqa: F811
    """The range and the segment of a query hold for its sentences; a filter that cannot hold for them is refused."""
    theme = Query(url, READ).metric("theme")
    part = theme.between(day(6), day(5)).where(platform="linux")
    address = f"date_range={day(6)}..{day(5)}&segment=platform=linux"
    answer = filled.get(f"/api/v1/metrics/theme?{address}").get_json()
    (row,) = part.by("platform", values=False).rows()
    assert answer["n"] == row["n"] < filled.get("/api/v1/metrics/theme").get_json()["n"]
    assert part.says()["theme"][0] == answer["says"] != theme.says()["theme"][0]
    assert part.leading()["theme"] == answer["leading"]
    (period_,) = [each for each in filled.get(f"/api/v1/metrics/theme/series?{address}").get_json()["periods"] if each["n"]]
    assert (period_["period"], period_["n"]) == (day(6), row["n"])
    for filtered in (theme.where(value="dark"), theme.where(platform=["linux", "macos"]), theme.where_not(platform="linux")):
        with pytest.raises(
            QueryError, match="is of all values, and of all reports or of one value of each segment, so it cannot apply where"
        ):
            filtered.says()


@pytest.mark.parametrize("path", ["", "/series"])
def test_a_range_of_one_metric_is_that_of_a_query(filled, path):  # noqa: F811
    """In the same words, with the same refusals; and not beside a period."""
    address = f"/api/v1/metrics/theme{path}?date_range="
    assert filled.get(f"{address}30d").status_code == 200
    refused = filled.get(f"{address}2026-11-02..2026-11-01")
    assert (refused.status_code, refused.get_json()["code"]) == (400, "date_range")
    assert (
        filled.get("/api/v1/query?metrics=theme&date_range=2026-11-02..2026-11-01").get_json()["detail"]
        == refused.get_json()["detail"]
    )
    if not path:
        both = filled.get(f"{address}30d&period={day(6)}").get_json()
        assert (both["code"], both["detail"]) == ("date_range", "an answer is of one period or of a range, not of both")


def test_an_experiment_is_asked_for(serve, command):
    """Of each metric named: what its page shows, at the level and for the answer asked for."""
    served = serve(arms_registry())
    for ago in (3, 2):
        for arm, yes in (("old", 40), ("new", 90)):
            send(served, "used", [1] * yes + [0] * 60, day(ago), segment=f"arm={arm}")
    served.drain(days=40)
    with listening(served.flask) as address:
        query = Query(address, READ).metric("used").level(0.9)
        expected = served.get("/api/v1/metrics/used/experiment?segment=arm&value=yes&level=0.9").get_json()
        assert query.experiment("arm", value=True)["used"] == expected
        assert [len(arm["looks"]) for arm in query.experiment()["used"]["arms"]] == [2]
        effect = served.get("/api/v1/metrics/used?level=0.9").get_json()["arms"][0]["says"]
        assert query.says()["used"][-1] == effect
        assert effect in command(address, "used", "--level", "0.9")[1].splitlines()
        assert effect not in query.where(arm="new").says()["used"]
        with pytest.raises(QueryError, match="no experiment on platform"):
            query.experiment("platform")
        with pytest.raises(
            QueryError, match=r"compare\('arm'\) has no base: name the value .*, experiment\('arm'\) has its base"
        ):
            query.compare("arm")
        message = "deniable query: --compare takes a segment with its base: write arm=old. The arms are old, new\n"
        assert command(address, "used", "--compare", "arm") == (2, "", message)
        scope, verdict = expected["scope"], "arm=new against arm=old: "
        lines = {
            words: command(address, "used", "--compare", "arm=old", *words)[1].splitlines() for words in ((), ("--last", "90d"))
        }
        assert [sum(line.startswith(begin) for line in lines[()]) for begin in (verdict, f"{scope}: ")] == [1, 0]
        assert [sum(line.startswith(f"{scope}: {verdict}") for line in lines[("--last", "90d")])] == [1]
        assert scope.startswith("Over the whole experiment, ")
        # A verdict is against the declared base, so none stands beside rows that are compared with another arm.
        other = command(address, "used", "--compare", "arm=new")[1].splitlines()
        assert not [line for line in other if "against arm=old" in line]
        assert "A verdict is against the declared base: write --compare arm=old." in other
        for lines_of, base in ((lines[()], "arm=old"), (other, "arm=new")):
            (head,) = [line for line in lines_of if line.startswith("Rows ")]
            assert head.endswith(f", each compared with {base}:")
        # What differs comes first, and which way: as the columns LOW, ALL and HIGH, ALL have it.
        (row,) = (each for each in query.compare("arm", base="old").rows() if each["value"] == "yes" and each["differs"])
        size = figures.Measure(is_share=True).size((row["diff_low_all"], row["diff_high_all"]), is_rise=True)
        sentence = f"“yes” is more frequent with arm new than with old, by {size}."
        first, _, rule, *_ = command(address, "used", "--compare", "arm=old", "--level", "0.9")[1].splitlines()
        assert first == sentence
        assert rule.startswith("A difference is beyond chance if its P, HOLM is at most 0.1. ")
        assert lines[()][0] == "No difference beyond chance from arm=old."  # at 95%
        answers = {value: json.loads(command(address, "used", *value, "--json")[1]) for value in (("--where", "value=yes"), ())}
        assert [row["value"] for row in answers[("--where", "value=yes")]] == ["yes"]
        assert len(answers[()]) > 1
        assert (
            "used has no value 'true': its values are no, yes; true is written 'yes'"
            in command(address, "used", "--value", "true")[2]
        )


def arms_registry():
    metric = metric_toml("used", type="boolean", epsilon=4, segments=["arm"])
    publication = {"min_reports": 20, "early": False, "grace": "30d"}
    text = registry_toml(metric, segments={"arm": ["old", "new"]}, publication=publication)
    return text.replace("[publication]", '[experiments]\narm = { base = "old", planned = 0.1 }\n\n[publication]')


def test_a_file_is_the_one_of_the_server(url, filled):  # noqa: F811
    """In which no text is run as a formula."""
    assert Query(url, READ).metric("theme").csv() == filled.get("/api/v1/query?metrics=theme&format=csv").text
    with pytest.raises(QueryError, match="declares no metric"):
        Query(url, READ).metric("nothing").csv()


@pytest.fixture
def command(monkeypatch, capsys):
    """Run `deniable query`; return its status, its output and its errors."""

    def run(address, *words, key=READ):
        for name, value in (("DENIABLE_URL", address), ("DENIABLE_READ_KEY", key)):
            monkeypatch.setenv(name, value)
        parser = Parser(prog="deniable query")
        status = command_query(parser)(parser.parse_args(words))
        return status, *capsys.readouterr()

    return run


def test_the_command_prints_the_sentences_and_a_table(url, command):
    """Estimates with their intervals, in percent or in the unit; the rows alone for programs and spreadsheets."""
    query = Query(url, READ).metric("theme")
    status, out, err = command(url, "theme", "--by", "time", "--last", "12w")
    assert (status, err) == (0, "")
    sentences = query.last(84).says()["theme"]
    rows = query.by("time").last(84).rows()
    row, days = rows[0], [(each["from"] or "", each["to"]) for each in rows if each["to"]]
    first, last = min(days)[0], max(to for _, to in days)
    why = ", every day that overlaps the last 12 weeks" + ", open ones included" * any(
        not each["closed"] for each in rows if each["to"]
    )
    head = f"Rows from {first} to {last}{why}:" if first else f"Rows up to {last}{why}:"
    assert out.startswith("\n".join(sentences) + f"\n\n{head}\n\nPERIOD {' ' * (len(row['period']) - 6)} VALUE")
    assert re.search(
        rf"^{row['period']} +{row['value']} +{table.figures(row['estimate'], row['low'], row['high'], unit='share')[0]} ",
        out,
        re.MULTILINE,
    )
    assert re.search(r"^median|^p50 +[\d.]+ ms +[\d.]+ ms +[\d.]+ ms +[\d,]+$", command(url, "wait")[1], re.MULTILINE)
    with guarded():
        _, text, _ = command(url, "theme", "--csv")
    assert list(csv.DictReader(text.splitlines())) == list(csv.DictReader(query.csv().splitlines()))
    assert json.loads(command(url, "theme", "--by", "time", "--json")[1]) == query.by("time").rows()


@pytest.mark.parametrize(
    ("metric", "words", "sentence"),
    [
        ("theme", ("--value", "dark"), r"“dark” has a share of [\d.]+% \(95% interval \N{MINUS SIGN}?[\d.]+% to [\d.]+%\)\."),
        ("theme", ("--value", "dark", "--level", "0.8"), r"“dark” has a share of [\d.]+% \(80% interval .*\)\."),
        ("theme", ("--value", "dark", "--by", "platform"), r"platform=linux: “dark” has a share of [\d.]+% .*"),
        ("wait", ("--value", "p50"), r"The median is [\d.]+ ms \(95% interval [\d.]+ ms to [\d.]+ ms\)\."),
        ("wait", ("--value", "p75"), r"At least 75% of answers are at most [\d.]+ ms .*"),
        ("wait", ("--value", "p90"), r"800 reports do not resolve the 90% quantile\."),
        (
            "wait",
            ("--value", "300..500"),
            r"Between \d+% and 100% of answers are above 300 and at most 500 ms .*: many lie near an end of the range\.",
        ),
        (
            "wait",
            ("--value", "..500", "--value", "p50"),
            r"(The median is|[\d.\N{MINUS SIGN}]+% of answers are at most 500 ms) .*",
        ),
    ],
)
def test_the_first_sentences_are_of_what_is_asked(url, command, metric, words, sentence):
    """Of one value or figure what its row says, in the words of its metric; nothing of other values or of other reports."""
    status, out, err = command(url, metric, *words)
    assert (status, err) == (0, "")
    lines = out.partition("\n\n")[0].splitlines()
    assert re.fullmatch(sentence, lines[0]), lines
    rows = Query(url, READ).metric(metric).where(value=list(words[1::2][:1])).rows()
    assert len(rows) == 1
    assert not set(lines) & set(Query(url, READ).metric(metric).says()[metric])


@pytest.mark.parametrize(
    "words",
    [
        ("--by", "platform"),
        ("--compare", "platform=macos"),
        ("--where", "platform=linux", "--compare", "previous", "--last", "4d"),
    ],
)
def test_no_sentence_is_of_other_reports_than_the_rows(url, command, words):
    """Rows that are divided or compared have none of the page's sentences, which are of all reports together."""
    status, out, err = command(url, "theme", *words)
    assert (status, err) == (0, "")
    query = Query(url, READ).metric("theme")
    page = {*query.says()["theme"], *query.where(platform="linux").says()["theme"]}
    assert not page & set(out.splitlines())


@pytest.mark.parametrize(
    ("words", "segments"),
    [((), True), (("--value", "dark"), True), (("--by", "platform"), False), (("--where", "platform=linux"), False)],
)
def test_the_command_names_the_segments_that_may_be_added(url, command, words, segments):
    lines = command(url, "theme", *words)[1].splitlines()
    assert ("Segments: platform. To break rows down, add --by platform." in lines) is segments


def test_the_command_adds_a_trend(url, command):
    """As the client's method does."""
    rows = json.loads(command(url, "theme", "--trend", "--value", "dark", "--json")[1])
    assert rows == Query(url, READ).metric("theme").where(value="dark").trend().rows()
    assert "trend" in rows[0]


def test_a_time_of_which_nothing_is_published_has_no_empty_table(url, command):
    """The answer is why."""
    status, out, _ = command(url, "theme", "--range", "2020-01", "--value", "dark")
    assert status == 2
    for form in ("--json", "--csv"):
        assert command(url, "theme", "--range", "2020-01", form)[0] == 2
    assert command(url, "theme", "--where", "platform=(other)")[0] == 2
    assert command(url, "theme", "--where", "platform=linux", "--csv")[0] == 0
    assert re.fullmatch(r"nothing of theme is published in this range, but from .+ to \S+\n", out)


def test_a_query_shows_how_it_is_asked():
    """Its text is the calls that make it; each of them once more makes the same."""
    query = (
        Query("https://t.example", "rk_secret")
        .metric("theme", "wait")
        .by("time")
        .last("12w")
        .where(platform="linux", value=["dark", "light"])
        .where_not(value="x")
        .compare("platform", base="linux")
        .trend()
        .level(0.9)
    )
    text = repr(query)
    assert text == (
        "Query('https://t.example').metric('theme', 'wait').by('time', 'platform').last('12w').where(platform='linux')"
        ".where(value=['dark', 'light']).where_not(value='x').compare('platform', base='linux').trend().level(0.9)"
    )
    again = text.replace("Query('https://t.example')", "Query('https://t.example', 'rk_secret')")
    assert eval(again, {"Query": Query}) == query
    others = Query("https://t.example", "rk").by(values=False).between("2026-10", "2026-11").compare_previous(weekday=True).pool()
    calls = ".by(values=False).between('2026-10', '2026-11').compare_previous(weekday=True).pool()"
    assert repr(others) == f"Query('https://t.example'){calls}"
    assert repr(Query("https://t.example", "rk").between("2026-W47")).endswith(".between('2026-W47')")


def test_a_comparison_divides_the_rows_by_its_segment(url):
    """So it is asked for in one call; numbers of reports alone stay so."""
    query = Query(url, READ).metric("theme")
    rows = query.compare("platform", base="linux").rows()
    assert rows == query.by("platform").compare("platform", base="linux").rows()
    assert query.by("time").compare("platform", base="linux") == query.by("time", "platform").compare("platform", base="linux")


@pytest.mark.parametrize(
    "ask_",
    [
        lambda query: query.says(),
        lambda query: query.leading(),
        lambda query: query.experiment(),
        lambda query: query.comparison("2026-10", "2026-11"),
        lambda query: query.diagnosis(),
        lambda query: query.withheld("2026-11-20", "platform=beos", epsilon=0.1),
        lambda query: query.rows(),
    ],
)
def test_a_query_without_a_metric_says_so(ask_):
    """No answer is empty because nothing was asked."""
    with pytest.raises(QueryError, match=r"names no metric: add metric\('ui.theme'\), or several; metrics\(\) lists them"):
        ask_(Query("http://127.0.0.1:9", READ))


def test_the_command_alone_lists_the_metrics(url, command):
    """Whoever does not know their names begins there."""
    status, out, err = command(url)
    assert (status, err) == (0, "")
    head, first = out.splitlines()[:2]
    assert head.split() == ["METRIC", "TYPE", "PERIOD", "REPORTS", "PUBLISHED", "QUESTION"]
    assert re.fullmatch(r"theme +categorical +day +[\d,]+ +20\S+ +Which theme", first)
    assert out.endswith("\nOne of them: deniable query theme\n")
    assert json.loads(command(url, "--json")[1]) == Query(url, READ).metrics()
    for words in (("--by", "time"), ("--csv",)):
        status, out, err = command(url, *words)
        assert (status, out, "name" in err) == (2, "", True)


def test_the_command_takes_one_month_or_day(url, command):
    """A range of one is written as one, also in Python."""
    rows = json.loads(command(url, "theme", "--range", day(6), "--json")[1])
    assert rows == Query(url, READ).metric("theme").between(day(6)).rows()
    assert {row["to"] for row in rows} == {day(6)}
    status, _, err = command(url, "theme", "--compare", "previous")
    assert (status, err) == (
        2,
        "deniable query: --compare previous is with the time before a range: add --last, such as --last 30d, or --range\n",
    )


def test_the_command_takes_a_week_and_a_month(url, command):
    """As Python, the addresses and the pages do; rows are of the periods that overlap it."""
    on = date.fromisoformat(day(6)).isocalendar()
    week = f"{on.year}-W{on.week:02}"
    for text in (f"{week}..", f"..{week}", "..", f"{week}..{week}..{week}"):
        status, _, error = command(url, "theme", "--range", text)
        assert (status, f"'{text}' is no range" in error) == (2, True), error
    rows = json.loads(command(url, "theme", "--range", week, "--by", "time", "--json")[1])
    assert rows == Query(url, READ).metric("theme").between(week).by("time").rows()
    assert {period.of(datetime.fromisoformat(row["time"]), "week") for row in rows} == {week}
    assert re.search(r"^Rows .*, every day that overlaps " + week, command(url, "theme", "--range", week)[1], re.MULTILINE)
    month = day(6)[:7]
    assert command(url, "theme", "--range", month, "--csv") == command(url, "theme", "--range", f"{month}..{month}", "--csv")


def test_the_command_says_what_intervals_of_several_rows_are(url, command):
    """Of shares, the sentences about all values have wider ones."""
    rule = "LOW to HIGH: the 95% interval of a row chosen before looking."
    assert command(url, "theme")[1].endswith(f"{rule} Those in the sentences hold for all values at once.\n")
    questions = (("wait",), ("wait", "--value", "200..", "--value", "500.."), ("theme", "--by", "platform", "--value", "dark"))
    assert all(f"{rule}\n" in command(url, *words)[1] for words in questions)
    assert all(rule not in command(url, *words)[1] for words in (("wait", "--value", "p50"), ("theme", "--value", "dark")))


def test_an_answer_is_a_table_for_people(url):
    """As text what the command prints, and in a notebook the same cells; each estimate has its interval and its reports."""
    answer = Query(url, READ).metric("theme", "wait").answer()
    head, first, *_ = str(answer).splitlines()
    assert head.split() == ["METRIC", "VALUE", "ESTIMATE", "LOW", "HIGH", "REPORTS"]
    row = answer.rows[0]
    shares = table.figures(row["estimate"], row["low"], row["high"], unit="share")
    assert first.split() == ["theme", row["value"], *shares, f"{row['n']:,}"]
    assert re.search(r"^wait +p50 +[\d.]+ ms ", str(answer), re.MULTILINE)
    assert f"<td>{shares[0]}</td>" in answer._repr_html_()
    alone = Query(url, READ).metric("theme").trend().answer()
    assert str(alone).splitlines()[0].split() == ["VALUE", "ESTIMATE", "LOW", "HIGH", "TREND", "LOW", "HIGH", "REPORTS"]
    forged = replace(answer, rows=[row | {"value": "<script>", "reason": "<b>", "estimate": None}])
    assert "<script>" not in forged._repr_html_()
    assert "<b>" not in forged._repr_html_()


def test_the_command_takes_a_range_a_segment_a_value_and_a_comparison(url, command):
    """As the client's methods do; the sentences are of the same range and segment."""
    query = Query(url, READ).metric("theme").between(day(6), day(2))
    words = ("theme", "--range", f"{day(6)}..{day(2)}", "--where", "platform=linux", "--value", "dark")
    status, out, _ = command(url, *words)
    assert status == 0
    assert command(url, *words[:-2])[1].startswith(query.where(platform="linux").says()["theme"][0])
    assert re.search(r"^VALUE .*\ndark +[\d.\N{MINUS SIGN}]+% [^\n]*\n*\Z", out, re.MULTILINE), out
    compared = json.loads(command(url, *words[:3], "--compare", "platform=linux", "--json")[1])
    assert compared == query.by("platform").compare("platform", base="linux").rows()
    out = command(url, *words[:3], "--value", "dark", "--compare", "platform=linux")[1]
    head = re.search(
        r"^PLATFORM +VALUE +ESTIMATE +LOW +HIGH +DIFFERENCE +LOW, ALL +HIGH, ALL +P, HOLM +REPORTS$", out, re.MULTILINE
    )
    assert head, out
    assert re.search(r"is at most 0\.05\. Tested together: \w+ differences? ?", out), out
    assert re.match(r"“dark” is (more|less) frequent with platform macos than with linux, by|No difference beyond chance", out), (
        out
    )
    assert "platform=linux" not in out.partition("REPORTS")[2]
    assert re.search(r"^linux: it is the base$", out, re.MULTILINE), out
    before = query.between(day(2), day(2)).compare_previous()
    words = ("theme", "--range", f"{day(2)}..{day(2)}", "--compare", "previous")
    assert json.loads(command(url, *words, "--json")[1]) == before.rows()
    base = before.rows()[0]
    assert f"\nCompared with the time from {base['base_from']} to {base['base_to']}.\n" in command(url, *words)[1]


def test_an_option_of_the_command_is_given_once(capsys):
    """Of two the first would be ignored."""
    parser = Parser(prog="deniable query")
    command_query(parser)
    with pytest.raises(SystemExit, match="2"):
        parser.parse_args(["used", "--compare", "previous", "--compare", "arm=old"])
    assert "--compare is given twice: ask twice" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (("--last", "90x"), "--last: '90x' is no range: write the last days or weeks, such as 30d or 12w; or a day, a week"),
        (
            ("--range", "october"),
            "--range: 'october' is no range: write the last days or weeks, such as 30d or 12w; or a day, a week",
        ),
        (
            ("--range", "2026-11-02..2026-11-01"),
            "--range: 2026-11-02 is after 2026-11-01: write the earlier one first",
        ),
        (("--last", "3m"), "--last takes days or weeks: write --last 90d, or whole months as --range, such as 2026-09..2026-11"),
        (("--last", "1y"), "--last takes days or weeks: write --last 365d"),
        (("--by", "time,platform"), "--by takes one name: write --by time --by platform"),
        (
            ("--where", "time=2026-11"),
            "--where takes a segment, and this is 'time=2026-11': days are chosen by --range or --last",
        ),
        (("--where", "linux"), "--where takes a segment with one of its values, such as platform=linux; this is 'linux'"),
        (
            ("--compare", "2026-09"),
            '--compare takes no time: two times are compared on the page Compare, or in Python by comparison("2026-09", "2026',
        ),
        (("--compare", "linux"), "--compare takes previous, or a segment with its base, such as platform=linux; this is 'linux'"),
    ],
)
def test_the_command_speaks_of_its_own_options(url, command, words, answer):
    status, out, err = command(url, "theme", *words)
    assert (status, out) == (2, "")
    assert err.startswith(f"deniable query: {answer}")


def test_the_command_says_how_a_share_above_a_limit_is_asked(url, command):
    """And not that a quantile with these digits may be meant."""
    err = command(url, "wait", "--value", ">50")[2]
    assert "p99; a range of wait is written 50.. for more than 50, and ..50 for at most that" in err


def test_the_command_says_the_trend_of_each_segment(url, command):
    """Together they hold at the level asked for. Beside rows of one answer it is the trend of this answer."""
    out = command(url, "theme", "--by", "platform", "--trend")[1]
    linux = Query(url, READ).metric("theme").where(platform="linux")
    *_, says = linux.says()["theme"]
    assert out.startswith(f"platform=linux: {says}\n\n")  # macos has too few periods
    monthly = [{"platform": name, "trend": 0.1, "value": "dark", "level": 0.9, "to": None} for name in ("linux", "macos")]
    columns = [{"name": name} for name in ("from", "to", "platform", "value")]
    answer = Answer(monthly, columns, [{"id": "theme"}], trial=False)
    listed = trends_by_segment(Query(url, READ).metric("theme"), answer)
    *_, says = linux.level(0.95).says()["theme"]
    assert listed[0] == f"platform=linux: {says}"
    assert listed[-1] == "What is said of these 2 trends holds together at 90%: each has a level of 95%."
    out = command(url, "theme", "--by", "platform", "--trend", "--value", "dark")[1]
    assert re.search(
        r"^platform=linux: (On average|No trend beyond chance of) “dark”.* points a day \(95% interval\)\.$", out, re.MULTILINE
    )


def test_the_command_says_what_a_store_is(serve, command):
    """That it is a trial, and that people were simulated, as pages do."""
    trial = serve(MONTHLY.replace("early = false", "trial = true"))
    trial.store.put(schema.SIMULATED, "2026-11-01 to 2026-11-07")
    send(trial, "theme", [0] * 100, day(2))
    trial.drain()
    html = trial.http.get("/m/theme").get_data(as_text=True)
    banners = [re.sub("<.*?>", "", each) for each in re.findall(r'<p class="trial">(.*)</p>', html)]
    with listening(trial.flask) as address:
        out = command(address, "theme")[1].splitlines()
        text = Query(address, READ).metric("theme").answer()._repr_html_()
    assert len(banners) == 2
    for banner in banners:
        remark = banner.replace(" ", ": ", 1)
        assert remark in out
        assert remark in text


def test_the_command_writes_a_range_as_a_share(url, command):
    """Also beside figures in the unit of the number."""
    _, out, _ = command(url, "wait", "--value", "300..500", "--value", "p50")
    assert re.search(r"^p50 +\d[\d.]* ms ", out, re.MULTILINE), out
    assert re.search(r"^300\.\.500 +[\d.\N{MINUS SIGN}]+% +[\d.\N{MINUS SIGN}]+% +[\d.]+% +800$", out, re.MULTILINE), out


def test_the_command_takes_a_level(url, command):
    """Rows have intervals of this confidence, as the client's have."""
    rows = json.loads(command(url, "theme", "--level", "0.9", "--json")[1])
    assert rows == Query(url, READ).metric("theme").level(0.9).rows()
    assert rows != Query(url, READ).metric("theme").rows()
    assert (
        "level is a confidence between 0.5 and 0.999999; this is 90.0; did you mean 0.9?"
        in command(url, "theme", "--level", "90")[2]
    )
    assert "this is 99.9; did you mean 0.999?" in command(url, "theme", "--level", "99.9")[2]


def test_last_days_below_zero_say_what_is_needed(url, command, capsys):
    with pytest.raises(SystemExit):
        command(url, "theme", "--last", "-4w")
    assert "--last needs a value behind it, DAYS, which does not begin with -: the last days or weeks" in capsys.readouterr().err


def test_the_command_says_what_is_missing(url, command):
    status, out, err = command(url, "thme")
    assert (status, out) == (2, "")
    assert err.startswith("deniable query: the registry of shop declares no metric 'thme'")
    status, _, err = command("", "theme", key="")
    assert (status, err) == (
        2,
        (
            "deniable query: set DENIABLE_URL (the server's address) and DENIABLE_READ_KEY (a read key of the app); "
            "`deniable serve` prints the lines to copy\n"
        ),
    )
    assert command("http://127.0.0.1:9", "theme")[0] == 2


def test_a_silent_server_is_told():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(QueryError, match=r"did not answer within 0\.2 seconds; .* Query\(timeout=300\)"):
            Query(address, READ, timeout=0.2).metric("theme").rows()


def test_the_last_days_may_be_written_as_the_server_writes_them(url):
    assert Query(url, READ).metric("theme").last("30d") == Query(url, READ).metric("theme").last(30)
    assert Query(url, READ).metric("theme").last("12w").rows() == Query(url, READ).metric("theme").last(84).rows()


def test_the_last_days_have_the_periods_that_overlap_them(serve):
    """A month is in the last day on each of its days, as a whole; a month of which no day is among them is not."""
    served = serve(MONTHLY.replace('type = "categorical"', 'type = "categorical"\nperiod = "month"'))
    now = datetime.now(UTC)
    send(served, "theme", [0] * 100, period.of(now, "month"))
    served.drain(days=80)
    with listening(served.flask) as address:
        months = Query(address, READ).metric("theme").by("time", values=False)
        assert [row["period"] for row in months.last(1).rows()] == [period.of(now, "month")]
        (row,) = months.between(*[(now - timedelta(days=ago)).date() for ago in (99, 40)]).rows()
        assert (row["period"], row["n"]) == (None, None)


def test_a_password_of_the_machine_does_not_replace_the_key(url, tmp_path, monkeypatch):
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login me password secret\n", "utf-8")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    assert Query(url, READ).metric("tools").rows()


@pytest.mark.parametrize("code", re.findall(r"<!-- asked of a server -->\n```python\n(.*?)```", PAGE, re.DOTALL))
def test_the_examples_of_the_page_run(url, code, capsys):
    """Each example of docs/how-to/query.md runs as it stands, but for the address, the key and the names."""
    names = {"https://telemetry.example.org": url, "rk_...": READ, "ui.theme": "theme", "page.load": "wait"}
    for name, ours in names.items():
        code = code.replace(name, ours)
    exec(code, {})
    assert capsys.readouterr().out


def test_the_example_of_an_experiment_runs(serve, capsys):
    """It stands apart: it takes a registry with an experiment."""
    served = serve(arms_registry())
    for arm, yes in (("old", 40), ("new", 90)):
        send(served, "used", [1] * yes + [0] * 60, day(3), segment=f"arm={arm}")
    served.drain(days=40)
    (code,) = re.findall(r"<!-- asked of a server with an experiment -->\n```python\n(.*?)```", PAGE, re.DOTALL)
    with listening(served.flask) as address:
        for name, ours in {"https://telemetry.example.org": address, "rk_...": READ, "export.used": "used"}.items():
            code = code.replace(name, ours)
        exec(code, {})
    assert day(3) in capsys.readouterr().out


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (True, ["yes"]),
        (5, ["5"]),
        (np.int64(5), ["5"]),
        (2.5, ["2.5"]),
        ([False, "maybe"], ["no", "maybe"]),
    ],
)
def test_a_filter_takes_what_the_type_of_the_metric_takes(values, words):
    assert Query("https://example.org", "rk")._filtered("is", {"value": values})._members["filters"] == [["is", "value", words]]


def test_a_filter_of_anything_else_says_what_it_takes():
    with pytest.raises(QueryError, match="a filter names texts, True, False or numbers"):
        Query("https://example.org", "rk").where(value=None)


@pytest.mark.parametrize(
    ("at", "text"),
    [
        (date(2026, 10, 1), "2026-10-01"),
        (pd.Timestamp("2026-10-01"), "2026-10-01"),
        (datetime(2026, 10, 1, 6), "2026-10-01T06:00:00+00:00"),  # noqa: DTZ001 - without an offset
        (pd.Timestamp("2026-10-01 06:00", tz="UTC"), "2026-10-01T06:00:00+00:00"),
    ],
)
def test_a_range_takes_days_and_times(at, text):
    assert Query("https://example.org", "rk").between(at, at)._members["date_range"] == [text, text]


def test_the_address_and_the_key_may_stand_in_the_environment(monkeypatch):
    """Both or neither: no key of the environment is sent to an address that was given."""
    monkeypatch.setenv("DENIABLE_URL", "https://example.org")
    monkeypatch.setenv("DENIABLE_READ_KEY", READ)
    assert Query() == Query("https://example.org", READ)
    monkeypatch.delenv("DENIABLE_READ_KEY")
    with pytest.raises(QueryError, match=r"^set DENIABLE_READ_KEY \(a read key of the app\); `deniable serve`"):
        Query()


@pytest.mark.usefixtures("filled")
def test_a_range_takes_months(url):
    """From the first day of the first to the last day of the last."""
    first, last = (NOW - timedelta(days=40)).date(), NOW.date()
    theme = Query(url, READ).metric("theme")
    days = theme.between(first.replace(day=1), (last.replace(day=28) + timedelta(days=4)).replace(day=1) - timedelta(days=1))
    assert theme.between(f"{first:%Y-%m}", f"{last:%Y-%m}").rows() == days.rows() != []


@pytest.mark.parametrize(
    ("cells", "text"),
    [
        ((0.12653, 0.0, 0.93), "0.13 min"),
        ((412.345, 398.2, 431.0), "412 min"),
        ((3394112.3, 3073898.0, 3714326.0), "3,400,000 min"),
        ((1.04, 1.04, 7200.0), "1.0 min"),
        ((86.4, 1.04, 7200.0), "86 min"),
        ((3.0, -40.0, 200.0), "0 min"),
    ],
)
def test_figures_have_the_digits_of_pages(cells, text):
    estimate, *ends = cells
    number, *interval = table.figures(estimate, *ends, unit="min")
    assert number == text == figures.number(estimate, tuple(ends), "min").replace("\u202f", " ")
    low, high = figures.number_ends(tuple(ends), "min")
    assert interval == [f"{low} min", high.replace("\u202f", " ")]  # rounded outwards, and never cut


def test_the_rules_of_digits_are_those_of_pages():
    """The client needs nothing of the aggregator, so it has a copy of its functions: each is the same text."""
    copied = {name: rule for name, rule in vars(digits).items() if inspect.isfunction(rule)}
    assert "outwards" in copied
    for name, rule in copied.items():
        assert inspect.getsource(rule) == inspect.getsource(getattr(of_pages, name))
    constants = {name: value for name, value in vars(digits).items() if isinstance(value, int | float | str) and name[:2] != "__"}
    assert constants == {name: getattr(of_pages, name) for name in constants}


@pytest.mark.parametrize(
    ("cells", "unit", "texts"),
    [
        ((0.6014, 0.006672, 1.19), "min", ["+0.60 min", "+0.006 min", "+1.19 min"]),
        ((-0.6014, -1.19, 0.006672), "min", ["\N{MINUS SIGN}0.60 min", "\N{MINUS SIGN}1.19 min", "+0.01 min"]),
        ((0.258, 0.2381, 0.2779), "share", ["+25.8", "+23.8", "+27.8"]),
        ((0.0021, 0.0009, 0.0413), "share", ["+0.2", "+0.09", "+4.2"]),
    ],
)
def test_differences_have_the_digits_of_pages(cells, unit, texts):
    """The table of a command and the sentence of a page round the same interval alike, outwards."""
    row = {"metric": "m", "value": "a", "unit": unit, "estimate": 1.0, "low": 0.5, "high": 1.5, "n": 4, "p_holm": 0.01}
    row |= dict(zip(("difference", "diff_low_all", "diff_high_all"), cells, strict=True))
    columns = [{"name": name} for name in ("value", "n", "difference")]
    _, written = lines(Answer([row], columns, [{"id": "m", "scale": "linear", "range": None}], trial=False))
    assert re.search(r" +".join(map(re.escape, texts)), written), written
    measure = figures.Measure(unit == "share", "" if unit == "share" else unit)
    ends = measure.signed(cells[1:]).replace("\u202f", " ").split(" to ")
    assert [each.split()[0] for each in ends] == [each.split()[0] for each in texts[1:]]


@pytest.mark.parametrize(
    ("ends", "scale", "unit", "size"),  # of a range from 1 to 600
    [
        ((30.5, 4000.0), "linear", "min", "30 to 599 min"),
        ((1e-9, 0.5), "log", "min", "a factor of 2.0 to 600"),
        ((0.0048, 0.0521), "linear", "share", "0.4 to 5.3 points"),  # the low end is not rounded to none
        ((-0.0521, -0.0048), "linear", "share", "0.4 to 5.3 points"),
        ((-0.001, 0.042), "linear", "share", "up to 4.2 points"),
        ((0.3, 2.4), "linear", "share", "30 to 100 points"),
        ((0.0066, 1.3354), "linear", "min", "0.006 to 1.34 min"),
        ((1.004, 1.4), "log", "min", "a factor of 1.004 to 1.40"),
        ((0.5, 0.8), "log", "min", "a factor of 1.2 to 2.0"),
        ((0.98, 1.4), "log", "min", "a factor of up to 1.4"),
        ((1.0, 1.0), "linear", "min", "1 min"),  # of whole numbers
        ((-1.0, -1.0), "linear", "min", "1 min"),
    ],
)
def test_both_ends_of_what_differs_are_said_as_on_pages(ends, scale, unit, size):
    """Only if the interval holds no difference is it said how large the difference is at most."""
    none = 1 if scale == "log" else 0
    row = {"metric": "m", "value": "yes" if unit == "share" else "mean", "unit": unit, "p_holm": 0.01, "differs": True}
    row |= {"os": "linux", "difference": sum(ends) / 2, "diff_low_all": ends[0], "diff_high_all": ends[1]}
    columns = [{"name": name} for name in ("from", "to", "os", "value", "n", "difference")]
    answer = Answer([row], columns, [{"id": "m", "unit": unit, "scale": scale, "range": [1.0, 600.0]}], trial=False)
    (sentence,) = differences(answer, "os=mac")
    assert sentence.endswith(f", by {size}.")
    measure = figures.Measure(unit == "share", "" if unit == "share" else unit, scale, (1.0, 600.0))
    assert size == measure.size(ends, is_rise=sum(ends) / 2 > none).replace("\u202f", " ")


def test_a_mean_stays_in_its_range():
    """Few reports say nothing of a mean: as pages do, the table shows the whole range, and no answer that nobody can give."""
    row = {
        "metric": "backup",
        "value": "geometric_mean",
        "estimate": 0.004,
        "low": 2e-11,
        "high": 740_000.0,
        "unit": "s",
        "n": 4,
        "detected": True,
    }
    about = {"id": "backup", "scale": "log", "range": [1.0, 7200.0]}
    columns = [{"name": "value"}, {"name": "n"}]
    _, figures_ = lines(Answer([row], columns, [about], trial=False))
    assert figures_.split() == ["geometric_mean", "1", "s", "1", "s", "7,200", "s", "4"]
    row |= {"value": "mean", "estimate": -31.0, "low": -80.0, "high": 18.0, "level": 0.95}
    linear = Answer([row], [{"name": "to"}, *columns], [about | {"scale": "linear", "unit": "s"}], trial=False)
    assert lines(linear)[1].split() == ["mean", "1", "s", "1", "s", "18", "s", "4"]
    assert sentences(linear) == ["The mean is 1 s (95% interval 1 s to 18 s)."]
    row |= {"value": "100..", "unit": "share", "estimate": -0.58, "low": -0.58, "high": 0.24, "detected": None}
    assert lines(linear)[1].split()[1:4] == ["-58%".replace("-", "\N{MINUS SIGN}"), "\N{MINUS SIGN}58%", "24%"]  # unbiased
    assert sentences(linear) == ["0% of answers are above 100 s (95% interval 0% to 24%)."]


def test_remarks_name_their_rows():
    """What is said of one row of a group names the group, too; of all rows of a value, the value alone."""
    rows = [
        {"metric": "wait", "arm": arm, "value": value, "reason": None, "estimate": 1.0, "note": note}
        for arm, value, note in [("a", "p99", "7 reports"), ("b", "p99", "8 reports"), ("a", "p1", "low"), ("b", "p1", "low")]
    ]
    answer = Answer(rows, [{"name": "arm"}, {"name": "value"}], [{"id": "wait"}], trial=False)
    assert remarks_of(answer) == ["a p99: 7 reports", "b p99: 8 reports", "p1: low"]


def test_a_difference_whose_interval_holds_none_is_explained():
    """Holm's test finds a little more than the intervals exclude."""
    row = {"p_holm": 0.04, "differs": True, "diff_low_all": -0.01, "diff_high_all": 0.2, "level": 0.95}
    answer = Answer([row], [], [{"scale": "linear"}], trial=False)
    assert "though its interval holds 0." in " ".join(_about_differences(answer))
    sure = Answer([row | {"diff_low_all": 0.01}], [], [{"scale": "linear"}], trial=False)
    assert len(_about_differences(sure)) == 1
    assert _about_differences(Answer([{"p_holm": None}], [], [{"scale": "linear"}], trial=False)) == []
    figures = [row | {"value": each, "unit": "ms"} for each in ("geometric_mean", "p50", "p90")]
    (rule, _) = _about_differences(Answer(figures, [], [{"scale": "linear"}], trial=False))
    assert rule.endswith(
        " The metric's page tests the geometric mean alone, as --value geometric_mean does, and may find more of it."
    )
    assert "page tests" not in " ".join(_about_differences(Answer(figures[:1], [], [{"scale": "linear"}], trial=False)))


@pytest.mark.parametrize(
    ("words", "status", "says"),
    [
        (("--value", "zz"), 2, "These reports tell no answer that the query asks for."),
        (
            ("--compare", "previous", "--last", "3d"),
            0,
            "Answers that are searched for are not compared: each side finds its own.",
        ),
    ],
)
def test_of_a_search_that_tells_nothing_the_first_line_says_why(serve, command, words, status, says):
    """Also if reports came; without an answer the status is 2."""
    site = serve(
        registry_toml(
            metric_toml("site", type="string", discover=True, epsilon=8, max_length=2, segments=["platform"]),
            segments={"platform": ["linux", "macos"]},
            publication={"trial": True, "grace": "30d"},
        )
    )
    for ago in (0, 4):
        send(site, "site", ["ab"] * 3000, day(ago), segment="platform=linux")
    site.drain()
    with listening(site.flask) as url:
        got, out, _ = command(url, "site", *words)
        every = command(url, "site")[1]
        overview, page = (site.http.get(path).get_data(as_text=True) for path in ("/", "/m/site"))
    assert (got, out.splitlines()[0]) == (status, says)
    # However many periods there are, no page says that more of them are needed.
    not_followed = "Answers that are searched for are not followed over time"
    assert f"{not_followed}.\n" in every
    assert not_followed in overview
    assert "not shown by segment side by side. Choose a segment above, or ask <code>deniable query site --by NAME</code>" in page
    assert not re.search("closed periods|What changed is said once", f"{every}{overview}")
