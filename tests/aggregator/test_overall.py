"""The test of all values at once: as often wrong as it says, with any mechanism; and it sees what single values hide."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom, chi2, ncx2

from deniable import mechanisms
from deniable_aggregator import decode, tally
from deniable_aggregator.decode.multiple_testing import holm
from deniable_aggregator.decode.pair_support import estimates_covariance
from deniable_aggregator.inference.difference import Difference, Side
from deniable_aggregator.inference.overall import chi_square, rise_seen
from deniable_aggregator.planning.precision import POWER
from deniable_aggregator.planning.simulation import Simulation

RARE = 1e-6  # chance that a test fails although the size is at its bound
CASES = [
    ("binary", 2, 1, 200, 200),
    ("grr", 8, 1, 500, 2000),
    ("oue", 16, 1, 500, 500),
    ("subset", 16, 1, 500, 1000),
    ("local_hash", 16, 1, 500, 500),
    ("hadamard", 16, 1, 500, 500),
    ("hadamard", 64, 4, 3600, 20_000),
    ("pgr", 16, 1, 500, 500),
    ("l_osue", 16, 1, 500, 500),
]


def zipf(values):
    shares = 1 / np.arange(1, values + 1)
    return shares / shares.sum()


def p_values(name, values, epsilon, ns, shares, runs, seed, *, singly=False):
    """Return the p-value of each run, and whether any single value differs by Holm."""
    mechanism = mechanisms.make(name, domain_size=values, epsilon=epsilon)
    simulation, rng = Simulation(mechanism), np.random.default_rng(seed)
    tests, single = [], []
    for _ in range(runs):
        tallies = [simulation.draw(rng.multinomial(n, share), rng) for n, share in zip(ns, shares, strict=True)]
        sides = [decode.estimate(mechanism, each) for each in tallies]
        tests.append(chi_square(mechanism, sides, decode.estimate(mechanism, tally.merge(*tallies))).p_value)
        if singly:
            single.append(holm(Difference(*map(Side.of, sides)).p_value, 0.05).any())
    return np.array(tests), np.array(single)


@pytest.mark.first_cases(3)
@pytest.mark.parametrize("runs", [200, pytest.param(1000, marks=[pytest.mark.campaign, pytest.mark.nightly])])
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]} {case[1]}")
def test_its_size_is_as_stated(case, runs):
    """Of two groups with the same shares, 5% differ at 5%: 4 to 6%, but for the chance of the runs."""
    name, values, epsilon, *ns = case
    tests, _ = p_values(name, values, epsilon, ns, 2 * [zipf(values)], runs, 71)
    assert binom.ppf(RARE, runs, 0.04) <= (tests < 0.05).sum() <= binom.isf(RARE, runs, 0.06)


@pytest.mark.parametrize("runs", [100, pytest.param(200, marks=pytest.mark.campaign)])
def test_it_sees_small_changes_of_many_values(runs):
    """As often as the noncentral chi-square says, and more often than any single value is seen."""
    values, n = 32, 20_000
    change = np.resize([1, -1], values) * 0.35 / values
    mechanism = mechanisms.make("oue", domain_size=values, epsilon=1)
    shares = [np.full(values, 1 / values), 1 / values + change]
    tests, single = p_values("oue", values, 1, (n, n), shares, runs, 72, singly=True)
    spread = 2 * estimates_covariance(mechanism, np.full(values, 1 / values), n)
    power = ncx2.sf(chi2.isf(0.05, values - 1), values - 1, change @ np.linalg.solve(spread, change))
    seen = np.mean(tests < 0.05)
    assert 0.3 < power < 0.9
    assert abs(seen - power) < 5 * (power * (1 - power) / runs) ** 0.5
    assert seen > single.mean() + 0.15


@pytest.mark.first_cases(3)
@pytest.mark.parametrize(
    ("runs", "within"), [(200, 0.14), pytest.param(2000, 0.035, marks=[pytest.mark.campaign, pytest.mark.nightly])]
)
@pytest.mark.parametrize(
    ("name", "values", "epsilon", "n"),
    [
        ("binary", 2, 1, 2000),
        ("grr", 8, 2, 2000),
        ("grr", 4, 3, 150),
        ("oue", 16, 2, 3000),
        ("subset", 16, 2, 3000),
        ("local_hash", 16, 2, 3000),
        ("hadamard", 16, 2, 3000),
        ("pgr", 16, 2, 3000),
        ("l_osue", 16, 1, 9000),
    ],
)
def test_the_rise_that_it_sees_is_seen_as_often_as_stated(name, values, epsilon, n, runs, within):
    """A value rises by so much and the others fall evenly: 80% of the tests are at 5%, within some percent."""
    at = 0.1
    rise = rise_seen(mechanisms.make(name, domain_size=values, epsilon=epsilon), n, at, 0.95, POWER)
    before, after = (np.r_[share, np.full(values - 1, (1 - share) / (values - 1))] for share in (at, at + rise))
    tests, _ = p_values(name, values, epsilon, (n, n), (before, after), runs, 76)
    assert np.mean(tests < 0.05) == pytest.approx(POWER, abs=within)


def test_no_rise_is_seen_where_no_test_is_made_or_the_share_has_no_room():
    """Too few reports, a share of nearly 1, an unknown covariance, and more values than it takes."""
    mechanism = mechanisms.make("oue", domain_size=16, epsilon=1)
    assert 0 < rise_seen(mechanism, 5000, 0.1, 0.95, POWER) < 0.2
    assert rise_seen(mechanism, 10, 0.1, 0.95, POWER) is None
    assert rise_seen(mechanism, 5000, 0.99, 0.95, POWER) is None
    assert rise_seen(mechanisms.make("general_hadamard", domain_size=64, epsilon=3), 5000, 0.1, 0.95, POWER) is None
    assert rise_seen(mechanisms.make("pgr", domain_size=2000, epsilon=3), 5000, 0.1, 0.95, POWER) is None


def test_it_needs_enough_reports_and_a_known_covariance():
    """Else the single values decide."""
    for name, options, n in (
        ("grr", {}, 100),
        ("hadamard", {}, 1000),
        ("general_hadamard", {}, 5000),
        ("cms", {"rows": 8}, 5000),
    ):
        mechanism = mechanisms.make(name, domain_size=64, epsilon=3, **options)
        counted = Simulation(mechanism).draw(np.random.default_rng(73).multinomial(n, zipf(64)), np.random.default_rng(74))
        estimate = decode.estimate(mechanism, counted)
        assert chi_square(mechanism, (estimate, estimate), estimate) is None


def test_reports_of_the_same_devices_count_less():
    mechanism = mechanisms.make("l_grr", domain_size=4, epsilon=1)
    rng = np.random.default_rng(75)
    tallies = [Simulation(mechanism).draw(np.array(held), rng) for held in ([900, 300, 300, 500], [500, 500, 500, 500])]
    sides = [decode.estimate(mechanism, each, permanent=True) for each in tallies]
    together = decode.estimate(mechanism, tally.merge(*tallies), permanent=True)
    few, many = (chi_square(mechanism, sides, together, (each, each), permanent=True).statistic for each in (0.0, 9.0))
    assert many < 0.6 * few
