"""How many reports show that one value leads: the planned number reaches the power in simulations, and is not far above it."""

from __future__ import annotations

from math import ceil

import numpy as np
import pytest

from deniable import mechanisms
from deniable.registry import Metric
from deniable_aggregator import decode
from deniable_aggregator.decode.sets.options import option_shares, options_of
from deniable_aggregator.inference.leaders import Leaders
from deniable_aggregator.planning.lead import lead_shown, population
from deniable_aggregator.planning.outlook import Terms, of_mechanisms
from deniable_aggregator.planning.precision import POWER
from deniable_aggregator.planning.simulation import Simulation

RUNS, LEVEL = 400, 0.95
NOISE = 3 * (POWER * (1 - POWER) / RUNS) ** 0.5  # of a share of the runs


def metric_of(kind="categorical", size=6, epsilon="2", **more):
    values = (False, True) if kind == "boolean" else tuple(map(str, range(size)))
    return Metric(id="m", type=kind, values=values, epsilon=epsilon, **more)


def reaches(share, metric, mechanism, n, lead, second, rng):
    """Return whether the first value is found to lead in this share of the runs; stop when the others cannot change it."""
    options, size = metric.kind.options, len(metric.values)
    shares = population(size, lead, second, options=options)
    simulation = None if options else Simulation(mechanism)
    leads, needed = 0, ceil(share * RUNS)
    for run in range(RUNS):
        if leads >= needed or leads + RUNS - run < needed:
            break
        if simulation is None:
            estimate = option_shares(mechanism, options_of(mechanism).draw_sets(n, shares, rng))
        else:
            estimate = decode.estimate(mechanism, simulation.draw(rng.multinomial(n, shares), rng))
        leads += Leaders(estimate, LEVEL).places.tolist() == [0]
    return leads >= needed


@pytest.mark.slow("it simulates many tallies")
@pytest.mark.parametrize(
    ("metric", "lead", "second"),
    [
        (metric_of("boolean"), 0.1, 0.1),
        *((metric_of(mechanism=name), 0.1, 0.3) for name in ("grr", "oue", "subset", "local_hash", "pgr", "cms", "rappor")),
        *((metric_of(mechanism=name), 0.1, 0.3) for name in ("hadamard", "general_hadamard", "hcms", "dbitflip")),
        (metric_of(mechanism="l_grr", epsilon_permanent="3"), 0.1, 0.3),
        (metric_of(size=4), 0.1, 0.0),  # the other three are equal
        (metric_of(size=40, mechanism="oue"), 0.1, 0.3),
        (metric_of("set", 3), 0.15, 0.3),
        (metric_of("set", 3, most=1), 0.15, 0.3),
        (metric_of("set", 6, most=2), 0.15, 0.3),
        (metric_of("set", 8, epsilon="4"), 0.15, 0.3),  # a report is about several options
    ],
    ids=lambda value: f"{value.type}-{len(value.values)}-{value.mechanism}" if isinstance(value, Metric) else str(value),
)
def test_the_planned_number_reaches_the_power(metric, lead, second):
    """Not less than it; and no number that is a third less is enough."""
    mechanism, rng = mechanisms.of(metric), np.random.default_rng(7)
    n = lead_shown(metric, mechanism, len(metric.values), lead, second, LEVEL)
    assert reaches(POWER - NOISE, metric, mechanism, n, lead, second, rng)
    assert not reaches(POWER, metric, mechanism, 2 * n // 3, lead, second, rng)


def test_other_values_share_what_is_left():
    """The second has its share if that is possible, and as much as the others where they would have more."""
    assert population(5, 0.1, 0.4, options=False).tolist() == pytest.approx([0.5, 0.4, 0.1 / 3, 0.1 / 3, 0.1 / 3])
    assert population(4, 0.2, 0.0, options=False).tolist() == pytest.approx([0.4, 0.2, 0.2, 0.2])
    assert population(2, 0.2, 0.1, options=False).tolist() == pytest.approx([0.6, 0.4])
    assert population(3, 0.2, 0.1, options=True).tolist() == pytest.approx([0.3, 0.1, 0.1])
    for size in range(2, 9):
        for second in (0.0, 0.1, 0.6):
            shares = population(size, 0.2, second, options=False)
            assert shares.sum() == pytest.approx(1)
            assert shares[1:].max() == pytest.approx(shares[0] - 0.2)


def test_the_number_of_yes_and_no_is_known_otherwise():
    """Of two mirrored answers the difference is twice the share of yes, less 1: its error gives the number."""
    (row,) = of_mechanisms(metric_of("boolean", epsilon="1"), Terms(leads_by=0.05), names=("binary",))
    variance = 4 * (row.mechanism.variance(0.5, 1) + 0.25)
    assert row.lead == pytest.approx(variance * ((1.959964 + 0.841621) / 0.05) ** 2, rel=0.005)


@pytest.mark.parametrize(
    "metric",
    [
        Metric(id="m", type="number", values=(), range=("0", "9"), estimate="mean", epsilon="1"),
        Metric(id="m", type="string", values=(), candidates="c.txt", mechanism="rappor", epsilon="1"),
    ],
)
def test_what_has_no_such_test_has_no_number(metric):
    """A number has no most frequent value, and the error of Bloom filters is not known before."""
    assert all(row.lead is None for row in of_mechanisms(metric, Terms(leads_by=0.05), names=(metric.mechanism,)))


def test_people_who_answer_alike_show_less():
    """Of households of two, more people are needed; where a tenth is asked, ten times as many."""
    alone, together, sampled = (
        of_mechanisms(metric_of(**more), Terms(leads_by=0.1, share=0.3), names=("grr",))[0].lead
        for more in ({}, {"together": 2}, {"sample": "0.1"})
    )
    assert together > alone
    assert sampled == 10 * alone
