"""Intervals: exactness of Clopper-Pearson, and coverage by simulation of the support."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binomtest

from deniable import mechanisms
from deniable.errors import ParameterError
from deniable_aggregator.estimate import Estimate

REPLAYS = 4000


def estimates(name, domain_size, epsilon, n, frequency, rng, *, sampled):
    """Replay the support of one value: people drawn from a population, or held fixed."""
    mechanism = mechanisms.make(name, domain_size=domain_size, epsilon=epsilon)
    p, q = float(mechanism.p), float(mechanism.q)
    holders = rng.binomial(n, frequency, REPLAYS) if sampled else np.full(REPLAYS, round(n * frequency))
    support = rng.binomial(holders, p) + rng.binomial(n - holders, q)
    return Estimate(mechanism, n, support)


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
    estimate = Estimate(mechanism, 50, np.array([0, 17, 50]))
    low, high = estimate.interval(0.9)
    for position, support in enumerate((0, 17, 50)):
        exact = binomtest(support, 50).proportion_ci(0.9, method="exact")
        assert low[position] == pytest.approx((exact.low - q) / (p - q), abs=1e-12)
        assert high[position] == pytest.approx((exact.high - q) / (p - q), abs=1e-12)


def test_simultaneous_intervals_share_the_error():
    """Simultaneous intervals over d values are pointwise ones at an error d times smaller."""
    mechanism = mechanisms.make("oue", domain_size=20, epsilon=1)
    estimate = Estimate(mechanism, 1000, np.full(20, 300))
    together, apart = estimate.interval(0.95, simultaneous=True), estimate.interval(1 - 0.05 / 20)
    assert np.allclose(together, apart)


@pytest.mark.parametrize("level", [0, 1, 1.5, -1, float("nan")])
def test_level_is_a_confidence(level):
    """A level outside (0, 1) is refused."""
    estimate = Estimate(mechanisms.make("grr", domain_size=2, epsilon=1), 10, np.array([5, 5]))
    with pytest.raises(ParameterError, match="confidence level"):
        estimate.interval(level)


def test_standard_errors_match_the_spread_of_replays():
    """Both standard errors are the standard deviations that replays show."""
    rng = np.random.default_rng(13)
    for sampled, name in ((True, "stderr"), (False, "respondents_stderr")):
        estimate = estimates("grr", 8, 2, 5000, 0.4, rng, sampled=sampled)
        assert getattr(estimate, name).mean() == pytest.approx(estimate.frequency.std(), rel=0.06)
