"""Experiments: their arms are compared in a way that holds however often anybody looks; the answer and the page say so."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from statistics import NormalDist

import pytest
from registries import metric_toml, registry_toml

from deniable.lint import _experiments
from deniable.registry.tables import Experiment
from deniable_aggregator.answer.over_time.looks import Clearest
from deniable_server.doctor.pipeline import experiments
from deniable_server.pages import list_page

from .conftest import READ
from .test_series import ask as answered
from .test_series import page, send, week

REGISTRY = registry_toml(
    metric_toml(
        "theme",
        values=["light", "dark", "system"],
        epsilon=3,
        period="week",
        segments=["platform", "arm"],
        description="Which theme",
    ),
    metric_toml("size", estimate="mean", range=[1, 1000], scale="log", unit="kB", epsilon=4, period="week", segments=["arm"]),
    segments={"platform": ["linux", "macos"], "arm": ["control", "large"]},
    experiments={"arm": {"base": "control", "planned": 0.05}},
    publication={"min_reports": 50, "early": False, "grace": "30d"},
)


def ask(shop, path):
    """Ask at a level at which intervals hardly ever miss."""
    return answered(shop, f"{path}&level=0.9999")


@pytest.fixture
def shop(serve):
    shop = serve(REGISTRY)
    position = shop.app.registry.metrics["size"].position
    for arm, dark, size in (("control", 200, 20), ("large", 500, 60)):
        for platform in ("linux", "macos"):
            cell = f"platform={platform},arm={arm}"
            send(shop, "theme", [1] * dark + [0] * (800 - dark), week(2), segment=cell)
        send(shop, "size", [position(size)] * 600, week(2), segment=f"arm={arm}")
    shop.drain(days=40)
    return shop


def test_arms_are_compared_for_all_looks(shop):
    """The interval is wider than that of other segments, and the answer says why."""
    body = ask(shop, "theme/compare?a=arm=control&b=arm=large")
    answer = body["experiment"]
    assert (answer["segment"], answer["base"], answer["planned"]) == ("arm", "control", 0.05)
    assert "however often anybody looks" in answer["says"]
    (dark,) = (each for each in body["differences"] if each["value"] == "dark")
    assert dark["differs"]
    assert 0.2 < dark["interval"][0] < 0.375 < dark["interval"][1]
    assert body["overall"]["test"] == "smallest"
    length = dark["interval"][1] - dark["interval"][0]
    periods = ask(shop, f"theme/compare?a=platform=linux&b=platform=macos&period={week(2)}")
    (once,) = (each for each in periods["differences"] if each["value"] == "dark")
    assert periods["experiment"] is None
    assert periods["overall"]["test"] == "chi_square"
    assert length > 1.1 * (once["interval"][1] - once["interval"][0])
    within = ask(shop, "theme/compare?a=platform=linux,arm=control&b=arm=large,platform=linux")
    assert within["experiment"]["segment"] == "arm"
    across = ask(shop, "theme/compare?a=platform=linux,arm=control&b=arm=large,platform=macos")
    assert across["experiment"] is None


def test_several_arms_are_compared_together(serve):
    """With more arms each comparison with the base reaches farther, so that one of all is wrong no more often."""
    arms = ["control", "large", "larger", "largest", "none"]
    shop = serve(REGISTRY.replace('"control", "large"', ", ".join(f'"{arm}"' for arm in arms)))
    for arm, dark in zip(arms, (400, 470, 400, 400, 400), strict=True):
        send(shop, "theme", [1] * dark + [0] * (1600 - dark), week(2), segment=f"platform=linux,arm={arm}")
    shop.drain(days=40)
    other_pair = answered(shop, "theme/compare?a=arm=larger&b=arm=large")
    assert other_pair["experiment"]["comparisons"] == 10
    five = answered(shop, "theme/compare?a=arm=control&b=arm=large&level=0.9")
    shop.app.registry.segments["arm"] = tuple(arms[:2])  # the same reports, as if there were no other arms
    two = answered(shop, "theme/compare?a=arm=control&b=arm=large&level=0.9")
    assert (two["experiment"]["comparisons"], five["experiment"]["comparisons"]) == (1, 4)
    assert "for all 4 comparisons of arms together" in five["experiment"]["says"]
    assert "comparisons of arms" not in two["experiment"]["says"]
    for one, other in zip(two["differences"], five["differences"], strict=True):
        assert one["interval"] == other["interval"]
        assert other["simultaneous"][0] < one["simultaneous"][0] < one["simultaneous"][1] < other["simultaneous"][1]
    assert five["overall"]["p_value"] == pytest.approx(min(1, 4 * two["overall"]["p_value"]))
    for answer in (two, five):
        excluded = any(not low <= 0 <= high for low, high in (each["simultaneous"] for each in answer["differences"]))
        assert answer["overall"]["differs"] == excluded


def test_arms_of_other_sizes_than_declared_are_told(shop, monkeypatch):
    """The API, the page and the doctor say so in one sentence; of arms as declared nothing."""
    sizes = ask(shop, "theme/compare?a=arm=control&b=arm=large")["experiment"]["sizes"]
    assert [(each["arm"], each["n"], each["share"], each["declared"]) for each in sizes["arms"]] == [
        ("control", 1600, 0.5, 0.5),
        ("large", 1600, 0.5, 0.5),
    ]
    assert (sizes["differ"], sizes["says"]) == (False, "")
    assert "declared were" not in page(shop, "theme")
    assert experiments(shop.app.registry, shop.store).status == "ok"
    other = Experiment(base="control", planned=0.05, split={"control": 9, "large": 1})
    lopsided = replace(shop.app.registry, experiments={"arm": other})
    results = experiments(lopsided, shop.store)
    assert results.status == "warning"
    output = "The arms control and large have 50% and 50% of the reports, declared were 90% and 10%."
    assert output in results.seen
    for arm, share in other.split.items():
        monkeypatch.setitem(shop.app.registry.experiments["arm"].split, arm, share)
    assert output in page(shop, "theme")
    assert output in ask(shop, "theme/compare?a=arm=control&b=arm=large")["experiment"]["sizes"]["says"]


def test_means_of_arms_are_compared_for_all_looks(shop):
    body = ask(shop, "size/compare?a=arm=control&b=arm=large")
    assert body["experiment"]["segment"] == "arm"
    (mean,) = body["differences"]
    assert 1 < mean["interval"][0] < 3 < mean["interval"][1]
    assert mean["differs"]


def test_the_page_says_how_the_arms_differ(shop):
    html = page(shop, "theme")
    ((sentence, link),) = re.findall(r'<p class="changed arm">([^<]*) <a href="([^"]*)">', html)
    assert re.fullmatch(
        r"“(dark|light)” is (more|less) frequent with arm large than with control, by [\d.]+ to [\d.]+ points "
        r"\([\d.]+% against [\d.]+%\)\. 1 more value differs\.",
        sentence,
    )
    effect = sentence.removesuffix(" 1 more value differs.")
    text = re.sub("<[^>]+>", "", page(shop, "theme/experiment"))
    assert effect.removesuffix(".") in text
    assert "each other arm is compared with control" in text
    assert effect.removesuffix(".") in re.sub("<[^>]+>", "", page(shop, "theme/compare?a=arm=control&b=arm=large"))
    assert effect in re.sub("<[^>]+>", "", shop.http.get("/").get_data(as_text=True))
    assert link == "/m/theme/compare?a=arm%3Dcontrol&amp;b=arm%3Dlarge"
    assert "however often anybody looks" in html
    mean = (
        r"The geometric mean is higher with arm large than with control, by a factor of [\d.]+ to [\d.]+ "
        r"\([\d.]+\WkB against [\d.]+\WkB\)\."
    )
    assert re.search(mean, page(shop, "size"))
    assert 'class="changed arm"' not in page(shop, "theme?segment=platform=linux")


def test_a_query_says_of_arms_what_the_page_says(shop):
    """In all time, in a period and in a range; nothing of a segment."""
    for parameters, words in (
        ("", ""),
        (f"period={week(2)}", f"period={week(2)}"),
        (f"date_range={week(2)}", f"range={week(2)}"),
    ):
        arms = shop.get(f"/api/v1/metrics/size?{parameters}").get_json()["arms"]
        sentences = re.findall(r'<p class="changed arm">([^<]*) <a', page(shop, f"size?{words}"))
        assert [each["says"] for each in arms] == sentences
        assert [(each["a"], each["b"]) for each in arms] == [("arm=control", "arm=large")]
    assert shop.get("/api/v1/metrics/size?segment=arm=large").get_json()["arms"] == []


@pytest.mark.parametrize("address", ["range={}", "range=2020-01"])
def test_under_a_range_of_time_sentences_about_arms_say_that_they_are_of_the_whole_experiment(shop, address):
    """Arms are compared over all reports, whatever range the page is of; also where nothing of it is published."""
    answer = shop.get("/api/v1/metrics/theme/experiment").get_json()
    days = r"(up to|from \d{1,2} \w+( \d{4})? to) \d{1,2} \w+ \d{4}"
    assert re.fullmatch(f"Over the whole experiment, {days}", answer["scope"])
    html = page(shop, f"theme?{address.format(week(2))}")
    sentences = re.findall(r'<p class="changed arm">([^<]*) <a', html)
    assert [each.startswith(f"{answer['scope']}: ") for each in sentences] == [True]
    assert "Over the whole experiment" not in page(shop, "theme")
    assert "Over the whole experiment" not in page(shop, f"theme?period={week(2)}")


def test_of_segments_the_last_period_is_open_and_not_the_segment(serve):
    shop = serve(REGISTRY.replace("early = false", "trial = true"))
    for arm in ("control", "large"):
        send(shop, "theme", [1] * 60 + [0] * 70, week(0), segment=f"platform=linux,arm={arm}")
    shop.drain()
    html = page(shop, "theme/compare?a=arm=control&b=arm=large")
    assert html.count("reports with arm control (the last week is still open)") == 1
    assert "reports with arm control (still open)" in page(shop, f"theme/compare?a=arm=control&b=arm=large&period={week(0)}")


def test_the_page_says_how_far_arms_are_apart_that_do_not_differ(serve):
    """By how much they may differ, so that nobody takes too few reports for no difference."""
    shop = serve(REGISTRY)
    for arm in ("control", "large"):
        send(shop, "theme", [1] * 30 + [0] * 70, week(2), segment=f"platform=linux,arm={arm}")
    shop.drain(days=40)
    (sentence,) = re.findall(r'<p class="changed arm">([^<]*) <a', page(shop, "theme?level=0.9999"))
    assert re.fullmatch(
        r"No effect of arm large on “(dark|light|system)” found so far \(\N{MINUS SIGN}[\d.]+ to \+[\d.]+ points\)\. "
        r"“\1”: [\d.]+% with large, [\d.]+% with control\.",
        sentence,
    )


def test_the_arms_are_compared_if_nothing_else_is_asked(serve):
    """The base comes first, whatever the order of the arms; the page says what holds of arms; other sides may be chosen."""
    shop = serve(REGISTRY.replace('base = "control"', 'base = "large"'))
    for ago in (1, 2):
        for cell in ("platform=linux,arm=control", "platform=linux,arm=large", "platform=macos,arm=large"):
            send(shop, "theme", [0] * 100, week(ago), segment=cell)
    shop.drain(days=40)
    says = "These are arms of an experiment on arm."
    html = page(shop, "theme/compare")
    assert ">control against large</h2>" in html
    assert says in html
    assert "however often anybody looks" in html
    other = page(shop, f"theme/compare?a=platform=linux&b=platform=macos&period={week(2)}")
    assert ">macos against linux</h2>" in other
    assert says not in other


def test_the_page_of_an_experiment_says_why_medians_are_not_compared(serve):
    """Where a distribution is estimated: what is compared, and why no more is."""
    shop = serve(REGISTRY.replace('estimate = "mean"\nrange', 'estimate = "distribution"\nrange'))
    for arm in ("control", "large"):
        send(shop, "size", [shop.app.registry.metrics["size"].position(20)] * 600, week(2), segment=f"arm={arm}")
    shop.drain(days=40)
    why = "Quantiles of arms are not compared, for no interval of theirs holds at every look: compare the geometric mean."
    assert why in page(shop, "size/experiment")
    assert "<h3>Medians</h3>" not in page(shop, "theme/experiment")


def test_segments_stand_beside_the_declared_base(serve):
    """Though the other arm has more reports; an address may name another base."""
    shop = serve(REGISTRY)
    for arm, n in (("control", 400), ("large", 700)):
        send(shop, "size", [shop.app.registry.metrics["size"].position(20)] * n, week(2), segment=f"arm={arm}")
    shop.drain(days=40)
    for query, base in (("", "control"), ("?base=arm=large", "large")):
        table = page(shop, f"size{query}").partition('id="segments"')[2].partition("<tbody>")[2]
        assert "the base" in table.partition(f">{base}<")[2].partition("</tr>")[0]


def test_a_page_says_nothing_of_arms_without_a_release(serve):
    shop = serve(REGISTRY)
    send(shop, "theme", [1] * 60, week(2), segment="platform=linux,arm=control")
    shop.drain(days=40)
    assert 'class="changed arm"' not in page(shop, "theme")
    assert "in 2 experiments" not in shop.http.get("/").get_data(as_text=True)


def test_arms_differ_in_a_boolean_as_in_one_value(serve):
    shop = serve(REGISTRY.replace('"categorical"\nvalues = ["light", "dark", "system"]', '"boolean"'))
    for arm, yes in (("control", 400), ("large", 460)):
        send(shop, "theme", [1] * yes + [0] * (800 - yes), week(2), segment=f"platform=linux,arm={arm}")
    shop.drain(days=40)
    answer = ask(shop, "theme/compare?a=arm=control&b=arm=large")
    assert answer["overall"]["p_value"] == pytest.approx(answer["differences"][0]["p_value"])
    assert answer["overall"]["p_value"] < 1


@pytest.mark.parametrize("metric", ["theme", "size"])
def test_rows_compare_arms_for_all_looks(shop, metric):
    """Differences of a query are those of the comparison: of arms for all looks, of other segments for one."""
    pairs = {"arm": ("control", "large")} | ({"platform": ("linux", "macos")} if metric == "theme" else {})
    for segment, (base, other) in pairs.items():
        answer = answered(shop, f"{metric}/compare?a={segment}={base}&b={segment}={other}")
        query = {"metrics": [metric], "dimensions": [segment, "value"], "compare": {"dimension": segment, "base": base}}
        rows = shop.http.post("/api/v1/query", json=query, headers={"Authorization": f"Bearer {READ}"}).get_json()["rows"]
        results = {
            row["value"]: [row[name] for name in ("difference", "diff_low", "diff_high", "p_value")]
            for row in rows
            if row["p_value"]
        }
        assert results == {
            each["label"]: [each["difference"], *each["interval"], each["p_value"]] for each in answer["differences"]
        }
        assert (answer["experiment"] is None) == (segment == "platform")


@pytest.fixture
def course(serve):
    """Serve an experiment of three weeks: more dark with the large arm, and a number without an effect."""
    served = serve(REGISTRY)
    position = served.app.registry.metrics["size"].position
    for ago in (4, 3, 2):
        for arm, dark in (("control", 200), ("large", 500)):
            for platform in ("linux", "macos"):
                send(served, "theme", [1] * dark + [0] * (800 - dark), week(ago), segment=f"platform={platform},arm={arm}")
            send(served, "size", [position(20)] * 600, week(ago), segment=f"arm={arm}")
    served.drain(days=40)
    return served


def test_a_difference_is_followed_as_reports_came_in(course):
    """Each look has the reports up to a period; the last one is the comparison of all. Bands shrink, and hold together."""
    answer = course.get("/api/v1/metrics/theme/experiment").get_json()
    assert (answer["segment"], answer["base"], answer["planned"]) == ("arm", "control", 0.05)
    (arm,) = answer["arms"]
    assert arm["label"] in ("dark", "light")
    assert [look["last"] for look in arm["looks"]] == [week(4), week(3), week(2)]
    assert [look["first_n"] for look in arm["looks"]] == [1600, 3200, 4800]
    widths = [look["simultaneous"][1] - look["simultaneous"][0] for look in arm["looks"]]
    assert widths == sorted(widths, reverse=True)
    together = course.get("/api/v1/metrics/theme/compare?a=arm=control&b=arm=large").get_json()
    assert arm["comparison"] == together
    row = next(row for row in together["differences"] if row["label"] == arm["label"])
    assert arm["looks"][-1]["simultaneous"] == row["simultaneous"]
    system = course.get("/api/v1/metrics/theme/experiment?value=system").get_json()
    assert system["arms"][0]["label"] == "system"


def test_each_release_is_read_once_for_all_looks(course, monkeypatch):
    """Once for the comparison of all, and once for the looks before, however many there are."""
    releases, trips = course.store.releases, []
    read = type(releases).of_strata
    monkeypatch.setattr(
        type(releases), "of_strata", lambda own, layouts, strata: trips.append(list(strata)) or read(own, layouts, strata)
    )
    arms = course.get("/api/v1/metrics/theme/experiment").get_json()["arms"]
    assert len(arms[0]["looks"]) == 3
    assert len(trips) == 2
    assert sorted(trips[0]) == sorted(trips[1])


def test_the_note_on_arms_has_the_planned_difference_in_words(course):
    """In points of shares, and as a factor on a logarithmic scale."""
    notes = {
        metric: course.get(f"/api/v1/metrics/{metric}/compare?a=arm=control&b=arm=large").get_json()["experiment"]["says"]
        for metric in ("theme", "size")
    }
    assert notes["theme"].endswith("narrowest for the planned difference of 5 points.")
    assert notes["size"].endswith("narrowest for the planned difference of a factor of 1.41.")


def test_how_many_people_decide_is_what_lint_says(course):
    """The figure of the page and of the API is that of `deniable registry lint`."""
    answer = course.get("/api/v1/metrics/theme/experiment").get_json()
    declared = course.app.registry.metrics["theme"]
    assert f"{answer['people']:,} people in each arm of arm find a difference of 0.05" in str(
        _experiments(course.app.registry, declared, course.mechanism("theme"))
    )


def test_the_page_of_an_experiment(course):
    """It says whether an effect was found, and which effects are excluded; the file has every look."""
    html = course.http.get("/m/theme/experiment?value=dark").get_data(as_text=True)
    effect = r"“dark” is more frequent with arm large than with control, by ([\d.]+ to [\d.]+) points"
    assert re.search(rf'<p class="headline" dir="auto">{effect} <span>\([\d.]+% against [\d.]+%\)</span></p>', html)
    assert re.search(
        r"planned difference: 5 points, which [\d,]+ people in each arm, with one report each, find in 80% of cases", html
    )
    ends = re.findall(r'data-name="95%: ">[\d.]+ to [\d.]+%</td>', html)
    assert len(ends) == 2  # each arm has its interval, as a number and as a line
    assert html.partition('class="numbers arms"')[2].count('class="thick"') == 2
    assert re.search(r'<option value="0.99">99%</option>', html)
    exact = course.http.get("/m/theme/experiment?value=dark&level=0.99").get_data(as_text=True)
    assert '<option value="0.99" selected>99%</option>' in exact
    assert re.search(r'<input type="hidden" name="segment" value="arm">', course.http.get("/m/theme/experiment?segment=arm").text)
    assert "50%, declared 50%" in html
    none = course.http.get("/m/size/experiment").get_data(as_text=True)
    assert "No effect of arm large on the geometric mean found so far <span>(a factor of 0." in none
    assert "Effects outside the interval are excluded." in none
    assert "planned difference: a factor of 1.41" in none
    for path in ("/m/theme", "/m/theme/compare?a=arm=control&b=arm=large"):
        assert "/m/theme/experiment" in course.http.get(path).get_data(as_text=True)
    listed = course.http.get("/experiments").get_data(as_text=True)
    assert listed.count("/experiment?segment=arm") == 2
    assert "No effect of arm large on the geometric mean found so far" in listed
    table = course.http.get("/m/theme/experiment.csv").get_data(as_text=True).splitlines()
    assert len(table) == 4
    assert table[0].startswith("metric,version,a,b,level,looks,value,unit,last,a_n,b_n,difference")


def test_a_value_by_which_no_arm_is_compared_is_named(course):
    """As a refusal with what can be asked, and not as if nothing were published."""
    for value, near in (("drak", "; did you mean 'dark'?"), ("p50", "")):
        answer = course.get(f"/api/v1/metrics/theme/experiment?value={value}")
        assert (answer.status_code, answer.get_json()["code"]) == (400, "incomparable")
        assert answer.get_json()["detail"].startswith("arms are compared by ")
        assert answer.get_json()["detail"].endswith(f"and not by {value!r}{near}")
        assert "Arms are compared by" in course.http.get(f"/m/theme/experiment?value={value}").get_data(as_text=True)


def test_a_metric_without_an_experiment_says_so(serve):
    """A page with the reason. Without arms that are published the page says what it takes."""
    empty = serve(REGISTRY)
    answer = empty.get("/api/v1/metrics/theme/experiment?segment=platform")
    assert (answer.status_code, answer.get_json()["code"]) == (400, "incomparable")
    assert "the metric theme has no experiment on platform: its experiments are on arm" in answer.get_json()["detail"]
    page = empty.http.get("/m/theme/experiment")
    assert page.status_code == 200
    assert "No two arms can be compared yet." in page.get_data(as_text=True)


@pytest.fixture
def three(serve):
    """Serve an experiment of three arms: with larger there is more dark than with the others, which are alike."""
    served = serve(REGISTRY.replace('"control", "large"', '"control", "large", "larger"'))
    position = served.app.registry.metrics["size"].position
    for arm, dark, size in (("control", 300, 20), ("large", 310, 60), ("larger", 420, 120)):
        send(served, "theme", [1] * dark + [0] * (1600 - dark), week(2), segment=f"platform=linux,arm={arm}")
        send(served, "size", [position(size)] * 600, week(2), segment=f"arm={arm}")
    served.drain(days=40)
    return served


def test_which_of_three_arms_has_the_most(three):
    """It must differ from each other one by a test of all pairs of arms, at all looks; the page begins with it."""
    order = three.get("/api/v1/metrics/size/experiment").get_json()["order"]
    assert order["says"] == "The geometric mean is highest with “larger” and lowest with “control”, of 3 arms."
    order = three.get("/api/v1/metrics/theme/experiment?value=dark").get_json()["order"]
    assert (order["label"], order["most"], order["least"]) == ("dark", "larger", None)
    html = three.http.get("/m/theme/experiment?value=dark").get_data(as_text=True)
    assert re.search(r'<p class="headline" dir="auto">“dark” is more frequent with arm larger than with control, by \d', html)
    assert "“dark” is most frequent with “larger”, of 3 arms." in html
    pairs = [("control", "large"), ("control", "larger"), ("large", "larger")]
    p_values = {}
    for pair in pairs:
        body = answered(three, "theme/compare?a=arm={}&b=arm={}".format(*pair))
        (row,) = (row for row in body["differences"] if row["label"] == "dark")
        p_values[pair] = row["p_holm"] * 3 / body["experiment"]["comparisons"]
    largest = max(p for pair, p in p_values.items() if "larger" in pair)
    assert 0.0001 < largest < 0.05 < p_values["control", "large"]
    for level, most in ((1 - 1.05 * largest, "larger"), (1 - 0.95 * largest, None)):
        order = three.get(f"/api/v1/metrics/theme/experiment?value=dark&level={level}").get_json()["order"]
        assert order["most"] == most
    assert order["says"] == "“dark” is most frequent with “larger” or “control”, of 3 arms."
    assert order["may_be_most"] == ["larger", "control"]
    order = three.get("/api/v1/metrics/theme/experiment?value=dark&level=0.999999").get_json()["order"]
    assert order["says"] == "None of the 3 arms is found so far to have “dark” most often."


def query(served, **members):
    answer = served.http.post("/api/v1/query", json=members, headers={"Authorization": f"Bearer {READ}"})
    assert answer.status_code == 200, answer.get_json()
    return answer.get_json()


@pytest.mark.parametrize("metric", ["theme", "size"])
@pytest.mark.parametrize("base", ["control", "larger"])
@pytest.mark.parametrize("level", [0.95, 0.6])
def test_a_query_and_the_page_test_arms_alike(three, metric, base, level):
    """Whichever arms a query asks for, their differences count as the experiment's planned comparisons."""
    arms = ["control", "large", "larger"]
    for others in (arms, [base, "large"]):
        answer = query(
            three,
            metrics=[metric],
            dimensions=["arm", "value"],
            filters=[["is", "arm", others]],
            compare={"dimension": "arm", "base": base},
            level=level,
        )
        for arm in {*others} - {base}:
            body = answered(three, f"{metric}/compare?a=arm={base}&b=arm={arm}&level={level}")
            page_says = {row["label"]: (row["p_holm"], row["differs"], *row["simultaneous"]) for row in body["differences"]}
            names = ("p_holm", "differs", "diff_low_all", "diff_high_all")
            tested = {row["value"]: tuple(map(row.get, names)) for row in answer["rows"] if row["arm"] == arm and row["p_value"]}
            assert tested.keys() == page_says.keys()
            for label, row in tested.items():
                assert row == pytest.approx(page_says[label], rel=1e-9), (label, row)
            assert body["experiment"]["comparisons"] == (3 if {base, arm} == {"large", "larger"} else 2)


def test_several_experiments_of_an_answer_are_tested_together(three):
    """Each has the same part of the error, so an answer about two metrics, or with other segments, is wrong no more often."""
    members = {"dimensions": ["arm", "value"], "compare": {"dimension": "arm", "base": "control"}}
    alone, both = query(three, metrics=["theme"], **members), query(three, metrics=["theme", "size"], **members)
    assert alone["together"] == (
        "Tested together: all values of the arms (Holm), all 2 comparisons of arms (Bonferroni), and all looks."
    )
    assert both["together"].endswith("There are 2 such families, and all count (Bonferroni).")
    for one, other in zip(alone["rows"], both["rows"], strict=False):
        if one["p_holm"] is not None:
            assert other["p_holm"] == pytest.approx(min(1, 2 * one["p_holm"]))
            assert other["diff_low_all"] < one["diff_low_all"]


def test_an_undecided_experiment_says_what_it_takes(three):
    """As many more reports decide as make the error that small; and one that is decided says so."""
    large, larger = (course["verdict"] for course in three.get("/api/v1/metrics/theme/experiment?value=dark").get_json()["arms"])
    assert (larger["state"], larger["more"], larger["says"]) == ("found", None, "Decided: an effect is found.")
    assert large["state"] == "undecided"
    assert re.fullmatch(
        r"Undecided: an effect as large as planned, 5 points, is neither found nor excluded\. About [\d,]+ more reports of "
        r"other people, in both arms together, find it in 80% of cases\. That takes \d+ more weeks?, if each brings "
        r"as many people who have not reported before\.",
        large["says"],
    )
    html = three.http.get("/m/theme/experiment?value=dark").get_data(as_text=True)
    assert all(
        f"{arm} compared with control: {says}" in html
        for arm, says in (("Arm large", large["says"]), ("Arm larger", larger["says"]))
    )
    for number, state in ((large["more"], True), (large["more"] // 8, False)):
        assert (_power(three, 3200 + number) > 0.8) is state


def _power(three, n):
    """Return the power of the test of the planned difference of one value, of one comparison of two, with so many reports."""
    (dark,) = (row for row in answered(three, "theme/compare?a=arm=control&b=arm=large")["differences"] if row["label"] == "dark")
    errors = [(high - low) / 2 / 1.96 for low, high in (dark["first_interval"], dark["second_interval"])]
    variance = sum(error**2 for error in errors) * 3200 / n
    more = 0.05**2 / variance
    reach = math.sqrt((1 + 1 / more) * math.log((1 + more) / (0.05 / 2 / 3) ** 2))
    return NormalDist().cdf(0.05 / math.sqrt(variance) - reach)


def test_an_effect_as_large_as_planned_is_excluded(serve):
    """Where both arms have many reports and answer alike."""
    shop = serve(REGISTRY.replace("planned = 0.05", "planned = 0.3"))
    for arm in ("control", "large"):
        send(shop, "theme", [1] * 700 + [0] * 900, week(2), segment=f"platform=linux,arm={arm}")
    shop.drain(days=40)
    (arm,) = shop.get("/api/v1/metrics/theme/experiment?value=dark").get_json()["arms"]
    assert arm["verdict"] == {
        "state": "excluded",
        "more": None,
        "periods": None,
        "says": "Decided: an effect as large as planned, 30 points, is excluded.",
    }


def test_which_arms_may_be_best_is_said(three):
    """Those that no other arm is found to exceed, by the test of all pairs."""
    order = three.get("/api/v1/metrics/theme/experiment?value=dark").get_json()["order"]
    assert order["may_be_most"] == ["larger"]
    order = three.get("/api/v1/metrics/theme/experiment?value=light").get_json()["order"]
    assert order["most"] is None
    assert order["may_be_most"][0] in ("control", "large")
    if len(order["may_be_most"]) < 3:
        assert " or " in order["says"]


def test_two_arms_have_no_order(course):
    """Their comparison says which one has more."""
    assert course.get("/api/v1/metrics/theme/experiment").get_json()["order"] is None


def test_the_list_of_metrics_names_experiments_with_an_effect(course):
    """Before the metrics; and as the headline, where nothing else changed."""
    html = course.http.get("/").get_data(as_text=True)
    headline = re.search(r'<p class="headline" dir="auto">(.*?)</p>', html)[1]
    assert re.fullmatch(
        r"theme: “dark” is more frequent with arm large than with control, by [\d.]+ to [\d.]+ points \(\d+% against \d+%\)",
        re.sub("<[^>]+>", "", headline),
    )
    assert re.search(r'<p class="changed">1 of 2 experiments shows an effect\. +<a [^>]*>Experiments</a></p>', html)
    assert re.search(r'<p class="changed">No trend and no change beyond chance\.</p>', html)


@pytest.mark.parametrize(
    ("p_value", "words"),
    [
        (0.026, "No effect found in 2 experiments so far."),
        (0.024, "2 of 2 experiments show an effect. size: “a” is more frequent with arm new."),
    ],
)
def test_experiments_of_the_list_are_tested_together(serve, monkeypatch, p_value, words):
    """A list without any effect names one in 5% of cases at most, however many experiments there are."""
    monkeypatch.setattr(list_page.looks, "clearest", lambda _: {"arm": Clearest(p_value, "“a” is more frequent with arm new")})
    shop = serve(REGISTRY)
    send(shop, "theme", [1] * 100, week(2), segment="platform=linux,arm=control")
    shop.drain(days=40)
    assert words in re.sub("<[^>]+>", "", shop.http.get("/").get_data(as_text=True))
