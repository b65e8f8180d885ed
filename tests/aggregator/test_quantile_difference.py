"""Differences of quantiles: intervals hold at ties, of few reports and on skewed axes, and never contradict the test."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import tallies
from populations import NUMBERS
from scipy.stats import binom

from deniable import mechanisms
from deniable.mechanisms.window import for_distribution
from deniable_aggregator import tally
from deniable_aggregator.decode.numbers.distribution import distribution
from deniable_aggregator.inference.quantiles import FARTHEST, QuantileDifference

SURE = 1e-4
CELLS = (("2", 20, 2000), ("2", 200, 200), ("4", 2000, 2000), ("1", 20_000, 5000))
VALUES = np.linspace(0, 1, 5)
USUAL = ("stars", "incomes")  # in each campaign; the others at night
SHARES = (0.25, 0.5, 0.75)


def window(epsilon):
    return mechanisms.make("window", domain_size=65_537, epsilon=epsilon, **for_distribution(epsilon))


def sides(epsilon, first, second, rng, values=()):
    """Return two distributions, each from one report of each place."""
    mechanism = window(epsilon)
    return [distribution(mechanism, tallies.of_places(mechanism, places, rng), values=values) for places in (first, second)]


def compared(one, other, share=0.5):
    return QuantileDifference(one.near(share, FARTHEST), other.near(share, FARTHEST))


def holds(difference, truth, level=0.95):
    (low,), (high,) = difference.interval(level)
    return low - 1e-9 <= truth <= high + 1e-9


def tied(n, above, rng):
    """Draw places of which half lie at .25 and half at .5, but for a few."""
    return np.where(rng.random(n) < 0.5 - above, 0.25, 0.5)


def test_medians_are_compared_where_half_of_the_answers_are_one_value():
    """Of two sides near a tie, each median is wrong half of the time, by the whole distance: the interval still holds."""
    runs, n, rng = 8, 2000, np.random.default_rng(50)
    held = root_of_squares = 0
    for _ in range(runs):
        one, other = sides("4", tied(n, 0.004, rng), tied(n, -0.004, rng), rng, VALUES)
        held += holds(compared(one, other), -0.25)
        first, second = one.quantile(0.5), other.quantile(0.5)
        below = np.hypot(second.place - second.low, first.high - first.place)
        root_of_squares += second.place - first.place - below <= -0.25
    assert held >= binom.ppf(SURE, runs, 0.95)
    assert root_of_squares < runs  # so bands are not combined as those of means are


def test_a_test_and_an_interval_never_contradict_each_other():
    """At the error that the p-value names, the interval just includes no difference; a wider one holds a narrower one."""
    rng = np.random.default_rng(51)
    one, other = sides("4", rng.beta(2, 8, 600), rng.beta(3, 8, 600), rng)
    difference = compared(one, other)
    p = float(difference.p_value[0])
    assert 1e-6 < p < 0.5
    assert holds(difference, 0, 1 - 0.99 * p)
    assert not holds(difference, 0, 1 - 1.01 * p)
    ends = [np.ravel(difference.interval(level)) for level in (0.8, 0.95, 0.999)]
    assert all(outer[0] <= inner[0] <= inner[1] <= outer[1] for inner, outer in pairwise(ends))
    assert compared(other, one).p_value[0] == pytest.approx(p)


def test_what_is_far_apart_differs_and_few_reports_tell_nothing():
    rng = np.random.default_rng(52)
    far = compared(*sides("4", np.full(500, 0.2), np.full(500, 0.6), rng))
    assert far.p_value[0] < 1e-6
    assert holds(far, 0.4)
    few = compared(*sides("1", np.full(3, 0.2), np.full(3, 0.6), rng))
    assert few.p_value[0] > 0.05
    assert holds(few, 0.4)
    permanent = mechanisms.make("l_osue", domain_size=16, epsilon="2", permanent="4")
    counted = tally.count(permanent.layout, bytes(permanent.layout.payload_size))
    assert distribution(permanent, counted, permanent=True).near(0.5, FARTHEST) is None


@pytest.mark.campaign
@pytest.mark.parametrize("step", [False, True])
@pytest.mark.parametrize(("epsilon", "first", "second"), CELLS)
@pytest.mark.parametrize("name", [each if each in USUAL else pytest.param(each, marks=pytest.mark.nightly) for each in NUMBERS])
def test_intervals_hold_in_all_populations(name, epsilon, first, second, step):
    """Where both sides are of one population, at most 5% are said to differ."""
    numbers, runs = NUMBERS[name], 8
    if step and not numbers.values:
        return
    rng, values = np.random.default_rng(53), np.linspace(0, 1, numbers.values) if step else ()
    held, alike = [], []
    for _ in range(runs):
        one, other = sides(epsilon, numbers.places(rng, first), numbers.places(rng, second), rng, values)
        for share in SHARES:
            difference = compared(one, other, share)
            held.append(holds(difference, 0))
            alike.append(difference.p_value[0] >= 0.05)
    assert sum(held) >= binom.ppf(0.001, len(held), 0.95)
    assert sum(alike) >= binom.ppf(0.001, len(alike), 0.95)


@pytest.mark.campaign
@pytest.mark.parametrize(("epsilon", "n"), [("2", 200), ("4", 2000), ("1", 20_000)])
@pytest.mark.parametrize("factor", [0.5, 1.3])
def test_a_ratio_on_a_logarithmic_axis_is_held(epsilon, n, factor):
    """Of durations over three decades, medians that differ by a factor: the interval of the distance on the axis holds it."""
    runs, rng = 20, np.random.default_rng(54)
    held = 0
    for _ in range(runs):
        first, second = rng.normal(0.45, 0.12, n), rng.normal(0.45 + np.log10(factor) / 3, 0.12, n)
        held += holds(compared(*sides(epsilon, np.clip(first, 0, 1), np.clip(second, 0, 1), rng)), np.log10(factor) / 3)
    assert held >= binom.ppf(0.001, runs, 0.95)


@pytest.mark.campaign
@pytest.mark.parametrize("above", [0.0, 0.002, 0.01])
@pytest.mark.parametrize("step", [False, True])
def test_intervals_hold_near_ties(step, above):
    """From an exact tie to a clear majority; at an exact tie any difference between the two values is right."""
    runs, rng = 40, np.random.default_rng(55)
    held = 0
    for _ in range(runs):
        difference = compared(*sides("4", tied(2000, above, rng), tied(2000, -above, rng), rng, VALUES if step else ()))
        held += holds(difference, -0.25 if above else 0.0)
    assert held >= binom.ppf(0.001, runs, 0.95)
