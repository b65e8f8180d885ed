"""Differences and slopes: their intervals cover, whoever answers again, with few reports, and for rare values."""

from __future__ import annotations

import numpy as np
import pytest
from panels import estimate, make, replay
from scipy.stats import binom

from deniable_aggregator.decode.numbers.mean import Mean
from deniable_aggregator.inference.difference import SMALLEST, Difference, Side
from deniable_aggregator.inference.slope import Course, slope

RUNS = 4000
RARE = 1e-6  # chance that a test of coverage fails although the coverage is exact

DIFFERENCES = [
    ("binary", 2, 1, (0.3, 0.3), (2000, 2000)),
    ("binary", 2, 1, (0.02, 0.1), (50, 400)),
    ("oue", 64, 4, (0.01, 0.0), (100, 300)),
    ("grr", 128, 4, (0.02, 0.02), (100, 100)),
    ("grr", 128, 4, (0.0, 0.0), (100, 10_000)),
    ("local_hash", 128, 4, (0.3, 0.25), (3000, 500)),
    ("hadamard", 40, 3, (0.2, 0.2), (500, 100)),
]
OVERLAPS = [("binary", 2, 1, 0.3, 500), ("oue", 64, 3, 0.05, 2000), ("l_grr", 2, 1, 0.3, 500), ("l_osue", 8, 2, 0.1, 500)]
COURSES = [("binary", 2, 3), ("oue", 64, 3), ("l_grr", 2, 1), ("l_osue", 8, 1)]


def difference(first, second):
    return Difference(Side.of(first), Side.of(second))


def share_covered(interval, truth):
    low, high = interval
    return np.mean((low <= truth) & (truth <= high))


def enough(share, runs=RUNS, level=0.95):
    """Whether no fewer intervals cover than chance alone gives once in a million."""
    return share * runs >= binom.ppf(RARE, runs, level)


@pytest.mark.parametrize("case", DIFFERENCES, ids=lambda case: f"{case[0]} {case[3]} {case[4]}")
@pytest.mark.parametrize("runs", [RUNS // 2, pytest.param(20_000, marks=[pytest.mark.campaign, pytest.mark.nightly])])
def test_differences_of_two_groups_are_covered(case, runs):
    """With few reports and rare values too; and no test of 128 values names one by chance more often than it says."""
    name, size, epsilon, shares, ns = case
    mechanism, permanent = make(name, size, epsilon)
    rng = np.random.default_rng(41)
    p, q = float(mechanism.p), float(mechanism.q)
    sides = [
        estimate(mechanism, n, rng.binomial(n, q + f * (p - q), runs), permanent=permanent)
        for f, n in zip(shares, ns, strict=True)
    ]
    change, truth = difference(*sides), shares[1] - shares[0]
    for level in (0.5, 0.95, 1 - 0.05 / 128):
        assert enough(share_covered(change.interval(level), truth), runs, level), level
    if truth == 0:
        for alpha in (0.05, 0.05 / 128):
            assert (change.p_value <= alpha).sum() <= binom.isf(RARE, runs, alpha)


def test_differences_are_not_wider_than_need_be():
    mechanism, _ = make("binary", 2, 1)
    rng = np.random.default_rng(42)
    sides = [estimate(mechanism, 2000, rng.binomial(2000, 0.4, 20_000), permanent=False) for _ in range(2)]
    assert share_covered(difference(*sides).interval(), 0.0) < 0.958


@pytest.mark.parametrize("turnover", [0.0, 0.3, 1.0], ids=["the same", "some are new", "all are new"])
@pytest.mark.parametrize("case", OVERLAPS, ids=lambda case: case[0])
def test_changes_are_covered_whoever_answers_again(case, turnover):
    """Of two periods: the same devices, some of them, or others; with fresh noise and with kept responses."""
    name, size, epsilon, share, n = case
    mechanism, permanent = make(name, size, epsilon)
    shares = (share, share + 0.05)
    reports = replay(mechanism, shares, n, turnover, np.random.default_rng(43), permanent=permanent, runs=RUNS)
    change = difference(*(estimate(mechanism, n, each, permanent=permanent) for each in reports))
    assert enough(share_covered(change.interval(), 0.05))


def test_test_and_interval_agree():
    """A value differs at a level exactly if its interval of that level excludes 0."""
    mechanism, _ = make("grr", 8, 2)
    rng = np.random.default_rng(44)
    sides = [estimate(mechanism, n, rng.binomial(n, 0.1, 500), permanent=False) for n in (200, 1500)]
    sides[1] = estimate(mechanism, 1500, rng.binomial(1500, np.linspace(0.05, 0.4, 500)), permanent=False)
    change = difference(*sides)
    for alpha in (0.5, 0.05, 0.001, 1e-6):
        low, high = change.interval(1 - alpha)
        assert np.mean((change.p_value < alpha) == ((low > 0) | (high < 0))) > 0.99
    assert change.p_value.min() == SMALLEST
    assert change.p_value.max() == 1


def test_sides_without_reports_do_not_differ():
    mechanism, _ = make("binary", 2, 1)
    side = estimate(mechanism, 100, np.array([50, 60]), permanent=False)
    none = Side(np.full(2, np.nan), lambda _: (np.full(2, np.nan), np.full(2, np.nan)))
    change = Difference(none, Side.of(side))
    assert np.isnan(change.estimates).all()
    assert np.isnan(change.p_value).all()


def courses(case, shares, n, turnover, runs, seed):
    mechanism, permanent = make(*case)
    reports = list(replay(mechanism, shares, n, turnover, np.random.default_rng(seed), permanent=permanent, runs=runs))
    estimates = [estimate(mechanism, n, each, permanent=permanent) for each in reports]
    return slope(Course.of_shares(range(len(shares)), estimates, [0.0] * len(estimates)))


@pytest.mark.parametrize("turnover", [0.0, 0.1, 1.0], ids=["the same", "a tenth is new", "all are new"])
@pytest.mark.parametrize("case", COURSES, ids=lambda case: case[0])
@pytest.mark.parametrize("rise", [0.0, 0.01])
def test_slopes_are_covered_whoever_answers_again(case, turnover, rise):
    shares = 0.1 + rise * np.arange(12)
    slopes = courses(case, shares, 500, turnover, RUNS, 45)
    assert enough(share_covered(slopes.interval(), rise))
    assert share_covered(slopes.interval(), rise + 0.05) < 0.95  # it is of use


@pytest.mark.parametrize("turnover", [0.0, 0.1, 1.0], ids=["the same", "a tenth is new", "all are new"])
@pytest.mark.parametrize("case", COURSES, ids=lambda case: case[0])
def test_a_level_line_has_a_trend_no_more_often_than_it_says(case, turnover):
    """At the small chances of error, too, that a test of many metrics together asks for; and as the intervals say."""
    slopes = courses(case, np.full(12, 0.1), 500, turnover, RUNS, 48)
    for alpha in (0.05, 0.005, 0.0005):
        assert (slopes.p_value <= alpha).sum() <= binom.isf(RARE, RUNS, alpha)
        low, high = slopes.interval(1 - alpha)
        assert ((slopes.p_value < alpha) == ((low > 0) | (high < 0))).all()


@pytest.mark.campaign
@pytest.mark.parametrize("turnover", [0.0, 0.02, pytest.param(0.1, marks=pytest.mark.nightly), 0.3, 1.0])
@pytest.mark.parametrize("periods", [3, pytest.param(12, marks=pytest.mark.nightly), 52])
@pytest.mark.parametrize("case", COURSES, ids=lambda case: case[0])
@pytest.mark.parametrize(("share", "rise", "n"), [(0.3, 0.0, 2000), (0.01, 0.0, 2000), (0.02, 0.002, 100), (0.1, 0.01, 500)])
def test_slopes_are_covered_at_length(case, periods, turnover, share, rise, n):
    slopes = courses(case, share + rise * np.arange(periods), n, turnover, RUNS, 46)
    assert enough(share_covered(slopes.interval(), rise))


def test_a_slope_of_independent_errors_would_miss():
    """A panel of which a tenth is replaced in each period drifts: errors as if its periods were independent are too small."""
    mechanism, permanent = make("l_grr", 2, 1)
    reports = replay(mechanism, [0.3] * 52, 2000, 0.1, np.random.default_rng(47), permanent=permanent, runs=2000)
    estimates = [estimate(mechanism, 2000, each, permanent=permanent) for each in reports]
    course = Course.of_shares(range(52), estimates, [0.0] * 52)
    independent = Course(course.times, course.reports, course.repeats, course.estimates, course.stderr, 0 * course.shared)
    assert enough(share_covered(slope(course).interval(), 0.0), 2000)
    assert share_covered(slope(independent).interval(), 0.0) < 0.85


def test_a_slope_allows_for_periods_left_out_and_for_their_reports():
    """A period with more reports counts more, and a gap is a gap."""
    exact = np.array([[1.0], [2.0], [5.0]])
    trend = slope(Course([0, 1, 4], [10, 1000, 100], [0, 0, 1], exact, np.full((3, 1), 0.1), np.zeros((3, 1))))
    assert trend.estimate == pytest.approx([1.0])
    bent = np.array([[9.0], [2.0], [5.0]])
    assert slope(Course([0, 1, 4], [1, 1e6, 1e6], [0, 0, 0], bent, exact, 0 * exact)).estimate == pytest.approx([1.0], rel=1e-3)
    assert slope(Course([0, 1], [1, 1], [0, 0], exact[:2], exact[:2], exact[:2])) is None


@pytest.mark.parametrize("n", [3, 40, 1000])
def test_differences_of_means_are_covered(n):
    """Means with the interval that `Mean` has, of few people as well."""
    rng, runs = np.random.default_rng(48), 2000
    sides = []
    for place in (0.2, 0.6):
        answers = rng.beta(8 * place, 8 * (1 - place), (runs, n)) + rng.normal(0, 0.5, (runs, n))
        means, noise = answers.mean(axis=1), 0.5 / n**0.5
        spread = place * (1 - place) / 9
        numbers = [Mean(n, each, (noise**2 + spread / n) ** 0.5, noise, spread, float(n)) for each in means]

        def interval(level, numbers=numbers):
            return tuple(np.array(ends) for ends in zip(*(each.interval(level) for each in numbers), strict=True))

        sides.append(Side(means, interval))
    change = Difference(*sides)
    assert enough(share_covered(change.interval(), 0.4), runs)
    assert share_covered(change.interval(), 0.4) < 0.999
