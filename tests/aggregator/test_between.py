"""Periods that differ by more than chance: how much is estimated, and neither shifts nor slopes are taken in by it."""

from __future__ import annotations

import numpy as np
import pytest
from courses import correlated
from courses import course as drawn
from scipy.special import ndtri
from scipy.stats import binom

from deniable_aggregator.inference.between import between
from deniable_aggregator.inference.shift import confidence, shifts
from deniable_aggregator.inference.slope import slope

RARE = 1e-4  # chance that a test fails although the rate is exact
DAYS = 200


def course(rng, periods, metrics, n, epsilon, sd, rho, *, season=False, step=0.0, at=0):
    """Draw metrics whose shares differ from day to day, by so much, with a correlation, and by weekday; and take a step."""

    def differ(rng, days, metrics):
        weekday = 0.1 * np.sin(2 * np.pi * np.arange(days) / 7)[:, None] * season
        return correlated(rho, sd)(rng, days, metrics) + weekday + step * (np.arange(days) >= at)[:, None]

    return drawn(rng, periods, metrics, epsilon, np.full(periods, n), differ)


def seen(days):
    level = confidence(1)
    reach = -ndtri((1 - level) / 2) * days.stderr
    return shifts(days, (days.estimates - reach, days.estimates + reach), level, cycle=7)


def false_shifts(rng, *case, metrics=200, **options):
    return len({each.value for each in seen(course(rng, DAYS, metrics, *case, **options))})


@pytest.mark.first_cases(1)
@pytest.mark.parametrize(
    ("n", "epsilon", "sd", "rho", "season"), [(20_000, "4", 0.02, 0.5, True), (20_000, "1", 0.01, 0.0, False)]
)
def test_days_that_differ_have_no_false_shift(n, epsilon, sd, rho, season):
    """Where 98 of 100 metrics had a false shift in 200 days, at most 5 have one."""
    shifts = false_shifts(np.random.default_rng(80), n, epsilon, sd, rho, season=season, metrics=100)
    assert shifts <= binom.isf(RARE, 100, 0.05)


@pytest.mark.campaign
@pytest.mark.nightly
@pytest.mark.parametrize("season", [False, True])
@pytest.mark.parametrize("rho", [0.0, 0.5])
@pytest.mark.parametrize("sd", [0.0, 0.005, 0.02])
@pytest.mark.parametrize(("n", "epsilon"), [(500, "4"), (20_000, "1"), (20_000, "4")])
def test_false_shifts_at_length(n, epsilon, sd, rho, season):
    runs = 200
    assert false_shifts(np.random.default_rng(81), n, epsilon, sd, rho, season=season, metrics=runs) <= binom.isf(
        RARE, runs, 0.05
    )


@pytest.mark.first_cases(1)
@pytest.mark.parametrize(
    ("epsilon", "sd", "rho", "season"), [("1", 0.0, 0.0, False), ("1", 0.01, 0.5, True), ("4", 0.01, 0.5, True)]
)
def test_a_lasting_shift_is_still_seen(epsilon, sd, rho, season):
    """From six weeks on, a shift of four errors, of chance and of days, is seen within eight days in 80 of 100 metrics."""
    rng, metrics, at, n = np.random.default_rng(82), 300, 42, 20_000
    chance = course(rng, 10, 50, n, epsilon, 0.0, 0.0).stderr.mean()
    days = course(rng, at + 8, metrics, n, epsilon, sd, rho, season=season, step=4 * np.hypot(chance, sd), at=at)
    values = {each.value for each in seen(days) if each.seen >= at}
    assert len(values) >= binom.ppf(RARE, metrics, 0.8)


@pytest.mark.parametrize("periods", [3, 5, 7, 14, 30])
@pytest.mark.parametrize(
    ("epsilon", "n", "sd", "rho", "season"), [("1", 20_000, 0.01, 0.5, False), ("4", 20_000, 0.02, 0.5, True)]
)
def test_slopes_of_days_that_differ(periods, epsilon, n, sd, rho, season):
    """Where 95% intervals of slopes held 24 to 83 of 100 times, they hold at least 93."""
    runs = 2000
    slopes = slope(course(np.random.default_rng(83), periods, runs, n, epsilon, sd, rho, season=season), 7)
    low, high = slopes.interval(0.95)
    assert np.sum((low <= 0) & (high >= 0)) >= binom.ppf(RARE, runs, 0.93)


def test_how_much_days_differ():
    """The standard deviation is found, whatever the season. A lasting step changes it little. Without any it is small."""
    rng = np.random.default_rng(84)
    for sd, season, step in ((0.02, False, 0.0), (0.02, True, 0.0), (0.02, True, 0.2), (0.0, True, 0.0)):
        days = course(rng, 56, 400, 20_000, "4", sd, 0.0, season=season, step=step, at=30)
        spread = between(np.arange(56), days.estimates, np.square(days.stderr), 7)
        assert spread.pairs == 49
        assert np.median(np.sqrt(spread.variance)) == pytest.approx(sd, rel=0.35, abs=0.002)


def test_few_days_tell_nothing():
    """With fewer than 8 pairs of days a week apart there is no shift, however large."""
    rng = np.random.default_rng(85)
    assert seen(course(rng, 14, 20, 20_000, "4", 0.0, 0.0, step=0.5, at=13)) == []
    assert len({each.value for each in seen(course(rng, 17, 20, 20_000, "4", 0.0, 0.0, step=0.5, at=15))}) == 20
