"""Central noise: each answer has the law that its promise is computed from, and loses no more than it costs."""

from __future__ import annotations

from fractions import Fraction
from itertools import permutations, product
from math import exp, log

import numpy as np
import pytest
from scipy.stats import chisquare

from deniable.errors import ParameterError
from deniable.limits.allowance import MICRO
from deniable_aggregator.questions import central_noise

COSTS = [10_000, 100_000, 300_000, 333_333, 700_000, MICRO, 1_234_567, 20 * MICRO]


def _matches(seen, expected):
    """Tell whether numbers seen go with those expected, rare ones together."""
    common = expected >= 5
    seen, expected = (np.append(each[common], each[~common].sum()) for each in (seen, expected))
    keep = expected > 0
    return chisquare(seen[keep], expected[keep] * seen.sum() / expected[keep].sum()).pvalue


def _flipped(counts, cost):
    """Compute the law of permute-and-flip by going through all orders."""
    chances = [exp((count - max(counts)) * cost / 2 / MICRO) for count in counts]
    law = np.zeros(len(counts))
    orders = list(permutations(range(len(counts))))
    for order in orders:
        left = 1 / len(orders)
        for place in order:
            law[place] += left * chances[place]
            left *= 1 - chances[place]
    return law


def _exponential(counts, cost):
    weights = np.array([exp((count - max(counts)) * cost / 2 / MICRO) for count in counts])
    return weights / weights.sum()


@pytest.mark.parametrize("cost", [200_000, MICRO])
def test_numbers_of_reports_have_discrete_laplace_noise(cost):
    """What is told of a number is it plus discrete Laplace noise of scale 1 / epsilon, and has its standard deviation."""
    draws = np.array([central_noise.count(1000, cost) for _ in range(3000)]) - 1000
    places = np.arange(-400, 401)
    law = np.exp(-abs(places) * cost / MICRO)
    law /= law.sum()
    assert _matches(np.bincount(draws + 400, minlength=801), law * len(draws)) > 1e-7
    assert central_noise.stderr(cost) == pytest.approx(np.sqrt((law * places**2).sum()))


def test_numbers_may_be_negative():
    """An unbiased number of no reports is negative as often as it is positive."""
    draws = [central_noise.count(0, 100_000) for _ in range(200)]
    assert min(draws) < 0 < max(draws)


@pytest.mark.parametrize("cost", [10_000, 500_000, 3 * MICRO])
@pytest.mark.parametrize("level", [0.5, 0.95])
def test_the_reach_of_noise_is_the_least(cost, level):
    """Noise is within its reach with the probability said, and within one less it is not."""
    places = np.arange(-20 * MICRO // cost, 20 * MICRO // cost + 1)
    law = np.exp(-abs(places) * cost / MICRO)
    law /= law.sum()
    reach = central_noise.reach(cost, level)
    assert law[abs(places) <= reach].sum() >= level - 1e-9
    assert reach == 0 or law[abs(places) < reach].sum() < level


@pytest.mark.first_cases(2)
@pytest.mark.parametrize("counts", [[7, 6, 6, 4], [3, 3, 3], [10, 0], [5, 4, 3, 2, 1]])
def test_the_largest_cell_is_chosen_by_permute_and_flip(counts):
    """What is named has the law of permute-and-flip, computed over all orders; it is not the exponential mechanism's."""
    cost, times = 1_400_000, 3000
    draws = np.bincount([central_noise.most(counts, cost) for _ in range(times)], minlength=len(counts))
    assert _matches(draws, _flipped(counts, cost) * times) > 1e-7
    if len(set(counts)) > 2:
        assert _matches(draws, _exponential(counts, cost) * times) < 1e-7


@pytest.mark.parametrize("cost", [100_000, MICRO])
def test_a_choice_loses_no_more_than_it_costs(cost):
    """A report that is in other cells, more of them or fewer, changes the chance of no answer by more than e^epsilon: exactly."""
    counts = [7, 6, 6, 4]
    before = _flipped(counts, cost)
    losses = []
    for changes in product((-1, 0, 1), repeat=4):
        after = _flipped([n + change for n, change in zip(counts, changes, strict=True)], cost)
        losses.append(abs(np.log(after / before)).max())
    assert max(losses) <= cost / MICRO + 1e-9
    assert max(losses) > 0.6 * cost / MICRO  # more than one that is only added costs


def test_choosing_has_its_utility():
    """A cell that is named is within the margin with the probability said, where all others are just beyond it."""
    for cost in (100_000, MICRO):
        for level in (0.5, 0.95):
            behind = int(central_noise.margin(6, cost, level)) + 1
            assert _flipped([behind, 0, 0, 0, 0, 0], cost)[0] >= level
    assert central_noise.margin(6, MICRO, 0.95) == pytest.approx(2 * log(6 / 0.05))


@pytest.mark.parametrize("cost", COSTS)
def test_no_answer_loses_more_than_it_costs(cost):
    """By OpenDP's own account the loss of one report is at most the cost, and not much less."""
    for kind in ("laplace", "max"):
        loss = Fraction(central_noise._measurement(kind, cost).map(1))
        assert Fraction(cost, MICRO) * Fraction(999_999, MICRO) < loss <= Fraction(cost, MICRO)


def test_a_report_may_be_in_another_cell():
    """The choice is charged for one number that rises while another one falls: twice what it costs where all rise."""
    assert central_noise._mechanism("max", 0.5).map(1) == 4


def test_no_answer_is_free():
    """An answer costs something; with one cell to choose from, it is that one."""
    with pytest.raises(ParameterError, match="costs at least"):
        central_noise.count(5, 0)
    assert central_noise.most([0], MICRO) == 0
