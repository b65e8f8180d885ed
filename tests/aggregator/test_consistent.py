"""Shares that people look at: possible ones, and nearer to the truth than the unbiased estimates."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from deniable import mechanisms
from deniable_aggregator import decode, tally
from deniable_aggregator.decode.consistent import consistent, lowered_by

estimates = st.lists(st.floats(-2, 2), min_size=1, max_size=30).map(np.array)


@given(estimates)
def test_all_values_together_are_one(frequency):
    """No share is negative and their sum is 1; the order of the estimates stays."""
    shares = consistent(frequency, complete=True)
    assert shares.min() >= 0
    assert shares.sum() == pytest.approx(1)
    order = np.argsort(frequency, kind="stable")
    assert (np.diff(shares[order]) >= -1e-12).all()


@given(estimates, st.booleans())
def test_each_share_is_lowered_by_one_amount(frequency, complete):
    """What is taken off is the same for each value that stays above 0."""
    amount, shares = lowered_by(frequency, complete=complete), consistent(frequency, complete=complete)
    assert shares == pytest.approx(np.maximum(frequency - amount, 0))


def test_the_amount_is_the_bias_of_the_largest():
    """Of many rare values with few reports, the largest share is too low by about what was taken off on average."""
    rng, true = np.random.default_rng(5), 1 / np.arange(1, 129) / np.sum(1 / np.arange(1, 129))
    mechanism = mechanisms.make("oue", domain_size=128, epsilon="1")
    off, taken = [], []
    for _ in range(200):
        held = rng.multinomial(3000, true)
        counts = rng.binomial(held, float(mechanism.p)) + rng.binomial(3000 - held, float(mechanism.q))
        estimate = decode.estimate(mechanism, tally.from_cells(mechanism.layout, np.append(counts, 3000)))
        off.append(true[0] - consistent(estimate.frequency, complete=True)[0])
        taken.append(lowered_by(estimate.frequency, complete=True))
    assert np.mean(taken) == pytest.approx(np.mean(off), rel=0.15)
    assert np.mean(taken) > 0.02


@given(estimates)
def test_a_list_of_some_values_is_at_most_one(frequency):
    """Where others may be given, a sum below 1 stays as it is, and a larger one becomes 1."""
    shares = consistent(frequency, complete=False)
    raw = np.maximum(frequency, 0)
    assert shares.min() >= 0
    assert shares.sum() == pytest.approx(min(1, raw.sum()))
    if raw.sum() <= 1:
        assert (shares == raw).all()


@given(st.lists(st.floats(-0.5, 1), min_size=2, max_size=6).map(np.array))
def test_none_is_nearer(frequency):
    """A general optimiser finds no possible shares that are nearer to the estimates."""
    shares = consistent(frequency, complete=True)
    sum_is_one = {"type": "eq", "fun": lambda x: x.sum() - 1}
    nearest = minimize(
        lambda x: np.square(x - frequency).sum(),
        np.full(len(frequency), 1 / len(frequency)),
        bounds=[(0, 1)] * len(frequency),
        constraints=[sum_is_one],
    )
    assert np.square(shares - frequency).sum() <= nearest.fun + 1e-6


def test_what_is_possible_stays():
    """Shares that are possible are shown as they are; without reports there is nothing to show."""
    assert consistent(np.array([0.25, 0.75, 0.0]), complete=True) == pytest.approx([0.25, 0.75, 0])
    assert np.isnan(consistent(np.array([np.nan, np.nan]), complete=True)).all()
    assert not len(consistent(np.array([]), complete=False))
    assert consistent(np.array([0.9, np.nan, 0.5]), complete=False) == pytest.approx([0.7, np.nan, 0.3], nan_ok=True)


def test_its_squared_error_is_smaller():
    """Of few reports about many values, of which most are rare, it has at most half of the unbiased estimates' squared error."""
    mechanism = mechanisms.make("oue", domain_size=64, epsilon=1)
    truth = 1 / np.arange(1, 65) ** 1.5
    truth /= truth.sum()
    chance = np.random.default_rng(20)
    n, raw, corrected = 3000, 0.0, 0.0
    for _ in range(50):
        holders = chance.multinomial(n, truth)
        ones = chance.binomial(holders, 1 / 2) + chance.binomial(n - holders, 1 / (np.e + 1))
        estimate = decode.estimate(mechanism, tally.Tally(mechanism.layout, ones[np.newaxis], np.array([n])))
        raw += np.square(estimate.frequency - truth).sum()
        corrected += np.square(consistent(estimate.frequency, complete=True) - truth).sum()
    assert corrected < 0.5 * raw
