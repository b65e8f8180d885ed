"""What is claimed of a report that a relay mixes: no more than is proved of the fewest reports that a pool has."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
from mixing import SHUFFLED, mixed_toml, relay_toml
from registries import metric_toml, registry_toml

from deniable import mechanisms
from deniable.commands import entry as cli
from deniable.declared import Declared
from deniable.registry import parse
from deniable_aggregator.accounting.crowds import crowd as crowds
from deniable_aggregator.accounting.crowds import readers, relay
from deniable_aggregator.accounting.crowds.crowd import Crowd

PLATFORM = {"platform": ["linux", "mac"], "arm": ["a", "b"]}


def metric_of(text):
    return parse(text).metrics["m"]


def test_the_crowd_is_the_smallest_pool():
    """Whatever else arrives: honest reports above the least are not counted on."""
    metric = metric_of(relay_toml())
    assert relay.crowd(metric) == Crowd.of(Declared.of(metric).mechanism, 10_000)
    assert relay.crowd(metric_of(registry_toml(metric_toml("m")))) is None


def test_pools_are_disjoint_so_segments_and_trials_do_not_matter():
    """Each report is in one pool, of all its segments together; whatever is published follows from the pools.

    Of readers nothing is claimed then, because sums of published cells overlap.
    """
    declared = parse(relay_toml(mixed_toml(segments=["platform", "arm"]), segments=PLATFORM, publication={"trial": True}))
    assert readers.refusal(declared, declared.metrics["m"])
    assert relay.crowd(declared.metrics["m"]) == relay.crowd(metric_of(relay_toml()))


@pytest.mark.parametrize(
    ("epsilon", "least", "central", "proved"),
    [(3, 10_000, 0.3, True), (3, 10_000, 0.25, False), (2, 1_000, 0.6, True), (2, 1_000, 0.3, False), (3, 100, 2.9, False)],
)
def test_a_claim_holds_if_the_bound_says_so(epsilon, least, central, proved):
    """What is advised instead holds, and a tenth less does not."""
    shuffled = {"min": least, "delta": 1e-8, "central": central}
    metric = metric_of(relay_toml(mixed_toml(epsilon=epsilon, shuffled=shuffled)))
    words = relay.unproved(metric)
    assert (words == "") is proved
    assert (relay.crowd(metric).delta(central) <= 1e-8) is proved
    if proved:
        assert float(relay.claimed(metric)) == central
        return
    enough = int(words.rpartition("min = ")[2])
    changed = replace(metric, shuffled=replace(metric.shuffled, min=enough, delta="1e-8"))
    assert relay.unproved(changed) == ""
    assert relay.unproved(replace(metric, shuffled=replace(metric.shuffled, min=enough * 9 // 10))) != ""
    assert float(relay.claimed(metric)) >= relay.central(relay.crowd(metric), 1e-8)


def test_no_number_is_enough_for_some_claims():
    """Then none is advised."""
    metric = metric_of(relay_toml(mixed_toml(shuffled={"min": 10_000, "delta": 1e-8, "central": 1e-6})))
    assert relay.unproved(metric).endswith("write central = 0.29")


def test_both_figures_are_said_the_local_one_first():
    """With half of the reports honest, and all of a year; who mixes; and that this is not built."""
    declared = parse(relay_toml())
    metric = declared.metrics["m"]
    words = relay.sentence(declared, metric, 12)
    parts = [
        "A report alone: at most ε = 3, whoever sees it, also if Example Foundation and the server work together.",
        "10,000 reports of its pool are honest, the server learns at most ε = 0.3 of it, with delta 1e-08",
        "with half of them 0.42.",
        "All 12 reports of a year together: 36 as a plain sum, and",
        "Nobody can check that they do not work together.",
    ]
    places = [words.index(part) for part in parts]
    assert places == sorted(places)
    total = float(words.partition("plain sum, and ")[2].partition(" so mixed")[0])
    together = crowds.epsilon([relay.crowd(metric, 12)], 1e-8)
    assert together <= total <= together * 1.1
    assert relay.sentence(declared, replace(metric, shuffled=None)) == ""


def test_a_claim_that_is_not_proved_is_never_said():
    """Pages of a registry that nobody has linted say what is proved."""
    declared = parse(relay_toml(mixed_toml(shuffled=SHUFFLED | {"central": 0.01})))
    assert "at most ε = 0.29 of it" in relay.sentence(declared, declared.metrics["m"])
    assert relay.to_dict(declared.metrics["m"])["central"] == 0.29


def test_the_plan_says_both(tmp_path, capsys):
    """And which pools so many users do not fill."""
    path = tmp_path / "metrics.toml"
    path.write_text(relay_toml(mixed_toml(segments=["platform"]), segments=PLATFORM), "utf-8")
    assert cli.main(["plan", str(path), "--users", "15000"]) == 0
    printed = capsys.readouterr().out
    (line,) = [line for line in printed.splitlines() if line.startswith("m: A report alone: at most ε = 3")]
    assert line.endswith(
        "15,000 users make 7,500 reports of each of 2 combinations of segments a period, and a relay drops pools below 10,000; "
        "use fewer segments, or a longer period, or a smaller min with a larger central."
    )
    assert cli.main(["plan", str(path), "--users", "20000", "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)["relay"]["m"]
    assert (figures["local"], figures["central"], figures["min"]) == (3.0, 0.3, 10_000)
    assert cli.main(["plan", str(path), "--users", "20000"]) == 0
    assert "drops pools" not in capsys.readouterr().out


def test_an_account_says_both(tmp_path, capsys):
    """The local figures first, then the central ones with their condition; of several devices the crowd is divided."""
    path = tmp_path / "metrics.toml"
    path.write_text(relay_toml(mixed_toml(), metric_toml("open", epsilon=1)), "utf-8")
    assert cli.main(["account", str(path), "--days", "365"]) == 0
    printed = capsys.readouterr().out
    parts = [
        "Quote: epsilon",
        "What the server learns of reports that Example Foundation mixes:",
        "local epsilon 39, which needs nothing.",
        "Central epsilon",
        "do not work together, which nobody can check",
    ]
    assert [printed.index(part) for part in parts] == sorted(printed.index(part) for part in parts)
    assert re.search(r"^ +m +3 +10,000 +1e-08 +0\.3 +0\.42$", printed, re.MULTILINE)
    assert "epsilon_permanent cannot be declared there" in printed
    metric = metric_of(relay_toml())
    for devices in (1, 3):
        assert cli.main(["account", str(path), "--days", "365", "--group", str(devices), "--json"]) == 0
        mixed = json.loads(capsys.readouterr().out)["relay"]
        reports = relay.crowd(metric, 13).times(devices)
        assert mixed["local"] == 39 * devices
        assert mixed["central"] == crowds.epsilon([reports], 1e-6) < mixed["central_if_half_are_honest"] < mixed["local"]
        assert [(each["of"], each["occasions"]) for each in mixed["reports"]] == [("m", 13)]
    path.write_text(registry_toml(metric_toml("m")), "utf-8")
    assert cli.main(["account", str(path), "--json"]) == 0
    assert "relay" not in json.loads(capsys.readouterr().out)


def test_the_figures_of_the_page():
    """As they are computed, rounded up."""
    page = (Path(__file__).parents[2] / "docs" / "explanation" / "relay.md").read_text("utf-8")
    rows = re.findall(r"^\| (\d) \| (\d+) \| ([\d.]+) \| ([\d.]+) \|$", page, re.MULTILINE)
    assert len(rows) == 5
    for epsilon, least, central, half in rows:
        shuffled = {"min": int(least), "delta": 1e-8, "central": 1e-3}
        reports = relay.crowd(metric_of(relay_toml(mixed_toml(epsilon=int(epsilon), shuffled=shuffled))))
        figures = [readers.upward(relay.central(each, 1e-8)) for each in (reports, reports.half)]
        assert figures == [central, half]


def test_the_figures_for_few_users():
    """Reports for two points: 1.96 standard deviations of yes or no, of the noise alone, as the mechanism says it."""
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "few-users.md").read_text("utf-8")
    rows = re.findall(r"^\| (\d) \| ([\d,]+) \| (\d+)% \| ([\d.]*) ?\| ([\d.]*) ?\|$", page, re.MULTILINE)
    assert [row[0] for row in rows] == ["1", "2", "3"]
    for epsilon, reports, true, *centrals in rows:
        mechanism = mechanisms.make("grr", domain_size=2, epsilon=float(epsilon))
        p, q = float(mechanism.p), float(mechanism.q)
        assert math.ceil((1.96 / 0.02) ** 2 * p * (1 - p) / (p - q) ** 2) == int(reports.replace(",", ""))
        assert round(100 * p) == int(true)
        for least, central in zip((1000, 10_000), centrals, strict=True):
            if central:
                shuffled = {"min": least, "delta": 1e-8, "central": 1e-3}
                crowd = relay.crowd(metric_of(relay_toml(mixed_toml(epsilon=int(epsilon), shuffled=shuffled))))
                assert readers.upward(relay.central(crowd, 1e-8)) == central
