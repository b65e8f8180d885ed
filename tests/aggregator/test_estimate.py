"""Intervals: exactness of Clopper-Pearson, and coverage by simulation of the support."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binomtest

from deniable import mechanisms
from deniable.errors import ParameterError
from deniable_aggregator.decode import multiple_testing
from deniable_aggregator.decode.estimate import plausible
from deniable_aggregator.decode.support_estimate import Supported

REPLAYS = 4000


def estimates(name, domain_size, epsilon, n, frequency, rng, *, sampled):
    """Replay the support of one value: people drawn from a population, or held fixed."""
    mechanism = mechanisms.make(name, domain_size=domain_size, epsilon=epsilon)
    p, q = float(mechanism.p), float(mechanism.q)
    holders = rng.binomial(n, frequency, REPLAYS) if sampled else np.full(REPLAYS, round(n * frequency))
    support = rng.binomial(holders, p) + rng.binomial(n - holders, q)
    estimate = Supported(mechanism, n, support)
    return replace(estimate, shares=np.clip(estimate.frequency, 0, 1))  # each replay is a population of its own


@pytest.mark.parametrize("name", ["grr", "oue", "local_hash", "hadamard", "subset"])
@pytest.mark.parametrize("epsilon", [0.5, 1, 4])
@pytest.mark.parametrize("frequency", [0.0, 0.02, 0.3, 0.9])
def test_intervals_cover(name, epsilon, frequency):
    """A 95% interval holds the population's share in 94 to 98.5 of 100 replays, and the respondents' likewise."""
    rng = np.random.default_rng(11)  # replayed chance of a test, not of a device
    for sampled, target in ((True, "population"), (False, "respondents")):
        estimate = estimates(name, 8, epsilon, 5000, frequency, rng, sampled=sampled)
        low, high = estimate.interval(0.95, target=target)
        coverage = ((low <= frequency) & (frequency <= high)).mean()
        assert 0.938 <= coverage <= 0.985, (sampled, coverage)


@pytest.mark.parametrize("frequency", [0.0, 0.3, 0.9])
def test_population_intervals_cover_respondents_too(frequency):
    """The population's interval is never too narrow for the share among the respondents."""
    estimate = estimates("oue", 8, 1, 5000, frequency, np.random.default_rng(12), sampled=False)
    low, high = estimate.interval(0.95)
    assert ((low <= frequency) & (frequency <= high)).mean() >= 0.94


def test_interval_is_clopper_pearson_through_the_line():
    """The bounds are the exact binomial ones, debiased; at no and at full support they reach the edge."""
    mechanism = mechanisms.make("grr", domain_size=3, epsilon=1)
    p, q = float(mechanism.p), float(mechanism.q)
    estimate = Supported(mechanism, 50, np.array([0, 17, 50]))
    low, high = estimate.interval(0.9)
    for position, support in enumerate((0, 17, 50)):
        exact = binomtest(support, 50).proportion_ci(0.9, method="exact")
        assert low[position] == pytest.approx((exact.low - q) / (p - q), abs=1e-12)
        assert high[position] == pytest.approx((exact.high - q) / (p - q), abs=1e-12)


def test_simultaneous_intervals_share_the_error():
    """Simultaneous intervals over d values are pointwise ones at an error d times smaller."""
    mechanism = mechanisms.make("oue", domain_size=20, epsilon=1)
    estimate = Supported(mechanism, 1000, np.full(20, 300))
    together, single = estimate.interval(0.95, simultaneous=True), estimate.interval(1 - 0.05 / 20)
    assert np.allclose(together, single)


@pytest.mark.parametrize("level", [0, 1, 1.5, -1, float("nan")])
def test_level_is_a_confidence(level):
    """A level outside (0, 1) is refused."""
    estimate = Supported(mechanisms.make("grr", domain_size=2, epsilon=1), 10, np.array([5, 5]))
    with pytest.raises(ParameterError, match=r"level = .*: write a confidence between 0 and 1"):
        estimate.interval(level)


def test_standard_errors_match_the_spread_of_replays():
    """Both standard errors are the standard deviations that replays show."""
    rng = np.random.default_rng(13)
    for sampled, name in ((True, "stderr"), (False, "respondents_stderr")):
        estimate = estimates("grr", 8, 2, 5000, 0.4, rng, sampled=sampled)
        assert getattr(estimate, name).mean() == pytest.approx(estimate.frequency.std(), rel=0.06)


FEW = [("grr", 500, 4, 200), ("grr", 1000, 2, 1000), ("l_grr", 500, 4, 500), ("oue", 100, 4, 200), ("hadamard", 64, 2, 50)]
"""Many values and few reports."""


@pytest.mark.parametrize(("name", "domain_size", "epsilon", "n"), FEW)
def test_standard_errors_where_few_reports_support_a_value(name, domain_size, epsilon, n):
    """Over all values the stated variance is the mean squared error, though no frequency may be taken to be below 0."""
    rng = np.random.default_rng(18)
    mechanism = mechanisms.make(name, domain_size=domain_size, epsilon=epsilon)
    p, q = float(mechanism.p), float(mechanism.q)
    share = 1 / np.arange(1, domain_size + 1)
    share /= share.sum()
    replays = [Supported(mechanism, n, support) for support in rng.binomial(n, q + share * (p - q), (100, domain_size))]
    error = np.mean([np.square(estimate.frequency - share).mean() for estimate in replays])
    stated = np.mean([np.square(estimate.stderr).mean() for estimate in replays])
    assert np.sqrt(error / stated) == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize("runs", [200, pytest.param(2000, marks=pytest.mark.campaign)])
@pytest.mark.parametrize(("name", "domain_size", "epsilon", "n"), FEW)
def test_simultaneous_intervals_of_respondents(name, domain_size, epsilon, n, runs):
    """They hold together for a few respondents, too, where a normal approximation fails far out in the tail."""
    rng = np.random.default_rng(19)
    mechanism = mechanisms.make(name, domain_size=domain_size, epsilon=epsilon)
    p, q = float(mechanism.p), float(mechanism.q)
    held = rng.multinomial(n, np.arange(domain_size, 0, -1.0) * 2 / domain_size / (domain_size + 1))
    supports = rng.binomial(held, p, (runs, domain_size)) + rng.binomial(n - held, q, (runs, domain_size))
    holds = 0
    for support in supports:
        low, high = Supported(mechanism, n, support).interval(simultaneous=True, target="respondents")
        holds += bool(((low <= held / n) & (held / n <= high)).all())
    assert holds / runs > 0.94 - 3 * (0.95 * 0.05 / runs) ** 0.5


@pytest.mark.parametrize("frequency", [np.array([0.5, 0.25, -0.1, 0.0]), np.zeros(0), np.array([1.5]), np.full(3, np.nan)])
def test_plausible_shares_of_a_few_are_as_estimated(frequency):
    """What sums to at most 1 is only cut at 0; what is nan counts as 0."""
    assert plausible(frequency, np.ones(len(frequency))).tolist() == np.clip(np.nan_to_num(frequency), 0, 1).tolist()


def test_plausible_shares_fill_a_whole():
    """The largest stay, equal ones share the room that is left evenly, and there is none for the rest but what is no noise."""
    frequency = np.array([0.3, 0.1, 0.6, 0.3, -0.2, 0.3])
    noise = np.full(6, 0.3)
    assert plausible(frequency, noise) == pytest.approx([0.4 / 3, 0, 0.6, 0.4 / 3, 0, 0.4 / 3])
    noise[1] = 0.01
    assert plausible(frequency, noise) == pytest.approx([0.1, 0.1, 0.6, 0.1, 0, 0.1])


def test_tests_have_their_level():
    """Of values that nobody holds, Holm at 5% names any in at most 5% of replays; a test alone rejects about 5% of them."""
    rng = np.random.default_rng(14)
    mechanism = mechanisms.make("oue", domain_size=20, epsilon=1)
    false_alarms = rejected = 0
    for _ in range(400):
        estimate = Supported(mechanism, 5000, rng.binomial(5000, float(mechanism.q), 20))
        false_alarms += estimate.detected(0.05).any()
        rejected += (estimate.p_value <= 0.05).sum()
    assert false_alarms <= 36  # 20 expected at most, and four standard deviations
    assert 0.04 < rejected / 8000 < 0.055


@pytest.mark.parametrize(("runs", "most"), [(75, 9), pytest.param(150, 15, marks=pytest.mark.campaign)])
def test_ten_thousand_candidates_have_their_level(runs, most):
    """Far out in the tail, too, where skewness counts, any of 10,000 absent values is named in 5% of replays at most."""
    rng = np.random.default_rng(17)
    mechanism = mechanisms.make("fast_local_hash", domain_size=1 << 64, epsilon=4)
    n, alarms = 100_000, 0
    for _ in range(runs):
        alarms += Supported(mechanism, n, rng.binomial(n, float(mechanism.q), 10_000)).detected(0.05).any()
    assert alarms <= most  # of 150, 7.5 expected at most, and three standard deviations; a normal tail gives 13 and more


@pytest.mark.parametrize(
    ("name", "domain_size", "epsilon", "n"),
    [("grr", 10, 2, 20_000), ("grr", 100, 4, 300), ("grr", 500, 4, 300), ("oue", 10, 1, 300), ("local_hash", 100, 4, 300)],
)
def test_detection_frequency(name, domain_size, epsilon, n):
    """A value held by just that share is detected in half of the replays, also where few reports support a value."""
    rng = np.random.default_rng(15)
    mechanism = mechanisms.make(name, domain_size=domain_size, epsilon=epsilon)
    p, q = float(mechanism.p), float(mechanism.q)
    limit = Supported(mechanism, n, np.full(domain_size, int(n * q))).detection_frequency(0.05)
    share = np.zeros(domain_size)
    share[3] = limit
    detections = sum(Supported(mechanism, n, rng.binomial(n, q + share * (p - q))).detected(0.05)[3] for _ in range(1000))
    assert 420 < detections < 580  # five standard deviations: a false failure in two million


def test_detection_frequency_beside_what_is_detected():
    """One of two values is surely there, so the other is tested alone and half detected at a smaller share."""
    mechanism = mechanisms.make("oue", domain_size=2, epsilon=1)
    q = float(mechanism.q)
    alone = Supported(mechanism, 1000, np.array([int(1000 * q)])).detection_frequency()
    assert Supported(mechanism, 1000, np.array([500, int(1000 * q)])).detection_frequency() == alone


def test_no_share_is_detected_by_a_few_reports():
    """With so few reports that a value held by everybody would be missed more often than not, there is no such share."""
    mechanism = mechanisms.make("oue", domain_size=100, epsilon=1)
    for n in (0, 1, 20):
        assert np.isnan(Supported(mechanism, n, np.full(100, n // 4)).detection_frequency())
    assert Supported(mechanism, 200, np.full(100, 50)).detection_frequency() < 1


@pytest.mark.parametrize("alpha", [0, 1, -1, float("nan")])
def test_alpha_is_a_probability(alpha):
    """A bound on error outside (0, 1) is refused."""
    with pytest.raises(ParameterError, match="probability of error"):
        Supported(mechanisms.make("grr", domain_size=2, epsilon=1), 10, np.array([5, 5])).detected(alpha)


def step_down(p_values, alpha):
    """Reject the smallest while each is below alpha over the number of those left (Holm 1979), one after the other."""
    rejected = [False] * len(p_values)
    for number, place in enumerate(sorted(range(len(p_values)), key=lambda place: np.nan_to_num(p_values[place], nan=1.0))):
        if not p_values[place] <= alpha / (len(p_values) - number):
            break
        rejected[place] = True
    return rejected


def step_up(p_values, alpha):
    """Reject as many of the smallest as can be, the k-th of which is below alpha k / m (Benjamini and Hochberg 1995)."""
    ordered = sorted(p_values[~np.isnan(p_values)])
    most = max((k for k, p in enumerate(ordered, 1) if p <= alpha * k / len(p_values)), default=0)
    return [bool(most) and p <= ordered[most - 1] for p in p_values]


@pytest.mark.parametrize("seed", range(30))
def test_many_tests_at_once(seed):
    """Both procedures are those of the papers, also of none, of one, and where some p-values are unknown."""
    rng = np.random.default_rng(seed)
    p_values = rng.random(seed) ** rng.integers(1, 6)
    p_values[rng.random(seed) < 0.1] = np.nan
    assert multiple_testing.holm(p_values, 0.1).tolist() == step_down(p_values, 0.1)
    assert multiple_testing.benjamini_hochberg(p_values, 0.1).tolist() == step_up(p_values, 0.1)


def test_false_discoveries():
    """Benjamini and Hochberg name more than Holm, of which one in twenty is absent on average."""
    rng = np.random.default_rng(16)
    mechanism = mechanisms.make("oue", domain_size=200, epsilon=1)
    p, q = float(mechanism.p), float(mechanism.q)
    share = np.where(np.arange(200) < 40, 0.012, 0.0)
    named = wrong = by_holm = 0
    for _ in range(60):
        estimate = Supported(mechanism, 50_000, rng.binomial(50_000, q + share * (p - q)))
        detections = estimate.detected(0.05, control="discovery")
        named, wrong, by_holm = named + detections.sum(), wrong + detections[40:].sum(), by_holm + estimate.detected(0.05).sum()
    assert named > 1.2 * by_holm
    assert 0.01 < wrong / named < 0.065
