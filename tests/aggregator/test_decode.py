"""Decoders against the mechanisms' own definition of support, and estimates against theory."""

from __future__ import annotations

from fractions import Fraction
from math import sqrt

import numpy as np
import pytest

from deniable import mechanisms
from deniable.errors import ParameterError
from deniable_aggregator import decode, tally

CASES = [
    ("coin", 2, None),
    ("binary", 2, 1),
    *(
        (name, d, epsilon)
        for name in ("grr", "sue", "oue", "subset", "local_hash", "hadamard")
        for d, epsilon in ((2, 1), (7, 0.5), (26, 1), (31, 3))
    ),
]


def population(domain_size, n):
    """Values with Zipf frequencies, the same at each run: data, not noise."""
    weights = 1 / np.arange(1, domain_size + 1)
    counts = np.floor(n * weights / weights.sum()).astype(int)
    counts[0] += n - counts.sum()
    return np.repeat(np.arange(domain_size), counts).tolist()


@pytest.mark.parametrize(("name", "domain_size", "epsilon"), CASES)
def test_decoder_counts_what_the_mechanism_says_is_supported(name, domain_size, epsilon):
    """The fast decoder finds, for each value, the reports whose payload supports it by definition."""
    mechanism = mechanisms.make(name, domain_size=domain_size, epsilon=epsilon)
    payloads = [mechanism.randomize(value) for value in population(domain_size, 300)]
    plain = np.zeros(domain_size, np.int64)
    for payload in payloads:
        plain[list(mechanism.supported(payload))] += 1
    counted = tally.count(mechanism.layout, b"".join(payloads))
    estimate = decode.estimate(mechanism, counted)
    assert np.array_equal(estimate.support, plain)
    p, q = mechanism.p, mechanism.q
    exact = [(Fraction(int(c), 300) - q) / (p - q) for c in plain]
    assert np.allclose(estimate.frequency, [float(f) for f in exact], rtol=1e-12, atol=1e-12)
    assert np.allclose(estimate.count, [float(300 * f) for f in exact], rtol=1e-12, atol=1e-9)


@pytest.mark.parametrize(("name", "domain_size", "epsilon"), CASES)
def test_squared_error_is_the_exact_variance(name, domain_size, epsilon):
    """Over repeated populations the mean squared error is the variance stated, within six standard errors of its mean."""
    mechanism = mechanisms.make(name, domain_size=domain_size, epsilon=epsilon)
    n, repeats = 1500, 24
    values = population(domain_size, n)
    truth = np.bincount(values, minlength=domain_size) / n
    predicted = np.array([mechanism.variance(f, n) for f in truth])
    ratios, errors = [], []
    for _ in range(repeats):
        payloads = b"".join(map(mechanism.randomize, values))
        error = decode.estimate(mechanism, tally.count(mechanism.layout, payloads)).frequency - truth
        ratios.append((error**2).mean() / predicted.mean())
        errors.append(error / np.sqrt(predicted))
    # With d values of which the estimates may be tied (as for d = 2), one run's ratio has at most the spread of one square.
    spread = sqrt(2 / max(1, domain_size - 1)) * 1.5
    assert abs(np.mean(ratios) - 1) < 6 * spread / sqrt(repeats)
    assert np.abs(np.mean(errors, axis=0)).max() < 6 / sqrt(repeats)


@pytest.mark.parametrize("domain_size", [10, 100, 1000, 1024])
@pytest.mark.parametrize("epsilon", [0.5, 1, 2, 3])
def test_local_hashing_has_no_floor(domain_size, epsilon):
    """Expected tallies decode to the exact frequencies: over the complete family no error is left as n grows."""
    mechanism = mechanisms.make("local_hash", domain_size=domain_size, epsilon=epsilon)
    family, g = mechanism.family, mechanism.family.range_size
    held = {0: 5, 3: 2, domain_size - 1: 3}
    scale = mechanism.p.denominator  # makes every expected count a whole number
    truthful = scale * mechanism.p
    other = (scale - truthful) / (g - 1)
    small = np.zeros((family.rows, g))
    for value, people in held.items():
        cells = np.array([family.hash(row, value) for row in range(family.rows)])
        small += people * float(other)
        small[np.arange(family.rows), cells] += people * float(truthful - other)
    # Decoding is linear, so expectations in float decode like counts.
    support = decode.supports(mechanism, _FloatTally(mechanism.layout, small)) / family.rows / scale
    frequency = (support / 10 - float(mechanism.q)) / float(mechanism.p - mechanism.q)
    expected = np.zeros(domain_size)
    for value, people in held.items():
        expected[value] = people / 10
    assert np.abs(frequency - expected).max() < 1e-6


class _FloatTally:
    """Expected counts, rounded to a grid fine enough that int64 holds them."""

    def __init__(self, layout, expected):
        self.layout = layout
        self.counts = np.rint(expected).astype(np.int64)
        self.n = int(self.counts.sum())


def test_walsh_hadamard_is_the_matrix_product():
    """The fast transform equals the product with the matrix of parities."""
    rng = np.random.default_rng(5)
    for k in (1, 2, 4, 64):
        values = rng.integers(0, 1000, k)
        matrix = np.array([[1 - 2 * ((i & j).bit_count() & 1) for j in range(k)] for i in range(k)])
        assert np.array_equal(decode.walsh_hadamard(values), matrix @ values)


def test_a_tally_of_another_layout_is_refused():
    """A tally is decoded only by a mechanism that could have made it."""
    grr = mechanisms.make("grr", domain_size=4, epsilon=1)
    oue = mechanisms.make("oue", domain_size=4, epsilon=1)
    with pytest.raises(ParameterError, match="has its layout"):
        decode.estimate(grr, tally.empty(oue.layout))


def test_no_reports_give_no_numbers():
    """Without reports there is no estimate: nan, not zero."""
    mechanism = mechanisms.make("grr", domain_size=4, epsilon=1)
    estimate = decode.estimate(mechanism, tally.empty(mechanism.layout))
    assert estimate.n == 0
    assert np.isnan(estimate.frequency).all()
    assert np.isnan(estimate.stderr).all()
    assert np.isnan(estimate.interval()[0]).all()
