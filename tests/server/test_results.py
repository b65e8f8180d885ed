"""Public results: closed releases of public metrics, rounded, for everybody; nothing else."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import replace

import pytest
from registries import metric_toml, registry_toml

from deniable.errors import RegistryError
from deniable.registry import parse
from deniable_aggregator.answer import everybody
from deniable_aggregator.deletion.erase import Removal
from deniable_server.pages.parts import memo
from deniable_server.results import rounding

from .conftest import Served
from .test_series import send, week

METRICS = (
    metric_toml("theme", values=["light", "dark", "system"], epsilon=3, period="week", segments=["platform"], public=True),
    metric_toml("alike", values=["light", "dark"], epsilon=8, period="week", public=True),
    metric_toml("size", estimate="mean", range=[1, 1000], unit="kB", epsilon=4, period="week", public=True),
    metric_toml("mixed", values=["light", "dark"], epsilon=8, period="week", segments=["platform", "channel"], public=True),
    metric_toml("secret", values=["light", "dark"], epsilon=3, period="week"),
)
OTHERS = {"segments": {"platform": ["linux", "macos", "beos"], "channel": ["stable", "beta"]}}
REGISTRY = registry_toml(*METRICS, **OTHERS, publication={"min_reports": 50, "grace": "30d"})
TRIAL = registry_toml(*METRICS, **OTHERS, publication={"min_reports": 1, "trial": True})
EXACT = 1637


@pytest.fixture
def start(settings, tmp_path):
    """Return what serves a registry with results, to everybody."""
    servers = []

    def serve(registry, **others):
        path = tmp_path / "metrics.toml"
        path.write_text(registry, "utf-8")
        servers.append(Served(replace(settings, registry=str(path), **{"about": "results", **others})))
        return servers[-1]

    yield serve
    for server in servers:
        server.store._client.close()


@pytest.fixture
def shop(start):
    """Serve three weeks, of which two are closed."""
    served = start(REGISTRY)
    for ago in (4, 3, 0):
        for platform in ("linux", "macos"):
            send(served, "theme", [0] * 900 + [1] * (EXACT - 900), week(ago), segment=f"platform={platform}")
        send(served, "alike", [0] * EXACT, week(ago))
        send(served, "size", [300] * EXACT, week(ago))
        send(served, "secret", [0] * EXACT, week(ago))
    served.drain(days=17)
    return served


def text(shop, path):
    answer = shop.http.get(path)
    assert answer.status_code == 200
    return answer.get_data(as_text=True)


def test_it_is_off_unless_asked_for(start):
    """Neither by default, nor where only what is asked is public."""
    for about in ("off", "public"):
        assert start(REGISTRY, about=about).http.get("/results").status_code == 404
    assert start(REGISTRY).http.get("/about").status_code == 200


def test_everybody_may_read_it(shop):
    """Without a key, a cookie or a script; it may be kept for an hour."""
    for path in ("/results", "/results/theme", "/results/theme/values.csv"):
        answer = shop.http.get(path)
        assert (answer.status_code, answer.headers["Cache-Control"]) == (200, "max-age=3600")
        assert "Set-Cookie" not in answer.headers
        assert "<script" not in answer.get_data(as_text=True)


def test_only_what_is_declared_public_is_shown(shop):
    """Others are as unknown as metrics that there are not."""
    assert "secret" not in text(shop, "/results")
    assert [shop.http.get(f"/results/{name}").status_code for name in ("secret", "nothing")] == [404, 404]
    assert shop.http.get("/results/secret/series.csv").status_code == 404


def test_closed_releases_are_shown_rounded(shop):
    """No number of reports is exact, in pages and files; estimates are multiples of a tenth of their error."""
    html = text(shop, "/results/theme")
    assert re.search(r"“light” is the most frequent answer: \d\d%", html)
    assert "about 6,500 reports" in html  # 2 weeks of 2 * 1,637
    assert f"{2 * EXACT:,}" not in html
    assert f"{EXACT:,}" not in html
    rows = list(csv.DictReader(io.StringIO(text(shop, "/results/theme/values.csv"))))
    assert {row["n"] for row in rows} == {"6500"}
    for row in rows:
        step = float(row["stderr"]) / 10
        assert float(row["estimate"]) == pytest.approx(round(float(row["estimate"]) / step) * step)
    periods = list(csv.DictReader(io.StringIO(text(shop, "/results/theme/series.csv"))))
    assert {row["period"] for row in periods} == {week(4), week(3)}
    assert {row["n"] for row in periods} == {"3300"}
    assert "3,300" in html  # a segment has 3,274 in both weeks
    assert "The mean is" in text(shop, "/results/size")


def test_an_open_release_is_not_shown(start):
    """Analysts see a step before the close; everybody sees it when nothing more can come."""
    served = start(REGISTRY)
    for _ in range(3):
        send(served, "size", [300] * EXACT, week(0))
        served.drain()
    assert served.get("/api/v1/metrics/size").get_json()["n"] > 0
    assert "No result is shown yet." in text(served, "/results/size")


def test_a_group_that_answers_alike_is_left_out(shop):
    """Its estimate would be the answer of each of them."""
    html = text(shop, "/results/alike")
    assert "2 weeks are not shown: a group is too small, or nearly all of it gave one answer." in html
    assert "%" not in re.sub(r"<svg.*?</svg>|<[^>]*>", "", html)
    for name in ("values", "series"):
        assert not files(shop, "alike", name)


def test_a_trial_has_none(start):
    """It protects no small group."""
    assert start(TRIAL).http.get("/results").status_code == 404


def test_an_address_may_ask_so_often(start):
    """As for any request without a key."""
    served = start(REGISTRY, rate_limit_source="2/hour")
    elsewhere = {"REMOTE_ADDR": "192.0.2.7"}
    codes = [served.http.get("/results", environ_base=elsewhere).status_code for _ in range(3)]
    assert codes == [200, 200, 429]


def test_answers_that_are_searched_for_are_never_public():
    """What a search finds may be a name."""
    with pytest.raises(RegistryError, match="public = true: remove it, or list the answers"):
        parse(registry_toml(metric_toml("site", type="string", discover=True, epsilon=4.0, public=True)))
    with pytest.raises(RegistryError, match="public = 'yes': write true or false"):
        parse(registry_toml(metric_toml("site", public="yes")))


@pytest.mark.parametrize(("number", "coarse"), [(0, 0), (7, 10), (57, 60), (101, 100), (1637, 1600), (99_600, 100_000)])
def test_numbers_of_reports_have_two_digits(number, coarse):
    """Below a hundred they are tens: none is exact."""
    assert rounding.coarse_count(number) == coarse


@pytest.mark.parametrize("stderr", [1e-4, 0.0066, 0.0099, 0.01, 0.0101, 0.5, 3, 70])
def test_a_step_is_a_tenth_of_the_error_or_a_little_more(stderr):
    """It is 1, 2 or 5 times a power of ten."""
    step = rounding.step_of(stderr)
    assert stderr / 10 * (1 - 1e-6) <= step <= stderr / 4 * (1 + 1e-6)
    assert f"{step:.0e}"[0] in "125"


@pytest.mark.parametrize(
    ("interval", "step", "coarse"),
    [((0.2834, 0.3166), 0.002, (0.282, 0.318)), ((-0.0012, 0.28), 0.002, (-0.002, 0.28)), ((0.123, 0.456), 0.0, (0.12, 0.46))],
)
def test_ends_of_intervals_are_rounded_outwards(interval, step, coarse):
    """So that a public interval holds at least as often as it says."""
    assert rounding.coarse_ends(interval, step) == pytest.approx(coarse, abs=1e-12)


def shares(shop, id_):
    """Return all that a stranger can know of a metric: the share of light and the reports of each row of its page and files."""
    html = text(shop, f"/results/{id_}")
    rows = {"": next((row for row in files(shop, id_, "values") if row["value"] == "light"), None)}
    rows |= {row["period"]: row for row in files(shop, id_, "series") if row["value"] == "light"}
    known = {name: (float(row["estimate"]), float(row["n"])) for name, row in rows.items() if row}
    table = html.partition('<th scope="col">Segment</th>')[2]
    columns = re.findall(r"<bdi>(\w+)</bdi>", table.partition("</tr>")[0])
    for name, cells in re.findall(r'<tr><th scope="row">(platform[^<]*)</th>(.*?)</tr>', table):
        *listed, reports = re.findall(r"<td>([\d.,]+)%?</td>", cells)
        known[name] = (float(listed[columns.index("light")]) / 100, float(reports.replace(",", "")))
    return known


def files(shop, id_, name):
    return list(csv.DictReader(io.StringIO(text(shop, f"/results/{id_}/{name}.csv"))))


def answered(shop, cells, ago):
    """Have people of each cell answer in a week: so many light, so many dark."""
    for cell, (light, dark) in cells.items():
        send(shop, "mixed", [0] * light + [1] * dark, week(ago), segment=f"platform={cell},channel=stable")


def test_a_segment_that_is_left_out_cannot_be_computed(start):
    """Nearly all of linux gave one answer. The total less the other segment must not say so."""
    served = start(REGISTRY)
    answered(served, {"linux": (980, 20), "macos": (200, 800)}, 4)
    answered(served, {"linux": (500, 500), "macos": (300, 700)}, 3)
    served.drain(days=17)
    known = shares(served, "mixed")
    assert known[week(4)][0] == pytest.approx(0.59, abs=0.03)
    # Whoever subtracts: of both weeks, and with that of the other week, which is known from the page of an earlier day.
    (total, n), (other, others) = known[""], known.get("platform = macos", (0, 0))
    linux = (total * n - other * others) / (n - others)
    assert linux < 0.65
    assert known["platform = macos"] == (pytest.approx(0.3, abs=0.05), 1000)  # of the other week alone
    assert known["platform = linux"] == (pytest.approx(0.5, abs=0.05), 1000)


def test_what_the_shown_segments_leave_is_no_group_that_answers_alike(start):
    """Two small segments are withheld by their size. The total less the large one is both of them."""
    served = start(REGISTRY)
    answered(served, {"linux": (400, 600), "macos": (40, 0), "beos": (40, 0)}, 4)
    served.drain(days=17)
    known = shares(served, "mixed")
    assert known[week(4)][0] == pytest.approx(0.44, abs=0.05)
    assert "platform = linux" not in known


def test_a_period_that_answers_alike_is_in_no_figure(start):
    """Neither alone nor in a sum: what it would add cannot be computed from two looks."""
    served = start(REGISTRY)
    answered(served, {"linux": (980, 20)}, 4)
    answered(served, {"linux": (500, 500)}, 3)
    served.drain(days=17)
    known = shares(served, "mixed")
    assert set(known) == {"", week(3), "platform = linux"}
    assert known[""][0] == pytest.approx(0.5, abs=0.05)
    assert {n for _, n in known.values()} == {1000}
    assert "1 week is not shown" in text(served, "/results/mixed")
    assert "no release" not in text(served, "/results/mixed")


def test_a_release_is_looked_at_once(shop, monkeypatch):
    """It never changes once it is closed. When it is erased, what was remembered of it is of no use."""
    looked = []
    decide = everybody.shown_cells
    monkeypatch.setattr(everybody, "shown_cells", lambda *of: looked.append(of) or decide(*of))
    monkeypatch.setattr(memo, "once", lambda _, __, make: make())
    first = text(shop, "/results/theme")
    assert len(looked) == 2
    assert text(shop, "/results/theme") == first
    assert len(looked) == 2
    Removal(shop.store, "theme").sweep()
    assert "No result is shown yet." in text(shop, "/results/theme")
