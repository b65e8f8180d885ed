"""With a relay and without one: how many reports an error needs at one central epsilon."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from deniable import mechanisms
from deniable.commands import entry as cli
from deniable.registry import Metric
from deniable_aggregator.accounting.crowds.crowd import Crowd
from deniable_aggregator.planning import mixing
from deniable_aggregator.planning.outlook import Terms, of_mechanisms

WITHIN = Terms(within=0.02)


def listed(size):
    return Metric(id="m", type="categorical", values=tuple(map(str, range(size))), epsilon="1", period="day")


def crowd(metric, epsilon, reports):
    return Crowd.of(mechanisms.of(replace(metric, epsilon=f"{epsilon:g}")), reports)


@pytest.mark.parametrize("size", [2, 8])
def test_the_largest_local_epsilon_is_proved_and_the_next_is_not(size):
    """By the bound itself, at the smallest steps that are looked at."""
    local = mixing.largest_local(listed(size), 2000, 1.0)
    assert crowd(listed(size), local, 2000).epsilon(mixing.DELTA) <= 1.0
    assert crowd(listed(size), local + 0.05, 2000).epsilon(mixing.DELTA) > 1.0


def test_a_crowd_of_one_hides_nothing():
    """Then the local epsilon is the central one."""
    assert mixing.largest_local(listed(2), 1, 1.0) == 1.0


@pytest.mark.parametrize("size", [2, 64])
def test_what_is_planned_is_enough_and_hardly_less_is(size):
    """The error is reached with so many reports, at an epsilon that so many allow."""
    metric = listed(size)
    both = mixing.ways(metric, WITHIN, 1.0)

    def needed(epsilon):
        return of_mechanisms(replace(metric, epsilon=f"{epsilon:g}"), WITHIN, names=("auto",))[0].users

    assert both.alone == needed(1.0)
    assert needed(both.local) <= both.mixed
    fewer = int(both.mixed * 0.95)
    assert needed(mixing.largest_local(metric, fewer, 1.0)) > fewer
    assert both.mixed * 5 < both.alone


def test_the_plan_says_both_ways(capsys):
    """With the local epsilon and the condition; and as JSON."""
    assert cli.main(["plan", "--values", "2", "--within", "0.02", "--central", "1"]) == 0
    printed = capsys.readouterr().out
    assert "do not work together" in " ".join(printed.split())
    assert cli.main(["plan", "--values", "2", "--within", "0.02", "--central", "1", "--json"]) == 0
    both = json.loads(capsys.readouterr().out)
    assert f"{both['mixed']:,}" in printed
    assert f"{both['alone']:,}" in printed
    assert (both["central"], both["delta"]) == (1.0, 1e-8)


@pytest.mark.parametrize("more", [["--epsilon", "1"], ["--users", "100"], ["--segments", "2"], ["metrics.toml"]])
def test_what_does_not_go_with_it(more, capsys):
    """By name, with an example."""
    assert cli.main(["plan", "--values", "2", "--within", "0.02", "--central", "1", *more]) == 2
    assert "--central" in capsys.readouterr().err
