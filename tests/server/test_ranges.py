"""The page of a metric over a range of time, drawn in longer periods, with all segments side by side; and its files."""

from __future__ import annotations

import csv
import math
import re
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from html import unescape
from io import StringIO
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from fillings import once
from msgspec import structs
from registries import metric_toml, registry_toml
from tallies import of_places

from deniable.registry import period
from deniable.wire.report import Stratum
from deniable_aggregator.answer import figures, select
from deniable_aggregator.answer.difference import compare
from deniable_aggregator.answer.figures import Measure
from deniable_aggregator.answer.model.fields import Days, so_far
from deniable_aggregator.answer.over_time import series
from deniable_aggregator.answer.question import date_range
from deniable_aggregator.answer.select import Published, state_of
from deniable_aggregator.publish import release
from deniable_aggregator.publish.publisher import Publisher
from deniable_aggregator.store import connect, schema
from deniable_aggregator.store.sums import tallies
from deniable_query import Query
from deniable_server import create_app
from deniable_server.pages import comparison_page
from deniable_server.pages.segments import table as segments
from deniable_server.settings import Settings

READ = "shop-reads"
HEAD = {"Authorization": f"Bearer {READ}"}
LAST = datetime.now(UTC).date() - timedelta(days=5)
DAYS = [LAST - timedelta(days=ago) for ago in range(119, -1, -1)]
REGISTRY = registry_toml(
    metric_toml("used", mechanism="grr", segments=["platform"], min_reports=300),
    metric_toml("theme", values=["dark", "light", "blue"], epsilon=2.0, mechanism="grr"),
    metric_toml("length", range=[0, 60], unit="min", estimate="mean", epsilon=2.0, period="month", segments=["platform"]),
    metric_toml("wait", range=[0, 60], unit="s", estimate="distribution", epsilon=4.0, period="month", segments=["platform"]),
    metric_toml("mode", values=["often", "rare", "new"], epsilon=4.0, mechanism="grr", period="month", segments=["platform"]),
    metric_toml("alike", values=["a", "b", "c"], epsilon=4.0, mechanism="grr", period="month", segments=["platform"]),
    metric_toml("gear", values=[f"tool {number}" for number in range(8)], epsilon=4.0, mechanism="grr", period="month"),
    segments={"platform": ["linux", "macos", "beos"]},
    publication={"min_reports": 1},
)


@pytest.fixture(scope="module")
def client(start_store, tmp_path_factory):
    """Make a browser before open pages of 120 days; nobody on the last platform has answered."""
    store = connect(start_store("server"))
    store.flushall()
    path = tmp_path_factory.mktemp("registry") / "metrics.toml"
    path.write_text(REGISTRY, "utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("deniable_server.settings.opened", lambda _url, **_: store)
        app = create_app(Settings(redis_url="redis://unused", registry=str(path), read_keys=f"shop:{READ}", dashboard="open"))
    shop = app.extensions["deniable"].apps["shop"]
    once(f"ranges {shop.registry.digest} {LAST}", "", store, lambda: fill(shop))
    yield app.test_client()
    store.close()


def fill(shop):
    """Count more yes on one platform than on the other."""
    rng = np.random.default_rng(5)
    strata = {}
    for day in DAYS:
        for platform, yes in (("linux", 0.6), ("macos", 0.4)):
            stratum = Stratum("used", 1, shop.highest["used"].fingerprint, str(day), f"platform={platform}")
            strata[stratum] = rng.multinomial(1000, [1 - yes, yes]).astype(np.int64)
        declared = shop.highest["theme"]
        strata[Stratum("theme", 1, declared.fingerprint, str(day), "")] = rng.multinomial(900, [0.5, 0.3, 0.2]).astype(np.int64)
    for place, month in enumerate(sorted({str(day)[:7] for day in DAYS})):
        declared = shop.highest["length"]
        for platform, at in (("linux", 0.3), ("macos", 0.5)):
            counted = of_places(declared.mechanism, np.full(4000, at), rng)
            strata[Stratum("length", 1, declared.fingerprint, month, f"platform={platform}")] = counted.cells
        declared = shop.highest["wait"]
        for platform, at in (("linux", 0.3), ("macos", 0.6)):
            counted = of_places(declared.mechanism, rng.normal(at, 0.05, 4000).clip(0, 1), rng)
            strata[Stratum("wait", 1, declared.fingerprint, month, f"platform={platform}")] = counted.cells
        for platform, new in (("linux", 100), ("macos", 300)):
            mode, alike = np.array([2000, 800 - new, new]), np.array([2000, 700, 100])
            strata[Stratum("mode", 1, shop.highest["mode"].fingerprint, month, f"platform={platform}")] = mode
            strata[Stratum("alike", 1, shop.highest["alike"].fingerprint, month, f"platform={platform}")] = alike
        # The fourth tool is rare in the last month, and the last one is frequent only then.
        gear, last = [200, 180, 160, 140, 120, 100, 60, 20], [200, 180, 160, 20, 120, 100, 60, 150]
        counts = np.array(last if place == len({str(day)[:7] for day in DAYS}) - 1 else gear, np.int64)
        strata[Stratum("gear", 1, shop.highest["gear"].fingerprint, month, "")] = counts
    now = int(period.bounds(str(LAST), "day")[1].timestamp())
    assert shop.store.partitions[0].commit("test", [], strata, now) == []
    for _ in range(3):
        Publisher(shop.store, shop.registry).publish(datetime.now(UTC).timestamp() + 40 * 86400)


def page(client, path):
    answer = client.get(path)
    assert answer.status_code == 200, answer.get_data(as_text=True)
    return answer.get_data(as_text=True)


def ask(client, **query):
    return client.post("/api/v1/query", json=query, headers=HEAD).get_json()["rows"]


def test_a_range_is_of_the_whole_page(client):
    """Its sentence, facts, values, segments and files are those of the query with this date_range."""
    first, last = DAYS[20], DAYS[49]
    html = page(client, f"/m/used?range={first}..{last}")
    (row,) = ask(client, metrics=["used"], date_range=[str(first), str(last)], filters=[["is", "value", ["yes"]]])
    assert f"<span>{row['n']:,} reports on 30 days" in html
    assert f">{100 * row['estimate']:.0f}%" in html.partition('class="headline"')[2].partition("</p>")[0]
    rows = list(csv.DictReader(StringIO(page(client, f"/m/used/values.csv?range={first}..{last}"))))
    assert {float(each["estimate"]) for each in rows if each["value"] == "yes"} == {row["estimate"]}
    assert (rows[0]["from"], rows[0]["to"]) == (str(first), str(last))
    assert html.count('class="hit"') == 30
    assert 'name="from" value="' + str(first) in html
    (link,) = re.findall(r'href="([^"]+)">The same as a query', html)
    shell, python = snippets(page(client, unescape(link)))
    answer = client.get(shell, headers=HEAD).get_json()["rows"]
    assert row["estimate"] in {each["estimate"] for each in answer}
    assert python == Query("http://localhost", "rk_...").metric("used").between(str(first), str(last))


def snippets(html):
    """Return the address that a page has curl ask, and the query that it has Python ask."""
    python, _, shell = (unescape(each) for each in re.findall(r"<pre[^>]*><code>(.*?)</code></pre>", html, re.DOTALL))
    names = {}
    exec(python.replace("    .rows()\n", "").replace("rows = ", "query = "), names)
    return re.search(r'"http://localhost(/api/v1/query\?[^"]*)"$', shell)[1], names["query"]


def test_a_query_to_copy_has_the_segment_and_the_level(client):
    """Of the page that leads to it; in a page, not an address that asks for a key."""
    segment = "platform=linux"
    html = page(client, f"/m/used?segment={segment}&level=0.9")
    (link,) = re.findall(r'href="([^"]+)">The same as a query', html)
    as_query = page(client, unescape(link))
    shell, python = snippets(as_query)
    assert python == Query("http://localhost", "rk_...").metric("used").where(platform="linux").level(0.9)
    command = re.findall(r"^deniable query .*?(?=</code>)", as_query, re.MULTILINE)
    assert command == ["deniable query used --where platform=linux --level 0.9"]
    query = client.get(shell, headers=HEAD).get_json()["query"]
    assert (query["filters"], query["level"]) == ([["is", "platform", ["linux"]]], 0.9)


@pytest.mark.parametrize(
    ("query", "unit", "number"),
    [("", "week", 18), ("?by=day", "day", 100), ("?by=month", "month", 4), ("?range=365d", "week", 18)],
)
def test_a_long_range_is_drawn_in_longer_periods(client, query, unit, number):
    """At most a hundred are drawn; a note says of how many days. The table has the last 31 of them."""
    html = page(client, f"/m/used{query}")
    assert re.search(rf'aria-current="true">{unit}</a>', html)
    hits = html.count('class="hit"')
    assert abs(hits - number) <= 1
    listed = html.partition('class="periods"')[2].partition("</table>")[0].count('<th scope="row">')
    assert listed == min(hits, 31)
    assert (f"These are the last 31 of {hits} days. The file has all." in html) == (hits > 31)
    note = "The last 100 of 120 days are drawn." if unit == "day" else f"120 days of the range are drawn as {hits} {unit}s."
    assert note in html


def test_a_week_is_the_estimate_of_its_days_together(client):
    """With an interval that allows for people who answered on several of its days, as the query has it."""
    rows = list(csv.DictReader(StringIO(page(client, "/m/used/series.csv?by=week"))))
    monday = next(day for day in DAYS[1:] if day.weekday() == 0)  # before the first one there may have been reports
    (week,) = [each for each in rows if each["from"] == str(monday) and each["value"] == "yes"]
    (row,) = ask(
        client, metrics=["used"], date_range=[str(monday), str(monday + timedelta(days=6))], filters=[["is", "value", ["yes"]]]
    )
    assert [float(week[name]) for name in ("estimate", "low", "high", "n")] == [
        row[name] for name in ("estimate", "low", "high", "n")
    ]


def test_the_form_of_dates_leads_to_a_range(client):
    """Two fields become one range in the address, with everything else that was chosen."""
    answer = client.get(f"/m/used?from={DAYS[0]}&to={DAYS[9]}&level=0.9&segment=")
    assert answer.status_code == 303
    assert answer.location == f"/m/used?level=0.9&range={DAYS[0]}..{DAYS[9]}"
    assert page(client, answer.location).count('class="hit"') == 10
    assert client.get(f"/m/used?from={DAYS[0]}&range=30d").location.endswith(f"range={DAYS[0]}..{datetime.now(UTC).date()}")


def test_a_range_is_logged(client):
    """The audit log has its periods, as of a query."""
    shop = client.application.extensions["deniable"].apps["shop"]
    for path in ("/m/used", "/m/used/values.csv", "/m/used/chart.svg"):
        page(client, f"{path}?range={DAYS[3]}..{DAYS[9]}")
        entry = shop.audit.last()
        assert entry.details["period"] == f"{DAYS[3]}/{DAYS[9]}"


def test_a_file_of_nothing_says_why(client):
    """One line with the reason, and no figures."""
    (row,) = csv.DictReader(StringIO(page(client, "/m/used/values.csv?range=2001-01")))
    assert {name for name, cell in row.items() if cell} == {"metric", "version", "level", "mechanism", "n", "reason"}
    assert row["n"] == "0"
    assert "published" in row["reason"]
    assert {each["reason"] for each in csv.DictReader(StringIO(page(client, "/m/used/values.csv")))} == {""}


def test_relative_dates_are_named(client):
    """The page prints the days of a relative range in UTC, and links to these."""
    html = page(client, "/m/used?range=30d")
    today = datetime.now(UTC).date()
    assert f"range={today - timedelta(days=29)}..{today}" in html
    assert "in UTC" in html
    assert 'aria-current="true">30 days</a>' in html


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("range=soon", "is no range: write the last days or weeks, such as 30d or 12w; or a day, a week or a month"),
        ("range=2026-02-02..2026-01-01", "write the earlier one first"),
        ("range=30d&period=2026-01-01", "not of both"),
        ("by=year", "by is one of day, week, month"),
        ("by=hour", "his metric is daily: by is one of day, week, month"),
        ("from=yesterday", "is no range: write the last days"),
        ("ranges=30d", "there is no such parameter"),
    ],
)
def test_what_is_no_range_is_refused(client, query, words):
    answer = client.get(f"/m/used?{query}")
    assert answer.status_code == 400
    assert words in answer.get_data(as_text=True).replace("&#39;", "'")


def test_a_week_and_a_month_are_ranges(client):
    """As in a query: their days, also where the metric is by day."""
    week = DAYS[9].isocalendar()
    monday = date.fromisocalendar(week.year, week.week, 1)
    html = page(client, f"/m/used?range={week.year}-W{week.week:02}")
    assert f"range={monday}..{monday + timedelta(days=6)}" in html
    month = f"{DAYS[9]:%Y-%m}"
    assert f"range={month}-01..{month}-" in page(client, f"/m/used?range={month}")


def test_a_range_without_releases_says_so(client):
    html = page(client, "/m/used?range=2020-01-01..2020-02-01")
    assert "Nothing of used is published in this range" in html
    assert "Show everything published" in html


def test_segments_stand_side_by_side(client):
    """Each declared value has a row with the estimate and the test of the query API; a withheld one says only that it is."""
    html = page(client, "/m/used")
    table = html.partition('id="segments"')[2].partition("<tbody>")[2].partition("</table>")[0]
    names = re.findall(r'<tr class="sub[^"]*"><th scope="row">(?:<a [^>]*>)?(\w+)', table)
    assert names == ["linux", "macos", "beos"]
    rows = ask(
        client,
        metrics=["used"],
        dimensions=["platform", "value"],
        filters=[["is", "value", ["yes"]]],
        compare={"dimension": "platform", "base": "linux"},
    )
    by_name = {each["platform"]: each for each in rows}
    macos = table.partition(">macos<")[2].partition("</tr>")[0]
    assert f"{100 * by_name['macos']['estimate']:.0f}%" in macos
    ends = [by_name["macos"][name] for name in ("diff_low_all", "diff_high_all")]
    assert ends[0] < by_name["macos"]["diff_low"] or ends == [by_name["macos"]["diff_low"], by_name["macos"]["diff_high"]]
    assert f"<b>lower ({Measure(is_share=True).signed(ends).removesuffix(' points')})</b>" in macos
    assert "Against the base, in points</th>" in html
    by = Measure(is_share=True).size(ends, is_rise=False)
    assert f'<p class="says">“yes” is less frequent with platform macos (by {by}) than with platform linux.</p>' in html
    assert by_name["macos"]["p_holm"] < 0.05
    withheld = table.partition(">beos<")[2]
    assert '<td class="words">withheld</td>' in withheld
    assert "300" not in withheld
    other = page(client, "/m/used?base=platform%3Dmacos").partition('id="segments"')[2].partition("<tbody>")[2]
    assert "<b>higher (" in other.partition(">linux<")[2].partition("</tr>")[0]
    lines = list(csv.DictReader(StringIO(page(client, "/m/used/segments.csv"))))
    assert [(each["name"], each["state"]) for each in lines] == [
        ("linux", "published"),
        ("macos", "published"),
        ("beos", "withheld"),
    ]
    (macos,) = [each for each in lines if each["name"] == "macos"]
    assert [float(macos[name]) for name in ("diff_low_all", "diff_high_all", "p_holm")] == [*ends, by_name["macos"]["p_holm"]]
    assert "Segments side by side" not in page(client, "/m/used?segment=platform%3Dmacos")
    assert "Segments side by side" not in page(client, "/m/theme")


def test_segments_of_a_number_have_a_sentence(client):
    assert {row["value"] for row in csv.DictReader(StringIO(page(client, "/m/length/segments.csv")))} == {"mean"}
    html = page(client, "/m/length")
    words = (
        r'<p class="says">The mean is higher with platform macos \(by [\d.]+ to [\d.]+\u202fmin\) than with platform linux\.</p>'
    )
    assert re.search(words, html)
    assert "The mean is lower with platform linux (by " in page(client, "/m/length?base=platform%3Dmacos")
    compared = page(client, "/m/length/compare?a=platform%3Dlinux&b=platform%3Dmacos")
    by = re.search(r"by ([\d.]+ to [\d.]+\u202fmin)\)", html)[1]  # of one comparison both pages have one interval
    assert f", by {by}" in re.search(r'<p class="headline" dir="auto">(.*?)</p>', compared)[1]


def test_segments_are_compared_by_the_answer_that_is_chosen(client):
    """The page, its file and the query say the same of it; one that is none is refused."""
    html = page(client, "/m/used?value=no")
    table = html.partition('id="segments"')[2]
    assert "<option selected>no</option>" in table
    rows = ask(
        client,
        metrics=["used"],
        dimensions=["platform", "value"],
        filters=[["is", "value", ["no"]]],
        compare={"dimension": "platform", "base": "linux"},
    )
    (macos,) = [row for row in rows if row["platform"] == "macos"]
    assert "“no” is more frequent with platform macos" in table
    assert f"{100 * macos['estimate']:.0f}%" in table.partition("<tbody>")[2].partition(">macos<")[2].partition("</tr>")[0]
    (link,) = re.findall(r'href="([^"]+)"[^>]*>Segments \(CSV\)', html)
    lines = list(csv.DictReader(StringIO(page(client, unescape(link)))))
    assert {line["value"] for line in lines} == {"no"}
    assert [line["p_holm"] for line in lines if line["name"] == "macos"] == [str(macos["p_holm"])]
    refused = client.get("/m/used?value=maybe")
    assert (refused.status_code, "used has no value &#39;maybe&#39;: its values are " in refused.text) == (400, True)


def test_segments_open_on_the_answer_that_differs_most_clearly(client):
    """Though another one is more frequent. Tests and intervals are those of all answers together, which the page says."""
    html = unescape(page(client, "/m/mode")).partition('id="segments"')[2]
    assert "<option selected>new</option>" in html
    says = "“new” differs most clearly between segments; “rare” also differs."
    assert f'<p class="says">{says} Tests and intervals of differences hold for all 3 answers together.</p>' in html
    rows = ask(client, metrics=["mode"], dimensions=["platform", "value"], compare={"dimension": "platform", "base": "linux"})
    lines = list(csv.DictReader(StringIO(page(client, "/m/mode/segments.csv"))))
    assert lines == list(csv.DictReader(StringIO(page(client, "/m/mode/segments.csv?value=new"))))
    assert lines[0]["value"] == "new"
    written = {line["value"]: line for line in lines if line["name"] == "macos"}
    assert written.keys() == {"new", "rare", "often"}
    for name in ("p_holm", "diff_low_all"):
        assert {value: line[name] for value, line in written.items()} == {
            row["value"]: str(row[name]) for row in rows if row["platform"] == "macos"
        }


def test_all_answers_of_each_segment_stand_in_one_table(client):
    """Those that differ from the base stand out. Where one answer is compared there is no such table."""
    html = unescape(page(client, "/m/mode")).partition("All answers of each segment")[2].partition("</table>")[0]
    assert re.findall(r'scope="col">(?:<bdi>)?([^<]+)', html) == ["Answer", "platform linux", "platform macos"]
    assert re.findall(r'scope="row"><bdi>(\w+)</bdi></th><td>[\d.]+%</td><td>(<b>)?[\d.]+%', html)[0] == ("often", "")
    (new,) = re.findall(r"<bdi>new</bdi></th><td>[\d.]+%</td><td><b>[\d.]+%</b> <small>(higher \([^)]*\))</small></td>", html)
    assert new in unescape(page(client, "/m/mode?value=new")).partition('<td class="words"><b>')[2].partition("</b>")[0]
    assert "All answers of each segment" not in page(client, "/m/used")


def test_segments_open_on_the_most_frequent_answer_if_none_differs(client):
    html = unescape(page(client, "/m/alike")).partition('id="segments"')[2]
    assert "<option selected>a</option>" in html
    says = "No answer differs between segments by more than chance."
    together = "Tests and intervals of differences hold for all 3 answers together."
    assert re.findall('<p class="says">(.*?)</p>', html) == [f"{says} {together}"]


@pytest.mark.parametrize(
    ("path", "rule"),
    [
        ("/m/mode?base=zzz", "mode has no base 'zzz': write one of platform=linux, platform=macos, platform=beos"),
        ("/m/mode/segments.csv?base=platform=macs", "did you mean 'platform=macos'?"),
        ("/m/theme?base=platform=linux", "theme has no base 'platform=linux': it has no segments, so leave base out"),
    ],
)
def test_an_unknown_base_is_refused(client, path, rule):
    answer = client.get(path)
    assert (answer.status_code, rule.lower() in unescape(answer.text).lower()) == (400, True)


def test_medians_of_segments_are_compared(client):
    """Where the distribution is estimated, by the test of a query."""
    html = page(client, "/m/wait?value=p50").partition('id="segments"')[2]
    assert '<option value="p50" selected>Median</option>' in html
    rows = ask(
        client,
        metrics=["wait"],
        dimensions=["platform", "value"],
        filters=[["is", "value", ["p50"]]],
        compare={"dimension": "platform", "base": "linux"},
    )
    (macos,) = [row for row in rows if row["platform"] == "macos"]
    ends = [macos["diff_low_all"], macos["diff_high_all"]]
    assert macos["p_holm"] < 0.05
    assert f"<b>higher ({Measure(is_share=False, unit='s').signed(ends)})</b>" in html
    assert re.search(r'<p class="says">The median is higher with platform macos', html)


def test_each_value_has_its_line_in_the_table(client):
    """With the first and the last estimate of the series, on a scale of its own; consistent shares have none."""
    html = page(client, "/m/gear").partition('id="values"')[2].partition("</table>")[0]
    lines = re.findall(r"<bdi>([^<]+)</bdi>.*?<path d=\"([^\"]+)\"/></svg>([^<]+)</td></tr>", html)
    shop = client.application.extensions["deniable"].apps["shop"]
    course = series(Published.of_each(shop, [shop.highest["gear"]]))
    assert {label for label, _, _ in lines} == {f"tool {number}" for number in range(8)}
    for label, path, words in lines:
        (line,) = [each for each in course.lines if each.label == label]
        first, last = line.points[0], line.points[-1]
        measure = Measure(is_share=True)
        text = [measure.estimate(point.estimate, point.interval) for point in (first, last)]
        assert words == f"{text[0].removesuffix('%')} \N{RIGHTWARDS ARROW} {text[1]}"
        steps = [int(each) for each in re.findall(r"-?\d+", path)][::2]
        assert (steps[0], sum(steps), len(steps)) == (0, 99, len(course.periods))
    assert 'class="line"' not in page(client, "/m/gear?view=consistent")


def test_a_picture_is_of_the_answer_that_is_chosen(client):
    """One beyond those that the page draws, too; without one the picture has them all."""
    svg = page(client, "/m/gear/chart.svg?value=tool%204")
    assert "gear: tool 4, by month" in svg
    assert svg.count("<path") < page(client, "/m/gear/chart.svg").count("<path")
    html = page(client, "/m/gear")
    assert any(f"<bdi>tool {number}</bdi> <b>" not in html for number in range(8))
    assert all("gear: tool" in page(client, f"/m/gear/chart.svg?value=tool%20{number}") for number in range(8))
    assert client.get("/m/gear/chart.svg?value=tool%209").status_code == 400


def test_sentences_are_of_the_months_that_were_chosen(client):
    """Of whole months: the last two that are over, as their comparison has them; one that the range cuts is left out."""
    shop = client.application.extensions["deniable"].apps["shop"]
    published = Published.of_each(shop, [shop.highest["used"]])
    months = list(dict.fromkeys(f"{day:%Y-%m}" for day in DAYS))
    over = [month for month in months[1:] if date_range.DateRange(None, period.bounds(str(LAST), "day")[1]).holds(month, "month")]
    monthly = series(published, by="month")
    assert [each.period for each in monthly.periods] == months
    assert [each.closed for each in monthly.periods] == [month in over or month == months[0] for month in months]
    (yes,) = [line for line in monthly.lines if line.value is True]
    (row,) = [row for row in compare(published, *over[-2:]).differences if row.value is True]
    assert (yes.change.since, yes.change.last, yes.change.difference) == (*over[-2:], row.difference)
    assert yes.change.simultaneous == row.simultaneous
    html = page(client, "/m/used?by=month")
    words = figures.moments(*over[-2:], "month")
    assert monthly.says in unescape(html)
    assert f"from {words}" in monthly.says
    assert f"from {words}" not in page(client, "/m/used")
    begins = period.bounds(over[-2], "month")[0] + timedelta(days=3)
    cut = series(published, by="month", dates=date_range.DateRange(begins, None))
    assert all(line.change is None for line in cut.lines)


def test_ends_of_a_trend_that_is_not_found_can_be_compared(client):
    """How far the answer may have moved in all stands beside it."""
    html = page(client, "/m/used")
    words = r"No trend beyond chance from [^:]*: [^,]* points a \w+\. In all [^,]* are possible\."
    pattern = rf'{words} <a href="([^"]+)">Compare both ends'
    (address,) = re.findall(pattern, html)
    assert unescape(address) == f"/m/used/compare?a={DAYS[20]}&b={DAYS[-1]}"
    assert client.get(unescape(address)).status_code == 200


def test_days_that_have_not_come_are_not_named():
    """Of an open week the sentence ends with the day on which it was published."""
    days = Days(DAYS[0], DAYS[6])
    at = datetime(DAYS[3].year, DAYS[3].month, DAYS[3].day, 9, tzinfo=UTC)
    assert so_far(days, at) == Days(DAYS[0], DAYS[3])
    assert so_far(days, at + timedelta(days=9)) == so_far(days, None) == days
    assert so_far(Days(None, DAYS[6]), at) == Days(None, DAYS[3])


def test_the_words_beside_a_segment_agree_with_its_interval():
    """Holm's test finds a little more than the intervals exclude: beside its verdict stands by how much at most."""
    writer = segments._Writer(None, Measure(is_share=True), None, 0.05)
    row = {"difference": -0.025, "diff_low_all": -0.051, "diff_high_all": 0.001, "p_holm": 0.03}
    assert writer._against(row)[:2] == ("less", "lower (by up to 5.1 points)")
    assert writer._against(row | {"diff_high_all": -0.001})[1] == "lower (\N{MINUS SIGN}5.1 to \N{MINUS SIGN}0.1)"
    assert writer._against(row | {"p_holm": 0.06})[1] == "cannot be told apart (\N{MINUS SIGN}5.1 to +0.1)"


def test_the_words_beside_a_difference_agree_with_its_interval(client):
    """Here, too: what differs although its interval of all values at once holds none differs by up to so much."""
    shop = client.application.extensions["deniable"].apps["shop"]
    comparison = compare(Published.of_each(shop, [shop.highest["gear"]]), *[f"{day:%Y-%m}" for day in DAYS if day.day == 1][-2:])
    row = structs.replace(comparison.differences[0], differs=True, p_holm=0.03, difference=-0.025)
    verdicts = [
        comparison_page.view(structs.replace(comparison, differences=[structs.replace(row, simultaneous=ends)]), "month")
        .rows[0]
        .verdict
        for ends in ((-0.051, 0.001), (-0.051, -0.001))
    ]
    assert verdicts == ["fell, by up to 5.1 points", "fell"]
    unknown = structs.replace(comparison, overall=structs.replace(comparison.overall, p_value=math.nan))
    view = comparison_page.view(unknown, "month")
    assert ("beyond chance." in view.summary[0], view.summary[1], view.test) == (True, "", "")


def test_the_index_is_read_anew_only_when_it_says_something_else(client, monkeypatch):
    """Of twenty thousand releases that takes longer than the rest of a page. Those of metrics asked for long ago are let go."""
    shop = client.application.extensions["deniable"].apps["shop"]
    versions = [shop.highest["used"]]
    (first,) = Published.of_each(shop, versions)
    reads, read = [], release.read
    monkeypatch.setattr(release, "read", lambda records: reads.append(len(records)) or read(records))
    assert Published.of_each(shop, versions) == [first]
    assert reads == []
    stratum, note = next(iter(first.cells[""].values()))
    index = shop.store.table(schema.RELEASES, "used")
    index.put({tallies.name(stratum): replace(note, n=note.n + 1).note()})
    (changed,) = Published.of_each(shop, versions)
    assert changed.cells[""][stratum.period][1].n == note.n + 1
    assert state_of(shop, [changed]) != state_of(shop, [first])
    index.put({tallies.name(stratum): note.note()})
    (again,) = Published.of_each(shop, versions)
    assert state_of(shop, [again]) == state_of(shop, [first])
    assert len(reads) == 2
    monkeypatch.setattr(select, "_MOST_KEPT", 1)
    Published.of_each(shop, [shop.highest["gear"]])
    Published.of_each(shop, versions)
    assert list(shop.lookups) == ["used"]


def test_a_comparison_offers_months_and_keeps_the_range_of_its_address(client):
    """The form has days, weeks and months, and the sides that it was opened with."""
    months = [f"{day:%Y-%m}" for day in DAYS if day.day == 1]
    html = page(client, f"/m/used/compare?a={DAYS[10]}..{DAYS[39]}&b={DAYS[60]}..{DAYS[89]}")
    form = html.partition('aria-label="Compare two periods"')[2].partition("</form>")[0]
    assert re.findall(r'<optgroup label="(\w[\w ]*)">', form) == ["In the address", "Days", "Weeks", "Months"] * 2
    chosen = re.findall(r'<option value="([^"]+)" selected>([^<]+)<', form)
    words = [figures.brief_range(str(DAYS[at]), str(DAYS[at + 29]), "day") for at in (10, 60)]
    assert chosen[:2] == [(f"{DAYS[at]}..{DAYS[at + 29]}", text) for at, text in zip((10, 60), words, strict=True)]
    assert all(form.count(f'<option value="{month}">') == 2 for month in months[1:])
    form = page(client, f"/m/used/compare?a={months[-2]}&b={months[-1]}").partition('aria-label="Compare two periods"')[2]
    assert "In the address" not in form
    assert re.findall(r'<option value="([^"]+)" selected>', form)[:2] == months[-2:]
    refused = client.get(f"/m/length/compare?a={DAYS[0].isocalendar()[0]}-W30&b={months[-1]}")
    assert refused.status_code == 400
    assert "No whole month lies in" in refused.text
    assert ": length is by month." in refused.text


def test_each_value_is_in_the_table_and_the_most_frequent_are_drawn(client):
    """Those that are most frequent over all periods, not in the last one; a line says how many are drawn."""
    section = page(client, "/m/gear").partition('class="part timeline"')[2].partition("</section>")[0]
    names = re.findall(r"<figcaption><bdi>(.*?)</bdi>", section)
    assert names == [f"tool {number}" for number in (0, 1, 2, 4, 3, 5)]
    assert "6 of 8 are drawn, the most frequent ones." in section
    heads = re.findall(r'<th scope="col"><bdi>(.*?)</bdi>', section)
    assert heads == [*names, "tool 6", "tool 7"]
    month = figures.brief(f"{LAST:%Y-%m}", "month")
    assert re.search(rf'<bdi>tool 0</bdi> <b>[\d.]+%</b> <span class="when">{month}</span>', section)
    assert "3 are drawn" not in page(client, "/m/theme?by=month").partition('class="part timeline"')[2].partition("</section>")[0]


def test_the_file_has_all_pictures(client):
    """One below the other, each with its name."""
    text = page(client, "/m/gear/chart.svg")
    picture = ET.fromstring(text)
    assert [f">tool {number}</text>" in text for number in range(8)] == [True] * 6 + [False] * 2
    assert "shop, gear, by month" in text
    assert "6 of 8 are drawn, the most frequent ones. Estimated from randomised answers.</text>" in text
    assert float(picture.get("height")) > 6 * 300


def test_the_picture_is_a_file(client):
    """It is well-formed, has its own colours, and names what it shows."""
    answer = client.get("/m/used/chart.svg?by=month")
    assert answer.mimetype == "image/svg+xml"
    assert answer.headers["Content-Disposition"] == 'attachment; filename="shop-used-chart.svg"'
    picture = ET.fromstring(answer.get_data(as_text=True))
    assert picture.tag.endswith("svg")
    text = answer.get_data(as_text=True)
    assert "shop, used: yes, by month" in text
    assert "var(" not in text
    assert client.get("/m/used/chart.svg?range=2020-01-01..2020-02-01").status_code == 404


def test_addresses_say_all(client):
    """Links to other orders and units keep the range, and parameters at their default are left out."""
    html = page(client, "/m/theme?range=90d&level=0.9")
    assert re.search(r'href="/m/theme\?range=90d&amp;level=0.9&amp;order=domain"', html)
    assert re.search(r'href="/m/theme\?range=90d&amp;by=month&amp;level=0.9"', html)
    assert '<a href="/m/theme?level=0.9">All</a>' in html
