"""Decoders against the mechanisms' own definition of support, and estimates against theory."""

from __future__ import annotations

from fractions import Fraction
from math import sqrt

import numpy as np
import pytest

from deniable import mechanisms
from deniable.errors import ParameterError
from deniable.exact.hashing import PoolFamily
from deniable.registry import text
from deniable_aggregator import decode, tally
from deniable_aggregator.decode.families import family_of
from deniable_aggregator.decode.pools import hash_lookup

CASES = [
    ("coin", 2, None),
    ("binary", 2, 1),
    *(
        (name, d, epsilon)
        for name in (
            *("grr", "sue", "oue", "subset", "local_hash", "hadamard", "general_hadamard", "pgr"),
            *("rappor", "cms", "hcms", "fast_local_hash", "l_grr", "l_osue", "loloha"),
        )
        for d, epsilon in ((2, 1), (7, 0.5), (26, 1), (31, 3))
    ),
    ("dbitflip", 2, 1),  # each report tells of all values; of larger domains see `test_partial`
    ("dbitflip", 7, 0.5),
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
        plain[list(mechanism.opposed(payload))] -= 1
    counted = tally.count(mechanism.layout, b"".join(payloads))
    estimate = decode.estimate(mechanism, counted)
    assert np.array_equal(estimate.support, plain)
    assert np.array_equal(decode.estimate(mechanism, counted, [1, 0]).support, plain[[1, 0]])
    p, q = mechanism.p, mechanism.q
    exact = [(Fraction(int(c), 300) - q) / (p - q) for c in plain]
    assert np.allclose(estimate.frequency, [float(f) for f in exact], rtol=1e-12, atol=1e-12)
    assert np.allclose(estimate.count, [float(300 * f) for f in exact], rtol=1e-12, atol=1e-9)


@pytest.mark.parametrize(
    ("name", "domain_size", "epsilon"),
    [
        pytest.param(*case, marks=[pytest.mark.campaign, pytest.mark.nightly] * (case[1:] in ((7, 0.5), (31, 3))))
        for case in CASES
    ],
)
def test_squared_error_is_the_exact_variance(name, domain_size, epsilon):
    """Over repeated populations the mean squared error is the variance stated, within six standard errors of its mean."""
    mechanism = mechanisms.make(name, domain_size=domain_size, epsilon=epsilon)
    n, repeats = 800, 24
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


POOLS = [
    ("cms", {"rows": 40, "width": 16}),
    ("hcms", {"rows": 40, "width": 16}),
    ("fast_local_hash", {"rows": 200}),
    ("fast_local_hash", {"rows": 33, "width": 5}),
]


@pytest.mark.parametrize(("name", "options"), POOLS)
def test_pools_count_what_is_supported(name, options):
    """With a pool, too, the decoder finds the reports that support each value by definition, and those of chosen values alone."""
    mechanism = mechanisms.make(name, domain_size=60, epsilon=2, **options)
    payloads = [mechanism.randomize(value) for value in population(60, 60)]  # too few for anything to be cleared
    plain = np.zeros(60, np.int64)
    for payload in payloads:
        plain[list(mechanism.supported(payload))] += 1
    counted = tally.count(mechanism.layout, b"".join(payloads))
    assert np.array_equal(decode.estimate(mechanism, counted).support, plain)
    assert np.array_equal(decode.estimate(mechanism, counted, [31, 4]).support, plain[[31, 4]])


@pytest.mark.parametrize("target", ["population", "respondents"])
def test_few_reports_that_can_oppose_values(target):
    """Simultaneous intervals hold where a block has a dozen reports, and one value nearly all of the others."""
    mechanism = mechanisms.make("general_hadamard", domain_size=60, epsilon=4, blocks=8)
    held = np.random.default_rng(20).multinomial(300, np.arange(1.0, 61) ** -3 / (np.arange(1.0, 61) ** -3).sum())
    values, holds = np.repeat(np.arange(60), held).tolist(), 0
    for _ in range(60):
        counted = tally.count(mechanism.layout, b"".join(map(mechanism.randomize, values)))
        low, high = decode.estimate(mechanism, counted).interval(simultaneous=True, target=target)
        holds += bool(((low <= held / 300) & (held / 300 <= high)).all())
    assert holds > 48  # at 95%, a false failure in 100,000; 0.99 of them hold, and by the normal approximation 0.6


def test_few_people_whose_reports_can_oppose_values():
    """Simultaneous intervals hold where chance decides how many of a few people are in a value's block."""
    mechanism = mechanisms.make("general_hadamard", domain_size=8, epsilon=4)
    shares = np.arange(1.0, 9) ** -1.1 / (np.arange(1.0, 9) ** -1.1).sum()
    rng, holds = np.random.default_rng(21), 0
    for _ in range(400):
        values = rng.choice(8, 300, p=shares).tolist()
        counted = tally.count(mechanism.layout, b"".join(map(mechanism.randomize, values)))
        low, high = decode.estimate(mechanism, counted).interval(simultaneous=True)
        holds += bool(((low <= shares) & (shares <= high)).all())
    assert holds > 0.92 * 400  # 0.967 of them hold, so five standard errors; with normal errors of the block's share 0.87


@pytest.mark.parametrize("numba", [True, False])
def test_lookups_with_and_without_numba(monkeypatch, numba):
    """The compiled look-up and numpy's give the sum over the rows that the family's own hash gives."""
    if not numba:
        monkeypatch.setattr(hash_lookup, "_kernel", lambda: None)
    rng = np.random.default_rng(3)
    family = PoolFamily("test", 7, 10)
    table = rng.integers(0, 1000, (5, 10))
    table[2] = 0
    keys = rng.integers(0, 1 << 64, 20, np.uint64, endpoint=False)
    plain = [sum(int(table[row, family.hash(row + 1, int(key))]) for row in range(5)) for key in keys]
    assert hash_lookup.lookup(family, table, keys, first=1).tolist() == plain
    counts = rng.integers(0, 1000, (5, 10))
    by_row = [sum(int(counts[row, family.hash(row + 1, int(key))]) for key in keys) for row in range(5)]
    assert [each.tolist() for each in hash_lookup.lookup_by_row(family, table, counts, keys, first=1)] == [plain, by_row]


@pytest.mark.first_cases(1)
@pytest.mark.parametrize("runs", [6, pytest.param(12, marks=pytest.mark.campaign)])
@pytest.mark.parametrize(
    ("name", "options", "n"), [("fast_local_hash", {"rows": 20}, 40_000), ("cms", {"rows": 8, "width": 16}, 20_000)]
)
def test_the_error_of_a_pool_is_stated(name, options, n, runs):
    """Where few functions confuse the values, errors have the standard error stated."""
    scores = []
    for label in range(runs):
        domain_size = 10_000 + label  # other values, so other collisions
        mechanism = mechanisms.make(name, domain_size=domain_size, epsilon=4, **options)
        chosen = np.random.default_rng(label).choice(domain_size, 40, replace=False).tolist()
        values = [chosen[place] for place in population(40, n)]
        truth = np.bincount(population(40, n), minlength=40) / n
        counted = tally.count(mechanism.layout, b"".join(map(mechanism.randomize, values)))
        estimate = decode.estimate(mechanism, counted, chosen)
        scores.append((estimate.frequency - truth) / estimate.respondents_stderr)
    assert 0.8 < np.std(scores) < 1.2


@pytest.mark.parametrize(
    ("name", "rows", "width", "epsilon"), [("cms", 64, 32, 1), ("cms", 8, 16, 2), ("hcms", 64, 64, 4), ("hcms", 8, 16, 2)]
)
def test_the_corrected_variance_of_sketches(name, rows, width, epsilon):
    """Noise and confusion together are the variance of Apple's sketches over random hashes, with the covariance of collisions."""
    mechanism = mechanisms.make(name, domain_size=50, epsilon=epsilon, rows=rows, width=width)
    held = np.bincount(population(50, 3000), minlength=50).astype(float)
    n, k, m = held.sum(), rows, width
    odds = np.exp(epsilon / 2 if name == "cms" else epsilon)
    c = (odds + 1) / (odds - 1)
    for value in range(3):
        others = np.delete(held, value)
        collisions = (1 / m - 1 / m**2) * (others.sum() + (others * (others - 1)).sum() / k)
        noise = n * (c * c - 1) / 4 if name == "cms" else n * c * c - held[value] - others.sum() / m
        literature = (m / (m - 1)) ** 2 * (noise + collisions)
        squares = np.square(others / n).sum()
        ours = n * n * (mechanism.variance(held[value] / n, n) + squares / (rows * (width - 1)))
        assert ours == pytest.approx(literature, rel=0.005)  # n - 1 of n pairs


@pytest.mark.first_cases(1)
@pytest.mark.parametrize("held", [[1.0], [0.5, 0.3, 0.2], [0.01] * 100])
def test_squared_mass(held):
    """The pairs of reports within rows tell the sum of f^2 without bias, through the mechanism's noise."""
    rng = np.random.default_rng(8)
    mechanism = mechanisms.make("fast_local_hash", domain_size=5000, epsilon=2, rows=150)
    values = rng.choice(len(held), 12_000, p=held).tolist()
    squares = []
    for _ in range(8):  # one alone has a standard error of up to 0.02
        counted = tally.count(mechanism.layout, b"".join(map(mechanism.randomize, values)))
        squares.append(decode.squared_mass(counted.counts, counted.reports, float(mechanism.p), float(mechanism.other)))
    assert np.mean(squares) == pytest.approx(sum(f * f for f in held), abs=0.03)


def test_no_pairs_tell_nothing():
    """Where no row has two reports the sum of f^2 is taken to be 1, its most."""
    mechanism = mechanisms.make("fast_local_hash", domain_size=5000, epsilon=2, rows=500)
    counted = tally.count(mechanism.layout, mechanism.randomize(3))
    assert decode.squared_mass(counted.counts, counted.reports, float(mechanism.p), float(mechanism.other)) == 1


@pytest.mark.parametrize("name", ["cms", "hcms", "fast_local_hash"])
def test_texts(name):
    """Candidates of a domain of all texts are estimated within their intervals, and absent ones are not detected."""
    mechanism = mechanisms.make(name, domain_size=1 << 512, epsilon=3)
    words = [text.encode(f"https://example.org/{i}", 64) for i in range(30)]
    truth = np.array([0.5, 0.3, 0.2, *[0] * 27])
    held = np.repeat(words[:3], (truth[:3] * 6000).astype(int)).tolist()
    counted = tally.count(mechanism.layout, b"".join(map(mechanism.randomize, held)))
    estimate = decode.estimate(mechanism, counted, words)
    low, high = estimate.interval(0.9999, simultaneous=True)
    assert ((low <= truth) & (truth <= high)).all()
    assert estimate.detected(1e-4).tolist() == [True] * 3 + [False] * 27
    with pytest.raises(ParameterError, match="the domain has more than 4194304 values: give the candidates to decode as values"):
        decode.estimate(mechanism, counted)


@pytest.mark.parametrize(
    ("values", "rule"),
    [
        ([1, 2, 1], "1 candidate too many: list each once"),
        *(([each], "outside the domain: give numbers from 0 to ") for each in (60, -1)),
    ],
)
def test_bad_candidates(values, rule):
    """Values that are no candidates are refused with the rule."""
    mechanism = mechanisms.make("grr", domain_size=60, epsilon=2)
    with pytest.raises(ParameterError, match=rule):
        decode.estimate(mechanism, tally.empty(mechanism.layout), values)


def test_every_estimate_may_be_of_chosen_values():
    """Whatever the mechanism, the estimates of some values are those of the whole domain at their places."""
    for name, domain_size, epsilon in CASES:
        mechanism = mechanisms.make(name, domain_size=domain_size, epsilon=epsilon)
        counted = tally.count(mechanism.layout, b"".join(map(mechanism.randomize, population(domain_size, 200))))
        every, chosen = decode.estimate(mechanism, counted), decode.estimate(mechanism, counted, [1, 0])
        for attribute in ("frequency", "stderr", "respondents_stderr", "absent_stderr", "p_value"):
            assert np.array_equal(getattr(every, attribute)[[1, 0]], getattr(chosen, attribute))


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
    support = family_of(mechanism).supports(_FloatTally(mechanism.layout, small)) / family.rows / scale
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


def test_a_tally_of_another_layout_is_refused():
    """A tally is decoded only by a mechanism that could have made it."""
    grr = mechanisms.make("grr", domain_size=4, epsilon=1)
    oue = mechanisms.make("oue", domain_size=4, epsilon=1)
    with pytest.raises(ParameterError, match=r"the layout = .*: decode with grr a tally of "):
        decode.estimate(grr, tally.empty(oue.layout))


def test_no_reports_give_no_numbers():
    """Without reports there is no estimate: nan, not zero."""
    mechanism = mechanisms.make("grr", domain_size=4, epsilon=1)
    estimate = decode.estimate(mechanism, tally.empty(mechanism.layout))
    assert estimate.n == 0
    assert np.isnan(estimate.frequency).all()
    assert np.isnan(estimate.stderr).all()
    assert np.isnan(estimate.interval()[0]).all()
