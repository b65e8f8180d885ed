"""Shifts in the series of a metric that asks for them: when each was seen, since when, and how large. None is taken back."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from registries import metric_toml

from deniable_aggregator.answer.model.series import Line, Point, Series, Shift
from deniable_server.pages.series_page import shifted_in_words

from .test_series import REGISTRY, ask, day, page, send

WATCHED = REGISTRY.replace("epsilon = 4\nsegments", "epsilon = 4\nleast_shift = 0.05\nsegments") + metric_toml(
    "size", estimate="mean", range=[1, 1000], scale="log", unit="kB", epsilon=4, least_shift=0
)


@pytest.fixture
def shop(serve):
    return serve(WATCHED)


def yes(body):
    return next(line for line in body["lines"] if line["value"] is True)


def test_a_shift_is_told_with_its_beginning_and_its_size(shop):
    for ago in range(27, 0, -1):
        share = 20 if ago > 6 else 90
        send(shop, "used", [1] * share + [0] * (100 - share), day(ago))
    shop.drain(days=40)
    body = ask(shop, "used/series")
    assert body["least_shift"] == 0.05
    (shift,) = yes(body)["shifts"]
    assert (shift["direction"], shift["begins"], shift["seen"]) == ("rose", day(6), day(6))
    assert 0.05 < shift["interval"][0] < 0.7 < shift["interval"][1]
    assert shift["interval"][0] < shift["size"] < shift["interval"][1]
    (opposite,) = body["lines"][0]["shifts"]
    assert (opposite["direction"], opposite["size"]) == ("fell", pytest.approx(-shift["size"]))
    assert ask(shop, "used/series?level=0.5")["lines"][0]["shifts"] == [opposite]


def test_what_was_told_stays_when_more_is_published(shop):
    """It is seen as soon as its period is closed. Later periods change nothing about it, but that it lasts."""
    for ago in range(27, 0, -1):
        share = 20 if ago > 6 else 95
        send(shop, "used", [1] * share + [0] * (100 - share), day(ago))
    answer = []
    for days in (10, 22, 25, 27, 33):
        shop.drain(days=days)
        answer.append(yes(ask(shop, "used/series"))["shifts"])
    assert {len(each) for each in answer} == {0, 1}
    for earlier, later in pairwise(answer):
        assert [each | {"single": None} for each in later[: len(earlier)]] == [each | {"single": None} for each in earlier]
    (shift,) = answer[-1]
    assert shift["single"] is False


def test_the_mean_of_a_number_shifts_by_a_factor(shop):
    position = shop.app.registry.metrics["size"].position
    for ago in range(20, 0, -1):
        send(shop, "size", [position(10 if ago > 4 else 300)] * 100, day(ago))
    shop.drain(days=40)
    (shift,) = ask(shop, "size/series")["lines"][0]["shifts"]
    assert (shift["direction"], shift["begins"]) == ("rose", day(4))
    assert 1 < shift["interval"][0] < 30 < shift["interval"][1]


def test_one_day_far_out_is_an_unusual_day(shop):
    """It is told as such, by the API and on the page, with how much days differ as a rule."""
    for ago in range(27, 0, -1):
        share = 90 if ago == 2 else 20
        send(shop, "used", [1] * share + [0] * (100 - share), day(ago))
    shop.drain(days=40)
    line = yes(ask(shop, "used/series"))
    (shift,) = line["shifts"]
    assert (shift["direction"], shift["begins"], shift["single"]) == ("rose", day(2), True)
    assert line["between"]["pairs"] == 20
    assert line["between"]["sd"] < 0.1
    assert re.search(
        r"<b>\d+ \w+ 2\d{3}:</b> <span class=.up.>“yes” shifted up by [\d.]+ to [\d.]+ points</span>, an unusual day",
        page(shop, "used"),
    )


def test_nothing_is_looked_for_unless_asked(serve):
    shop = serve(REGISTRY)
    for ago in range(20, 0, -1):
        send(shop, "used", [int(ago < 5)] * 100, day(ago))
    shop.drain(days=40)
    body = ask(shop, "used/series")
    assert body["least_shift"] is None
    assert all(line["shifts"] == [] for line in body["lines"])


def test_the_page_marks_where_a_shift_begins(shop):
    for ago in range(24, 0, -1):
        send(shop, "used", [int(ago < 5)] * 100, day(ago))
    shop.drain(days=40)
    html = page(shop, "used")
    assert re.search(r"Days differ (by about|no more than chance)", html)
    (shift,) = re.findall(r"<li><i aria-hidden=.true.>1</i><span>(.*?)</span></li>", html)
    words = re.fullmatch(r"<b>\d+ \w+ 2\d{3}:</b> <span class=.up.>(.*)</span>(, seen with \d+ \w+ 2\d{3})\.", shift)
    assert re.fullmatch(r"“yes” shifted up by [\d.]+ to [\d.]+ points", words[1])
    assert html.count('class="flag"') == html.count('class="pin"') == 1
    assert re.search(r'<text class="flagged long"[^>]*>\d+ \w+: \+[\d.]+ to \+[\d.]+</text>', html)
    assert "A shift says that answers changed, and not why." in html
    mark = words[1] + words[2]
    assert f"<td>{mark}</td>" in html  # in the table, too, which is read aloud


def test_the_list_names_a_shift_that_the_page_of_the_metric_finds(shop):
    """The list reads fewer periods; it never says that nothing changed where the page finds a shift in them."""
    for ago in range(27, 0, -1):
        share = 20 if ago > 6 else 90
        send(shop, "used", [1] * share + [0] * (100 - share), day(ago))
    shop.drain(days=40)
    (says,) = re.findall(r"<b>(“yes” shifted up [^<]*)</b>", page(shop, "used"))
    html = shop.http.get("/").get_data(as_text=True)
    row = html.partition('href="/m/used"')[2].partition("</li>")[0]
    assert f'<span class="up">{says}</span>' in row
    assert "No trend and no change beyond chance" not in html


def test_a_shift_that_was_seen_before_the_line_of_the_list_is_not_in_it():
    """It names shifts that were seen within the periods that it draws."""
    shift = Shift("rose", single=False, begins="2026-01-03", seen="2026-01-05", size=0.3, interval=(0.1, 0.5))
    points = [Point(0.5, (0.4, 0.6), (0.3, 0.7), 100)]
    line = Line("share", value=True, label="yes", points=points, change=None, trend=None, shifts=[shift])
    fields = dict.fromkeys(Series.__struct_fields__) | {"period_length": "day", "unit": "", "scale": "linear"}
    fields |= {"range": (0, 1), "lines": [line]}
    series = Series(**(fields | {"periods": []}))
    assert shifted_in_words(series, "2026-01-05").startswith("“yes” shifted up")
    assert shifted_in_words(series, "2026-01-06") == ""
