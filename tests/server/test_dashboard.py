"""The dashboard: pages, their access, and the numbers and pictures on them."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass, field
from datetime import date, timedelta
from functools import cached_property
from html import unescape
from html.parser import HTMLParser
from io import StringIO
from itertools import pairwise
from pathlib import Path
from time import sleep
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytest
from fillings import once
from mixing import mixed_toml, relay_toml
from registries import metric_toml, registry_toml
from tallies import of_places

from deniable.wire.report import Stratum
from deniable_aggregator.answer import figures
from deniable_aggregator.answer.absence import nearest, why_absent
from deniable_aggregator.answer.model.fields import Span
from deniable_aggregator.answer.model.shares import ValueEstimate, ValueShare
from deniable_aggregator.decode.sets.options import options_of
from deniable_aggregator.publish.publisher import Publisher
from deniable_aggregator.store import connect, schema
from deniable_aggregator.store.uploads import refused_reports
from deniable_server import create_app
from deniable_server.pages import frame, list_page, metric_page
from deniable_server.pages.parts import chart
from deniable_server.service import service
from deniable_server.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from flask import Flask
    from flask.testing import FlaskClient

HOSTILE = "<script>alert(1)</script>"
LABELS = ["plain", HOSTILE, "a \"quoted\" & 'single' one", "🦊 العربية", "never"]
SCRIPT = '<script src="/static/pages.js" defer></script>'
ELSEWHERE = 'href="https://deniable.github.io/deniable/explanation/estimates/" rel="noreferrer"'
"""The only link that leaves the server."""
HOURS = [f"{hour:02}:00" for hour in range(24)]
READ_KEY = "shop-reads"
MINUS = "\N{MINUS SIGN}"

REGISTRY = registry_toml(
    metric_toml(
        "ui.choice",
        values=LABELS,
        mechanism="grr",
        segments=["platform"],
        description="Which <b>one</b> & why",
        owner="design@shop.example",
        expires=date(2999, 12, 31),
        min_reports=500,
    ),
    metric_toml("ui.dark", mechanism="coin", owner="design@shop.example", expires=date(2001, 1, 1)),
    metric_toml("usage.hour", type="ordinal", values=HOURS, epsilon=2.0, mechanism="grr", description="Hour of first use"),
    metric_toml("wide", values=[f"v{i}" for i in range(600)], epsilon=4.0, mechanism="grr", owner="design@shop.example"),
    segments={"platform": ["linux", "macos"]},
    publication={"min_reports": 1},
)

OTHER = registry_toml(metric_toml("lab.on", description="Whether it is on"), app="labs")


@pytest.fixture
def redis(start_store):
    """Empty a real store, and connect to it."""
    client = connect(start_store("server"))
    client.flushall()
    yield client
    client.close()


@pytest.fixture
def make(tmp_path, monkeypatch, redis) -> Callable[..., Flask]:
    """Make a server over the store, of one or several registries."""
    monkeypatch.setattr("deniable_server.settings.opened", lambda _url, **_: redis)

    def build(*registries: str, **settings: Any) -> Flask:
        paths = []
        for i, text in enumerate(registries or (REGISTRY,)):
            path = tmp_path / f"{i}.toml"
            path.write_text(text, "utf-8")
            paths.append(str(path))
        arguments = {"dashboard": "open", "read_keys": f"shop:{READ_KEY}, gone:gone-reads"}
        return create_app(Settings(redis_url="redis://unused", registry=":".join(paths), **(arguments | settings)))

    return build


@pytest.fixture
def app(make) -> Flask:
    """Make a server with open pages."""
    return make()


@pytest.fixture
def client(app) -> FlaskClient:
    """Make a browser that may see all pages."""
    return app.test_client()


def fill(app: Flask, id_: str, cells: list[int], period: str = "2026-11-21", segment: str = "") -> None:
    """Count cells as the worker would."""
    with app.app_context():
        shop = service().apps["shop"]
    question = shop.highest[id_]
    stratum = Stratum(id_, question.metric.version, question.fingerprint, period, segment)
    assert shop.store.partitions[0].commit("test", [], {stratum: np.array(cells, np.int64)}, 1795260480) == []


def publish(app: Flask) -> None:
    """Publish what was counted, once its periods have closed."""
    with app.app_context():
        shop = service().apps["shop"]
    Publisher(shop.store, shop.registry).publish(1795260480 + 5 * 86400)


def fill_all(app: Flask) -> None:
    shop = app.extensions["deniable"].apps["shop"]
    once(f"dashboard {shop.registry.digest}", "", shop.store._client, lambda: _fill_all(app))


def _fill_all(app: Flask) -> None:
    fill(app, "ui.choice", [100, 400, 200, 300, 1], segment="platform=linux")
    fill(app, "ui.choice", [200, 100, 100, 100, 0], "2026-11-20", "platform=macos")
    fill(app, "ui.dark", [300, 700])
    fill(app, "usage.hour", [10 + 5 * i for i in range(24)])
    fill(app, "wide", list(range(600)))
    publish(app)


class Rows(HTMLParser):
    """Reads the table of numbers: one list of cells' texts for each value."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self._cell = False
        values = html[max(html.find('id="values"'), 0) :]  # the table over time comes before
        self.feed(values.partition("<tbody>")[2].partition("</tbody>")[0])

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "tr":
            self.rows.append([])
            self._cell = False
        elif tag in ("td", "th"):
            # The line of a value over time is no number of this table.
            self._cell = not {("aria-hidden", "true"), ("class", "line")} & set(attrs)
            if self._cell:
                self.rows[-1].append("")

    def handle_data(self, data: str) -> None:
        if self._cell:
            self.rows[-1][-1] += data.strip()


ORDER = ("ui.choice", "ui.dark", "usage.hour", "wide")
PAGES = [
    "/",
    "/m/ui.choice",
    "/m/ui.dark",
    "/m/usage.hour",
    "/m/wide",
    "/m/unknown",
    "/?app=unknown",
    "/m/ui.dark?period=never",
    "/budgets",
    "/m/ui.choice/withheld",
]


# Pages


@pytest.mark.parametrize("filled", [False, True])
@pytest.mark.parametrize("page", PAGES)
def test_pages_are_safe_html(app, client, page, filled):
    """No page has a script but ours, an inline style, an address of elsewhere or a raw label, and each forbids them too."""
    if filled:
        fill_all(app)
    response = client.get(page)
    html = response.get_data(as_text=True)
    assert response.mimetype == "text/html"
    policy = response.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert response.headers["X-Content-Type-Options"] == "nosniff"
    assert response.headers["Referrer-Policy"] == "no-referrer"
    assert response.headers["Cache-Control"] == "no-store"
    assert ("script-src 'self'" in policy) == (SCRIPT in html)
    html = html.replace(SCRIPT, "").replace(ELSEWHERE, "")
    assert not re.search(r"<script|style=|<style|\son\w+=|https?:|src=|href=\"//", html)
    assert not re.search(r'"-?(nan|inf)', html)
    assert "None" not in html
    assert html.count("<h1") == 1


@pytest.mark.parametrize("page", ["/", "/m/ui.choice"])
def test_every_text_is_escaped(app, client, page):
    """A label or description with markup is shown as the text that it is."""
    fill_all(app)
    html = client.get(page).get_data(as_text=True)
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html
    assert "Which &lt;b&gt;one&lt;/b&gt; &amp; why" in html


@pytest.mark.parametrize("page", ["/", "/m/ui.choice", "/m/ui.choice/compare"])
def test_each_page_leads_to_how_an_estimate_is_read(client, page):
    """On the site of the docs, which learns from no header where the reader comes from."""
    foot = client.get(page).get_data(as_text=True).partition("<footer")[2]
    link = r'<a href="https://deniable\.github\.io/deniable/([\w/]+)/" rel="noreferrer">'
    (place,) = re.findall(link, foot)
    assert (Path(__file__).parents[2] / "docs" / f"{place}.md").is_file()


def test_the_style_sheet_and_icon_fetch_nothing(client):
    """What the pages load is served here, loads nothing further, and sends and keeps nothing."""
    most = {"dashboard.css": 24_000, "about.css": 1_500, "coin.js": 4096, "pages.js": 4096, "icon.svg": 1_000}
    for name, bytes_ in most.items():
        response = client.get(f"/static/{name}")
        assert response.status_code == 200
        text = response.get_data(as_text=True).replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?:|url\(|@import|fetch\(|XMLHttp|sendBeacon|Storage|cookie", text)
        assert not re.search(r"innerHTML|insertAdjacent|eval|document\.write", text)  # a label stays a text
        assert len(text.encode()) < bytes_
        response.close()


def test_the_list_describes_every_metric(app, client):
    """The list has each metric's id, description, last period with its interval, reports, and when its collection ended."""
    fill_all(app)
    html = client.get("/").get_data(as_text=True)
    row = html.partition('href="/m/ui.choice"')[2].partition("</li>")[0]
    assert re.search("<b>1,501</b>to 21 Nov(?: 2026)?<", row)
    assert re.search(r"most frequent: [\d.]+% \([\d.]+ to 100%\), 21 Nov(?: 2026)?<", row)  # of this year without the year
    assert "Collection ended on 1 Jan 2001" in html
    assert "<dt>Published</dt><dd>26 Nov 2026, 11:00 UTC</dd>" in html
    text = client.get("/m/usage.hour").get_data(as_text=True)
    assert '<time datetime="2026-11-26T11:00:00+00:00">26 Nov 2026, 11:00 UTC</time>' in text
    assert re.search(r'role="img" aria-label="24 values; the largest is', html)
    assert re.search(r'data-text="ui.choice which &lt;b&gt;one&lt;/b&gt; &amp; why design@shop.example plain &lt;script', html)
    assert "Nothing is published yet" not in html


def test_metrics_stand_by_what_happened(app, client):
    """Those that changed come first; then those not shown, those without a change, and those of one period."""
    for day, yes in (("2026-11-14", 200), ("2026-11-21", 700)):
        fill(app, "ui.dark", [1000 - yes, yes], day)
        fill(app, "usage.hour", [50] * 24, day)
    fill(app, "wide", [10] * 600)
    publish(app)
    html = client.get("/").get_data(as_text=True)
    assert re.findall(r'class="group" aria-labelledby="(\w+)"', html) == ["changed", "unpublished", "steady", "single"]
    by_group = {
        part.partition('"')[0]: re.findall(r'<a href="/m/([^"]+)"', part)
        for part in html.split('class="group" aria-labelledby="')[1:]
    }
    assert by_group == {"changed": ["ui.dark"], "unpublished": ["ui.choice"], "steady": ["usage.hour"], "single": ["wide"]}
    assert '<p class="changed">1 of 4 metrics changed. ' in html
    assert "<b>1 metric is not shown yet</b>" in html
    words = re.search(r'<span class="up">▲ (rose by .* points)</span><br>14 to 21 Nov 2026', html)[1]
    assert f"“yes” {words}, from 14 November to 21 November 2026." in client.get("/m/ui.dark").get_data(as_text=True)
    assert f'<p class="headline" dir="auto">ui.dark: “yes” {words}, 14 to 21 Nov 2026</p>' in html
    assert re.search("No change since 14 Nov(?: 2026)?<br>Too few days for a trend", html)
    for state, ids in by_group.items():
        assert re.findall(r'<h3><a href="/m/([^"]+)"', client.get(f"/?state={state}").get_data(as_text=True)) == ids
    rows, name = table(client, "/overview.csv")
    assert name == 'attachment; filename="shop-overview.csv"'
    assert {row["metric"]: row["state"] for row in rows} == {id_: state for state, ids in by_group.items() for id_ in ids}
    change = client.get("/api/v1/metrics/ui.dark/series", headers={"Authorization": f"Bearer {READ_KEY}"}).get_json()
    (line,) = [each for each in change["lines"] if each["value"] is True]
    dark = next(row for row in rows if row["metric"] == "ui.dark")
    assert float(dark["estimate"]) == line["points"][-1]["estimate"]
    assert {row["metric"]: row["unit"] for row in rows} == {
        "ui.dark": "share",
        "usage.hour": "",  # no answer stands out
        "wide": "",
        "ui.choice": "",
    }
    assert float(dark["difference"]) == line["change"]["difference"]
    assert [float(dark[name]) for name in ("diff_low_all", "diff_high_all")] == line["change"]["simultaneous"]
    assert float(dark["p_holm"]) == pytest.approx(2 * line["change"]["p_value"])  # of two metrics with tests
    assert dark["trend"] == ""
    assert [row["metric"] for row in table(client, "/overview.csv?state=changed&type=boolean")[0]] == ["ui.dark"]


def test_a_row_is_made_again_when_something_is_published(app, client):
    """What was published since the last look is shown at once."""
    fill_all(app)
    assert re.search("to 21 Nov(?: 2026)?<", client.get("/?q=usage").get_data(as_text=True))
    fill(app, "usage.hour", [20] * 24, "2026-11-22")
    publish(app)
    assert re.search("to 22 Nov(?: 2026)?<", client.get("/?q=usage").get_data(as_text=True))


ALONE = "This metric is tested alone; the list tests all metrics together, and may not find this."


def test_a_trend_counts_as_a_change(app, client):
    """A metric that changes slowly is among those that changed, though nothing shows between two periods."""
    for day in range(1, 22):
        fill(app, "ui.dark", [700 - 3 * day, 300 + 3 * day], f"2026-11-{day:02}")
        fill(app, "usage.hour", [50 + (3 * hour + 5 * day) % 7 for hour in range(24)], f"2026-11-{day:02}")
    publish(app)
    html = client.get("/").get_data(as_text=True)
    assert '<p class="changed">1 of 4 metrics changed. ' in html
    words = re.search(r'<span class="up">▲ (rose by [\d.]+ to [\d.]+ points a day, in all [\d.]+ to [\d.]+ points)</span>', html)[
        1
    ]
    assert f'<p class="headline" dir="auto">ui.dark: “yes” {words}, 1 to 21 Nov 2026</p>' in html
    page = client.get("/m/ui.dark").get_data(as_text=True)
    assert f"On average “yes” {words}, from 1 November to 21 November 2026. Sizes are 95% intervals. {ALONE}" in page
    assert "No change beyond chance from 14 November to 21 November 2026: " in page
    assert 'class="flag"' not in html  # nothing happened at one time
    assert re.search("No change since 14 Nov(?: 2026)?<br>No trend since 1 Nov", html)
    rows, _ = table(client, "/overview.csv")
    (dark,) = [row for row in rows if row["metric"] == "ui.dark"]
    assert (dark["state"], dark["trend_value"], float(dark["trend_p_holm"]) < 0.05) == ("changed", "yes", True)
    assert float(dark["p_holm"]) > 0.05
    series = client.get("/api/v1/metrics/ui.dark/series", headers={"Authorization": f"Bearer {READ_KEY}"}).get_json()
    (yes,) = [line for line in series["lines"] if line["value"] is True]
    assert [float(dark[name]) for name in ("trend_low_all", "trend_high_all")] == yes["trend"]["simultaneous"]
    # What was found does not depend on what is searched for.
    assert "1 metric found" in client.get("/?q=dark").get_data(as_text=True)
    assert table(client, "/overview.csv?q=dark")[0] == [dark]


def test_the_picture_in_the_list_is_what_the_sentence_is_about(numbers):
    """Where the mean changed most the mean is drawn, though the median stands for the metric."""
    mechanism = numbers.extensions["deniable"].apps["shop"].highest["startup"].mechanism
    for day, place in (("2026-11-10", 0.4), ("2026-11-17", 0.6)):
        fill(numbers, "startup", of_places(mechanism, np.full(9_000, place), np.random.default_rng(3)).cells.tolist(), day)
    publish(numbers)
    html = numbers.test_client().get("/").get_data(as_text=True)
    row = html.partition('href="/m/startup"')[2].partition("</li>")[0]
    assert "median, " in row.partition('class="now"')[2].partition("</p>")[0]
    assert '<span class="up">▲ the geometric mean rose by ' in row
    assert 'role="img" aria-label="Geometric mean, ' in row
    assert "<figcaption>Geometric mean</figcaption>" in row


class Outcome(NamedTuple):
    """A test with its result, which are one here: lists of thousands of them are made."""

    p_value: float

    @property
    def result(self) -> Outcome:
        return self


@dataclass
class Listed:
    """A row of the list with tests of these p-values."""

    p_values: list[float]
    claims: list[bool] = field(default_factory=list)

    @cached_property
    def tests(self) -> list[Outcome]:
        return [Outcome(each) for each in self.p_values]

    def decided(self, p_holm: list[float], alpha: float) -> Listed:
        return Listed(self.p_values, [each <= alpha for each in p_holm])


def test_each_metric_has_the_same_share_of_the_list():
    """Tests of many answers take nothing from metrics with few; what is found leaves its share to the others."""
    rows = [Listed([0.02]), Listed([0.001] + [0.5] * 99), Listed([0.0004] + [0.5] * 99)]
    assert [sum(row.claims) for row in list_page.together(rows, 0)] == [0, 0, 0]
    rows = [Listed([0.012]), Listed([0.0001] + [0.5] * 99), Listed([])]
    assert [sum(row.claims) for row in list_page.together(rows, 0)] == [1, 1, 0]
    assert [sum(row.claims) for row in list_page.together(rows, 10)] == [0, 0, 0]
    assert list_page.together([Listed([])], 0)[0].claims == []


def test_each_change_is_named_in_the_first_sentences():
    """Three in a whole sentence each, the surest first and what only shifted last; and others by their names."""
    sure, unsure = SimpleNamespace(p_holm=0.001), SimpleNamespace(p_holm=0.01)
    moves = {"a": [unsure], "b": [sure]} | {key: [] for key in "cdefghi"}
    rows = [SimpleNamespace(id=id_, state="changed", moves=moves[id_], says=f"It {id_}.") for id_ in "abcdefghi"]
    for changed, others in ((1, ""), (3, ""), (4, "d"), (5, "d and e"), (9, "d, e, f, g and 2 more")):
        answer = list_page.headline(rows[:changed], {})
        assert answer.says == f"{changed} of {changed} metric{'s' * (changed > 1)} changed"
        names = "a" if changed == 1 else "bac"
        assert answer.moved == [(id_, f"It {id_}.") for id_ in names]
        assert answer.more == (f"Others that changed: {others}." if others else "")


def test_a_refused_metric_says_so_in_the_list(app, client):
    """Where nothing is shown of it because its reports are refused, the list says why, and leads to what to do."""
    with app.app_context():
        store = service().apps["shop"].store
    refused_reports.add(store, {refused_reports.Refused("ui.choice", 1, "definition_mismatch", "1 6f0c2a9e51b3d784"): 3})
    key = schema.REFUSED_HOURS.of("shop")
    for name, hours in store._client.hgetall(key).items():  # what happens in this hour is not shown
        store._client.hset(key, name, " ".join(str(int(hour) - 3600) for hour in hours.split()))
    fill(app, "wide", [10] * 600)
    publish(app)
    html = client.get("/?q=ui.choice").get_data(as_text=True)
    row = html.partition('href="/m/ui.choice"')[2].partition("</li>")[0]
    assert "<b>Reports are refused</b>: the server&#39;s metrics.toml defines the same version" in row
    assert '<a href="/m/ui.choice">What to do</a>' in row
    assert "Reports are refused" not in client.get("/?q=usage").get_data(as_text=True)
    rows = [SimpleNamespace(id=id_, state=state) for id_, state in (("a", "unpublished"), ("b", "steady"))]
    assert list_page.headline(rows, {"a": "period"}).waiting == "1 metric is not shown yet, and its reports are refused"
    assert list_page.headline(rows, {"b": "period"}).waiting == "1 metric is not shown yet"


@pytest.mark.parametrize("alike", [False, True], ids=["independent", "dependent"])
@pytest.mark.parametrize("real", [0, 1, 3])
def test_a_list_makes_few_false_claims(alike, real):
    """Whatever else really changed, at most 5% of lists say anything false: changes and trends of all metrics are one test."""
    rng, runs, sizes, false = np.random.default_rng(11), 4000, (1, 1, 2, 5, 5, 40), 0
    for _ in range(runs):
        p_values = [[each] * size if alike else rng.random(size).tolist() for size in sizes for each in [rng.random()]]
        for at in range(real):  # the first test of these metrics is of something real
            p_values[-1 - at][0] = 1e-9
        rows = list_page.together([Listed(each) for each in p_values], 0)
        false += any(any(row.claims[at >= len(sizes) - real :]) for at, row in enumerate(rows))
    assert false / runs <= 0.05 + 3 * (0.05 * 0.95 / runs) ** 0.5


def test_the_empty_list_says_what_to_do(client):
    """Before the first report the list says so, and what comes next."""
    html = client.get("/").get_data(as_text=True)
    assert "0 reports published" in html
    assert "What to do next" in html
    assert "deniable worker" in html


def test_a_refusal_ends_as_a_sentence(client):
    """With a point, or with the question whether something else was meant."""
    html = client.get("/m/ui.choice?level=95").get_data(as_text=True)
    words = "level is a confidence between 0.5 and 0.999999; this is 95; did you mean 0.95?"
    assert f'<p class="notice" role="alert">{words}</p>' in html
    with client.application.test_request_context("/?a=1"):
        texts = ("", "no", "no.", "no?", "a is x", "a b")
        assert [frame.sentence(each) for each in texts] == ["", "No.", "No.", "No?", "a is x.", "A b."]


def test_an_empty_metric_says_what_to_do(client):
    """A metric without reports has no table, but conditions in order, the next step, and its possible answers."""
    html = client.get("/m/ui.choice").get_data(as_text=True)
    assert '<p class="headline">Nothing is shown yet, because no upload of this app comes</p>' in html
    parts = (
        "It is collected",
        "No upload has come",
        "Nothing of it was refused",
        "No worker runs",
        "500 reports are needed. How many",
        "due 2",
    )
    assert [html.index(each) for each in parts] == sorted(html.index(each) for each in parts)
    assert "Record an answer in the app, with consent, and print what <code>deniable.flush(timeout=5)</code> returns" in html
    assert "; if there are fewer, they wait for those of the next day." in html
    assert "The 5 possible answers" in html
    assert "<table" not in html


def test_epsilon_is_read_in_plain_language(app, client):
    """The bound on the odds is e^epsilon, rounded up so that "at most" stays true."""
    fill_all(app)
    assert "at most e<sup>ε</sup>&nbsp;=&nbsp;2.72 times" in client.get("/m/ui.choice").get_data(as_text=True)
    assert "at most e<sup>ε</sup>&nbsp;=&nbsp;3.00 times" in client.get("/m/ui.dark").get_data(as_text=True)


def test_the_page_says_what_readers_learn(client):
    """After the local epsilon stands the central one of one report, with its condition."""
    html = client.get("/m/ui.choice").get_data(as_text=True)
    assert re.search(r"whatever else they know.*Readers of published sums learn at most ε = 0\.\d+ of it, with delta 1e-06", html)
    assert "if the operator is trusted and 500 reports of each period and segment are honest; with half of them" in html


def test_the_page_says_what_a_relay_leaves_to_the_server(make):
    """Both figures of a report that a relay mixes, the local one first."""
    html = make(relay_toml(mixed_toml("ui.mixed"))).test_client().get("/m/ui.mixed").get_data(as_text=True)
    parts = (
        "A report alone: at most ε = 3, whoever sees it, also if Example Foundation and the server work together",
        "10,000 reports of its pool are honest, the server learns at most ε = 0.3 of it",
        "Nobody can check that they do not work together",
    )
    assert [html.index(each) for each in parts] == sorted(html.index(each) for each in parts)


def test_the_numbers_are_those_of_the_api(app, client):
    """The table shows what the query API tells, and does not clip a negative estimate."""
    fill_all(app)
    answer = client.get("/api/v1/metrics/ui.choice", headers={"Authorization": f"Bearer {READ_KEY}"}).get_json()
    rows = Rows(client.get("/m/ui.choice?order=domain").get_data(as_text=True)).rows
    assert len(rows) == len(answer["estimates"])
    for row, estimate in zip(rows, answer["estimates"], strict=True):
        matches = [
            float(number) for cell in row[1:] for number in re.findall(r"-?[\d.]+", cell.replace(MINUS, "-").replace(",", ""))
        ]
        share, *ends = (100 * number for number in (estimate["estimate"], *estimate["interval"], *estimate["simultaneous"]))
        assert matches[0] == pytest.approx(share, abs=0.5)
        for (low, high), (least, most) in zip((matches[1:3], matches[3:]), (ends[:2], ends[2:]), strict=True):
            assert least - 1 < low <= least < most <= high < most + 1  # rounded outwards
    assert rows[4][1].startswith(MINUS)
    assert answer["estimates"][4]["estimate"] < -0.2


@pytest.mark.parametrize("path", ["/m/{}", "/m/{}/compare?a=2026-11-20&b=2026-11-21"])
def test_yes_and_no_have_one_interval(app, client, path):
    """All of two values at once is what one of them says; of more values it is more, and has a column."""
    for day in ("2026-11-20", "2026-11-21"):
        fill(app, "ui.dark", [700, 300], day)
        fill(app, "ui.choice", [400, 300, 200, 100, 0], day)
    publish(app)
    dark, choice = (client.get(path.format(id_)).get_data(as_text=True) for id_ in ("ui.dark", "ui.choice"))
    assert "all values at once" in choice
    assert ">All at once</th>" in choice
    assert "at once" not in re.sub("everything is published at once", "", dark)
    assert "95% interval" in dark
    assert "Two kinds of interval" not in dark
    assert dark.count("<td") < choice.count("<td")


def test_the_consistent_view(app, client):
    """The page shows possible shares when asked to: those of the API, with possible intervals, and says which it shows."""
    fill_all(app)
    answer = client.get("/api/v1/metrics/ui.choice", headers={"Authorization": f"Bearer {READ_KEY}"}).get_json()
    html = client.get("/m/ui.choice?order=domain&view=consistent").get_data(as_text=True)
    for row, estimate in zip(Rows(html).rows, answer["estimates"], strict=True):
        assert float(row[1].rstrip("%")) == pytest.approx(100 * estimate["consistent"], abs=0.5)
        assert 0 <= estimate["consistent"] <= 1
        assert MINUS not in "".join(row[1:])
    assert sum(row["consistent"] for row in answer["estimates"]) == pytest.approx(1)
    assert "These shares are consistent" in html
    assert answer["lowered_by"] == pytest.approx(
        max(row["estimate"] - row["consistent"] for row in answer["estimates"] if row["consistent"])
    )
    assert "points, so that all sum to 100%." in html
    assert re.search(r'<a href="[^"]*view=consistent" aria-current="true">Consistent</a>', html)
    assert "order=estimate&amp;view=consistent" in html
    plain = client.get("/m/ui.choice").get_data(as_text=True)
    assert "These shares are consistent" not in plain
    assert re.search(r'aria-current="true">Unbiased</a>', plain)


def test_what_is_negative_is_drawn_at_the_edge_and_muted(app, client):
    """An estimate below 0 has a triangle at the edge, and a value that was not detected says so."""
    fill_all(app)
    html = client.get("/m/ui.choice").get_data(as_text=True)
    last = html.partition('id="values"')[2].split("<tbody>")[1].partition("</tbody>")[0].split("</tr>")[-2]
    assert 'class="beyond"' in last
    assert "(not detected)" in last
    assert '<tr class="faint">' in last
    assert not re.search(r'(x1|x2|x|width)="-', html.split("<tbody>")[1])


@pytest.mark.parametrize(
    ("page", "first", "last"),
    [
        ("/m/ui.choice", HOSTILE, "never"),
        ("/m/ui.choice?order=domain", "plain", "never"),
        ("/m/usage.hour", "00:00", "23:00"),
        ("/m/usage.hour?order=estimate", "23:00", "00:00"),
        ("/m/ui.dark", "no", "yes"),
    ],
)
def test_order(app, client, page, first, last):
    """Categories begin with the largest; what has an order of its own keeps it; either can be asked for."""
    fill_all(app)
    rows = Rows(client.get(page).get_data(as_text=True)).rows
    assert rows[0][0].startswith(first)
    assert rows[-1][0].startswith(last)


def test_one_period_and_segment(app, client):
    """The form's choice narrows what is counted, stays chosen, and is kept by the links that order."""
    fill_all(app)
    html = client.get("/m/ui.choice?period=2026-11-20&segment=platform%3Dmacos").get_data(as_text=True)
    assert "<span>500 reports on " in html
    assert '<option value="2026-11-20" selected>up to 20 Nov 2026</option>' in html
    assert '<option value="platform=macos" selected>platform = macos</option>' in html
    assert "period=2026-11-20&amp;segment=platform%3Dmacos&amp;order=domain" in html
    assert re.findall(r'<option value="(2026[^"]*)"', html) == ["2026-11-20"]  # the periods that have an answer for this segment
    assert "<span>1,501 reports on " in client.get("/m/ui.choice?period=&segment=").get_data(as_text=True)


def test_a_period_without_a_release_is_shown_as_such(app, client):
    """A period without a release is a page like any other: it says so, and leads back to everything."""
    fill_all(app)
    response = client.get("/m/ui.choice?period=2099-01-01")
    html = response.get_data(as_text=True)
    assert response.status_code == 200
    assert "1 January 2099 lies ahead, so nobody can have answered in it; last published is 21 November 2026. " in html
    assert '<a href="/m/ui.choice?period=2026-11-21">Show 21 Nov 2026</a>' in html
    assert 'class="changed"' not in html  # what changed at another time is no answer
    assert 'href="/m/ui.choice"' in html
    assert "never" not in html


def test_what_is_absent_says_where_something_is(app, client):
    """Of a period of another kind the page has everything that is published, and says how a period is written."""
    fill_all(app)
    response = client.get("/m/ui.choice?period=2026-W40")
    html = response.get_data(as_text=True)
    (notice,) = re.findall(r'<p class="notice" role="alert">([^<]*)</p>', html)
    assert "write it like " in notice
    assert "2026-W40" in notice
    assert response.status_code == 400
    assert 'class="headline"' in html


SPANS = [Span("2026-11-02", "2026-11-02"), Span("2026-11-05", "2026-11-06")]


@pytest.mark.parametrize(
    ("period", "words", "near"),
    [
        ("2026-11-01", "1 November 2026 lies before the first day published, 2 November 2026", ["2026-11-02"]),
        (
            "2026-11-03",
            "nothing of theme is published of 3 November 2026; nearest are 2 November 2026 and 6 November 2026",
            [0, 1],
        ),
        ("2026-11-09", "nothing of theme is published of 9 November 2026; nearest is 6 November 2026", ["2026-11-06"]),
        ("2999-01-01", "1 January 2999 lies ahead, so nobody can have answered in it; last published is 6 November 2026", [1]),
        (None, "nothing of theme is published of this segment", None),
    ],
)
def test_an_absence_is_explained(period, words, near):
    """It says whether a period lies before, after or between what is published, and names what is nearest."""
    assert why_absent("theme", period, SPANS, "day", "") == words
    if period:
        assert [span.last for span in nearest(period, SPANS)] == [SPANS[at].last if isinstance(at, int) else at for at in near]
    assert why_absent("theme", period, [], "day", "soon") == "nothing of theme is published yet: soon"
    assert why_absent("theme", period, [], "day", "") == "nothing of theme is published of this segment"


def test_the_level_of_a_page(app, client):
    """A page takes a level, shows it, and keeps it in its form and links, also to other metrics; one that is none is refused."""
    fill_all(app)
    usual, sure = (client.get(f"/m/ui.choice{query}").get_data(as_text=True) for query in ("", "?level=0.99"))
    assert ("95% interval" in usual, "99% interval" in usual) == (True, False)
    assert ("95% interval" in sure, "99% interval" in sure) == (False, True)
    assert '<option value="0.99" selected>99%</option>' in sure
    assert 'href="/m/ui.dark?level=0.99" rel="next"' in sure
    assert "level=0.99&amp;order=" in sure
    assert client.get("/m/ui.choice?level=2").status_code == 400


def test_too_few_reports_are_not_shown(app, client):
    """Below the metric's own minimum nothing is told, not even that there are some; at it the period is published."""

    def without_clock():
        return re.sub(r"\d\d:\d\d UTC", "", client.get("/m/ui.choice").get_data(as_text=True))

    empty = without_clock()
    fill(app, "ui.choice", [100, 100, 100, 100, 99], segment="platform=linux")
    publish(app)
    assert without_clock() == empty
    assert "500 reports are needed, and the next release is due" in empty
    fill(app, "ui.choice", [0, 0, 0, 0, 1], segment="platform=linux")
    publish(app)
    assert "<span>500 reports on " in client.get("/m/ui.choice").get_data(as_text=True)


def test_a_path_of_whole_numbers_leads_through_its_points():
    """Each step is from the last point, so the sum of all steps so far is the next point; a minus needs no space before it."""
    points = [(3, 40), (10, 40), (11, 2), (9, 50), (9, 49)]
    path = chart.whole_path(points)
    assert path == "M3 40l7 0 1-38 -2 48 0-1"
    numbers = [int(each) for each in re.findall(r"-?\d+", path)]
    assert list(zip(np.cumsum(numbers[::2]), np.cumsum(numbers[1::2]), strict=True)) == points
    assert chart.whole_path(points[:1]) == "M3 40"


def test_very_many_values_have_pages(app, client):
    """Of 600 values each page shows 18 on one scale, in less than 60 KB, with links to its neighbours."""
    fill_all(app)
    pages = [client.get(f"/m/wide?order=domain&page={page}").get_data(as_text=True) for page in range(1, 35)]
    assert [row[0].removesuffix("(not detected)") for page in pages for row in Rows(page).rows] == [f"v{i}" for i in range(600)]
    assert len({re.search(r'<g id="grid">.*?</g>', page)[0] for page in pages}) == 1
    assert max(len(page.encode()) for page in pages) < 60_000
    assert "Values 19 to 36 of 600." in pages[1]
    for page, links in zip(pages, ([2], *([page - 1, page + 1] for page in range(2, 34)), [33]), strict=True):
        assert [int(results) for results in re.findall(r'order=domain&amp;page=(\d+)" rel', page)] == links
    for page in ("0", "35", "x", "1" * 30):
        assert client.get(f"/m/wide?page={page}").status_code == 404


def test_a_raised_version_leaves_the_former_one_on_the_page(app, client, make):
    """A metric whose version was raised begins anew, and what was published of the former one is shown as that."""
    fill_all(app)
    raised = REGISTRY.replace('[metrics."ui.dark"]', '[metrics."ui.dark"]\nversion = 2')
    html = make(raised).test_client().get("/m/ui.dark").get_data(as_text=True)
    assert "A higher version replaced this one in the registry." in html
    assert "Nothing is published yet" not in html + client.get("/m/ui.dark").get_data(as_text=True)


# Finding metrics, and taking numbers along

MANY = REGISTRY + "".join(
    metric_toml(f"more.{number}", description=f"Whether number {number} is on", owner="many@shop.example") for number in range(60)
)


@pytest.mark.parametrize(
    ("query", "ids"),
    [
        ("q=HOUR", ["usage.hour"]),
        ("q=hour+shop.example", ["usage.hour"]),
        ("q=design%40&type=boolean", ["ui.dark"]),
        ("type=ordinal", ["usage.hour"]),
        ("q=nothing", []),
        ("q=&type=", None),
    ],
)
def test_metrics_are_found(make, query, ids):
    """By words of id, description and owner, and by type; the page says how many."""
    html = make(MANY).test_client().get(f"/?{query}").get_data(as_text=True)
    matches = re.findall(r'<h3><a href="/m/([^"]+)"', html)
    if ids is None:
        assert len(matches) == 48
        assert " found. " not in html
    else:
        assert matches == ids
        assert f"{len(ids)} metric{'s' if len(ids) != 1 else ''} found." in html
        assert "64 metrics," in html
        assert bool(ids) != ("No metric matches" in html)
        assert bool(ids) != ('<a href="/">Clear the filters</a>' in html)


def test_what_was_sought_stays(make):
    """The next page of what was found has the same search, and the form shows it."""
    client = make(MANY).test_client()
    html = client.get("/?q=many%40&type=boolean").get_data(as_text=True)
    assert 'value="many@"' in html
    assert "<option selected>boolean</option>" in html
    (link,) = re.findall(r'href="([^"]+)" rel="next"', html)
    after = client.get(link.replace("&amp;", "&")).get_data(as_text=True)
    assert len(re.findall(r"<h3><a ", after)) == 12
    assert 'type="search"' in make().test_client().get("/").get_data(as_text=True)  # also of few metrics


def test_metrics_before_and_after(client):
    """Each metric leads to its neighbours in the registry's order."""
    links = [re.findall(r'href="/m/([^"]+)" rel="(\w+)"', client.get(f"/m/{id_}").get_data(as_text=True)) for id_ in ORDER]
    assert links[0] == [("ui.dark", "next")]
    assert links[1] == [("ui.choice", "prev"), ("usage.hour", "next")]
    assert links[-1] == [("usage.hour", "prev")]


def table(client, path):
    response = client.get(path)
    assert response.status_code == 200
    assert response.mimetype == "text/csv"
    assert response.headers["Cache-Control"] == "no-store"
    return list(csv.DictReader(StringIO(response.get_data(as_text=True)))), response.headers["Content-Disposition"]


def test_values_as_a_file(app, client):
    """The file has the numbers of the API with all digits, and is named after the metric; it takes what the page takes."""
    fill_all(app)
    head = {"Authorization": f"Bearer {READ_KEY}"}
    for query in ("", "?period=2026-11-20", "?segment=platform%3Dmacos", "?level=0.99"):
        rows, name = table(client, f"/m/ui.choice/values.csv{query}")
        headers = client.get(f"/api/v1/metrics/ui.choice{query}", headers=head).get_json()
        assert name == 'attachment; filename="shop-ui.choice-values.csv"'
        assert [row["value"] for row in rows] == LABELS
        assert [float(row["estimate"]) for row in rows] == [each["estimate"] for each in headers["estimates"]]
        assert [[float(row["low"]), float(row["high"])] for row in rows] == [each["interval"] for each in headers["estimates"]]
        assert {float(row["level"]) for row in rows} == {headers["level"]}
        values = {name: headers[name] for name in ("version", "segment", "mechanism")} | headers["days"]
        written = {name: str(value or "") for name, value in values.items()} | {"metric": "ui.choice"}
        written["unit"] = "share"
        assert all(row.items() >= written.items() for row in rows)  # the file says what it is of
    assert client.get("/m/ui.choice/values.csv?period=never").status_code == 400
    html = client.get("/m/ui.choice?segment=platform%3Dmacos&level=0.99").get_data(as_text=True)
    assert 'href="/m/ui.choice/values.csv?segment=platform%3Dmacos&amp;level=0.99" download' in html


def test_series_as_a_file(app, client):
    """A line for each period and value, with the words of the API."""
    fill_all(app)
    rows, name = table(client, "/m/ui.choice/series.csv")
    headers = client.get("/api/v1/metrics/ui.choice/series", headers={"Authorization": f"Bearer {READ_KEY}"}).get_json()
    assert name == 'attachment; filename="shop-ui.choice-series.csv"'
    assert {(row["period"], row["state"]) for row in rows} == {(each["period"], each["state"]) for each in headers["periods"]}
    assert {(row["period"], row["from"], row["to"]) for row in rows if row["to"]} == {
        (each["period"], each["days"]["from"] or "", each["days"]["to"]) for each in headers["periods"] if each["days"]
    }
    assert all(bool(row["reason"]) != bool(row["estimate"]) for row in rows)
    last = {row["value"]: float(row["estimate"]) for row in rows if row["period"] == headers["periods"][-1]["period"]}
    assert last == {line["label"]: line["points"][-1]["estimate"] for line in headers["lines"]}
    assert 'href="/m/ui.choice/series.csv" download' in client.get("/m/ui.choice").get_data(as_text=True)


@pytest.mark.parametrize(
    ("answer", "written"), [("=1+1", "'=1+1"), (" =1+1", "' =1+1"), ("\uff1d1+1", "'\uff1d1+1"), ("-5", "-5")]
)
def test_a_file_runs_no_formula(make, answer, written):
    """A spreadsheet shows an answer such as =1+1 as it is; a number stays one."""
    app = make(REGISTRY.replace('"never"]', f'"{answer}"]'))
    fill_all(app)
    rows, _ = table(app.test_client(), "/m/ui.choice/values.csv")
    assert rows[-1]["value"] == written
    assert rows[-1]["estimate"].startswith("-")


def test_files_ask_for_the_key(locked):
    """Nobody takes along what they may not see."""
    for name in ("values", "series"):
        assert locked.get(f"/m/ui.choice/{name}.csv").location == "/login"


def test_years_of_hours_are_not_all_offered():
    """The last ones are, and an older one that is shown: a page of a thousand days must stay small."""
    spans = [Span(f"{n:04}", f"{n:04}") for n in range(1000)]
    assert [each.last for each in metric_page.offered(spans)] == [f"{n:04}" for n in range(999, 633, -1)]
    assert [each.last for each in metric_page.offered(spans, "0003", None, "0999")] == [
        f"{n:04}" for n in range(999, 633, -1)
    ] + ["0003"]
    assert metric_page.offered(spans[:2]) == [spans[1], spans[0]]


@pytest.mark.parametrize(("query", "offered"), [("", 1), ("?period=2026-11-20", 2)])
def test_periods_to_choose_from(app, client, monkeypatch, query, offered):
    """A page offers the last periods, and the one that it shows."""
    fill_all(app)
    monkeypatch.setattr(metric_page, "_MOST_PERIODS", 1)
    html = client.get(f"/m/ui.choice{query}").get_data(as_text=True)
    assert len(re.findall(r"<option[^>]*>(?:up to )?\d+ Nov 2026", html)) == offered


# Failures


@pytest.mark.parametrize("page", ["/?level=0.9", "/m/ui.dark?limit=3", "/m/ui.dark?only=detected"])
def test_a_page_refuses_parameters_that_it_does_not_have(client, page):
    """Else the audit log would tell of a query that was not made."""
    response = client.get(page)
    assert response.status_code == 400
    name = re.search(r"\?(\w+)=", page)[1]
    assert re.search(rf"\b{name}: there is no such parameter; \w", response.get_data(as_text=True))


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ("/m/ui.dark?view=nice", "view is one of unbiased, consistent; this is nice."),
        ("/m/ui.dark?order=nice", "order is one of estimate, domain; this is nice."),
        ("/?state=weird", "state is one of changed, unpublished, steady, single; this is weird."),
        ("/overview.csv?state=weird", "state is one of changed, unpublished, steady, single; this is weird."),
        ("/?sort=weird", "sort is one of name, owner, reports; this is weird."),
        ("/m/ui.dark?value=maybe", "ui.dark has no value &#39;maybe&#39;: its values are "),
        ("/m/ui.dark/chart.svg?value=maybe", "ui.dark has no value &#39;maybe&#39;: its values are "),
    ],
)
def test_a_page_refuses_values_that_a_parameter_does_not_have(app, client, page, words):
    """It lists those that there are; names stay as they are written."""
    fill_all(app)
    response = client.get(page)
    assert (response.status_code, words in response.get_data(as_text=True)) == (400, True)


@pytest.mark.parametrize("page", ["/m/unknown", "/?app=unknown"])
def test_what_is_unknown_is_a_page(client, page):
    """An unknown metric or app is 404, in HTML, with a way back."""
    response = client.get(page)
    assert response.status_code == 404
    assert "Not Found" in response.get_data(as_text=True)
    assert 'href="/"' in response.get_data(as_text=True)


@pytest.mark.parametrize("path", ["/nothing", "/experiments/arm"])
def test_an_address_without_a_page_is_a_page_for_browsers(client, path):
    """With a way back and the headers of pages; programs, and everybody at the APIs, get a problem."""
    browser = {"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}
    response = client.get(path, headers=browser)
    assert (response.status_code, response.mimetype) == (404, "text/html")
    assert "There is no page at this address." in response.get_data(as_text=True)
    assert 'href="/"' in response.get_data(as_text=True)
    assert "default-src 'none'" in response.headers["Content-Security-Policy"]
    assert client.get(path, headers=browser | {"Host": "elsewhere.example"}).status_code == 421
    for other in (client.get(path), client.get(f"/api/v1{path}", headers=browser), client.get(f"/v1{path}", headers=browser)):
        assert (other.status_code, other.get_json()["code"]) == (404, "not_found")


def test_a_comparison_names_the_value_that_there_is_not(client):
    html = unescape(client.get("/m/ui.choice/compare?a=platform=linux&b=platform=xx").get_data(as_text=True))
    assert "platform has no value 'xx': write one of linux" in html


@pytest.mark.parametrize("page", ["/", "/m/ui.choice"])
def test_without_the_store_the_page_says_so(client, redis, page):
    """A store that cannot be reached is 503, in HTML, without an exception's text."""
    redis.connection_pool.disconnect()
    redis.connection_pool.connection_kwargs["path"] = "/nowhere"
    response = client.get(page)
    html = response.get_data(as_text=True)
    assert response.status_code == 503
    assert response.headers["Retry-After"] == "5"
    assert "The store cannot be used: " in html
    assert not re.search("Traceback|ConnectionError|redis://", html)


def test_a_fault_of_ours_is_a_page_without_its_text(client, monkeypatch, caplog):
    """An unforeseen error is 500, in HTML, and its text is neither shown nor logged."""

    def fail(*_: object) -> None:
        raise RuntimeError("a secret text")

    monkeypatch.setattr(list_page, "latest", fail)
    response = client.get("/")
    assert response.status_code == 500
    assert response.mimetype == "text/html"
    assert "a secret text" not in response.get_data(as_text=True) + caplog.text
    assert "RuntimeError" in caplog.text


def test_the_api_keeps_its_own_errors(client):
    """The pages' way to fail does not reach the API."""
    assert client.get("/api/v1/metrics").mimetype == "application/problem+json"


# Access


def token(client: FlaskClient) -> str:
    match = re.search(r'name="token" value="([^"]+)"', client.get("/login").get_data(as_text=True))
    assert match
    return match[1]


@pytest.fixture
def locked(make) -> FlaskClient:
    """Make a browser before pages that ask for a key."""
    app = make(dashboard="key")
    fill_all(app)
    return app.test_client()


@pytest.mark.parametrize("page", ["/", "/m/ui.choice", "/m/unknown", "/?app=shop"])
def test_pages_ask_for_the_key(locked, page):
    """Without a session every page, known or not, leads to the form."""
    response = locked.get(page)
    assert (response.status_code, response.location) == (303, "/login")


def test_a_program_with_a_key_is_told_where_keys_are_taken(locked):
    """A redirect to a form would be stored as a file. What a proxy asks of a browser is no key of ours."""
    answer = locked.get("/m/ui.choice/values.csv", headers={"Authorization": f"Bearer {READ_KEY}"})
    assert (answer.status_code, answer.mimetype) == (401, "application/problem+json")
    assert "GET /api/v1/query" in answer.get_json()["detail"]
    assert locked.get("/m/ui.choice", headers={"Authorization": "Basic YTpi"}).location == "/login"


def test_the_key_opens_the_page_that_was_wanted(locked):
    """The right key leads on to the page first asked for, and signing out closes it again."""
    locked.get("/m/ui.choice?order=domain")
    response = locked.post("/login", data={"token": token(locked), "key": f" {READ_KEY} "})
    assert (response.status_code, response.location) == (303, "/m/ui.choice?order=domain")
    page = locked.get(response.location)
    assert page.status_code == 200
    assert locked.get("/").status_code == 200
    match = re.search(r'name="token" value="([^"]+)"', page.get_data(as_text=True))
    assert match
    assert locked.post("/logout", data={"token": match[1]}).status_code == 303
    assert locked.get("/").location == "/login"


def test_a_key_of_another_role_is_told_apart(locked):
    """Whoever takes the address's key for the page's is told which key the page takes."""
    html = locked.post("/login", data={"token": token(locked), "key": "pk_not_the_one"}).get_data(as_text=True)
    assert "This takes a key that begins with rk_; the one given begins with pk_, as ingest keys do." in html


@pytest.mark.parametrize("key", ["", "wrong-key", "ключ 🗝"])
def test_a_wrong_key_is_refused(locked, key):
    """A key that is not known is 401 on the same form, and is not repeated there."""
    response = locked.post("/login", data={"token": token(locked), "key": key})
    html = response.get_data(as_text=True)
    assert response.status_code == 401
    assert "The read key is not known here" in html
    assert not key or key not in html
    assert response.headers["Content-Security-Policy"]
    assert locked.get("/").location == "/login"


def test_a_key_of_an_app_that_is_not_served_is_told_so(locked):
    """The key is good: the page says that the app is not served, and does not repeat the key."""
    response = locked.post("/login", data={"token": token(locked), "key": "gone-reads"})
    html = response.get_data(as_text=True)
    assert response.status_code == 503
    assert "does not serve gone yet" in html, re.sub(r"<[^>]+>", " ", html)
    assert "gone-reads" not in html
    assert locked.get("/").location == "/login"


@pytest.mark.parametrize("guess", [None, "", "guessed", "ключ"])
def test_a_foreign_form_is_refused(locked, guess):
    """A form without the session's token opens nothing, even with the right key, and closes nothing."""
    right = token(locked)
    response = locked.post("/login", data={"key": READ_KEY} | ({} if guess is None else {"token": guess}))
    assert response.status_code == 400
    assert locked.get("/").location == "/login"
    locked.post("/login", data={"token": right, "key": READ_KEY})
    locked.post("/logout", data={} if guess is None else {"token": guess})
    assert locked.get("/").status_code == 200


def test_a_form_of_no_session_is_refused(locked):
    """A form sent by a browser that has no cookie of ours opens nothing."""
    assert locked.post("/login", data={"token": "", "key": READ_KEY}).status_code == 400


def test_a_session_ends(locked, redis):
    """Twelve hours after signing in the store has forgotten it, and the key is asked for again."""
    locked.post("/login", data={"token": token(locked), "key": READ_KEY})
    assert locked.get("/").status_code == 200
    (stored,) = redis.scan_iter("{shop}:session:*")
    assert 12 * 3600 - 60 < redis.ttl(stored) <= 12 * 3600
    redis.pexpire(stored, 1)
    sleep(0.01)
    assert locked.get("/").location == "/login"


def cookie(client: FlaskClient) -> str:
    stored = client.get_cookie("deniable")
    assert stored
    return stored.value


def test_signing_out_ends_a_copy_of_the_cookie(locked):
    """Whoever kept the cookie is out when its owner signs out, or signs in again; other browsers stay signed in."""
    other = locked.application.test_client()
    other.post("/login", data={"token": token(other), "key": READ_KEY})
    thief = locked.application.test_client()
    for leave in (
        lambda: locked.post("/logout", data={"token": token(locked)}),
        lambda: locked.post("/login", data={"token": token(locked), "key": READ_KEY}),
    ):
        locked.post("/login", data={"token": token(locked), "key": READ_KEY})
        thief.set_cookie("deniable", cookie(locked))
        assert thief.get("/").status_code == 200
        leave()
        assert thief.get("/").location == "/login"
    assert other.get("/").status_code == 200


def test_signing_in_renews_the_session(locked):
    """Whoever planted a cookie before somebody signed in knows nothing of the session that begins then."""
    planted = {"number": "planted", "token": "planted", "app": "shop", "page": "/m/ui.dark"}
    with locked.session_transaction() as session:
        session.update(planted)
    assert locked.post("/login", data={"token": "planted", "key": READ_KEY}).location == "/m/ui.dark"
    with locked.session_transaction() as session:
        first = dict(session)
    assert set(first) == {"app", "number"}
    assert first["number"] != "planted"
    locked.post("/login", data={"token": token(locked), "key": READ_KEY})
    with locked.session_transaction() as session:
        assert session["number"] not in ("planted", first["number"])


def test_a_cookie_is_not_enough(locked, redis):
    """A cookie that is rightly signed, by whoever got the secret, opens nothing: not even with what the store holds."""
    locked.post("/login", data={"token": token(locked), "key": READ_KEY})
    (stored,) = redis.scan_iter("{shop}:session:*")
    for item in ("", "guessed", stored.decode().rpartition(":")[2]):
        with locked.session_transaction() as session:
            session["number"] = item
        assert locked.get("/").location == "/login"


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8080", "localhost.evil.example", "localhost@evil.example", "127.0.0.2", ""]
)
@pytest.mark.parametrize("page", ["/", "/m/ui.choice", "/login", "/live"])
def test_open_pages_are_shown_under_our_names_only(client, host, page):
    """A page of somebody else, whose name leads to this machine, reads nothing of ours, not even which apps there are."""
    response = client.get(page, headers={"Host": host})
    assert (response.status_code, response.get_json()["code"]) == (421, "unknown_host")
    assert "shop" not in response.get_data(as_text=True)


def test_names_of_ours(make):
    """Loopback's names and those of the settings are ours, with any port; probes and pages that ask for a key answer to any."""
    client = make(hosts="telemetry.lan, 192.0.2.7").test_client()
    for host in ("localhost:8080", "LOCALHOST", "127.0.0.1:8080", "[::1]:8080", "Telemetry.lan", "192.0.2.7:80"):
        assert client.get("/", headers={"Host": host}).status_code == 200, host
    assert client.get("/", headers={"Host": "evil.example"}).status_code == 421
    assert client.get("/healthz", headers={"Host": "10.0.0.7:8080"}).status_code == 200
    assert make(dashboard="key").test_client().get("/login", headers={"Host": "shop.example"}).status_code == 200


def test_a_key_opens_its_own_app_only(make):
    """Where pages ask for a key, the address cannot name another app."""
    client = make(REGISTRY, OTHER, dashboard="key", read_keys=f"shop:{READ_KEY},labs:labs-reads").test_client()
    client.post("/login", data={"token": token(client), "key": "labs-reads"})
    assert "lab.on" in client.get("/?app=labs").get_data(as_text=True)
    for path in ("/?app=shop", "/?app=unknown", "/m/ui.choice?app=shop", "/overview.csv?app=shop"):
        answer = client.get(path)
        assert answer.status_code == 403
        html = answer.get_data(as_text=True)
        assert "You are signed in to labs." in html
        assert "Sign out" in html
        assert "Which &lt;b&gt;one" not in html
    assert client.get("/m/ui.choice").status_code == 404


def test_a_forged_session_opens_nothing(locked):
    """A cookie that the server did not sign is none."""
    locked.set_cookie("deniable", "eyJhcHAiOiJzaG9wIiwic2luY2UiOjk5OTk5OTk5OTl9.aSBb2A.AAAAAAAAAAAAAAAAAAAAAAAAAAA")
    assert locked.get("/").location == "/login"


def test_open_pages_have_no_session(client):
    """Where pages are open there is no form to sign in, no cookie, and nothing to sign out of."""
    assert client.get("/login").location == "/"
    response = client.get("/")
    assert "Set-Cookie" not in response.headers
    assert "Sign out" not in response.get_data(as_text=True)


def test_open_pages_keep_the_app_in_their_links(make):
    """With several apps the first is shown by default, and links repeat the one that was asked for."""
    client = make(REGISTRY, OTHER).test_client()
    assert 'href="/m/ui.choice"' in client.get("/").get_data(as_text=True)
    html = client.get("/?app=labs").get_data(as_text=True)
    assert 'href="/m/lab.on?app=labs"' in html
    assert 'href="/?app=shop"' in html
    assert client.get("/m/lab.on").status_code == 404
    assert 'href="/?app=labs"' in client.get("/m/lab.on?app=labs").get_data(as_text=True)


# Geometry


@pytest.mark.parametrize(
    ("most", "labels"),
    [
        (0.39, ["0%", "10%", "20%", "30%", "40%"]),
        (0.3, ["0%", "10%", "20%", "30%"]),
        (0.13, ["0%", "5%", "10%", "15%"]),
        (0.0123, ["0.0%", "0.5%", "1.0%", "1.5%"]),
        (1.0, ["0%", "20%", "40%", "60%", "80%", "100%"]),
        (7.5, ["0%", "20%", "40%", "60%", "80%", "100%"]),
        (-0.1, ["0%", "20%", "40%", "60%", "80%", "100%"]),
    ],
)
def test_axis(most, labels):
    """An axis runs from 0 to a round frequency not below the largest, and never beyond 100%."""
    scale = chart.share_scale(most)
    assert [tick.label for tick in scale.ticks] == labels
    assert scale.ticks[0].at == 0
    assert scale.ticks[-1].at == 100
    assert scale.high >= min(most, 1) - 1e-12


def test_axes_are_round_for_every_size():
    """Whatever is shown, there are two to six ticks, with distinct labels, and the largest fills at least 40% of the width."""
    for most in np.geomspace(1e-6, 1, 2000):
        scale = chart.share_scale(float(most))
        labels = [tick.label for tick in scale.ticks]
        assert 2 <= len(labels) <= 6
        assert len(set(labels)) == len(labels)
        assert scale.across(float(most)) >= 40
        assert scale.high >= most - 1e-12


@pytest.mark.parametrize(
    ("ends", "labels"),
    [
        ((0.38, 0.63), ["35%", "40%", "45%", "50%", "55%", "60%", "65%"]),
        ((-0.02, 0.14), ["0%", "5%", "10%", "15%"]),
        ((0.93, 1.04), ["92%", "94%", "96%", "98%", "100%"]),
        ((0.4, 0.4), ["0%", "10%", "20%", "30%", "40%"]),
        ((1.2, 1.3), ["0%", "20%", "40%", "60%", "80%", "100%"]),
    ],
)
def test_an_axis_of_one_share_is_as_long_as_its_intervals(ends, labels):
    """A line alone is drawn as large as that of a number: between round shares, and never beyond 0 or 100%."""
    assert [tick.label for tick in chart.near_scale(*ends).ticks] == labels


def test_places_stay_in_the_picture():
    """What lies outside of the axis is drawn at its edge."""
    scale = chart.share_scale(0.4)
    assert [scale.across(frequency) for frequency in (-1, 0, 0.1, 0.4, 2)] == [0, 0, 25, 100, 100]


@pytest.mark.parametrize(
    ("frequency", "digits", "text"),
    [(0.12345, 2, "12.35%"), (-0.0112, 2, f"{MINUS}1.12%"), (-0.00001, 2, "0.00%"), (1.25, 0, "125%"), (-0.0, 1, "0.0%")],
)
def test_percent(frequency, digits, text):
    """A frequency is written unclipped, with a true minus sign and no negative zero."""
    assert figures.percent(frequency, digits) == text


@pytest.mark.parametrize(("number", "text"), [(1234567.8, "1,234,568"), (-1122.2, f"{MINUS}1,122"), (-0.3, "0")])
def test_count(number, text):
    """A count is written as a whole number in groups of three."""
    assert figures.count(number) == text


def test_columns_stay_in_the_picture():
    """Columns and their intervals lie within the picture, side by side, even where an estimate is negative."""
    rows = [ValueShare("a", "a", 500, f, 0.05, (f - 0.1, f + 0.1), (f - 0.2, f + 0.2)) for f in (-0.05, 0.2, 0.5)]
    draw = chart.bars(rows)
    assert [column.height for column in draw] == [0, pytest.approx(33.333), pytest.approx(83.333)]
    assert all(column.top + column.height == pytest.approx(100) for column in draw)
    assert all(0 <= column.interval[0] <= column.interval[1] <= 100 for column in draw)
    assert all(a.left + a.width < b.left for a, b in pairwise(draw))


@pytest.mark.parametrize("detected", [True, False])
def test_a_value_is_muted_when_it_was_not_detected(detected):
    """Whether a value stands out from 0 is judged among all values, not by its own interval."""
    row = ValueEstimate(
        "a", "a", 500, 0.1, 0.03, (0.04, 0.16), (0.01, 0.2), "pointwise", consistent=0.1, count=10, detected=detected
    )
    assert chart.chart([row]).rows[0].faint is not detected


# Numbers, ordered answers, sets

NUMBERS = registry_toml(
    metric_toml("startup", range=[10, 60000], unit="ms", scale="log", estimate="distribution", epsilon=2.0),
    metric_toml("session", range=[0, 240], unit="min", estimate="mean"),
    metric_toml("rating", type="ordinal", values=["bad", "fair", "good"], estimate="mean", description="The rating"),
    metric_toml("mood", type="ordinal", values=["bad", "fair", "good"]),
    metric_toml("used", type="set", values=["search", "share", "sync"], joint=True, epsilon=2.0),
    metric_toml("few", type="set", values=["a", "b", "c", "d"], most=2, epsilon=2.0),
    metric_toml("several", type="set", values=["a", "b", "c", "d"], epsilon=4.0),
    publication={"min_reports": 1},
)


@pytest.fixture
def numbers(make) -> Flask:
    """Make a server of such metrics, each with reports that stand for a known distribution."""
    app = make(NUMBERS)
    once("numbers of the dashboard", "", app.extensions["deniable"].apps["shop"].store._client, lambda: _fill_numbers(app))
    return app


def _fill_numbers(app: Flask) -> None:
    with app.app_context():
        declared = service().apps["shop"].highest
    startup, session, rating = (declared[id_].mechanism for id_ in ("startup", "session", "rating"))
    places = np.clip(np.random.default_rng(7).normal(0.45, 0.05, 40_000), 0, 1)  # about 500 ms
    for id_, mechanism, at in (
        ("startup", startup, places),
        ("session", session, np.full(9_000, 0.25)),
        ("rating", rating, np.full(9_000, 0.5)),
    ):
        points = (at * (mechanism.points - 1)).round().astype(int)
        held = np.bincount(points, minlength=mechanism.points) / len(points)
        cells = float(mechanism.outside) + float(mechanism.inside - mechanism.outside) * np.convolve(
            held, np.ones(mechanism.length)
        )
        fill(app, id_, (len(points) * cells).round().astype(int).tolist())
    fill(app, "mood", [1000, 2000, 1000])
    fill(app, "used", [500, 100, 100, 500] * 3)
    for id_ in ("few", "several"):
        counted = options_of(declared[id_].mechanism).draw_sets(4000, np.array([0.5, 0.3, 0.2, 0.05]), np.random.default_rng(8))
        fill(app, id_, counted.cells.tolist())
    publish(app)


@pytest.mark.parametrize(
    "page",
    [
        "/",
        *(f"/m/{id_}" for id_ in ("startup", "session", "rating", "mood", "used", "few", "several")),
        "/m/startup?view=cumulative",
    ],
)
@pytest.mark.parametrize("filled", [False, True])
def test_pages_of_numbers_are_safe_html(request, make, page, filled):
    """With reports and without: no script but ours, no style, no number that is none."""
    app = request.getfixturevalue("numbers") if filled else make(NUMBERS)
    html = app.test_client().get(page).get_data(as_text=True).replace(SCRIPT, "").replace(ELSEWHERE, "")
    assert not re.search(r"<script|style=|<style|\son\w+=|https?:|src=|href=\"//", html)
    assert not re.search(r"\b(nan|inf|None)\b", html)
    assert html.count("<h1") == 1
    assert ("Nothing is shown yet" in html) is not filled


def test_a_distribution_in_words_and_picture(numbers):
    """Median first, then the geometric mean, the band, and the quantiles of the API; what is not resolved is muted."""
    client = numbers.test_client()
    headers = client.get("/api/v1/metrics/startup", headers={"Authorization": f"Bearer {READ_KEY}"}).get_json()["number"]
    html = client.get("/m/startup").get_data(as_text=True)
    median = next(each for each in headers["quantiles"] if each["share"] == 0.5)
    assert 450 < median["value"] < 550
    assert html.index("The median is ") < html.index('"values">Where the answers lie') < html.index("<dt>Median")
    assert html.index("<dt>Median") < html.index("<dt>Geometric mean") < html.index("<dt>Mean") < html.index("<dt>Sum over")
    rows = Rows(html.partition("quantiles")[2]).rows
    assert [row[0] for row in rows] == [
        f"{100 * each['share']:g}%" + ("" if each["resolved"] else "(not resolved)") for each in headers["quantiles"]
    ]
    page = [float(row[1].split("\u202f")[0].replace(",", "")) for row in rows]
    assert page == pytest.approx([each["value"] for each in headers["quantiles"]], rel=0.1)
    missing = [row[0].removesuffix("(not resolved)") for row in rows if row[0].endswith("(not resolved)")]
    assert all(each in html.partition("not resolved by")[0][-80:] for each in missing)
    for view in ("density", "cumulative"):
        paths = re.findall(r'd="M([^"]+)"', client.get(f"/m/startup?view={view}").get_data(as_text=True).partition("density")[2])
        lines = [path for path in paths if "L" in path][:2]
        for x, y in (map(float, pair.split(" ")) for path in lines for pair in path.rstrip("Z").split("L")):
            assert 0 <= x <= 100
            assert -0.01 <= y <= 100.01
    assert len(html.encode()) < 40_000
    rows, _ = table(client, "/m/startup/values.csv")
    assert [row["value"] for row in rows][:4] == ["geometric_mean", "mean", "sum", "p05"]
    assert {row["unit"] for row in rows} == {headers["unit"]} != {""}
    assert re.search(r'<p class="headline" dir="auto">The median is \d+\u202fms, and at most one answer in ten is above ', html)
    assert re.search(
        r"The median lies between \d+ and \d+\u202fms.*The geometric mean is \d+\u202fms \(\d+ to \d+\u202fms\)\.", html
    )
    lines, _ = table(client, "/m/startup/series.csv")
    assert {row["unit"] for row in lines if row["estimate"]} == {headers["unit"]}
    assert [float(row["estimate"]) for row in rows[3:]] == [each["value"] for each in headers["quantiles"]]


def test_means_in_words(numbers):
    """The mean with its interval and the sum; of an ordinal as a position between its first and its last value."""
    client = numbers.test_client()
    html = client.get("/m/session").get_data(as_text=True)
    assert re.search(r"Mean <b>(5|6)\d(\.\d)?\u202fmin</b> \(95% interval 5\d", html)
    assert "Sum over the answers" in html
    assert "<table" not in html
    rating = client.get("/m/rating").get_data(as_text=True)
    assert "Mean position <b>" in rating
    assert "Position 1 is bad, position 3 is good." in rating


def test_ordered_answers_and_sets(numbers):
    """An ordinal tells its median and mean position; a set how many options people chose, and which together."""
    client = numbers.test_client()
    mood = client.get("/m/mood").get_data(as_text=True)
    assert "<h3>The median is <bdi>fair</bdi></h3>" in mood
    assert "The mean position is 2.0" in mood
    used = client.get("/m/used").get_data(as_text=True)
    assert "options in an answer, on average" in used
    assert '<abbr title="reports that the share rests on">Reports about it</abbr>' in used
    assert "reports that the share rests on" not in mood
    assert re.search(
        r"<bdi>search and share</bdi>: \d+\.?\d*% of people \(\d+\.?\d* to \d+\.?\d*%, from [\d,]+ reports\), not by chance",
        used,
    )
    assert "Each report is about 2 options, drawn at random." in used
    few, more = (client.get(f"/m/{id_}").get_data(as_text=True) for id_ in ("few", "several"))
    cut = "Of an answer with more than 2 options, 2 drawn at random on the device count. So each share is of people whose answer"
    assert cut in few
    assert re.search(r"options in an answer, on average, once answers are cut to 2</h3>", few)
    assert "and people choose at least so many options on average." in few
    assert "Each report is about all options." in few
    assert "Reports about it" not in few
    assert "Each report is about 3 options, drawn at random." in more


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ("startup", r"The median is \d+\u202fms, and at most one answer in ten is above \d+\u202fms"),
        ("session", r"The mean is [56]\d(\.\d)?\u202fmin \(95% interval [56]\d(\.\d)? to [56]\d(\.\d)?\u202fmin\)"),
        ("rating", r"The mean is position \d\.\d+ \(95% interval \d\.\d+ to \d\.\d+\)"),
        (
            "mood",
            r"“fair” is the most frequent answer: \d+(\.\d)?% \(\d+(\.\d)? to \d+(\.\d)?%\)",
        ),
        ("used", r"No clear leader: all 3 options may be first"),
    ],
)
def test_a_sentence_comes_first(numbers, page, words):
    """What the reports say stands above all numbers, and names no winner where there is none."""
    html = numbers.test_client().get(f"/m/{page}").get_data(as_text=True)
    match = re.search(r'<p class="headline" dir="auto">(.*?)</p>', html)
    assert match
    assert re.fullmatch(words, re.sub("</?span>", "", match[1])), match[1]
    assert html.index("headline") < html.index('class="facts"')


def test_a_sentence_says_that_nothing_is_detected(app, client):
    """Without reports there is none. Where none of the answers is detected, it says which share would be."""
    assert "Nothing was published, and collection has ended" in client.get("/m/ui.dark").get_data(as_text=True)
    fill(app, "usage.hour", [10] * 24)
    publish(app)
    html = client.get("/m/usage.hour").get_data(as_text=True)
    assert "Nothing detectable" not in html  # the sentence says it
    assert '<p class="more">Collect more reports, or ask with a larger ε.</p>' in html
    assert '<p class="headline" dir="auto">These reports detect no answer</p>' in html
    assert re.search(r'<p class="changed" dir="auto">They would detect, half of the time, one that \d+% of people give\.', html)


def test_rows_of_numbers(numbers):
    """The list shows the median or the mean, with its interval and a picture."""
    html = numbers.test_client().get("/").get_data(as_text=True)
    assert re.search(r"<b><bdi>\d+\u202fms</bdi></b>median, \d+ to \d+\u202fms", html)
    assert re.search(r"<b><bdi>\d+(\.\d)?\u202fmin</bdi></b>mean, ", html)
    assert html.count('class="spark"') >= 2


@pytest.mark.parametrize(
    ("value", "interval", "text"),
    [
        (412.3, (398, 431), "412"),
        (3394112.3, (3073898, 3714326), "3,400,000"),
        (-0.00012, (-0.1, 0.1), "0.00"),
        (-2.5, (-3, -2), f"{MINUS}2.5"),
        (5, (5, 5), "5"),
    ],
)
def test_digits_follow_the_interval(value, interval, text):
    """The last digit of a number is about its standard error; what rounds to 0 has no sign."""
    assert figures.number(value, interval) == text


def test_the_largest_page_is_small(make):
    """Eighty long values and a year of days, drawn as weeks, are less than 100 KB."""
    values = [f"a value that takes some words, number {number}" for number in range(150)]
    large = metric_toml("large", values=values, epsilon=4.0, mechanism="grr", description="Many values over many days")
    app = make(registry_toml(large, publication={"min_reports": 1}))
    first = date(2025, 10, 1)
    for ago in range(370):
        fill(app, "large", [5 + number % 7 for number in range(150)], str(first + timedelta(days=ago)))
    publish(app)
    client = app.test_client()
    for path in ("/m/large", "/m/large?page=2", "/m/large/compare"):
        html = client.get(path).get_data()
        assert len(html) < 100_000, (path, len(html))  # some room for words
    assert re.search("370 days of the range are drawn as 5[345] weeks", client.get("/m/large").get_data(as_text=True))
