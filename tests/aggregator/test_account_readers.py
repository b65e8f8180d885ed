"""Of which metrics something is claimed of readers, and what a sum that they see has."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
from registries import metric_toml, registry_toml

from deniable.registry import parse
from deniable_aggregator.accounting.crowds import readers
from deniable_aggregator.accounting.plan import plan
from deniable_aggregator.publish.breakdown import Breakdown
from deniable_aggregator.publish.suppression import publishable
from deniable_aggregator.publish.suppression.cube import Cube

LEAST = 10
PLATFORM = {"platform": ["linux", "mac", "windows"], "arm": ["a", "b"]}


def registry(*metrics, **tables):
    """Return a registry of these metrics."""
    return parse(registry_toml(*metrics, **tables))


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({}, ""),
        ({"segments": ["platform"]}, ""),
        ({"segments": ["platform", "arm"]}, "overlap"),
        ({"epsilon_permanent": 2, "values": ["a", "b"]}, "permanent response"),
        ({"min_reports": 1}, "a single device"),
        ({"min_reports": 3, "per_period": 3}, "a single device"),
    ],
)
def test_of_which_metrics_something_is_claimed(fields, why):
    """Not of copies of a permanent response, of overlapping segments, and of sums that may have one device only."""
    declared = registry(metric_toml("m", **({"epsilon": 1, "min_reports": 1000} | fields)), segments=PLATFORM)
    reason = readers.refusal(declared, declared.metrics["m"])
    assert (why in reason) if why else not reason
    assert (readers.crowd(declared, declared.metrics["m"]) is None) == bool(why)
    (use,) = plan(declared, days=30).uses
    assert (use.crowd is None) == bool(why)


def test_nothing_is_claimed_in_a_trial():
    """It publishes everything at once."""
    declared = registry(metric_toml("m", epsilon=1, min_reports=1000))
    trial = replace(declared, publication=replace(declared.publication, trial=True))
    assert "trial" in readers.refusal(trial, trial.metrics["m"])
    assert readers.sentence(trial, trial.metrics["m"]) == ""


def test_several_reports_a_period_divide_the_crowd():
    """Four reports of a device in one sum of 1,000 are four of 250 each."""
    declared = registry(metric_toml("m", epsilon=1, min_reports=1000, per_period=4))
    assert readers.crowd(declared, declared.metrics["m"], 4).reports == 250


def test_the_sentence():
    """Local 1 in a release of 1,000 reports: central 0.15, with its condition."""
    declared = registry(metric_toml("m", epsilon=1, min_reports=1000))
    words = readers.sentence(declared, declared.metrics["m"])
    assert "at most ε = 0.15 of it, with delta 1e-06, if the operator is trusted and 1,000 reports" in words
    assert "with half of them 0.22" in words


@pytest.mark.parametrize("generalised", [False, True])
def test_with_one_segment_releases_are_disjoint_blocks(generalised):
    """Whatever the numbers: what a published cell has and no published cell within it is nothing, or enough reports."""
    parents = {"platform": {"linux": "unix", "mac": "unix"}} if generalised else {}
    breakdown = Breakdown({"platform": ("linux", "mac", "windows", "other")}, parents)
    for numbers in product((0, 3, 9, 10, 14), repeat=4):
        cube = Cube.of(
            breakdown, {f"platform={value}": n for value, n in zip(breakdown.values["platform"], numbers, strict=True)}
        )
        cells = {cell: frozenset(map(int, cube.members(cell))) for cell in publishable([cube], LEAST)}
        for cell, leaves in cells.items():
            within = [other for name, other in cells.items() if name != cell and other < leaves]
            remainder = leaves.difference(*within)
            assert not 0 < sum(int(cube.reports[leaf]) for leaf in remainder) < LEAST
            assert all(other <= leaves or leaves <= other or not other & leaves for other in cells.values())


def test_the_example():
    """The figures of the documents."""
    text = Path(__file__).parents[2].joinpath("deploy", "metrics.toml").read_text()
    declared = parse(text)
    assert readers.upward(readers.one_report(readers.crowd(declared, declared.metrics["cart.size"]))) == "0.06"
