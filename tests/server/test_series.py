"""What changed: series, trends and comparisons of what was published, and of nothing else."""

from __future__ import annotations

import csv
import re
from datetime import UTC, datetime, timedelta
from html import unescape
from io import StringIO

import pytest
from fillings import once
from msgspec.structs import replace
from registries import metric_toml, registry_toml

from deniable.registry import period
from deniable_aggregator.answer import figures
from deniable_aggregator.answer.model.series import Line, Point, Series, SeriesPeriod, Trend
from deniable_aggregator.answer.over_time.sentence import change_in_words, trend_in_words
from deniable_aggregator.answer.question.side import side_of
from deniable_aggregator.answer.refusal import UnknownPeriod
from deniable_server.api.openapi import OPERATIONS
from deniable_server.pages import comparison_page, series_page
from deniable_server.pages.parts import timeline

from .conftest import READ
from .test_openapi import check

REGISTRY = registry_toml(
    metric_toml("used", epsilon=4, segments=["platform"]),
    metric_toml("theme", values=["light", "dark", "system"], epsilon=3, period="week", description="Which theme"),
    metric_toml("wait", estimate="distribution", range=[0, 1000], unit="ms", epsilon=4, period="week"),
    metric_toml("url", type="string", discover=True, epsilon=4, period="week", description="Which page"),
    segments={"platform": ["linux", "macos", "beos"]},
    publication={"min_reports": 50, "early": False, "grace": "30d"},
)
NOW = datetime.now(UTC)


def day(ago):
    return period.of(NOW - timedelta(days=ago), "day")


def week(ago):
    return period.of(NOW - timedelta(weeks=ago), "week")


@pytest.fixture
def shop(serve):
    return serve(REGISTRY)


def send(shop, metric, values, of, **changes):
    group_ = shop.group(metric, values, period=of, **changes)
    assert shop.post({"format": 1, "app": "shop", "groups": [group_]}).status_code == 202


def ask(shop, path, status=200):
    answer = shop.get(f"/api/v1/metrics/{path}")
    assert answer.status_code == status, answer.get_json()
    if status == 200:
        check("Series" if "/series" in path else "Comparison", answer.get_json())
    return answer.get_json()


def test_a_series_has_every_period_up_to_the_last(shop):
    """Each released period has its estimate; gaps say why they are gaps; a joined period is told as such."""
    for ago, n in ((6, 200), (4, 10), (3, 200), (2, 200)):
        send(shop, "used", [1] * n, day(ago))
    send(shop, "used", [0] * 100, day(3), segment="platform=macos")
    shop.drain(days=40)
    answer = ask(shop, "used/series")
    statement = {each["period"]: each for each in answer["periods"]}
    assert list(statement) == [day(ago) for ago in (6, 5, 4, 3, 2)]
    assert [each["state"] for each in statement.values()] == ["published", "joined", "joined", "published", "published"]
    assert [each["n"] for each in statement.values()] == [200, 0, 0, 310, 200]
    assert statement[day(3)]["released"] == {"first": day(5), "last": day(3)}
    part = ask(shop, "used/series?segment=platform=macos")
    assert [(each["period"], each["state"]) for each in part["periods"]] == [(day(3), "published")]
    part = ask(shop, "used/series?segment=platform=linux")
    assert {each["state"] for each in part["periods"]} <= {"published", "joined", "withheld"}
    yes = next(line for line in answer["lines"] if line["value"] is True)
    assert [point is None for point in yes["points"]] == [False, True, True, False, False]
    for point in filter(None, yes["points"]):
        assert (
            point["simultaneous"][0] < point["interval"][0] < point["estimate"] < point["interval"][1] < point["simultaneous"][1]
        )
    assert ask(shop, "used/series?segment=platform=beos", 403)["code"] == "withheld"


def test_each_point_is_the_estimate_of_its_period(shop):
    for ago, share in ((3, 100), (2, 300)):
        send(shop, "theme", [1] * share + [0] * (400 - share), week(ago))
    shop.drain(days=40)
    for place, ago in enumerate((3, 2)):
        alone = ask_metric(shop, f"theme?period={week(ago)}")
        lines = {line["value"]: line["points"][place] for line in ask(shop, "theme/series")["lines"]}
        assert set(lines) == {"light", "dark", "system"}
        for row in alone["estimates"]:
            assert lines[row["value"]]["estimate"] == row["estimate"]


def ask_metric(shop, path):
    return shop.get(f"/api/v1/metrics/{path}").get_json()


def test_what_rose_is_told_and_what_did_not_is_not(shop):
    """The change is that between two periods, the same as in a comparison of them; the trend is of three or more."""
    for ago, dark in ((4, 100), (3, 300), (2, 500)):
        send(shop, "theme", [1] * dark + [0] * (600 - dark) + [2] * 400, week(ago))
    shop.drain(days=40)
    lines = {line["value"]: line for line in ask(shop, "theme/series")["lines"]}
    change, trend = lines["dark"]["change"], lines["dark"]["trend"]
    assert (change["since"], change["last"], change["differs"]) == (week(3), week(2), True)
    assert change["interval"][0] < 0.2 < change["interval"][1]
    assert change["difference"] == pytest.approx(change["second"] - change["first"])
    assert trend["simultaneous"][0] < 0.2 < trend["simultaneous"][1]
    assert trend["slope"] == pytest.approx(0.2, abs=0.05)
    compared = ask(shop, f"theme/compare?a={week(3)}&b={week(2)}")
    dark = next(each for each in compared["differences"] if each["value"] == "dark")
    for name in ("difference", "interval", "p_value"):
        assert dark[name] == change[name]
    assert (compared["kind"], compared["a"]["n"], compared["b"]["n"]) == ("periods", 1000, 1000)


def test_days_are_compared_with_the_same_weekday(shop):
    for ago in (9, 3, 2):
        send(shop, "used", [1] * 100, day(ago))
    shop.drain(days=40)
    change = ask(shop, "used/series")["lines"][0]["change"]
    assert (change["since"], change["last"]) == (day(9), day(2))


def test_an_open_period_is_shown_and_not_compared(serve):
    """A period is open while reports may come: nothing is said of a change before it has closed."""
    trial = serve(REGISTRY.replace("early = false", "trial = true"))
    for ago in (3, 2, 1, 0):
        send(trial, "theme", [1] * 100, week(ago))
    trial.drain()
    body = ask(trial, "theme/series")
    assert [each["closed"] for each in body["periods"]] == [False] * 4
    assert body["lines"][0]["points"][3] is not None
    assert (body["lines"][0]["change"], body["lines"][0]["trend"]) == (None, None)
    trial.drain(days=31 - NOW.weekday())
    body = ask(trial, "theme/series")
    assert [each["closed"] for each in body["periods"]] == [True, True, True, False]
    assert body["lines"][0]["change"]["last"] == week(1)
    assert (body["lines"][0]["trend"]["since"], body["lines"][0]["trend"]["last"]) == (week(3), week(1))
    body = ask(trial, f"theme/compare?a={week(1)}&b={week(0)}")
    assert (body["a"]["closed"], body["b"]["closed"]) == (True, False)
    html = compared(trial, "theme", f"?a={week(1)}&b={week(0)}")[1]
    assert html.count("(still open)") == 1
    assert "week open</p>" in trial.http.get("/").get_data(as_text=True)
    assert re.search(r"<span>[\d,]+ reports of the week of [^<]* \(still open\)</span>", html)
    assert "till open" not in compared(trial, "theme", f"?a={week(2)}&b={week(1)}")[1]


def test_a_mean_has_a_series_and_changes(shop):
    for ago, number in ((4, 200), (3, 400), (2, 600)):
        send(shop, "wait", [shop.app.registry.metrics["wait"].position(number)] * 500, week(ago))
    shop.drain(days=40)
    body = ask(shop, "wait/series")
    assert (body["unit"], body["scale"]) == ("ms", "linear")
    mean = body["lines"][0]
    assert mean["kind"] == "mean"
    assert mean["change"]["differs"]
    assert mean["change"]["interval"][0] < 200 < mean["change"]["interval"][1]
    assert mean["trend"]["interval"][0] < 200 < mean["trend"]["interval"][1]
    median = body["lines"][1]
    assert (median["kind"], median["trend"], median["change"]["differs"]) == ("median", None, True)
    assert median["change"]["interval"][0] < 200 < median["change"]["interval"][1]
    assert all(low <= each["estimate"] <= high for each in median["points"] for low, high in [each["interval"]])
    compared = ask(shop, f"wait/compare?a={week(4)}&b={week(2)}")["differences"]
    assert all(each["interval"][0] < 400 < each["interval"][1] for each in compared)
    assert [(each["label"], each["value"]) for each in compared] == [("mean", None), ("median", None)]


def test_segments_are_compared_over_the_same_periods(shop):
    """Reports of a period in which the other segment is withheld stay out."""
    for ago in (4, 3, 2):
        send(shop, "used", [1] * 200, day(ago), segment="platform=linux")
        if ago > 2:
            send(shop, "used", [0] * 300, day(ago), segment="platform=macos")
    shop.drain(days=40)
    body = ask(shop, "used/compare?a=platform=linux&b=platform=macos")
    assert [body[side]["included"] for side in "ab"] == 2 * [[{"first": None, "last": day(4)}, {"first": day(3), "last": day(3)}]]
    assert (body["kind"], body["a"]["n"], body["b"]["n"]) == ("segments", 400, 600)
    yes = next(each for each in body["differences"] if each["value"] is True)
    assert yes["differs"]
    assert yes["interval"][0] < yes["difference"] < -0.9
    one = ask(shop, f"used/compare?a=platform=linux&b=platform=macos&period={day(3)}")
    assert one["a"]["n"] == 200


@pytest.mark.parametrize(
    ("query", "status", "code"),
    [
        ("a=2026-01-01", 400, "incomparable"),
        ("a=2026-01-01&b=platform=linux", 400, "incomparable"),
        ("a=platform=linux&b=platform=linux", 400, "incomparable"),
        ("a=platform=linux&b=platform=macos&segment=platform=linux", 400, "incomparable"),
        ("a=2026-01-01&b=2026-01-02&period=2026-01-01", 400, "incomparable"),
        ("a=2026-01-01&b=yesterday", 400, "period"),
        ("a=2026-01-01..2026-01-07&b=2026-01-08..", 400, "period"),
        ("a=2026-01-01..2026-01-07&b=2026-01-08..2026-01-09..2026-01-10", 400, "period"),
        ("a=2026-01-07..2026-01-01&b=2026-01-08", 400, "period"),
        ("a=2026-01-01..2026-01-31&b=2026-01", 400, "incomparable"),
        ("a=platform=linux&b=platform=amiga", 400, "segment"),
        ("a=platform=linux&b=platform=macos&period=now", 400, "period"),
        ("a=2026-01-01&b=2026-01-02&level=2", 400, "level"),
        ("a=2026-01-01&b=2026-01-02&c=1", 400, "unknown_parameter"),
        ("a=platform=linux&b=platform=beos", 403, "withheld"),
    ],
)
def test_what_cannot_be_compared_is_refused(shop, query, status, code):
    send(shop, "used", [1] * 200, day(2))
    shop.drain(days=40)
    assert ask(shop, f"used/compare?{query}", status)["code"] == code


def test_nothing_is_known_before_a_release(shop):
    """What is counted and not published has no part in a series, and sides without a release have no differences."""
    send(shop, "used", [1] * 10, day(2))
    shop.drain()
    body = ask(shop, "used/series")
    assert (body["periods"], body["lines"]) == ([], [])
    compared = ask(shop, f"used/compare?a={day(3)}&b={day(2)}")
    assert (compared["a"]["n"], compared["b"]["n"], compared["differences"]) == (0, 0, [])


def test_a_search_has_no_lines(shop):
    assert ask(shop, "url/series")["lines"] == []


def page(shop, path):
    answer = shop.http.get(f"/m/{path}")
    assert answer.status_code == 200
    return answer.get_data(as_text=True)


def test_the_page_says_what_changed_and_draws_it(shop):
    """A sentence, a picture of each value, gaps and reports; no script draws them."""
    for ago, dark in ((4, 300), (2, 300), (1, 900)):
        send(shop, "theme", [1] * dark + [0] * (1000 - dark), week(ago))
    shop.drain(days=40)
    html = page(shop, "theme")
    sentence = re.search(r'<p class="changed" dir="auto">([^<]*)</p>', html)[1]
    assert re.fullmatch(
        r"(“dark” rose|“light” fell) by \d+\.?\d* to \d+\.?\d* points, from the week of [\w ]+ to the week of [\w ]+\. "
        r"(“light” fell|“dark” rose) by \d+\.?\d* to \d+\.?\d* points\. "
        r"This metric is tested alone; the list tests all metrics together, and may not find this\.",
        sentence.removeprefix("Which is first cannot be told. "),
    )
    assert ask(shop, "theme/series")["says"] == sentence.removeprefix("Which is first cannot be told. ")
    trend = re.search(r'<p class="more trend">([^<]*?)(?: <a [^>]*>Compare both ends</a>)?</p>', html)[1]
    assert (
        trend == "No trend beyond chance through 3 weeks: so few show only a steep one."
    )  # of three points only steep lines are known
    section = html[html.index('<section class="part timeline"') :]
    assert section.count('class="tall course"') == 3
    assert section.count('class="curve"') == 3
    assert section.count("<circle") == 9
    assert "hollow" not in section
    assert "A gap is a period" not in section  # the release after it covers it
    assert re.findall("<script[^>]*>", html) == ['<script src="/static/pages.js" defer>']
    assert " style=" not in html


def test_the_page_says_that_nothing_changed(shop):
    for ago in (3, 2):
        send(shop, "used", [1] * 50 + [0] * 50, day(ago))
        send(shop, "wait", [shop.app.registry.metrics["wait"].position(300)] * 100, week(ago))
    shop.drain(days=40)
    for id_ in ("used", "wait"):
        assert re.search(
            r'<p class="changed" dir="auto">[^<]*No change beyond chance (from|in) .*: .*\N{MINUS SIGN}\d.* to \+\d.*\.</p>',
            page(shop, id_),
        )
    assert page(shop, "used").count('class="tall course"') == 1  # of yes and no, yes
    assert page(shop, "wait").count('class="tall course"') == 2


def test_yes_alone_is_drawn_as_large_as_its_intervals(shop):
    """Several answers share an axis from 0, so that they can be compared."""
    for ago in (3, 2):
        send(shop, "used", [1] * 700 + [0] * 300, day(ago))
        send(shop, "theme", [1] * 700 + [0] * 300, week(ago))
    shop.drain(days=40)
    lowest = [float(re.findall(r'<text x="82%" y="100(?:.0)?%">([\d.]+)%', page(shop, id_))[0]) for id_ in ("used", "theme")]
    assert lowest[0] >= 40
    assert lowest[1] == 0


def test_a_page_of_one_release_has_no_picture(shop):
    send(shop, "used", [1] * 100, day(2))
    shop.drain(days=40)
    html = page(shop, "used")
    assert "timeline" not in html
    assert 'class="changed"' not in html


def test_a_line_breaks_at_gaps_and_new_versions():
    """Periods joined with a later one are no gap; an open period is hollow, and a point without neighbours has its interval."""
    states = ["published", "joined", "published", "missing", "published", "published", "published"]
    versions = [1, None, 1, None, 1, 2, 2]
    names = [day(20 - at) for at in range(7)]
    answer = [
        SeriesPeriod(name, state, None, None, version, 100 if version else 0, closed=at < 6)
        for at, (name, state, version) in enumerate(zip(names, states, versions, strict=True))
    ]
    points = [Point(0.2, (0.1, 0.3), (0.0, 0.4), 100) if version else None for version in versions]
    line = Line("share", "dark", "dark", points, None, None)
    answer = {"id": "theme", "version": 2, "period_length": "day", "periods": answer, "lines": [line], "left_out": 0}
    remainder = {
        "trial": False,
        "segment": None,
        "level": 0.95,
        "target": "population",
        "unit": "",
        "scale": "linear",
        "range": (0, 1),
    }
    remainder |= {"simulated": False, "earlier": []}
    series = Series(**answer, **remainder)
    result = series_page.view(series)
    (picture,) = result.pictures
    assert [len(re.findall(r"-?\d+", path)) for path in picture.curves] == [4, 4]  # two points each
    assert [mark.alone for mark in picture.marks] == [False, False, True, False, False]
    assert [mark.hollow for mark in picture.marks] == [False] * 4 + [True]
    assert result.versions == ((pytest.approx(500 / 7, abs=0.01), 2),)
    assert (result.gaps, result.open) == (True, True)
    assert change_in_words(series) == "What changed is said once two days of one version are closed."
    assert [(row.cells, row.reports, row.remark) for row in reversed(result.rows)] == [
        (("20% (10 to 30)",), "100", ""),
        (("\N{EN DASH}",), "", "too few reports: counted with the next period"),
        (("20% (10 to 30)",), "100", ""),
        (("\N{EN DASH}",), "", "no release"),
        (("20% (10 to 30)",), "100", ""),
        (("20% (10 to 30)",), "100", "version 2 begins"),
        (("20% (10 to 30)",), "100", "open: more may come"),
    ]


@pytest.mark.parametrize(
    ("kind", "scale", "slope", "ends", "words"),
    [
        (
            "share",
            "linear",
            0.02,
            (0.01, 0.03),
            "On average “dark” rose by 1.0 to 3.0 points a day, in all 4.0 to 12.0 points, from ",
        ),
        (
            "share",
            "linear",
            -0.02,
            (-0.03, -0.01),
            "On average “dark” fell by 1.0 to 3.0 points a day, in all 4.0 to 12.0 points, from ",
        ),
        (
            "share",
            "linear",
            0.02,
            (-0.01, 0.05),
            r"No trend beyond chance .*: .1\.0 to \+5\.0 points a day\. In all \N{MINUS SIGN}4 to \+20 points are possible\.",
        ),
        ("mean", "linear", -2.0, (-3.0, -1.0), "On average the mean fell by 1 to 3\u202fms a day, in all 4 to 12\u202fms, from "),
        (
            "geometric_mean",
            "log",
            1.02,
            (1.01, 1.03),
            "On average the geometric mean rose by 1.0 to 3.0% a day, in all a factor of 1.04 to 1.13, from ",
        ),
        (
            "geometric_mean",
            "log",
            0.98,
            (0.95, 1.01),
            r"No trend beyond chance .*: a factor of 0.95 to 1.01 a day\. In all a factor of 0\.\d+ to 1\.\d+ is possible\.",
        ),
    ],
)
def test_the_page_says_the_trend_of_the_series(kind, scale, slope, ends, words):
    """The interval that holds for all lines together, in words; a line that may be level has no direction."""
    names = [day(ago) for ago in (6, 5, 4, 3, 2)]
    periods = [SeriesPeriod(name, "published", None, None, 1, 100, closed=True) for name in names]
    points = [Point(0.2, (0.1, 0.3), (0.05, 0.4), 100)] * 5
    level = float(scale == "log")
    differs = not ends[0] <= level <= ends[1]
    trend = Trend(names[0], names[-1], slope, (slope, slope), ends, 0.001 if differs else 0.3, differs)
    lines = [Line(kind, None, "dark", points, None, trend)]
    answer = Series(
        trial=False,
        simulated=None,
        earlier=[],
        id="theme",
        version=1,
        period_length="day",
        segment=None,
        level=0.95,
        target="population",
        unit="" if kind == "share" else "ms",
        scale=scale,
        range=(0.0, 1.0) if kind == "share" else (1.0, 9999.0),
        periods=periods,
        lines=lines,
        left_out=0,
    )
    assert re.match(words, trend_in_words(answer)), trend_in_words(answer)
    assert ("95% intervals." in trend_in_words(answer)) == differs
    text = trend_in_words(replace(answer, lines=lines * 5, level=0.9))
    assert ("90% intervals, all values at once." in text) == ("2 more have a trend." in text) == differs
    few = replace(answer, periods=periods[1:], lines=[replace(lines[0], trend=replace(trend, since=names[1]))])
    assert trend_in_words(few).startswith("No trend beyond chance through 4 days: so few") == (not differs)


def test_both_addresses_are_documented():
    paths = {each.path for each in OPERATIONS}
    assert {"/api/v1/metrics/{id}/series", "/api/v1/metrics/{id}/compare"} <= paths


def test_a_comparison_says_whether_anything_differs(shop):
    """One p-value for all values at once; where it would not be chi-square, that of the plainest value."""
    for ago, dark in ((3, 300), (2, 420)):
        send(shop, "theme", [1] * dark + [0] * (1000 - dark), week(ago))
    for ago in (3, 2):
        send(shop, "used", [1] * 60 + [0] * 40, day(ago))
        send(shop, "wait", [shop.app.registry.metrics["wait"].position(300)] * 100, week(ago))
    shop.drain(days=40)
    body = ask(shop, f"theme/compare?a={week(3)}&b={week(2)}")
    overall = body["overall"]
    assert (overall["test"], overall["degrees"], overall["differs"]) == ("chi_square", 2, True)
    assert overall["p_value"] < 1e-4
    body = ask(shop, f"used/compare?a={day(3)}&b={day(2)}")
    overall = body["overall"]
    assert (overall["test"], overall["statistic"], overall["differs"]) == ("smallest", None, False)
    assert overall["p_value"] == min(each["p_value"] for each in body["differences"])  # yes and no are one hypothesis
    assert ask(shop, f"wait/compare?a={week(3)}&b={week(2)}")["overall"] is None
    assert ask(shop, f"theme/compare?a={week(2)}&b={week(0)}")["overall"] is None


# The page that compares


def compared(shop, metric, query=""):
    answer = shop.http.get(f"/m/{metric}/compare{query}")
    html = answer.get_data(as_text=True)
    assert html.count("<h1") == 1
    assert not re.search(r"\b(nan|inf|None)\b|<script|style=", html)
    return answer.status_code, html


def headline(html):
    return re.sub("</?span>", "", re.search(r'<p class="headline" dir="auto">(.*?)</p>', html)[1])


@pytest.fixture
def filled(shop, store_url):
    """Ten days of one habit, then more; more of it on one platform; and a wait that grew."""
    once("series", store_url, shop.store._client, lambda: fill(shop))
    return shop


def fill(shop):
    for ago in range(14, 1, -1):
        for platform, yes in (("linux", 60), ("macos", 180)):
            output = [1] * (yes + (120 if ago < 5 else 0)) + [0] * (400 - yes)
            send(shop, "used", output, day(ago), segment=f"platform={platform}")
    for ago, wait in ((3, 200), (2, 600)):
        send(shop, "wait", [shop.app.registry.metrics["wait"].position(wait)] * 2000, week(ago))
        send(shop, "theme", [0] * 300 + [1] * (50 if ago == 3 else 400), week(ago))
    shop.drain(days=40)


def test_two_segments_in_words(filled):
    """Which has more, how much of it, and how much more at least and at most: the numbers of the API."""
    query = "?a=platform%3Dlinux&b=platform%3Dmacos"
    status, html = compared(filled, "used", query)
    assert status == 200
    yes = next(each for each in ask(filled, f"used/compare{query}")["differences"] if each["value"] is True)
    text = re.fullmatch(
        r"“yes” is more frequent with platform macos than with linux, by ([\d.]+) to ([\d.]+) points "
        r"\(([\d.]+)% against ([\d.]+)%\)",
        headline(html),
    )
    assert text, headline(html)
    answer = [100 * each for each in (*yes["simultaneous"], yes["second"], yes["first"])]
    assert [float(each) for each in text.groups()] == pytest.approx(answer, abs=1)
    assert re.search(r'<td class="words"><b>more with macos</b><br>(1 in \d+|under 1 in 10,000)</td>', html)
    _, turned = compared(filled, "used", "?b=platform%3Dlinux&a=platform%3Dmacos")
    assert "“yes” is less frequent with platform linux than with macos" in headline(turned)


def test_ranges_are_compared_as_rows_are(filled):
    """Four days with the four before: the releases, differences and p-values of the query that compares with the range before."""
    a, b = (f"{day(first)}..{day(last)}" for first, last in ((9, 6), (5, 2)))
    body = ask(filled, f"used/compare?a={a}&b={b}")
    assert [len(body[side]["included"]) for side in "ab"] == [4, 4]
    query = {"metrics": ["used"], "date_range": [day(5), day(2)], "compare": {"date_range": "previous"}}
    table = filled.http.post("/api/v1/query", json=query, headers={"Authorization": f"Bearer {READ}"}).get_json()["rows"]
    for row, one in zip(table, body["differences"], strict=True):
        assert (row["estimate"], row["difference"], row["p_value"]) == (one["second"], one["difference"], one["p_value"])
        assert [row["diff_low"], row["diff_high"]] == one["interval"]
        assert (row["base_from"], row["to"]) == (body["a"]["days"]["from"] or row["base_from"], body["b"]["days"]["to"])
    assert re.match(r"“yes” rose: [\d.]+% before \(\d+ .*to \d+ .*\), [\d.]+% after \(\d+ .*to .*\), by ", body["says"])
    overlapping = ask(filled, f"used/compare?a={a}&b={day(6)}..{day(2)}", 400)
    assert (overlapping["code"], overlapping["detail"][:40]) == ("incomparable", "one release is part of both sides, " + a[:5])
    segment = ask(filled, f"used/compare?a={a}&b={b}&segment=platform=linux")
    assert segment["a"]["n"] < body["a"]["n"]
    status, html = compared(filled, "used", f"?a={a}&b={b}")
    assert (status, f"{headline(html)}.") == (200, body["says"])
    assert f"{day(9)}..{day(6)}" in page(filled, f"used/compare.csv?a={a}&b={b}")


@pytest.mark.parametrize(
    ("measure", "interval", "text"),
    [
        (figures.Measure(is_share=True), (0.24967, 0.28821), "26.9% (24.9 to 28.9)"),
        (figures.Measure(is_share=False, unit="ms"), (398.6, 431.3), "415\u202fms (398 to 432)"),
    ],
)
def test_an_interval_in_a_picture_is_rounded_outwards(measure, interval, text):
    """As in every sentence."""
    point = Point(n=100, estimate=sum(interval) / 2, interval=interval, simultaneous=interval)
    assert timeline.estimate(point, measure) == text


def test_a_comparison_of_ranges_shows_their_days(filled):
    """Its page in words, and its file in columns."""
    query = f"?a={week(6)}..{week(3)}&b={week(2)}"
    body, (_, html) = ask(filled, f"theme/compare{query}"), compared(filled, "theme", query)
    assert body["times"] in html
    assert re.fullmatch(r"All weeks up to .* \d{4}, with 1 whole week, .* \d{4}\.", body["times"])
    row = next(csv.DictReader(StringIO(page(filled, f"theme/compare.csv{query}"))))
    assert [row[name] for name in ("a_from", "a_to", "b_from", "b_to")] == [
        *(body[side]["days"][end] or "" for side in "ab" for end in ("from", "to"))
    ]


def test_the_last_periods_are_compared_with_as_many_before(filled):
    """By one link of the page. Of days they are whole weeks where there are any: people do other things on Sundays."""
    _, html = compared(filled, "used")
    (link,) = re.findall(r'<a href="([^"]*)">The last 6 days against the 6 before</a>', html)
    answer = compared(filled, "used", unescape(link).partition("compare")[2])
    assert answer[0] == 200
    assert re.match(r"“yes” rose: ", headline(answer[1]))
    assert "before</a>" not in compared(filled, "wait")[1]  # of two weeks one is compared with one


@pytest.mark.parametrize(
    ("length", "published", "number"),
    [("day", 3, 0), ("day", 10, 5), ("day", 20, 7), ("day", 100, 28), ("week", 7, 3), ("week", 40, 8), ("month", 30, 3)],
)
def test_how_many_periods_are_compared_with_as_many_before(length, published, number):
    names = [period.of(datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=at), "day") for at in range(published)]
    ranges = comparison_page.last_ranges(names, length)
    assert (ranges.number if ranges else 0) == number
    if ranges:
        assert ranges.b == f"{names[-number]}..{names[-1]}"
        assert ranges.a == f"{names[-2 * number]}..{names[-number - 1]}"


@pytest.mark.parametrize(
    ("text", "length", "span"),
    [
        ("2026-10-05", "day", ("2026-10-05", "2026-10-05")),
        ("2026-10", "month", ("2026-10", "2026-10")),
        ("2026-10", "day", ("2026-10-01", "2026-10-31")),
        ("2026-10", "week", ("2026-W41", "2026-W43")),
        ("2026-10-05..2026-11-01", "week", ("2026-W41", "2026-W44")),
        ("2026-W41..2026-W44", "week", ("2026-W41", "2026-W44")),
        ("2026-W41", "day", ("2026-10-05", "2026-10-11")),
        ("2026-08..2026-10", "month", ("2026-08", "2026-10")),
        ("2026-10-01..2026-11-15", "month", ("2026-10", "2026-10")),
        ("2026-10-05", "hour", ("2026-10-05T00", "2026-10-05T23")),
        ("2026-10-06..2026-10-12", "week", None),
        ("2026-10-05", "week", None),
        ("2026-10-05..", "day", None),
        ("", "day", None),
    ],
)
def test_a_side_is_the_whole_periods_in_it(text, length, span):
    """A period that lies in it only in part is left out, so that no two sides side by side share one."""
    if span is None:
        with pytest.raises(UnknownPeriod):
            side_of(text, length)
    else:
        assert side_of(text, length).span == span


@pytest.mark.parametrize(
    ("text", "instead"),
    [
        ("2026-13", "there is no month 13"),
        ("2026-02-01..2026-02-29", "February 2026 has 28 days"),
        ("2025", "write 2025-01..2025-12"),
        ("2026-9", "write 2026-09"),
        ("1.9.2026..2026-09-30", "write 2026-09-01..2026-09-30"),
    ],
)
def test_a_side_that_is_none_says_what_to_write(text, instead):
    """In the words of a range."""
    with pytest.raises(UnknownPeriod) as refusal:
        side_of(text, "week")
    assert str(refusal.value).endswith(f"{text!r} is no time: {instead}")


def test_answers_say_what_pages_print(filled):
    """The sentence with which a page begins, what changed, the trend, and what a comparison says: each is a member."""
    for id_, begins in (("used", "“yes” "), ("wait", "The median ")):
        html = unescape(page(filled, id_))
        answer = filled.get(f"/api/v1/metrics/{id_}").get_json()
        check("Measurement", answer)
        words, days = headline(html), answer["says"].partition(", ")[0]
        if id_ == "used":  # the facts below it have the days
            assert answer["says"] == f"{days}, {words}."
        else:
            low, high = re.search(r"The median lies between ([\d.]+) and ([\d.]+)\u202fms", html).groups()
            assert f"(95% interval {low} to {high}\u202fms)" in answer["says"]
        series = ask(filled, f"{id_}/series")
        assert series["says"].startswith(begins)
        assert series["says"] in html
        assert series["trend_says"] in html
    assert re.search(r", the median is \d+\u202fms \(95% interval \d+ to \d+\u202fms\)\.$", answer["says"])
    assert ask(filled, "used/series")["trend_says"].startswith(("On average “yes” ", "No trend beyond chance from "))
    query = "?a=platform%3Dlinux&b=platform%3Dmacos"
    assert ask(filled, f"used/compare{query}")["says"] == f"{headline(compared(filled, 'used', query)[1])}."


def test_two_periods_in_words(filled):
    """Without a choice the last day is compared with the same weekday before; a mean with its unit; any two if asked."""
    _, html = compared(filled, "used")
    assert f'<option value="{day(9)}" selected>{figures.brief(day(9), "day")}<' in html
    assert f'<option value="{day(2)}" selected>{figures.brief(day(2), "day")}<' in html
    date = r"\d+ \w+ \d{4}"
    assert re.match(rf"“yes” rose from {date} to {date}: [\d.]+% before, [\d.]+% after, by [\d.]+ to", headline(html))
    _, html = compared(filled, "used", f"?a={day(10)}&b={day(9)}&level=0.99")
    assert "No difference beyond chance between " in headline(html)
    assert "99% interval" in html
    assert ">2 values without a difference beyond chance</th>" in html
    _, html = compared(filled, "wait")
    assert re.match(
        r"The (mean|median) rose from the week of .* to the week of .*: [\d.]+\u202fms before, "
        r"[\d.]+\u202fms after, by .*\u202fms",
        headline(html),
    )
    assert re.search(r'<p class="changed" dir="auto">The (median|mean) rose by \d+ to \d+\u202fms\.', html)
    _, html = compared(filled, "theme")
    assert re.match(r"(“dark” rose|“light” fell) from .* points", headline(html))
    assert re.search(r'<p class="changed" dir="auto"><b>\d of \d values differ beyond chance\.</b> If both sides', html)


@pytest.mark.parametrize(
    ("query", "status", "words"),
    [
        ("?a=platform%3Dlinux&b=platform%3Dlinux", 200, "Both sides are the same, platform=linux: choose two."),
        ("?a=platform%3Dlinux&b=platform%3Dbeos", 403, "withheld"),
        ("?a=platform%3Dlinux&b=never", 200, "two periods"),
    ],
)
def test_what_cannot_be_compared(filled, query, status, words):
    """The page says why, keeps its forms, and has a link to a pair that can be compared."""
    results, html = compared(filled, "used", query)
    assert results == status
    link = re.search(r'<ul class="pairs"><li><a href="(.*?)">platform linux with platform macos</a>', html)[1]
    assert '<p class="headline"' in filled.http.get(unescape(link)).get_data(as_text=True)
    assert words in re.search(r'role="alert">(.*?)</p>', html)[1]
    assert "Compare two segments" in html
    assert 'class="headline"' not in html


CELLS = ["arm=a", "arm=b", "arm=b,platform=x", "platform=x", "platform=x,arm=a", "platform=x,arm=b", "platform=y,arm=b"]


@pytest.mark.parametrize(
    ("cell", "others"),
    [
        ("arm=a", ["arm=b"]),
        ("platform=x", []),
        ("platform=x,arm=b", ["platform=x,arm=a", "platform=y,arm=b"]),
        ("platform=x,arm=a", ["arm=b,platform=x", "platform=x,arm=b"]),
    ],
)
def test_what_a_segment_is_compared_with(cell, others):
    """Segments of the same dimensions, in one of them of another value."""
    assert comparison_page.beside(cell, CELLS) == others
    pairs = list(comparison_page.pairs_of_segments(CELLS, cell))
    assert [other for one, other in pairs if one == cell] == others
    assert len({frozenset(pair) for pair in pairs}) == len(pairs)


def test_the_form_offers_what_can_be_compared(filled):
    """What it sends, unchanged, is answered."""
    _, html = compared(filled, "used")
    link = re.search(r'<a href="/m/used/compare(.*?)">segments</a>', html)[1]
    _, html = compared(filled, "used", unescape(link))
    form = re.search(r'aria-label="Compare two segments">(.*?)</form>', html, re.DOTALL)[1]
    a, b = (
        re.findall(r'<option value="(.*?)"', part) for part in re.findall(r'<select name="[ab]">(.*?)</select>', form, re.DOTALL)
    )
    assert (a, b) == (["platform=linux", "platform=macos"], ["platform=macos"])
    status, html = compared(filled, "used", f"?a={a[0]}&b={b[0]}&period=")
    assert status == 200
    assert '<p class="headline"' in html


def test_a_comparison_as_a_file(filled):
    """A line for each value, with the numbers of the API; a refusal is one."""
    query = "?a=platform%3Dlinux&b=platform%3Dmacos"
    _, html = compared(filled, "used", query)
    assert f'href="/m/used/compare.csv{query}" download' in unescape(html)
    answer = filled.http.get(f"/m/used/compare.csv{query}")
    assert answer.headers["Content-Disposition"] == 'attachment; filename="shop-used-compare.csv"'
    rows, body = list(csv.DictReader(StringIO(answer.get_data(as_text=True)))), ask(filled, f"used/compare{query}")
    assert [row["value"] for row in rows] == [each["label"] for each in body["differences"]]
    for row, value in zip(rows, body["differences"], strict=True):
        assert float(row["difference"]) == value["difference"]
        assert [float(row["diff_low_all"]), float(row["diff_high_all"])] == value["simultaneous"]
        assert [float(row[name]) for name in ("a_low", "a_high", "b_low", "b_high", "p_holm")] == [
            *value["first_interval"],
            *value["second_interval"],
            value["p_holm"],
        ]
        assert (int(row["a_n"]), row["b"]) == (body["a"]["n"], "platform=macos")
    assert filled.http.get("/m/used/compare.csv?a=platform%3Dlinux&b=platform%3Dbeos").status_code == 403


@pytest.mark.parametrize("query", ["", "?level=0.9"])
def test_the_file_of_a_comparison_without_sides_has_those_of_the_page(filled, query):
    _, html = compared(filled, "used", query)
    link = unescape(re.search(r'href="/m/used/(compare\.csv.*?)" download', html)[1])
    assert "a=" in link
    assert page(filled, f"used/compare.csv{query}") == page(filled, f"used/{link}")


def test_the_file_of_a_comparison_of_nothing_says_so(shop):
    answer = shop.http.get("/m/used/compare.csv")
    assert (answer.status_code, "nothing to compare yet" in answer.get_data(as_text=True)) == (400, True)


@pytest.mark.parametrize("id_", ["used", "theme"])
def test_each_side_has_the_pointwise_interval_of_its_period(filled, id_):
    """That of the series; and the p-value for all values together agrees with the verdict."""
    series = ask(filled, f"{id_}/series")
    names = [each["period"] for each in series["periods"] if each["closed"]][-2:]
    body = ask(filled, f"{id_}/compare?a={names[0]}&b={names[1]}")
    check("Comparison", body)
    places = [[each["period"] for each in series["periods"]].index(name) for name in names]
    for row in body["differences"]:
        assert row["differs"] == (row["p_holm"] <= 0.05)
        assert row["p_holm"] >= row["p_value"] * (1 - 1e-9)
        for line in series["lines"]:
            if line["value"] == row["value"]:
                own = [line["points"][place]["interval"] for place in places]
                assert row["first_interval"] == pytest.approx(own[0])
                assert row["second_interval"] == pytest.approx(own[1])


def test_each_side_of_a_number_has_its_intervals(filled):
    """Of the mean and of the median: those of the number's own page."""
    last = [span["last"] for span in filled.get("/api/v1/metrics/wait").get_json()["periods"]][-2:]
    body = ask(filled, f"wait/compare?a={last[0]}&b={last[1]}")
    numbers = [filled.get(f"/api/v1/metrics/wait?period={name}").get_json()["number"] for name in last]
    mean, median = body["differences"]
    for number, name in zip(numbers, ("first", "second"), strict=True):
        assert mean[f"{name}_interval"] == pytest.approx(number["interval"])
        half = next(each for each in number["quantiles"] if each["share"] == 0.5)
        assert median[f"{name}_interval"] == pytest.approx(half["interval"])
        assert half["interval"][0] <= median[name] <= half["interval"][1]


def test_what_does_not_differ_stands_below_and_both_sides_are_drawn(filled):
    """Each row has a mark of either side, with its interval, and says how often chance alone brings such a difference."""
    _, html = compared(filled, "used", "?a=platform%3Dlinux&b=platform%3Dmacos")
    rows = re.findall(r"<tr>\n<th scope=\"row\">.*?</tr>", html, re.DOTALL)
    assert len(rows) == 2
    for row in rows:
        assert [row.count(mark) for mark in ("<circle", 'class="about second"', 'class="thick"')] == [1, 1, 3]
    assert "without a difference beyond chance" not in html
    body = ask(filled, "used/compare?a=platform=linux&b=platform=macos")
    assert figures.chance(body["differences"][0]["p_holm"]) in rows[0]


def test_a_segment_of_which_nothing_is_published_keeps_the_form(serve):
    """Of the metric something is published, so the page says that it is the segment, and leads on; the API says the same."""
    trial = serve(REGISTRY.replace("early = false", "trial = true"))
    send(trial, "used", [1] * 100, day(1), segment="platform=linux")
    trial.drain()
    words = "nothing of used is published of this segment"
    assert ask_metric(trial, "used?segment=platform=(other)")["reason"] == words
    for query, of in (({}, "this segment"), ({"dimensions": ["time"]}, f"{day(1)}, platform=(other)")):
        question = {"metrics": ["used"], "filters": [["is", "platform", ["(other)"]]]} | query
        answer = trial.http.post("/api/v1/query", json=question, headers={"Authorization": f"Bearer {READ}"}).get_json()
        assert [row["reason"] for row in answer["rows"]] == [f"nothing of used is published of {of}"]
    html = page(trial, "used?segment=platform=(other)")
    assert f'<p class="headline absent">{words[:1].upper()}{words[1:]}. <a href="/m/used">Show everything published</a>' in html
    assert '<select name="segment">' in html
    assert "not published in this segment" in html
    assert "is published of this segment" not in page(trial, "theme?segment=")


def test_what_is_closed_is_one_link_away(serve):
    """Numbers of an open period change, so a page that has one leads to the others alone."""
    trial = serve(REGISTRY.replace("early = false", "trial = true"))
    for ago in (3, 2, 1, 0):
        send(trial, "theme", [1] * 100, week(ago))
    trial.drain(days=31 - NOW.weekday())
    link = unescape(re.search(r'<a href="([^"]*)">closed weeks</a>', page(trial, "theme"))[1])
    first, last = (period.bounds(week(ago), "week")[0].date() for ago in (3, 0))
    assert link == f"/m/theme?range={first}..{last - timedelta(days=1)}"
    html = trial.http.get(link).get_data(as_text=True)
    assert "<span>300 reports on 3 weeks" in html
    assert "closed weeks" not in html
    assert 'id="values"' in html
    assert re.search(r'<span class="when">week of \d+ \w+ \d+, open</span>', page(trial, "theme"))


def test_a_withheld_segment_leads_to_the_nearest_that_is_published(serve):
    parents = 'generalize = { platform = { linux = "free", beos = "free", macos = "apple" } }'
    shop = serve(f"{parents}\n{REGISTRY}")
    for platform, n in (("linux", 300), ("beos", 20), ("macos", 300)):
        send(shop, "used", [1] * n, day(2), segment=f"platform={platform}")
    shop.drain(days=40)
    row = page(shop, "used").partition('id="segments"')[2].partition("<tbody>")[2].partition(">beos<")[2].partition("</tr>")[0]
    assert 'withheld: <a href="/m/used?segment=platform%3Dfree">platform free</a> is published</td>' in row
    assert "<span>320 reports on 1 day" in page(shop, "used?segment=platform=free")


def test_nothing_to_compare_yet(shop):
    """Before the first releases the page says what it takes; an unknown metric has none."""
    status, html = compared(shop, "used")
    assert status == 200
    assert "There is nothing to compare yet" in html
    assert shop.http.get("/m/nothing/compare").status_code == 404


def test_the_page_leads_to_comparisons(filled):
    """The page of a metric has a link, with its level."""
    assert 'href="/m/used/compare?level=0.99">Compare</a>' in filled.http.get("/m/used?level=0.99").get_data(as_text=True)


def test_a_page_names_what_is_withheld_and_why(filled):
    """The page of the metric does, and that of the cell, without what only a program can do."""
    rule = "what is published rests on 50 reports (min_reports), and nothing computed from it on fewer."
    html = filled.http.get("/m/used").get_data(as_text=True)
    assert f'<p class="more withheld">Withheld is platform beos: {rule} It may have few reports or none.</p>' in html
    answer = filled.http.get("/m/used?segment=platform%3Dbeos")
    html = answer.get_data(as_text=True)
    assert answer.status_code == 403
    assert "<h1>Withheld</h1>" in html
    assert f'<p class="lede">This segment is withheld: {rule} It may have few reports or none.</p>' in html
    assert '<a href="/m/used">Show everything published</a>' in html
    assert "POST" not in compared(filled, "used", "?a=platform%3Dlinux&b=platform%3Dbeos")[1]


def test_segments_in_which_another_answer_leads_are_named(serve):
    """By the test of the headline, for all segments together. Where two answers are close nothing is said, whichever is first."""
    theme = metric_toml("theme", values=["light", "dark", "sepia"], epsilon=3, period="week", segments=["platform"])
    platforms = {"linux": (700, 300, 0), "macos": (200, 800, 0), "windows": (490, 510, 0), "beos": (100, 200, 700)}
    shop = serve(registry_toml(theme, segments={"platform": list(platforms)}, publication={"min_reports": 50, "grace": "30d"}))
    for platform, (light, dark, sepia) in platforms.items():
        times = 5 if platform == "linux" else 1
        send(shop, "theme", times * ([0] * light + [1] * dark + [2] * sepia), week(2), segment=f"platform={platform}")
    shop.drain(days=40)
    assert "is the most frequent answer" in page(shop, "theme")
    sentence = "Another answer is the most frequent one with platform macos (“dark”) and with platform beos (“sepia”)."
    assert f'<p class="says">{sentence}</p>' in page(shop, "theme")
    assert "Another answer" not in page(shop, "theme?segment=platform=macos")
