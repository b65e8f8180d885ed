"""Ordinary questions of analysts, as the page about queries answers them, asked about people whose answers are known."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from registries import metric_toml, registry_toml

from deniable_query import Query

from .conftest import READ
from .test_asking import listening
from .test_rows import day, send

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "query.md").read_text("utf-8")
BLOCKS = re.findall(r"<!-- question -->\n```python\n(.*?)```", PAGE, re.DOTALL)
REGISTRY = registry_toml(
    metric_toml("ui.theme", values=["light", "dark", "system", "sepia"], epsilon=8, segments=["platform", "edition"]),
    metric_toml("page.load", range=[1, 1000], scale="log", unit="ms", estimate="distribution", epsilon=8, segments=["platform"]),
    metric_toml("export.used", epsilon=8, segments=["arm"]),
    metric_toml("came.from", type="string", candidates="sites.txt", epsilon=8, mechanism="hcms"),
    metric_toml("spent", range=[0, 100], unit="EUR", estimate="mean", epsilon=8),
    metric_toml("tips", epsilon=8, segments=["platform"]),
    segments={"platform": ["linux", "macos"], "edition": ["free", "paid"], "arm": ["control", "large"]},
    experiments={"arm": {"base": "control", "planned": 0.05}},
    publication={"min_reports": 1, "trial": True, "grace": "30d"},
)
DATES = {"2026-10-01": 9, "2026-10-31": 5, "2026-11-01": 4, "2026-11-20": 0, "2026-06-01": 9}
DARK = {"linux": 0.6, "macos": 0.3}
RISE = 0.02  # a day


@pytest.fixture
def server(serve):
    """Ten days of people: of those with the light theme more take the dark one each day."""
    shop = serve(REGISTRY, sites="\n".join(f"site{number}" for number in range(12)))
    for ago in range(10):
        for platform, share in DARK.items():
            dark = round(300 * (share + RISE * (9 - ago)))
            for edition in ("free", "paid"):
                cell = f"platform={platform},edition={edition}"
                send(shop, "ui.theme", [1] * dark + [2] * 30 + [0] * (270 - dark), day(ago), segment=cell)
    for platform, numbers in (("linux", [10.0, 100.0, 1000.0]), ("macos", [5.0, 50.0, 500.0])):
        send(shop, "page.load", numbers * 400, day(0), segment=f"platform={platform}")
    for arm, yes in (("control", 300), ("large", 500)):
        send(shop, "export.used", [1] * yes + [0] * (1000 - yes), day(0), segment=f"arm={arm}")
    send(shop, "came.from", [f"site{number}" for number in range(11) for _ in range(300)], day(0))
    send(shop, "spent", [20.0, 60.0] * 500, day(0))
    send(shop, "tips", [1] * 100, day(0), segment="platform=linux")
    shop.drain(days=40)
    with listening(shop.flask) as url:
        yield url


def near(row, truth, name="estimate"):
    """Return whether the truth lies in an interval that is twice as wide as the one that is told: at 99.99%."""
    low, high = {"estimate": ("low", "high"), "difference": ("diff_low", "diff_high"), "trend": ("trend_low", "trend_high")}[name]
    return row[name] - 2 * (row[name] - row[low]) <= truth <= row[name] + 2 * (row[high] - row[name])


def test_what_is_withheld_looks_as_the_page_shows_it(serve, capsys):
    """Beside what is published stands a row without numbers, with the rule that withholds it."""
    shop = serve(
        registry_toml(
            metric_toml("tips", epsilon=8, segments=["platform"]),
            segments={"platform": ["linux", "macos", "beos"]},
            publication={"min_reports": 50, "early": False, "grace": "30d"},
        )
    )
    for platform, n in (("linux", 1000), ("macos", 10), ("beos", 60)):
        send(shop, "tips", [1] * n, day(3), segment=f"platform={platform}")
    shop.drain(days=40)
    (block,) = [each for each in BLOCKS if '"tips"' in each]
    with listening(shop.flask) as url:
        exec(block, {"server": Query(url, READ)})
    printed = dict(line.split(" ", 1) for line in capsys.readouterr().out.splitlines())
    documented = dict(line.split(" ", 1) for line in re.findall(r"```text\n(linux .*?)```", PAGE, re.DOTALL)[0].splitlines())
    assert printed["macos"].startswith(documented["macos"].removesuffix("..."))
    assert (printed["linux"].split()[0], printed["linux"].split()[2]) == ("1000", "published")


def test_each_question_has_its_answer(server, capsys):
    """Each example of the page runs as it stands, but for the address, the key and the days; and its intervals hold the truth."""
    names = {"https://telemetry.example.org": server, "rk_...": READ} | {name: day(ago) for name, ago in DATES.items()}
    names[".last(2)"] = f'.between("{day(1)}", "{day(0)}")'  # the same, but for a day that begins meanwhile
    space, answers = {}, []
    for block in BLOCKS:
        # In one pass: on some days a date of ours is one of the page's as well.
        exec(re.sub("|".join(map(re.escape, names)), lambda name: names[name[0]], block), space)
        answers.append(list(space.get("rows", ())))
        assert capsys.readouterr().out or not answers[-1]
    _, shares, change, grown, medians, ranges, moved, arms, crossed, sites, trend, nobody, absent, total, people, real, _, _ = (
        answers
    )
    assert all(near(row, DARK[row["platform"]] + 2 * RISE) for row in shares if row["n"])
    assert [(row["from"], row["to"]) for row in shares if row["n"]] == [(day(9), day(5))] * 2
    assert near(change[0], 5 * RISE, "difference")
    assert (change[0]["base_from"], change[0]["base_to"]) == (day(9), day(5))
    assert max(grown, key=lambda row: row["difference"])["value"] == "dark"
    assert [near(row, {"linux": 100, "macos": 50}[row["platform"]]) for row in medians if row["n"]] == [True, True]
    within = {("linux", "500.."): 1 / 3, ("linux", "..200"): 2 / 3, ("macos", "500.."): 0, ("macos", "..200"): 2 / 3}
    assert {(row["platform"], row["value"]): near(row, within[row["platform"], row["value"]]) for row in ranges if row["n"]} == (
        dict.fromkeys(within, True)
    )
    assert [near(row, 0.5, "difference") for row in moved if row["platform"] == "macos"] == [True]
    assert [(row["detected"], near(row, 0)) for row in nobody] == [(False, True)]
    assert [row["state"] for row in absent] == ["published", "missing"]  # a trial withholds nothing
    assert [near(row, 0.2, "difference") for row in arms if row["arm"] == "large"] == [True]
    assert all(near(row, DARK[row["platform"]] + 4.5 * RISE) for row in crossed if row["n"])
    assert len(sites) == 10
    assert "site11" not in {row["value"] for row in sites}
    assert [near(row, RISE, "trend") for row in trend if row["value"] == "dark"] == [True]
    assert near(total[0], 40)
    assert [row["n"] for row in people] == [1200, 1200]
    assert [row["count"] for row in people] == pytest.approx([1200 * row["estimate"] for row in people])
    assert [near(row, 0.5, "difference") for row in real if row["platform"] == "macos"] == [True]
    assert [row["reason"] for row in real if row["platform"] == "linux"] == ["it is the base"]
    assert repr(space["answer"]).startswith("<Answer: ")
    assert {"platform", "value", "estimate", "reason"} <= set(space["frame"].columns)
