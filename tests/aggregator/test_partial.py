"""Estimates from reports that each tell of some values only: dBitFlip of a domain larger than its sets."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from deniable import mechanisms
from deniable.proof import distribution
from deniable_aggregator import decode, tally
from deniable_aggregator.decode.bucket_estimate import Partial
from deniable_aggregator.decode.tables import joint
from deniable_aggregator.tally import Tally

CASES = [(26, 8, 1), (31, 3, 0.5), (12, 8, 3), (40, 1, 2)]


def make(k, buckets, epsilon):
    return mechanisms.make("dbitflip", domain_size=k, epsilon=epsilon, buckets=buckets)


def draw(mechanism, truth, n, rng):
    """Draw the tally of n people, and their real shares, by the mechanism's own probabilities."""
    k, d, rows = mechanism.domain_size, mechanism.buckets, mechanism.layout.rows
    held, chosen = rng.choice(k, n, p=truth), rng.integers(0, rows, n)
    places = np.array([[mechanism.response_key(row, value) for value in range(k)] for row in range(rows)])[chosen, held]
    reports, own = np.bincount(chosen, minlength=rows), np.zeros((rows, d), np.int64)
    np.add.at(own, (chosen[places < d], places[places < d]), 1)
    ones = rng.binomial(own, float(mechanism.one)) + rng.binomial(reports[:, None] - own, float(mechanism.other))
    return Tally(mechanism.layout, ones, reports), np.bincount(held, minlength=k) / n


@pytest.mark.parametrize(("k", "buckets", "epsilon"), CASES)
def test_counts_are_those_of_the_definition(k, buckets, epsilon):
    """Through the ordinary tally, in two parts, each value has the reports that support it and those whose set has it."""
    mechanism = make(k, buckets, epsilon)
    payloads = [mechanism.randomize(value % k) for value in range(300)]
    halves = [tally.count(mechanism.layout, b"".join(part)) for part in (payloads[:100], payloads[100:])]
    counted = tally.merge(*halves)
    estimate = decode.estimate(mechanism, counted)
    assert isinstance(estimate, Partial)
    support, tellers = np.zeros(k, np.int64), np.zeros(k, np.int64)
    for payload in payloads:
        support[list(mechanism.supported(payload))] += 1
        tellers[
            [value for value in range(k) if mechanism.response_key(mechanism.layout.unpack(payload)[0], value) < buckets]
        ] += 1
    assert np.array_equal(estimate.support, support)
    assert np.array_equal(estimate.covering, tellers)
    chosen = decode.estimate(mechanism, counted, [5, 0])
    for name in ("frequency", "stderr", "respondents_stderr", "absent_stderr", "p_value", "count"):
        assert np.array_equal(getattr(chosen, name), getattr(estimate, name)[[5, 0]])


@pytest.mark.parametrize(("k", "buckets"), [(3, 1), (3, 2), (4, 2)])
def test_exact_mean_and_variance(k, buckets):
    """Over all draws of all devices of a fixed population the estimate has mean f and the stated variance, as fractions."""
    mechanism = make(k, buckets, "1")
    population = [0, 0, k - 1]
    n, share = len(population), Fraction(buckets, k)
    one, other = mechanism.one, mechanism.other
    for value in range(k):
        outcomes = []
        for true in population:
            shares = {}
            for payload, mass in distribution(lambda tape, v=true: mechanism.randomize(v, source=tape)).items():
                tellers = mechanism.response_key(mechanism.layout.unpack(payload)[0], value) < buckets
                outcome = (value in mechanism.supported(payload), tellers)
                shares[outcome] = shares.get(outcome, 0) + mass
            outcomes.append(shares.items())
        mean = square = Fraction(0)
        for combination in product(*outcomes):
            chance, support, tellers = Fraction(1), 0, 0
            for (supports, tells), mass in combination:
                chance, support, tellers = chance * mass, support + supports, tellers + tells
            estimate = (support - other * tellers) / (n * share * (one - other))
            mean += chance * estimate
            square += chance * estimate**2
        f = Fraction(population.count(value), n)
        assert mean == f
        assert mechanism.variance(float(f), n) == pytest.approx(float(square - mean**2), rel=1e-12)
    averages = [mechanism.variance(1, 1) / k + mechanism.variance(0, 1) * (k - 1) / k, float(mechanism.mean_variance)]
    assert averages[0] == pytest.approx(averages[1], rel=1e-12)


@pytest.mark.parametrize(("k", "buckets", "epsilon"), CASES)
def test_the_variance_is_as_published(k, buckets, epsilon):
    """The variance of one report is ``f ((k/d) (p(1-p)/(p-q)^2 + 1) - 1) + (1-f) (k/d) q(1-q)/(p-q)^2``."""
    mechanism = make(k, buckets, epsilon)
    h = np.exp(epsilon if buckets == 1 else epsilon / 2)
    p, q = h / (h + 1), 1 / (h + 1)
    for f in (0, 0.1, 0.5, 1):
        held = k / buckets * (p * (1 - p) / (p - q) ** 2 + 1) - 1
        stated = f * held + (1 - f) * k / buckets * q * (1 - q) / (p - q) ** 2
        assert mechanism.variance(f, 250) == pytest.approx(stated / 250, rel=1e-7)


@pytest.mark.campaign
@pytest.mark.parametrize(("k", "buckets", "epsilon"), CASES)
def test_errors_and_intervals_hold(k, buckets, epsilon):
    """Over 1,000 populations estimates are unbiased, errors as stated, and intervals of both kinds cover at least as often."""
    mechanism, rng = make(k, buckets, epsilon), np.random.default_rng(11)
    truth = np.full(k, 0.1 / (k - 3))
    truth[:3] = 0.6, 0.25, 0.05
    n, repeats = 1000, 1000
    errors, squares, stated, covered = [], [], [], []
    for _ in range(repeats):
        counted, real = draw(mechanism, truth, n, rng)
        estimate = decode.estimate(mechanism, counted)
        errors.append(estimate.frequency - truth)
        squares.append((estimate.frequency - real) ** 2)
        stated.append(estimate.stderr)
        intervals = (estimate.interval(), truth), (estimate.interval(target="respondents"), real)
        covered.append([((low <= true) & (true <= high)) for (low, high), true in intervals])
    spread = np.std(errors, axis=0)
    assert np.abs(np.mean(errors, axis=0) / spread).max() * np.sqrt(repeats) < 5
    assert np.mean(squares, axis=0) == pytest.approx([mechanism.variance(f, n) for f in truth], rel=6 * np.sqrt(2 / repeats))
    assert spread == pytest.approx(np.mean(stated, axis=0), rel=6 / np.sqrt(2 * repeats))
    share = np.mean(covered, axis=0)
    assert share.min() > 0.95 - 5 * np.sqrt(0.95 * 0.05 / repeats)
    assert 0.95 < share.mean() < 0.985


@pytest.mark.parametrize("n", [60, 200])
def test_intervals_hold_however_few_reports_tell_of_a_value(n):
    """With a handful of reports about each value intervals are wide, cover as often as they say, and hold their estimate."""
    mechanism, rng = make(40, 1, 2), np.random.default_rng(12)
    truth = np.full(40, 0.4 / 39)
    truth[0] = 0.6
    covered = []
    for _ in range(400):
        counted, real = draw(mechanism, truth, n, rng)
        estimate = decode.estimate(mechanism, counted)
        for target, true in (("population", truth), ("respondents", real)):
            low, high = estimate.interval(target=target)
            assert ((low <= estimate.frequency) & (estimate.frequency <= high)).all()
            covered.append((low <= true) & (true <= high))
    assert np.mean(covered, axis=0).min() > 0.95


def test_absent_values_are_not_detected():
    """P-values of values that nobody holds are uniform or higher, those of frequent ones small."""
    mechanism, rng = make(40, 4, 2), np.random.default_rng(5)
    truth = np.zeros(40)
    truth[[3, 17]] = 0.5
    low = []
    for _ in range(300):
        estimate = decode.estimate(mechanism, draw(mechanism, truth, 2000, rng)[0])
        low.append(np.delete(estimate.p_value, [3, 17]) < 0.05)
        assert estimate.detected().tolist()[3] is True
        assert estimate.absent_stderr == pytest.approx(np.sqrt(mechanism.variance(0, 2000)), rel=0.3)
    assert 0.03 < np.mean(low) < 0.052


def test_no_reports_give_no_numbers():
    """Without reports there is no estimate; a value that no report tells of has one, which says nothing."""
    mechanism = make(20, 2, 1)
    estimate = decode.estimate(mechanism, tally.empty(mechanism.layout))
    assert np.isnan(estimate.frequency).all()
    assert not estimate.detected().any()
    assert np.isnan(estimate.count).all()
    one = decode.estimate(mechanism, tally.count(mechanism.layout, mechanism.layout.pack(0, 0b11)))
    assert (one.covering[2:] == 0).all()
    assert (one.frequency[2:] == 0).all()
    assert (one.p_value[2:] == 1).all()


def test_no_table_of_a_product():
    """How the values of a product go together is not estimated from such reports, and that is said."""
    mechanism = make(12, 2, 1)
    with pytest.raises(ValueError, match="mechanism = 'dbitflip': choose a pure one, whose reports show a table"):
        joint.from_product(mechanism, tally.empty(mechanism.layout), (3, 4))


@pytest.mark.parametrize(("k", "buckets", "epsilon", "n"), [(40, 4, 2, 300), (500, 4, 4, 500)])
def test_standard_errors_where_few_reports_support_a_value(k, buckets, epsilon, n):
    """Over all values the stated variance is the mean squared error, though no frequency may be taken to be below 0."""
    rng = np.random.default_rng(9)
    mechanism, truth = make(k, buckets, epsilon), 1 / np.arange(1, k + 1)
    truth /= truth.sum()
    replays = [decode.estimate(mechanism, draw(mechanism, truth, n, rng)[0]) for _ in range(60 if k < 100 else 12)]
    error = np.mean([np.square(estimate.frequency - truth).mean() for estimate in replays])
    stated = np.mean([np.square(estimate.stderr).mean() for estimate in replays])
    assert np.sqrt(error / stated) == pytest.approx(1, abs=0.05)


def test_detection_frequency():
    """A value held by just that share is detected in half of the replays."""
    rng = np.random.default_rng(8)
    mechanism, n = make(40, 4, 2), 300
    absent = np.full(40, 1 / 39)
    absent[3] = 0
    share = np.median([decode.estimate(mechanism, draw(mechanism, absent, n, rng)[0]).detection_frequency() for _ in range(9)])
    truth = absent * (1 - share)
    truth[3] = share
    hits = sum(decode.estimate(mechanism, draw(mechanism, truth, n, rng)[0]).detected()[3] for _ in range(400))
    assert 140 < hits < 260
