"""One estimate out of several: unbiased, with intervals that cover, and a word where the parts differ."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom

from deniable import mechanisms
from deniable.errors import ParameterError
from deniable_aggregator import decode, tally
from deniable_aggregator.decode.combination import combine


def estimate(name, domain_size, epsilon, n, shares, rng):
    """Estimate from so many reports of people drawn with these shares, by the exact law of the sums."""
    mechanism = mechanisms.make(name, domain_size=domain_size, epsilon=epsilon)
    held = rng.multinomial(n, shares)
    cells = np.zeros((1, mechanism.layout.width), np.int64)
    if mechanism.layout.kind == "index":  # grr
        p, q = float(mechanism.p), float(mechanism.q)
        for value, people in enumerate(held):
            chances = np.full(domain_size, q)
            chances[value] = p
            cells[0] += rng.multinomial(people, chances / chances.sum())
    else:
        p, q = float(mechanism.p), float(mechanism.q)
        cells[0] = rng.binomial(held, p) + rng.binomial(n - held, q)
    return decode.estimate(mechanism, tally.Tally(mechanism.layout, cells, np.array([n])))


CASES = {
    "different mechanisms": (("grr", 3, 1.0, 900), ("oue", 4, 0.5, 4000)),
    "different sizes": (("grr", 3, 2.0, 100), ("grr", 3, 2.0, 20_000)),
    "little noise": (("grr", 3, 4.0, 150), ("grr", 4, 4.0, 150)),
}
SHARES = {3: [0.6, 0.35, 0.05], 4: [0.5, 0.3, 0.04, 0.16]}


@pytest.mark.parametrize("case", CASES)
def test_intervals_cover_the_weighted_mean(case):
    """Also where the versions' people differ: what is claimed is the mean by the weights that are told."""
    rng, runs = np.random.default_rng(12), 300
    hits, error = np.zeros(3), []
    for _ in range(runs):
        parts = [estimate(*each, SHARES[each[1]], rng) for each in CASES[case]]
        combined = combine(parts, [[0, 1, 2]] * 2)
        truth = combined.weights @ np.array([SHARES[each[1]][:3] for each in CASES[case]])
        low, high = combined.interval(0.95)
        hits += (low <= truth) & (truth <= high)
        error.append((combined.frequency - truth) / combined.stderr)
    # By chance alone fewer hits come once in a million; exact intervals of each part cover rather more.
    assert (hits >= binom.ppf(1e-6, runs, 0.95)).all()
    assert abs(np.mean(error, axis=0)).max() < 5 / np.sqrt(runs)
    assert np.all((np.std(error, axis=0) > 0.85) & (np.std(error, axis=0) < 1.15))


def test_all_intervals_hold_together():
    """Those of all values at once are wider, and hold so."""
    rng, runs, hits = np.random.default_rng(3), 300, 0
    for _ in range(runs):
        parts = [estimate("grr", 4, 1.0, n, SHARES[4], rng) for n in (500, 1500)]
        low, high = combine(parts, [range(4)] * 2).interval(0.95, simultaneous=True)
        hits += bool(((low <= SHARES[4]) & (SHARES[4] <= high)).all())
    assert hits >= binom.ppf(1e-6, runs, 0.95)


def test_yes_and_no_are_one():
    """Their shares sum to 1 in each version, so the intervals of both hold together as those of one do, and there is one test."""
    rng = np.random.default_rng(6)
    parts = [estimate("grr", 2, 1.0, n, [0.6, 0.4], rng) for n in (900, 2500)]
    yes_and_no, yes = combine(parts, [[0, 1]] * 2), combine(parts, [[0]] * 2)
    assert np.array_equal(yes_and_no.interval(0.95, simultaneous=True), yes_and_no.interval(0.95))
    assert yes_and_no.p_value == pytest.approx(yes.p_value)
    assert yes.p_value < 0.9
    free = combine([estimate("oue", 2, 1.0, n, [0.6, 0.4], rng) for n in (900, 2500)], [[0, 1]] * 2)
    assert (np.subtract(*free.interval(0.95, simultaneous=True)) < np.subtract(*free.interval(0.95))).all()


def test_weights_are_those_of_precision():
    """Of one mechanism they are as the numbers of reports; the combined error is that of all reports together."""
    rng = np.random.default_rng(1)
    parts = [estimate("grr", 3, 1.0, n, SHARES[3], rng) for n in (1000, 3000)]
    combined = combine(parts, [[0, 1, 2]] * 2)
    assert combined.weights == pytest.approx([0.25, 0.75])
    together = estimate("grr", 3, 1.0, 4000, SHARES[3], rng)
    assert combined.stderr == pytest.approx(together.stderr, rel=0.05)


def test_places_are_those_of_each_estimate():
    """Values may stand at other places in another version."""
    rng = np.random.default_rng(5)
    parts = [estimate("oue", 3, 3.0, 40_000, shares, rng) for shares in ([0.7, 0.2, 0.1], [0.1, 0.7, 0.2])]
    combined = combine(parts, [[0, 1], [1, 2]])
    assert combined.frequency == pytest.approx([0.7, 0.2], abs=0.02)
    assert combined.p_value > 1e-4


def test_versions_that_differ_are_told():
    """A chance below 5% is as rare as that where they are alike, and nearly sure where they are not."""
    rng, runs = np.random.default_rng(8), 400

    def share(other):
        parts = ([estimate("grr", 3, 1.0, 2000, shares, rng) for shares in (SHARES[3], other)] for _ in range(runs))
        return np.mean([combine(each, [[0, 1, 2]] * 2).p_value < 0.05 for each in parts])

    assert share(SHARES[3]) <= 0.09  # 0.05, and five standard errors of the simulation
    assert share([0.3, 0.5, 0.2]) > 0.95


def test_nothing_is_made_of_no_reports():
    """An estimate without reports has no weight to tell."""
    rng = np.random.default_rng(1)
    parts = [estimate("grr", 3, 1.0, n, SHARES[3], rng) for n in (100, 0)]
    with pytest.raises(ParameterError, match="an estimate has no reports: combine only those that have"):
        combine(parts, [[0, 1, 2]] * 2)
