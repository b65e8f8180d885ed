"""Tails: bounds against exact probabilities of cases small enough to be walked."""

from __future__ import annotations

from itertools import product
from math import comb, exp

import numpy as np
import pytest

from deniable_aggregator.alarms import tail_bounds


def binomial(n, p):
    return [comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)]


@pytest.mark.parametrize(("n", "p"), [(1, 0.5), (7, 0.1), (30, 0.27), (30, 0.999)])
def test_tails_are_binomial(n, p):
    """Both tails are the sums of the binomial probabilities, at every count."""
    mass = binomial(n, p)
    for k in range(n + 1):
        assert float(tail_bounds.at_least(k, n, p)) == pytest.approx(sum(mass[k:]), rel=1e-9)
        assert float(tail_bounds.at_most(k, n, p)) == pytest.approx(sum(mass[: k + 1]), rel=1e-9)


def test_tails_at_the_edges():
    """What cannot be has probability 0, and what must be 1, so that one impossible report is enough."""
    assert float(tail_bounds.at_least(1, 10, 0.0)) == 0
    assert float(tail_bounds.at_least(0, 10, 0.0)) == 1
    assert float(tail_bounds.at_least(11, 10, 0.5)) == 0
    assert float(tail_bounds.at_most(9, 10, 1.0)) == 0
    assert 0 < float(tail_bounds.at_least(55_500, 100_000, 0.5)) < 1e-260


@pytest.mark.parametrize(("n", "least"), [(6, 0.3), (12, 0.05), (9, 0.8)])
def test_a_shortfall_is_bounded(n, least):
    """For three independent counts the bound is never below the exact probability, and not far above it where it matters."""
    mass = binomial(n, least)
    outcomes = list(product(range(n + 1), repeat=3))
    chance = {counts: mass[counts[0]] * mass[counts[1]] * mass[counts[2]] for counts in outcomes}
    terms = {k: float(tail_bounds._below(np.array([k]), n, least)[0]) for k in range(n + 1)}
    total = {counts: sum(terms[k] for k in counts) for counts in outcomes}
    for counts in {tuple(sorted(counts)) for counts in outcomes}:
        exact = sum(chance[other] for other in outcomes if total[other] >= total[counts] - 1e-12)
        bound = tail_bounds.shortfall(np.array(counts), n, least)
        assert exact <= bound * (1 + 1e-9)
        assert bound == 1 or bound < 60 * exact or exact < 1e-9


def test_a_shortfall_of_what_excludes_each_other_is_bounded():
    """The bound holds, too, for cells of which each report names one, whose counts are dependent."""
    n, chances = 5, (0.25, 0.25, 0.5)
    least = 0.25
    exact: dict[tuple[int, ...], float] = {}
    for reports in product(range(3), repeat=n):
        counts = tuple(reports.count(cell) for cell in range(3))
        exact[counts] = exact.get(counts, 0.0) + float(np.prod([chances[cell] for cell in reports]))
    total = {counts: tail_bounds._below(np.array(counts), n, least).sum() for counts in exact}
    for counts in exact:
        tail = sum(mass for other, mass in exact.items() if total[other] >= total[counts] - 1e-12)
        assert tail <= tail_bounds.shortfall(np.array(counts), n, least) * (1 + 1e-9)


@pytest.mark.parametrize("n", [10**4, 10**6, 10**9])
@pytest.mark.parametrize("least", [1e-6, 0.01, 0.27, 0.9])
def test_a_shortfall_at_any_scale(n, least):
    """Honest counts raise nothing, counts a few deviations too low together do, and nothing overflows on the way."""
    rng = np.random.default_rng(7)
    honest = rng.binomial(n, least, 200)
    assert tail_bounds.shortfall(honest, n, least) > 1e-4
    if n * least > 100:
        low = honest - (3 * np.sqrt(n * least * (1 - least))).astype(np.int64)
        assert tail_bounds.shortfall(low, n, least) < 1e-30
    assert 0 <= tail_bounds.shortfall(np.zeros(200, np.int64), n, least) <= 1


def test_no_shortfall():
    """Where nothing is low, nothing was sent, or nothing need be there, the bound is 1."""
    assert tail_bounds.shortfall(np.array([5, 5]), 10, 0.5) == 1
    assert tail_bounds.shortfall(np.array([0, 0]), 0, 0.5) == 1
    assert tail_bounds.shortfall(np.array([0, 0]), 10, 0.0) == 1


@pytest.mark.parametrize("exclusive", [True, False])
def test_a_set_has_no_more_than_all_people_give(exclusive):
    """Over all outcomes of three reports the p-value of the most unlikely set is never too small, whatever people hold."""
    d, n, p, q = 4, 3, 0.55, 0.15
    for held in ((0, 0, 0), (0, 0, 1), (1, 2, 3)):
        outcomes: dict[tuple[int, ...], float] = {(0,) * d: 1.0}
        for value in held:
            step: dict[tuple[int, ...], float] = {}
            for counts, mass in outcomes.items():
                for bits, chance in _report(value, d, p, q, exclusive=exclusive):
                    added = tuple(map(sum, zip(counts, bits, strict=True)))
                    step[added] = step.get(added, 0.0) + mass * chance
            outcomes = step
        p_values = {counts: tail_bounds.set_surplus(np.array(counts), n, p, q, exclusive=exclusive)[0] for counts in outcomes}
        assert sum(outcomes.values()) == pytest.approx(1)
        for level in set(p_values.values()):
            assert sum(mass for counts, mass in outcomes.items() if p_values[counts] <= level) <= level * (1 + 1e-9)


def _report(value, d, p, q, *, exclusive):
    if exclusive:
        return [(tuple(int(i == named) for i in range(d)), p if named == value else q) for named in range(d)]
    payloads = []
    for bits in product((0, 1), repeat=d):
        chance = 1.0
        for i, bit in enumerate(bits):
            one = p if i == value else q
            chance *= one if bit else 1 - one
        payloads.append((bits, chance))
    return payloads


def test_a_set_that_has_too_much_is_named():
    """Values that were pushed up together are found, and as many as they are, though none alone is above 1."""
    n, p, q = 100_000, 0.04, 0.0077
    counts = np.full(120, int(n * q))
    counts[[3, 50, 70]] += int(n * 0.02)
    p_value, size = tail_bounds.set_surplus(counts, n, p, q, exclusive=True)
    assert p_value < 1e-20
    assert size == 3


def test_choices():
    """The logarithm of how many sets there are."""
    assert np.exp(tail_bounds.log_choose(10, np.array([0, 3, 10]))).tolist() == pytest.approx([1, 120, 1])
    assert exp(float(tail_bounds.log_choose(128, np.array([64]))[0])) == pytest.approx(comb(128, 64), rel=1e-9)
