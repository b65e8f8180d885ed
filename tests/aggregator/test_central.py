"""Central noise: each answer has the law that its promise is computed from, and loses no more than it costs."""

from __future__ import annotations

from fractions import Fraction
from itertools import permutations
from math import exp, log

import numpy as np
import pytest
from scipy.stats import chisquare

from deniable.allowance import MICRO
from deniable.errors import ParameterError
from deniable_aggregator import central

COSTS = [10_000, 100_000, 300_000, 333_333, 700_000, MICRO, 1_234_567, 20 * MICRO]


def _matches(seen, expected):
    """Tell whether numbers seen go with those expected, rare ones together."""
    common = expected >= 5
    seen, expected = (np.append(each[common], each[~common].sum()) for each in (seen, expected))
    keep = expected > 0
    return chisquare(seen[keep], expected[keep] * seen.sum() / expected[keep].sum()).pvalue


def _flipped(counts, cost):
    """Compute the law of permute-and-flip by going through all orders."""
    chances = [exp((count - max(counts)) * cost / MICRO) for count in counts]
    law = np.zeros(len(counts))
    orders = list(permutations(range(len(counts))))
    for order in orders:
        left = 1 / len(orders)
        for place in order:
            law[place] += left * chances[place]
            left *= 1 - chances[place]
    return law


def _exponential(counts, cost):
    weights = np.array([exp((count - max(counts)) * cost / MICRO) for count in counts])
    return weights / weights.sum()


@pytest.mark.parametrize("cost", [200_000, MICRO])
def test_numbers_of_reports_have_discrete_laplace_noise(cost):
    """What is told of a number is it plus discrete Laplace noise of scale 1 / epsilon, and has its standard deviation."""
    draws = np.array([central.participants(1000, cost) for _ in range(6000)]) - 1000
    places = np.arange(-400, 401)
    law = np.exp(-abs(places) * cost / MICRO)
    law /= law.sum()
    assert _matches(np.bincount(draws + 400, minlength=801), law * len(draws)) > 1e-7
    assert central.stderr(cost) == pytest.approx(np.sqrt((law * places**2).sum()))


def test_numbers_may_be_negative():
    """An unbiased number of no reports is negative as often as it is positive."""
    draws = [central.participants(0, 100_000) for _ in range(200)]
    assert min(draws) < 0 < max(draws)


@pytest.mark.parametrize("cost", [10_000, 500_000, 3 * MICRO])
@pytest.mark.parametrize("level", [0.5, 0.95])
def test_the_reach_of_noise_is_the_least(cost, level):
    """Noise is within its reach with the probability said, and within one less it is not."""
    places = np.arange(-20 * MICRO // cost, 20 * MICRO // cost + 1)
    law = np.exp(-abs(places) * cost / MICRO)
    law /= law.sum()
    reach = central.reach(cost, level)
    assert law[abs(places) <= reach].sum() >= level - 1e-9
    assert reach == 0 or law[abs(places) < reach].sum() < level


@pytest.mark.parametrize("counts", [[7, 6, 6, 4], [3, 3, 3], [10, 0], [5, 4, 3, 2, 1]])
def test_the_most_popular_value_is_chosen_by_permute_and_flip(counts):
    """What is named has the law of permute-and-flip, computed over all orders; it is not the exponential mechanism's."""
    cost, times = 700_000, 6000
    draws = np.bincount([central.popular(counts, cost) for _ in range(times)], minlength=len(counts))
    assert _matches(draws, _flipped(counts, cost) * times) > 1e-7
    if len(set(counts)) > 2:
        assert _matches(draws, _exponential(counts, cost) * times) < 1e-7


@pytest.mark.parametrize("cost", [100_000, MICRO])
def test_a_choice_loses_no_more_than_it_costs(cost):
    """One report more in any set of cells changes the chance of no answer by more than e^epsilon, computed exactly."""
    counts = [7, 6, 6, 4]
    before = _flipped(counts, cost)
    for raised in range(1, 16):
        after = _flipped([n + (raised >> place & 1) for place, n in enumerate(counts)], cost)
        assert abs(np.log(after / before)).max() <= cost / MICRO + 1e-9


def test_choosing_has_its_utility():
    """A value that is named is within the margin with the probability said, where all others are just beyond it."""
    for cost in (100_000, MICRO):
        for level in (0.5, 0.95):
            behind = int(central.margin(6, cost, level)) + 1
            assert _flipped([behind, 0, 0, 0, 0, 0], cost)[0] >= level
    assert central.margin(6, MICRO, 0.95) == pytest.approx(log(6 / 0.05))


@pytest.mark.parametrize("cost", COSTS)
def test_no_answer_loses_more_than_it_costs(cost):
    """By OpenDP's own account the loss of one report is at most the cost, and not much less."""
    for kind in ("laplace", "max"):
        loss = Fraction(central._measurement(kind, cost).map(1))
        assert Fraction(cost, MICRO) * Fraction(999_999, MICRO) < loss <= Fraction(cost, MICRO)


def test_what_is_monotonic_is_said_to_be():
    """The choice is charged for counts that one report raises only; else it would have to cost twice as much."""
    assert central._made("max", 0.5).map(1) == 2


def test_there_is_something_to_choose_and_to_pay():
    """Without values there is no most popular one, and no answer is free."""
    with pytest.raises(ParameterError, match="one or more values"):
        central.popular([], MICRO)
    with pytest.raises(ParameterError, match="costs at least"):
        central.participants(5, 0)
    assert central.popular([0], MICRO) == 0
