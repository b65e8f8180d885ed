"""Leaders: what is said of the most frequent value is false in 5% of cases at most, and true where it can be told."""

from __future__ import annotations

import sys
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import binom

from deniable import mechanisms
from deniable_aggregator import decode
from deniable_aggregator.decode.multiple_testing import holm
from deniable_aggregator.decode.pair_support import estimates_covariance
from deniable_aggregator.decode.panel import Panel
from deniable_aggregator.decode.share_difference import difference_variance, resolution
from deniable_aggregator.decode.support_estimate import Supported
from deniable_aggregator.inference import leaders
from deniable_aggregator.inference.leaders import Leaders
from deniable_aggregator.planning.simulation import Simulation

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))  # after tests/support, which has modules of the same names

import headlines

FALSE, SURE = 0.05, 1e-4  # share of false headlines at most; chance that a test fails although the share is right


def estimate_of(name, held, *, epsilon=2, seed=7):
    """Estimate from reports of so many people for each value."""
    mechanism = mechanisms.make(name, domain_size=len(held), epsilon=epsilon)
    return decode.estimate(mechanism, Simulation(mechanism).draw(np.array(held), np.random.default_rng(seed)))


def by_the_book(estimate, level):
    """Find the leaders by listing all pairs."""
    order = np.argsort(-estimate.frequency, kind="stable")
    variance, unit = difference_variance(estimate, np.arange(len(order))), resolution(estimate)

    def p_value(one, other):
        away = abs(estimate.frequency[one] - estimate.frequency[other]) - (unit[one] + unit[other]) / 2
        return float(2 * ndtr(-max(away, 0) / np.sqrt(variance[one, other])))

    first = order[0]
    if all(p_value(first, other) < 1 - level for other in order[1:]):
        return [first]
    pairs = list(combinations(order.tolist(), 2))
    behind = holm(np.array([p_value(*pair) for pair in pairs]), 1 - level)
    return [first, *(other for (one, other), is_behind in zip(pairs, behind, strict=True) if one == first and not is_behind)]


@pytest.mark.parametrize("name", ["grr", "oue", "local_hash", "general_hadamard"])
@pytest.mark.parametrize(
    "held", [(3000, 500, 500, 500), (900, 890, 880, 300, 20), (100, 100), (60, 50, 40, 30, 20, 10, 0)], ids=len
)
def test_leaders_are_those_of_all_pairs(name, held):
    estimate = estimate_of(name, held)
    assert Leaders(estimate, 0.95).places.tolist() == by_the_book(estimate, 0.95)


def test_a_clear_winner_is_alone():
    assert Leaders(estimate_of("grr", [500, 3000, 500, 500, 500]), 0.95).places.tolist() == [1]


def test_two_that_lead_are_ahead_of_all_others_or_only_of_the_first():
    """“The two most frequent” is more than “no pair puts them behind the first”."""
    clear = Leaders(estimate_of("grr", [4000, 4000, 1000, 1000]), 0.95)
    assert (sorted(clear.places), clear.ahead) == ([0, 1], True)
    near = Leaders(Supported(mechanisms.make("grr", domain_size=4, epsilon=2), 2260, np.array([620, 590, 560, 490])), 0.95)
    assert near.places.tolist() == [0, 1, 2]
    assert not near.ahead


def test_many_values_are_tested_in_one_step(monkeypatch):
    """It names no more than steps do, and needs no table of all pairs."""
    estimate = estimate_of("oue", [4000, 3900, 2000, *[100] * 20])
    steps = Leaders(estimate, 0.95).places.tolist()
    monkeypatch.setattr(leaders, "_MOST_COUNTED", 3)
    assert set(steps) <= set(Leaders(estimate, 0.95).places.tolist()) < set(range(23))


def test_reports_that_are_few_name_nobody():
    """Five of a hundred reports for one value of a thousand are more than chance in a normal law, and not in the true one."""
    mechanism = mechanisms.make("grr", domain_size=1000, epsilon=6)
    support = np.zeros(1000, np.int64)
    support[3], support[100:195] = 5, 1
    assert len(Leaders(Supported(mechanism, 100, support), 0.95).places) == 1000


@pytest.mark.parametrize("name", ["grr", "oue", "subset", "local_hash", "hadamard", "pgr", "cms", "hcms", "dbitflip"])
@pytest.mark.parametrize("repeats", [0, 4])
def test_variances_are_those_of_the_exact_covariance_or_greater(name, repeats):
    """If two shares are equal, and their estimates, too."""
    mechanism, n = mechanisms.make(name, domain_size=6, epsilon=2), 10_000
    f = np.array([0.3, 0.3, 0.2, 0.1, 0.1, 0.0])
    support = np.rint(n * (float(mechanism.q) + f * float(mechanism.p - mechanism.q))).astype(np.int64)
    single = Supported(mechanism, n, support, shares=f)
    covariance = estimates_covariance(mechanism, f, n, repeats=repeats)
    spread = np.diag(covariance)
    exact = (spread[:, None] + spread - 2 * covariance)[[0, 3], [1, 4]]
    variance = difference_variance(Panel(n, single, repeats) if repeats else single, np.array([0, 3]))[[0, 1], [1, 4]]
    assert (variance > 0.999 * exact).all()
    assert (variance < 1.7 * exact).all()  # of hashes, a third value on the line through both is not looked for


def test_a_unit_is_one_report():
    estimate = estimate_of("grr", [50, 40, 10])
    more = Supported(estimate.mechanism, estimate.n, estimate.support + np.array([1, 0, 0]))
    assert resolution(estimate)[0] == pytest.approx((more.frequency - estimate.frequency)[0])


RUNS = 60
LINES = headlines.lines()


@pytest.mark.campaign
@pytest.mark.slow("each run draws and decodes a tally")
@pytest.mark.parametrize("population", ["2 tied", "20 tied"])
@pytest.mark.parametrize(
    "line", [line for line, (_, second) in LINES.items() if not second and not line.startswith(headlines.SLOW)]
)
def test_headlines_are_seldom_false(line, population):
    """Where several are tied, whatever is said of one of them is false: in 5% of cases at most."""
    draw, _ = LINES[line]
    false = headlines.share(draw, False, headlines.POPULATIONS[population], 300, RUNS) * RUNS  # noqa: FBT003
    assert false <= binom.isf(SURE, RUNS, FALSE)


def test_to_look_at_the_second_alone_misleads():
    """Where errors differ, the second may be far below and well known, while a third that is tied is hardly known."""
    shares = np.array([0.5, 0.5, 0.49])
    figures = [
        headlines.share(lambda f, n, rng: headlines.normal("one unknown", f, n, rng, sums=False), second, shares, 2000, 200)
        for second in (True, False)
    ]
    assert figures[0] > 0.2
    assert figures[1] <= 0.1
