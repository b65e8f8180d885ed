"""Shares of ranges of a number: as rows of a query, in the answer about a metric, and on its page."""

from __future__ import annotations

import csv
import re
from html import unescape
from io import StringIO

import pytest
from registries import metric_toml, registry_toml

from deniable_query import Query

from .conftest import READ
from .test_openapi import check
from .test_ranges import snippets
from .test_rows import LOAD, day, fill_days, once, rows, send

HELD = registry_toml(
    metric_toml("wait", estimate="distribution", range=[0, 1000], unit="ms", epsilon=6, segments=["platform"]),
    metric_toml("stars", estimate="distribution", range=[1, 5], step=1, unit="stars", epsilon=4),
    metric_toml(
        "kept", estimate="distribution", range=[0, 160], unit="clicks", mechanism="l_osue", epsilon=2, epsilon_permanent=6
    ),
    metric_toml("size", estimate="mean", range=[0, 10], unit="MB", epsilon=2),
    metric_toml("theme", values=["light", "1..2"], epsilon=4),
    segments={"platform": ["linux", "macos"]},
    publication={"min_reports": 50, "early": False, "grace": "30d"},
)


@pytest.fixture
def shop(serve, store_url):
    """Two days of waits, on the second of which one platform is withheld; a third is 200, two thirds are 600."""
    shop = serve(HELD)
    once("number ranges", store_url, shop.store._client, lambda: fill(shop))
    return shop


def fill(shop):
    for ago in (3, 2):
        for cell in ("platform=linux", "platform=macos"):
            few = ago == 2 and cell.endswith("macos")
            send(shop, "wait", [200.0, 600.0, 600.0] * (10 if few else 200), day(ago), segment=cell)
        send(shop, "stars", [1.0, 4.0, 5.0, 5.0] * 100, day(ago))
        send(shop, "kept", [25.0, 95.0] * 200, day(ago))
        send(shop, "theme", [0, 1] * 100, day(ago))
    shop.drain(days=40)


@pytest.fixture
def over_days(serve, store_url):
    shop = serve(LOAD)
    once("rows over days", store_url, shop.store._client, lambda: fill_days(shop))
    return shop


def within(*words):
    return [["is", "value", list(words)]]


def test_a_range_is_a_row_with_a_share(shop):
    """With its interval and its count, among the other figures of the number. What is withheld stays so."""
    share, median = rows(shop, metrics=["wait"], filters=within("300..700", "p50"))[::-1]
    assert (share["value"], median["value"]) == ("300..700", "p50")
    assert share["low"] < 2 / 3 < share["high"]
    assert share["stderr"] > 0
    assert share["count"] == pytest.approx(share["n"] * share["estimate"])
    assert share["count_low"] == pytest.approx(share["n"] * share["low"])
    assert median["count"] is None
    query = {"metrics": ["wait"], "dimensions": ["value", "platform", "time"], "filters": within("..400")}
    states = {(row["platform"], row["period"]): (row["state"], row["estimate"] is None) for row in rows(shop, **query)}
    assert {states[(platform, day(3))] for platform in ("linux", "macos")} == {("published", False)}
    assert {states[(platform, day(2))] for platform in ("linux", "macos")} == {("withheld", True)}  # it would be the difference


def test_a_row_of_a_range_says_to_what_it_was_rounded(shop):
    """As the page says it; so does the file, and the text of the command. Other rows have no note."""
    share, mean = rows(shop, metrics=["kept"], filters=within("20..100", "mean"))[::-1]
    assert re.fullmatch(r"The range was rounded to the parts that devices report: \d+ to \d+ clicks\.", share["note"])
    assert mean["note"] is None
    answer = shop.http.get("/api/v1/metrics/kept?value=20..100", headers={"Authorization": f"Bearer {READ}"}).get_json()
    assert answer["number"]["range_share"]["says"].endswith(share["note"])
    wait = rows(shop, metrics=["wait"], filters=within("300..700", "p50", "p99"))
    notes = {row["value"]: row["note"] for row in wait}
    assert notes["300..700"].endswith("may count on either side of it: the interval allows for that.")
    assert notes["p50"] is None


def test_a_quantile_that_is_not_resolved_says_so(serve):
    """As the page does, beside its interval."""
    shop = serve(HELD)
    send(shop, "wait", [200.0, 600.0] * 60, day(3), segment="platform=linux")
    shop.drain(days=40)
    notes = {row["value"]: row["note"] for row in rows(shop, metrics=["wait"])}
    why = "120 reports do not resolve it, so its interval may miss: collect more, or ask with a larger epsilon"
    assert (notes["p01" if "p01" in notes else "p05"], notes["p50"]) == (why, None)


def test_a_median_that_is_not_resolved_is_in_no_headline(serve):
    """The page, the list, the API and the command ask the rule of the table of quantiles: then the mean stands first."""
    metric = metric_toml("wait", range=[0, 1000], unit="ms", estimate="distribution", epsilon=0.2)
    shop = serve(registry_toml(metric, publication={"min_reports": 50, "early": False, "grace": "30d"}))
    send(shop, "wait", [200.0, 600.0] * 30, day(3))
    shop.drain(days=40)
    answer = shop.http.get("/api/v1/metrics/wait", headers={"Authorization": f"Bearer {READ}"}).get_json()
    (median,) = [each for each in answer["number"]["quantiles"] if each["share"] == 0.5]
    assert not median["resolved"]
    assert re.search(r", the (geometric )?mean is ", answer["says"])
    html = shop.http.get("/m/wait").get_data(as_text=True)
    assert "edian" not in html.partition('class="headline"')[2].partition("</p>")[0]
    assert "<dt>Median" not in html
    assert "median" not in shop.http.get("/").get_data(as_text=True).partition('class="now"')[2].partition("</p>")[0]
    (row,) = rows(shop, metrics=["wait"], filters=within("p50"))
    assert row["detected"] is False


def test_shares_of_ranges_that_join_are_one(shop):
    shares = {row["value"]: row["estimate"] for row in rows(shop, metrics=["wait"], filters=within("..100", "100..300", "300.."))}
    assert sum(shares.values()) == pytest.approx(1)
    assert shares["100..300"] == pytest.approx(1 / 3, abs=0.2)


def test_a_range_is_of_respondents_or_of_the_population(shop):
    query = {"metrics": ["wait"], "filters": within("300..")}
    (population,), (respondents,) = (rows(shop, **query, target=each) for each in ("population", "respondents"))
    assert population["estimate"] == respondents["estimate"]
    assert population["low"] < respondents["low"]


def test_ranges_are_compared_and_have_no_trend(over_days):
    """The difference is one of shares, also where those of means are ratios."""
    query = {"metrics": ["load"], "filters": within("..100", "geometric_mean")}
    compared = rows(over_days, **query, date_range=[day(7), day(6)], compare={"date_range": "previous"})
    mean, share = compared
    assert (mean["value"], share["value"]) == ("geometric_mean", "..100")
    assert share["diff_low"] < 0 < share["diff_high"]
    assert mean["diff_low"] < 1 < mean["diff_high"]
    assert (share["p_value"], share["reason"]) == (pytest.approx(1, abs=0.9), None)
    _, trend = rows(over_days, **query, date_range=[day(9), day(6)], include=["trend"])
    assert (trend["trend"], trend["reason"]) == (
        None,
        "a range has no trend: ask for that of the geometric mean, or compare the range with the time before",
    )


RULE = "write a range of wait as 250..500, above 250 and at most 500, or leave one end out; this is "
OUTSIDE = "answers of wait are 0 to 1000 ms, and {} has {} of them: let an end lie within, such as 250..500"


@pytest.mark.parametrize(
    ("word", "detail"),
    [
        ("5..2", "'5..2' has its ends in the wrong order: write 2..5, above 2 and at most 5"),
        ("200..200", "'200..200' has nothing in it, for it is above 200 and at most 200: end it above 200, or leave one end out"),
        *((word, f"{RULE}{word!r}") for word in ("..", "0..x", "1..2..3", "..nan", "1e400..", "x..")),
        ("1000..", OUTSIDE.format("'1000..'", "none")),
        ("..-1", "answers of wait are 0 to 1000 ms; smaller ones were reported as 0: write ..0 for these"),
        ("-5..1000", OUTSIDE.format("'-5..1000'", "all")),
    ],
)
def test_what_is_no_range_is_refused_with_what_to_write(shop, word, detail):
    answer = shop.http.post(
        "/api/v1/query",
        json={"metrics": ["wait"], "filters": within(word)},
        headers={"Authorization": f"Bearer {READ}"},
    )
    assert (answer.status_code, answer.get_json()["code"]) == (400, "value")
    assert answer.get_json()["detail"] == detail


@pytest.mark.parametrize(("word", "truth"), [("300..600", 2 / 3), ("600..800", 0), ("..200", 1 / 3), ("590..610", 2 / 3)])
def test_a_range_that_ends_beside_many_answers_names_better_ends(shop, word, truth):
    """Each range that it names has a much narrower interval; every surface says so in the same words, and never in vain."""
    (share,) = rows(shop, metrics=["wait"], filters=within(word))
    assert share["low"] < truth < share["high"]
    advice = re.search(
        r"Many answers lie that close to an end: the intervals? of (.+) (?:is|are) much narrower\.$", share["note"]
    )
    assert advice, share["note"]
    better = rows(shop, metrics=["wait"], filters=within(*advice[1].split(" and ")))
    assert {row["value"] for row in better} == set(advice[1].split(" and "))
    for row in better:
        assert row["high"] - row["low"] < 0.75 * (share["high"] - share["low"])
        low, high = (float(end) if end else beyond for end, beyond in zip(row["value"].split(".."), (-1, 1001), strict=True))
        inside = sum(part for at, part in ((200, 1 / 3), (600, 2 / 3)) if low < at <= high)
        assert row["low"] - 0.1 < inside < row["high"] + 0.1
        assert "Many" not in row["note"]
    own = {"headers": {"Authorization": f"Bearer {READ}"}}
    answer = shop.http.get(f"/api/v1/metrics/wait?value={word}", **own).get_json()
    assert answer["number"]["range_share"]["says"].endswith(share["note"])


def test_a_range_with_a_hyphen_is_told_how_it_is_written(shop):
    answer = shop.http.post(
        "/api/v1/query",
        json={"metrics": ["wait"], "filters": within("10-20")},
        headers={"Authorization": f"Bearer {READ}"},
    )
    assert answer.get_json()["detail"].endswith("; a range of wait is written 10..20")


def test_all_above_the_least_number_says_what_it_leaves_out(shop):
    """Its interval is around its estimate, which may be impossible as any unbiased one."""
    (share,) = rows(shop, metrics=["wait"], filters=within("0..1000"))
    assert share["low"] < share["estimate"] < share["high"]
    assert share["note"] == "It leaves out only answers of 0 ms: with them it is 100% of all answers."
    (parts,) = rows(shop, metrics=["kept"], filters=within("0..160"))
    assert (parts["low"], parts["estimate"], parts["high"]) == (1, 1, 1)


def test_a_range_above_the_least_number_says_how_to_count_it(shop):
    """Zeros are often many, and a range is above its first number."""
    (share,) = rows(shop, metrics=["wait"], filters=within("0..500"))
    assert share["note"].startswith("It leaves out answers of 0 ms: to count them, ask for ..500. Answers within ")
    (both,) = rows(shop, metrics=["wait"], filters=within("..500"))
    assert "leaves out" not in both["note"]


def test_a_number_below_the_range_is_asked_for_as_its_least_one(shop):
    """So each advice is one that works."""
    words = "; smaller numbers than 0 were reported as this, and a range of wait is written 0.. for more than 0, and ..0 for at "
    headers = {"Authorization": f"Bearer {READ}"}
    for word, status in (("-3", 400), ("..0", 200), ("0..", 200)):
        answer = shop.http.post("/api/v1/query", json={"metrics": ["wait"], "filters": within(word)}, headers=headers)
        assert answer.status_code == status
        assert status == 200 or answer.get_json()["detail"].endswith(f"{words}most that")


@pytest.mark.parametrize("word", [">30", "30", "\u2265 30"])
def test_a_number_alone_is_told_how_a_range_is_written(shop, word):
    answer = shop.http.post(
        "/api/v1/query",
        json={"metrics": ["wait"], "filters": within(word)},
        headers={"Authorization": f"Bearer {READ}"},
    )
    assert answer.get_json()["detail"].endswith("; a range of wait is written 30.. for more than 30, and ..30 for at most that")


def test_a_sum_is_told_where_it_is(shop):
    """It is no row, but the page and the answer about the metric have it."""
    query = {"filters": within("sum")}
    answer = shop.http.post("/api/v1/query", json={"metrics": ["size"], **query}, headers={"Authorization": f"Bearer {READ}"})
    assert answer.get_json()["detail"] == (
        "size has no value 'sum': its values are mean; its sum is on its page, and as number.sum in GET /api/v1/metrics/size"
    )


def test_other_metrics_have_no_ranges_and_a_value_with_dots_stays_one(shop):
    assert [row["value"] for row in rows(shop, metrics=["theme"], filters=within("1..2"))] == ["1..2"]
    both = rows(shop, metrics=["theme", "wait"], filters=within("1..2"))
    assert [(row["metric"], row["value"]) for row in both] == [("theme", "1..2"), ("wait", "1..2")]
    size = "has no value '1..2': its values are mean; quantiles and ranges need estimate = \"distribution\" in the registry"
    for metric, words in (("size", size), ("theme", "has no value '3..4'")):
        word = "1..2" if metric == "size" else "3..4"
        answer = shop.http.post(
            "/api/v1/query",
            json={"metrics": [metric], "filters": within(word)},
            headers={"Authorization": f"Bearer {READ}"},
        )
        assert answer.status_code == 400
        assert words in answer.get_json()["detail"]


def test_the_answer_about_a_metric_says_what_the_range_was_rounded_to(shop):
    def share(metric, value):
        answer = shop.get(f"/api/v1/metrics/{metric}?value={value}")
        assert answer.status_code == 200, answer.get_json()
        check("Measurement", answer.get_json())
        return answer.get_json()["number"]["range_share"]

    at_points = share("wait", "300..700")
    assert (at_points["rounded"], at_points["low"], at_points["high"]) == ("points", 300, 700)
    assert "of answers are above 300 and at most 700 ms (95% interval" in at_points["says"]
    assert "of an end may count on either side of it: the interval allows for that." in at_points["says"]
    values = share("stars", "3..")
    assert (values["rounded"], values["low"], values["high"]) == ("values", 4, 5)
    assert values["interval"][0] < 0.75 < values["interval"][1]
    assert values["says"].endswith("Of the values that answers have, 4 to 5 stars are in this range.")
    parts = share("kept", "52..101")
    assert (parts["rounded"], parts["low"], parts["high"]) == ("parts", 50, 100)
    assert parts["says"].endswith("The range was rounded to the parts that devices report: 50 to 100 clicks.")
    assert shop.get("/api/v1/metrics/wait").get_json()["number"]["range_share"] is None


@pytest.mark.parametrize(
    ("metric", "exact", "words"),
    [
        ("stars", [1, 2, 3, 4], "An end is exact at each value that answers have. One between two values means the lower one."),
        ("wait", [], r"No end is exact: answers within [\d.]+ ms of it may count on either side\. .* “step” in the registry .*"),
        ("kept", [], r"Devices report \d+ parts\. An end is exact between two parts; any other is rounded to one of these\."),
    ],
)
def test_which_ends_are_exact_is_said_before_a_range_is_asked_for(shop, client, metric, exact, words):
    """The answer lists them, the form offers them, and a range that ends there is exact."""
    ends = shop.get(f"/api/v1/metrics/{metric}").get_json()["number"]["range_ends"]
    assert re.fullmatch(words, ends["says"])
    html = page(client, f"/m/{metric}")
    assert ends["says"] in html
    assert re.findall(r'<option value="([\d.]+)">', html.partition('<datalist id="ends">')[2].partition("</datalist>")[0]) == [
        f"{end:.12g}" for end in ends["exact"]
    ]
    if metric != "kept":
        assert ends["exact"] == exact
    for end in ends["exact"]:
        share = shop.get(f"/api/v1/metrics/{metric}?value={end:g}..").get_json()["number"]["range_share"]
        assert "may count on either side" not in share["says"]
        if metric == "kept":  # to this end, and to no other
            assert share["low"] == pytest.approx(end)


def test_all_quantiles_have_the_same_digits(client):
    """Those that are resolved, and their bands, on a linear scale."""
    table = page(client, "/m/wait").partition('<table class="numbers quantiles">')[2].partition("</table>")[0]
    texts = re.findall(r'<tr><th scope="row">.*?<td class="share">([\d.,]+).*?([\d.,]+) to ([\d.,]+)', table)
    assert len(texts) > 3
    assert len({len(text.partition(".")[2]) for row in texts for text in row}) == 1


def test_what_has_no_ranges_has_no_ends(shop):
    assert shop.get("/api/v1/metrics/size").get_json()["number"]["range_ends"] is None


def test_the_same_share_is_in_a_row_and_in_the_answer(shop):
    (row,) = rows(shop, metrics=["wait"], filters=within("300.."), dimensions=["value"])
    answer = shop.get("/api/v1/metrics/wait?value=300..").get_json()["number"]["range_share"]
    assert [answer["share"], answer["stderr"], *answer["interval"]] == [
        row[each] for each in ("estimate", "stderr", "low", "high")
    ]


@pytest.mark.parametrize(("metric", "code"), [("theme", 400), ("size", 400)])
def test_an_answer_without_ranges_refuses_one(shop, metric, code):
    answer = shop.get(f"/api/v1/metrics/{metric}?value=1..2")
    assert (answer.status_code, answer.get_json()["code"]) == (code, "value")


@pytest.fixture
def client(shop):
    return shop.http


def page(client, path):
    answer = client.get(path)
    assert answer.status_code == 200, answer.get_data(as_text=True)
    return unescape(answer.get_data(as_text=True))


def test_the_form_of_a_range_leads_to_its_address(client):
    """All that was chosen stays, and an empty field is an open end."""
    answer = client.get("/m/wait?above=300&at_most=&level=0.9&range=&segment=platform%3Dlinux")
    assert (answer.status_code, answer.location) == (303, "/m/wait?level=0.9&segment=platform%3Dlinux&value=300..#range")
    html = page(client, answer.location)
    assert re.search(r'name="above" value="300">.*name="at_most" value="">', html, re.DOTALL)
    assert '<input type="hidden" name="segment" value="platform=linux">' in html


def test_the_page_shows_what_the_api_answers(client, shop):
    html = page(client, "/m/wait?value=300..700&level=0.9")
    share = shop.get("/api/v1/metrics/wait?value=300..700&level=0.9").get_json()["number"]["range_share"]
    assert f'<p class="range-share">{share["says"]}</p>' in html
    (line,) = (row for row in csv.DictReader(StringIO(page(client, "/m/wait/values.csv?value=300..700"))) if ".." in row["value"])
    assert (line["value"], line["unit"], float(line["estimate"])) == ("300..700", "share", pytest.approx(share["share"]))


def test_the_same_as_a_query_has_the_range(client, shop):
    html = page(client, "/m/wait?value=300..&segment=platform%3Dlinux")
    (link,) = re.findall(r'href="([^"]+)">The same as a query', html)
    shell, python = snippets(client.get(link).get_data(as_text=True))
    listed = shop.http.get(shell, headers={"Authorization": f"Bearer {READ}"}).get_json()["rows"]
    assert (listed[0]["value"], listed[-1]["value"]) == ("mean", "300..")
    figures = [row["value"] for row in listed]
    assert python == Query("http://localhost", "rk_...").metric("wait").where(platform="linux", value=figures)


@pytest.mark.parametrize(("path", "has_form"), [("/m/wait", True), ("/m/size", False), ("/m/theme", False)])
def test_only_numbers_with_a_distribution_have_the_form(client, path, has_form):
    assert ('name="at_most"' in page(client, path)) == has_form


def test_a_range_that_is_none_is_refused_on_the_page(client):
    answer = client.get("/m/wait?above=5&at_most=2")
    assert client.get(answer.location).status_code == 400
