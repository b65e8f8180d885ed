"""Strict bands of quantiles hold for every population and number of reports."""

from __future__ import annotations

import numpy as np
import pytest
import tallies
from scipy.stats import binom

from deniable import mechanisms
from deniable.errors import ParameterError
from deniable.mechanisms.window import for_distribution
from deniable_aggregator import tally
from deniable_aggregator.decode.numbers.distribution import distribution
from deniable_aggregator.decode.numbers.strict import _rule, strict_quantile

# All answers at one point, just beside it, at two points, and spread evenly.
POPULATIONS = {
    "one point": lambda _, n: np.full(n, 0.25),
    "beside a point": lambda _, n: np.full(n, 0.2512),
    "both ends": lambda rng, n: (rng.random(n) < 0.5) * 1.0,
    "even": lambda rng, n: rng.random(n),
}
TRUE = {"one point": (0.25, 0.25), "beside a point": (0.2512, 0.2512), "both ends": (0.0, 1.0), "even": (0.3, 0.7)}


def window(epsilon):
    return mechanisms.make("window", domain_size=65_537, epsilon=epsilon, **for_distribution(epsilon))


def test_the_rule_is_that_of_the_reports():
    """For each point, the sums of the chances of the cells solve the equations."""
    mechanism = mechanisms.make("window", domain_size=5, epsilon="1", blocks=2, length=2)
    for point in range(5):
        chances = [float(mechanism.inside if point <= cell < point + 2 else mechanism.outside) for cell in range(6)]
        solution = np.concatenate([np.arange(5) >= point, np.cumsum(chances)[:-1]])
        assert _rule(mechanism, 10) @ solution == pytest.approx(np.full(5, float(mechanism.outside)))


@pytest.mark.parametrize(
    "runs", [2, pytest.param(10, marks=pytest.mark.campaign), pytest.param(40, marks=[pytest.mark.campaign, pytest.mark.nightly])]
)
@pytest.mark.parametrize("population", POPULATIONS)
@pytest.mark.parametrize("n", [20, 20_000])
def test_they_hold(population, n, runs):
    """The bands of two quantiles together hold in 95% of runs; where all is certain, they are narrow."""
    rng, mechanism, held = np.random.default_rng(41), window("4"), 0
    for _ in range(runs):
        counted = tallies.of_places(mechanism, POPULATIONS[population](rng, n), rng)
        bands = [strict_quantile(mechanism, counted, share) for share in (0.3, 0.7)]
        held += all(low - 1e-9 <= true <= high + 1e-9 for (low, high), true in zip(bands, TRUE[population], strict=True))
        assert n < 1000 or max(high - low for low, high in bands) < 0.2
    assert held >= max(1, binom.ppf(1e-4, runs, 0.95))


def test_they_are_wider_than_others():
    """Guarantees have a price; reports of the same people and more confidence make it higher."""
    rng, mechanism = np.random.default_rng(42), window("2")
    counted = tallies.of_places(mechanism, rng.random(20_000), rng)
    usual, (low, high) = distribution(mechanism, counted).quantile(0.5), strict_quantile(mechanism, counted, 0.5)
    assert low < usual.low
    assert usual.high < high
    for lower, higher in (
        strict_quantile(mechanism, counted, 0.5, 0.999),
        strict_quantile(mechanism, counted, 0.5, repeats=4.0),
    ):
        assert higher - lower > high - low


def test_the_same_people_in_ten_periods():
    """They hold for the population of the people, too."""
    rng, mechanism = np.random.default_rng(43), window("6")
    for _ in range(3):
        places = rng.random(300)
        counted = tally.merge(*(tallies.of_places(mechanism, places, rng) for _ in range(10)))
        low, high = strict_quantile(mechanism, counted, 0.5, 0.9999, repeats=9.0)
        assert low <= 0.5 <= high


def test_nothing_known():
    """Without reports, and from reports that no population has sent, the band is all; other mechanisms are refused."""
    mechanism = window("1")
    assert strict_quantile(mechanism, tally.empty(mechanism.layout), 0.5) == (0.0, 1.0)
    made_up = tally.count(mechanism.layout, mechanism.layout.pack(0, 60) * 100_000)
    assert strict_quantile(mechanism, made_up, 0.5) == (0.0, 1.0)
    grr = mechanisms.make("grr", domain_size=4, epsilon="1")
    for refused in (
        lambda: strict_quantile(grr, tally.empty(grr.layout), 0.5),
        lambda: strict_quantile(mechanism, made_up, 0.5, 1.0),
    ):
        with pytest.raises(ParameterError):
            refused()
    with pytest.raises(ParameterError, match="layout"):
        strict_quantile(mechanism, tally.empty(grr.layout), 0.5)
