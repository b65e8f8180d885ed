"""Arm sizes: false alarms at any look are as rare as stated, and arms that lose devices are seen."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom

from deniable_aggregator.inference.arm_sizes import p_value

LOOKS = 30
EVEN = np.array([0.5, 0.5])


def courses(rng, runs, a_day, split, left=1.0):
    """Draw the reports of arms so far, (runs, looks, arms); of the first arm a share is lost."""
    came = rng.multinomial(a_day, split, (runs, LOOKS)).astype(float)
    came[..., 0] = rng.binomial(came[..., 0].astype(int), left)
    return came.cumsum(axis=1)


def alarm_rate(runs):
    return np.mean([p_value(each, split) < 0.01 for each, split in runs])


@pytest.mark.parametrize("split", [[0.5, 0.5], [0.9, 0.1], [0.99, 0.01], [0.25] * 4, [0.6, 0.3, 0.1]])
@pytest.mark.parametrize("a_day", [200, 2000, 20_000])
def test_arms_as_declared_are_rarely_called_otherwise(split, a_day):
    """At 1%, at any of 30 looks. A test at each look alone would call 7 of 100 so."""
    rng, runs, split = np.random.default_rng(50), 1000, np.array(split)
    alarms = alarm_rate((each, split) for each in courses(rng, runs, a_day, split))
    assert alarms <= binom.ppf(1 - 1e-4, runs, 0.01) / runs


@pytest.mark.parametrize(
    ("a_day", "split", "left", "least"), [(2000, EVEN, 0.95, 0.9), (20_000, np.array([0.9, 0.1]), 0.98, 0.5)]
)
def test_an_arm_that_loses_devices_is_seen(a_day, split, left, least):
    """An arm of which 5% report no more is seen within a month of 2,000 reports a day."""
    rng = np.random.default_rng(51)
    assert alarm_rate((each, split) for each in courses(rng, 200, a_day, split, left)) > least


def test_the_same_devices_each_day():
    """Divided by how often a device has reported, the same devices raise no alarm; undivided they would."""
    rng, runs = np.random.default_rng(52), 300
    devices = rng.binomial(2000, 0.5, runs)
    course = np.stack([devices, 2000 - devices], axis=1)[:, None, :] * np.arange(1, LOOKS + 1)[None, :, None]
    days = np.arange(1, LOOKS + 1)[:, None]
    assert alarm_rate((each / days, EVEN) for each in course) <= 0.01
    assert alarm_rate((each, EVEN) for each in course) > 0.2


def test_no_reports_say_nothing():
    assert p_value(np.zeros((1, 2)), EVEN) == 1
    assert p_value(np.zeros((0, 2)), EVEN) == 1
