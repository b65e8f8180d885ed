"""Regression: closed forms where there are some, and honest errors and tests in seeded simulations of counts."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest
from scipy.sparse import csc_array, csr_array, eye_array
from scipy.special import ndtr

from deniable.errors import ParameterError
from deniable_aggregator.decode.bloom.bloom_fit import BloomCells, bit_noise
from deniable_aggregator.decode.bloom.bloom_regression import _least, _penalised, detection_frequency, fit
from deniable_aggregator.decode.multiple_testing import holm

CHROME = 0.375, 0.625  # of Chrome's reports, both steps of noise together
LOOSE = 0.225, 0.775  # epsilon 5 with two hashes


def density(bits, hashes):
    return 1 - (1 - 1 / bits) ** hashes


def random_design(rng, cohorts, bits, hashes, candidates):
    """Draw filters of candidates, (cohorts * bits, candidates)."""
    design = np.zeros((cohorts, bits, candidates), np.int64)
    for _ in range(hashes):
        np.put_along_axis(design, rng.integers(bits, size=(cohorts, 1, candidates)), 1, axis=1)
    return csc_array(design.reshape(-1, candidates))


def simulate(rng, design, shares, reports, p, q):
    """Draw the counts of respondents from a population, who hold the first strings of a design."""
    cohorts = len(reports)
    held = rng.multinomial(reports, shares)
    filters = csc_array(design)[:, : len(shares)].tocoo()
    bits = filters.shape[0] // cohorts
    ones = np.bincount(filters.row, held[filters.row // bits, filters.col], filters.shape[0])
    ones = ones.astype(np.int64).reshape(cohorts, bits)
    return rng.binomial(ones, q) + rng.binomial(reports[:, None] - ones, p)


def exponential(strings):
    shares = np.exp(-5 * np.arange(strings) / strings)
    return shares / shares.sum()


def small(seed=0, candidates=20):
    """Make a small case: 5 strings present, others absent."""
    rng = np.random.default_rng(seed)  # replayed chance of a test, not of a device
    design = random_design(rng, 16, 16, 2, candidates)
    shares = np.array([0.4, 0.25, 0.2, 0.1, 0.05])
    reports = rng.integers(1000, 2000, 16)
    return design, simulate(rng, design, shares, reports, *CHROME), reports, shares


def same(first, second, candidates=slice(None)):
    """Whether two fits say the same; `candidates` of the first are those of the second."""
    for field in fields(first):
        a, b = getattr(first, field.name), getattr(second, field.name)
        if np.ndim(a):
            a = a[candidates]
        if not np.allclose(a, b, rtol=1e-6, atol=1e-9, equal_nan=True):
            return False
    return True


def test_a_bit_for_each_value_is_basic_rappor():
    """With the identity as the design the fit is the debiased share of each bit, with its binomial error and z-test."""
    rng = np.random.default_rng(1)
    n, (p, q) = 10_000, LOOSE
    shares = np.array([0.5, 0.3, 0.15, 0.05, 0, 0, 0, 0])
    counts = simulate(rng, eye_array(8, dtype=int), shares, np.array([n]), p, q)
    result = fit(csr_array(eye_array(8)), counts, np.array([n]), p, q, density=None)
    debiased = (counts[0] / n - p) / (q - p)
    rate = p + np.clip(debiased, 0, 1) * (q - p)
    null = np.sqrt(p * (1 - p) / n) / (q - p)
    assert np.allclose(result.frequency, debiased, atol=1e-9)
    assert np.allclose(result.stderr, np.sqrt(rate * (1 - rate) / n) / (q - p), rtol=3e-3)
    assert np.allclose(result.absent_stderr, null, rtol=0.01)
    assert np.allclose(result.p_value, ndtr(-debiased / result.absent_stderr))
    assert result.unallocated == pytest.approx(1 - debiased.sum())


def test_one_bit_is_the_pooled_closed_form():
    """A Boolean in cohorts of one bit is estimated as if there were no cohorts."""
    rng = np.random.default_rng(2)
    reports = np.array([100, 4000, 50, 7, 900])
    design = csc_array(np.ones((5, 1)))
    p, q = 0.2, 0.7
    ones = rng.binomial(reports, 0.3)
    counts = (rng.binomial(ones, q) + rng.binomial(reports - ones, p))[:, None]
    result = fit(design, counts, reports, p, q, density=None)
    rate = counts.sum() / reports.sum()
    closed = np.sqrt(rate * (1 - rate) / reports.sum()) / (q - p)
    assert result.frequency[0] == pytest.approx((rate - p) / (q - p), abs=1e-9)
    assert result.stderr[0] == pytest.approx(closed * np.sqrt(max(1, result.dispersion)), rel=1e-3)
    assert result.unallocated == pytest.approx(1 - result.frequency[0])


@pytest.mark.parametrize("rates", [(0.0, 1.0), (0.0, 0.8), (0.2, 1.0), (0.4, 0.6)])
def test_expected_counts_give_the_shares(rates):
    """Counts without any chance in them, at any level of noise, are explained exactly."""
    p, q = rates
    design = random_design(np.random.default_rng(3), 8, 16, 2, 6)
    shares = np.array([0.5, 0.25, 0.15, 0.1, 0.0, 0.0])
    reports = np.full(8, 1_000_000)
    expected = (p + (q - p) * (design @ shares)).reshape(8, 16) * reports[:, None]
    result = fit(design, np.rint(expected).astype(np.int64), reports, p, q, density=density(16, 2))
    assert np.allclose(result.frequency, shares, atol=1e-5)
    assert (result.p_value[:4] < 1e-9).all()
    assert (result.p_value[4:] > 1e-3).all()
    assert result.unallocated == pytest.approx(0, abs=1e-4)
    assert result.dispersion < 0.01


def test_detection_frequency_is_the_null_error_of_a_fit():
    """The closed form is the quantile times the error that a fit gives to absent candidates, and falls as one over root n."""
    rng = np.random.default_rng(4)
    design = random_design(rng, 128, 32, 2, 100)
    reports = np.full(128, 8000)
    p, q = CHROME
    counts = rng.binomial(8000, p + (q - p) * density(32, 2), (128, 32))  # of a multitude of strings
    result = fit(design, counts, reports, p, q, density=density(32, 2))
    stated = detection_frequency(128 * 8000, 32, *CHROME, density=density(32, 2), candidates=100, alpha=0.05)
    assert stated == pytest.approx(3.2905 * np.mean(result.absent_stderr), rel=0.02)
    assert stated == pytest.approx(10 * detection_frequency(12_800 * 8000, 32, *CHROME, density=density(32, 2), candidates=100))


@pytest.mark.parametrize("other", [density(16, 2), None])
@pytest.mark.parametrize("noise", [CHROME, (0.0, 1.0)])
@pytest.mark.parametrize("number", [0, 3, 16])
def test_both_ways_invert_the_covariance(other, noise, number):
    """The covariance is the mixture's that the model states, and its precision the inverse, by Woodbury as by Cholesky."""
    design, counts, reports, _ = small()
    cells = BloomCells(csr_array(design, dtype=float), np.zeros(20, np.bool_), counts, reports, *noise, other)
    rng = np.random.default_rng(14)
    shares, excess = rng.dirichlet(np.ones(number + 1))[:number], 0.01
    shares[1:2] *= -1
    filters = design.toarray().astype(float).reshape(16, 16, 20)[:, :, :number]
    covariance = cells.covariance(0, 16, filters, shares, excess)
    mass = np.maximum(shares, 0)
    remainder = 0 if other is None else 1 - mass.sum()
    spread = cells.alone * np.eye(16) + cells.together
    quiet, loud = bit_noise(*noise)
    for cohort, columns in enumerate(filters):
        mean = columns @ mass + remainder * (other or 0)
        square = (columns * mass) @ columns.T + remainder * (spread + (other or 0) ** 2)
        own = np.diag(quiet + (loud - quiet) * mean + 1e-6)
        stated = (own + square - np.outer(mean, mean)) / reports[cohort] + excess * spread
        assert np.allclose(covariance.dense()[cohort], stated, rtol=1e-9, atol=1e-12 * stated.max())
        assert np.allclose(covariance.variances()[cohort], np.diag(stated), rtol=1e-9)
    inverse = np.linalg.inv(covariance.dense())
    for precision in (covariance.by_woodbury(), covariance.by_cholesky()):
        assert np.allclose(precision, inverse, rtol=1e-8, atol=1e-8 * inverse.max())
        assert np.allclose(precision, precision.transpose(0, 2, 1), rtol=1e-8, atol=1e-8 * inverse.max())


def test_the_way_of_inversion_does_not_matter(monkeypatch):
    """A fit says the same whichever way the precision is had, and whatever the cohorts worked on at a time."""
    design, counts, reports, _ = small()
    results = []
    for limit, chunk in ((0, 1), (1e9, 1 << 30)):
        monkeypatch.setattr("deniable_aggregator.decode.bloom.bloom_fit._LOW_RANK", limit)
        monkeypatch.setattr("deniable_aggregator.decode.bloom.bloom_fit._CHUNK", chunk)
        results.append(fit(design, counts, reports, *CHROME, density=density(16, 2)))
    assert same(*results)


def test_order_of_candidates_does_not_matter():
    """Candidates in another order have the same estimates."""
    design, counts, reports, _ = small()
    order = np.random.default_rng(5).permutation(design.shape[1])
    one = fit(design, counts, reports, *CHROME, density=density(16, 2))
    other = fit(design[:, order], counts, reports, *CHROME, density=density(16, 2))
    assert same(one, other, order)


def test_cohorts_without_reports_do_not_matter():
    """Empty cohorts, wherever they stand, change nothing; neither does the format of the design."""
    design, counts, reports, _ = small()
    rng = np.random.default_rng(6)
    dense = np.insert(design.toarray().reshape(16, 16, -1), [0, 7, 16], rng.integers(2, size=(16, design.shape[1])), axis=0)
    more = fit(
        csr_array(dense.reshape(19 * 16, -1).astype(float)),
        np.insert(counts, [0, 7, 16], 0, axis=0),
        np.insert(reports, [0, 7, 16], 0),
        *CHROME,
        density=density(16, 2),
    )
    assert same(more, fit(design, counts, reports, *CHROME, density=density(16, 2)))


def test_nothing_is_said_without_reports_candidates_or_filters():
    """No reports, or no bit in any filter: nan and a p-value of 1, not an error."""
    design, counts, reports, _ = small()
    for arguments in (
        (design, counts * 0, reports * 0),
        (csc_array(design.shape), counts, reports),
    ):
        for share in (density(16, 2), None):
            result = fit(*arguments, *CHROME, density=share)
            assert np.isnan(result.frequency).all()
            assert np.isnan(result.stderr).all()
            assert (result.p_value == 1).all()
            assert not result.selected.any()
    none = fit(design[:, []], counts, reports, *CHROME, density=density(16, 2))
    assert none.frequency.shape == (0,)
    assert none.unallocated == pytest.approx(1, abs=0.05)


def test_candidates_with_the_same_filters_are_not_told_apart():
    """Neither of two candidates with equal filters is found; the others are, and the two's mass is a candidate's all the same."""
    design, counts, reports, shares = small()
    twice = csc_array(np.hstack([design.toarray(), design.toarray()[:, [1]]]))
    result = fit(twice, counts, reports, *CHROME, density=density(16, 2))
    for twin in (1, -1):
        assert np.isnan(result.frequency[twin])
        assert result.p_value[twin] == 1
        assert not result.selected[twin]
    assert holm(result.p_value, 0.05)[[0, 2]].all()
    assert abs(result.unallocated - (1 - shares.sum())) < 4 * result.unallocated_stderr


def test_a_candidate_that_looks_like_all_others_is_not_told_from_them():
    """Where every bit is in a filter it is the same as other strings' mass, unless there are no other strings."""
    counts, reports = np.array([[60], [50]]), np.array([100, 100])
    design = csc_array(np.ones((2, 1)))
    assert fit(design, counts, reports, 0.2, 0.8, density=0.5).p_value[0] == 1
    assert fit(design, counts, reports, 0.2, 0.8, density=None).p_value[0] < 1e-6


def test_one_candidate():
    """A single candidate is estimated beside the mass of all others."""
    design, counts, reports, _ = small()
    result = fit(design[:, [0]], counts, reports, *CHROME, density=density(16, 2))
    assert abs(result.frequency[0] - 0.4) < 4 * result.stderr[0]
    assert abs(result.unallocated - 0.6) < 4 * result.unallocated_stderr


def test_a_report_in_each_cohort():
    """Sixty-four respondents in as many cohorts prove nothing of any of 100 strings, and the fit does not claim it."""
    rng = np.random.default_rng(7)
    design = random_design(rng, 64, 32, 2, 100)
    reports = np.ones(64, np.int64)
    counts = simulate(rng, design, exponential(50), reports, *LOOSE)
    result = fit(design, counts, reports, *LOOSE, density=density(32, 2))
    assert not holm(result.p_value, 0.05).any()
    assert (result.stderr > 0.05).all()


def test_more_candidates_than_cells():
    """Twenty times as many candidates as cells: large shares are found and estimated, and none is found that is not there."""
    design, counts, reports, shares = small(seed=8, candidates=5000)
    result = fit(design, counts, reports, *CHROME, density=density(16, 2))
    names = np.flatnonzero(holm(result.p_value, 0.05))
    assert set(names) >= {0, 1, 2}
    assert set(names) <= set(range(5))
    assert (np.abs(result.frequency[:5] - shares) < 4 * result.stderr[:5]).all()


def replay(runs, *, cohorts, bits, hashes, n, noise, strings=100, absent=20, missing=(), sizes=None, seed=9):
    """Fits of many populations with filters of their own: (z of present, z of absent, found absent) of each."""
    results = []
    for run in range(runs):
        rng = np.random.default_rng([seed, run])
        design = random_design(rng, cohorts, bits, hashes, strings + absent)
        reports = rng.multinomial(n, np.full(cohorts, 1 / cohorts) if sizes is None else sizes)
        shares = exponential(strings)
        counts = simulate(rng, design, shares, reports, *noise)
        listed = np.setdiff1d(np.arange(strings + absent), missing)
        result = fit(design[:, listed], counts, reports, *noise, density=density(bits, hashes))
        truth = np.concatenate([shares, np.zeros(absent)])[listed]
        z = (result.frequency - truth) / result.stderr
        results.append((z[truth > 0], z[truth == 0], holm(result.p_value, 0.05)[truth == 0]))
    return tuple(np.array(part) for part in zip(*results, strict=True))


@pytest.mark.campaign
@pytest.mark.parametrize(
    ("noise", "hashes", "missing"),
    [
        (CHROME, 2, ()),
        (CHROME, 2, range(4, 100, 10)),
        (LOOSE, 2, range(4, 100, 10)),
        ((0.05, 0.95), 4, ()),  # hardly any noise: the bits of a report are correlated
    ],
)
def test_errors_are_honest(noise, hashes, missing):
    """Errors in units of their standard errors have mean 0 and deviation 1, also where strings are not listed."""
    present, absent, detections = replay(12, cohorts=64, bits=16, hashes=hashes, n=10**6, noise=noise, missing=missing)
    assert 0.93 <= present.std() <= 1.08
    assert abs(present.mean()) < 0.12
    assert 0.9 <= absent.std() <= 1.1
    assert detections.any(axis=1).sum() <= 2


@pytest.mark.campaign
def test_errors_are_honest_in_uneven_cohorts():
    """Lack of fit does not shrink with a cohort's reports: large cohorts are not trusted for it."""
    sizes = np.random.default_rng(10).gamma(0.5, size=64)
    options = {"cohorts": 64, "bits": 32, "hashes": 2, "n": 10**7, "noise": CHROME, "missing": range(4, 100, 10)}
    present, absent, detections = replay(8, sizes=sizes / sizes.sum(), **options)
    assert 0.9 <= present.std() <= 1.1
    assert 0.85 <= absent.std() <= 1.15
    assert detections.any(axis=1).sum() <= 1


@pytest.mark.campaign
def test_false_strings_are_rare():
    """Of 40 runs with 100 absent strings, at most 5 find any of them at 5%."""
    _, _, detections = replay(40, cohorts=32, bits=16, hashes=2, n=10**5, noise=CHROME, strings=30, absent=100)
    assert detections.any(axis=1).sum() <= 5


@pytest.mark.campaign
def test_true_strings_are_found():
    """At the share that is stated as detected half of the time, a string is detected about half of the time."""
    rng = np.random.default_rng(12)
    options = {"density": density(32, 1), "candidates": 100, "alpha": 0.05}
    n, bits, runs = 64 * 2000, 32, 20
    share = detection_frequency(n, bits, *CHROME, **options)
    shares = np.concatenate([np.full(5, share), np.full(400, (1 - 5 * share) / 400)])
    hits = 0
    for _ in range(runs):
        design = random_design(rng, 64, bits, 1, 500)
        reports = np.full(64, 2000)
        counts = simulate(rng, design, shares, reports, *CHROME)
        candidates = np.concatenate([np.arange(5), np.arange(405, 500)])
        result = fit(design[:, candidates], counts, reports, *CHROME, density=density(bits, 1))
        hits += int((result.p_value[:5] < 0.05 / 100).sum())
    assert 0.35 <= hits / (5 * runs) <= 0.65


@pytest.mark.parametrize("runs", [12, pytest.param(100, marks=[pytest.mark.campaign, pytest.mark.nightly])])
def test_unlisted_mass_is_not_that_outside_of_the_model(runs):
    """Candidates too rare to be selected are candidates: what they hold is not unlisted."""
    z = []
    for run in range(runs):
        rng = np.random.default_rng([14, run])
        design = random_design(rng, 64, 32, 2, 200)
        shares = np.concatenate([0.6 * exponential(100), 0.4 * exponential(100)])
        reports = np.full(64, 150)
        counts = simulate(rng, design, shares, reports, *CHROME)
        result = fit(design[:, :100], counts, reports, *CHROME, density=density(32, 2))
        assert result.selected.sum() < 50
        z.append((result.unallocated - 0.4) / result.unallocated_stderr)
    assert abs(np.mean(z)) < 4 / np.sqrt(runs)
    assert abs(np.std(z) - 1) < 4 / np.sqrt(2 * runs)


@pytest.mark.campaign
def test_unlisted_mass_is_estimated():
    """What no candidate holds is known if all of them are in the model."""
    z = []
    for run in range(20):
        rng = np.random.default_rng([13, run])
        design = random_design(rng, 64, 16, 2, 8)
        reports = np.full(64, 5000)
        counts = simulate(rng, design, np.array([0.3, 0.2, 0.1, 0.1, 0.05, 0.05, 0.1, 0.1]), reports, *CHROME)
        result = fit(design[:, :4], counts, reports, *CHROME, density=density(16, 2))
        assert result.selected.all()
        z.append((result.unallocated - 0.3) / result.unallocated_stderr)
    assert 0.6 < np.std(z) < 1.4
    assert abs(np.mean(z)) < 0.6


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"p": 0.6, "q": 0.6}, "write probabilities with p below q"),
        ({"p": -0.1}, "write probabilities with p below q"),
        ({"q": float("nan")}, "write probabilities with p below q"),
        ({"density": 0.0}, "density"),
        ({"density": 1.0}, "density"),
        ({"reports": np.ones(3, np.int64)}, "reports"),
        ({"counts": np.ones(16, np.int64)}, r"counts have the shape \(16,\)"),
        ({"counts": np.ones((16, 16))}, "whole numbers"),
        ({"counts": np.full((16, 16), -1)}, "give counts from 0 to those reports"),
        ({"counts": np.full((16, 16), 5000)}, "give counts from 0 to those reports"),
        ({"design": csc_array((255, 3))}, "256 cells"),
        ({"design": csc_array(np.full((256, 1), 2))}, "0 and 1"),
    ],
)
def test_invalid_input_is_refused(change, rule):
    """Each argument that breaks a rule is named by it."""
    design, counts, reports, _ = small()
    arguments = {"design": design, "counts": counts, "reports": reports, "p": 0.4, "q": 0.6, "density": 0.1} | change
    with pytest.raises(ParameterError, match=rule):
        fit(**arguments)


@pytest.mark.parametrize(
    "change", [{"reports": 0}, {"width": 1}, {"candidates": 0}, {"alpha": 0}, {"alpha": 1}, {"p": 0.7}, {"density": 1}]
)
def test_invalid_plans_are_refused(change):
    """A detection frequency needs reports, bits, candidates and a level."""
    plan = {"reports": 100, "width": 8, "p": 0.4, "q": 0.6, "density": 0.1, "candidates": 3, "alpha": 0.05} | change
    with pytest.raises(ParameterError):
        detection_frequency(**plan)


@pytest.mark.parametrize("seed", range(5))
def test_the_lasso_is_the_least(seed):
    """Its shares are those of coordinate descent, which takes each share to its best in turn."""
    rng = np.random.default_rng(seed)
    design, precision = (rng.random((60, 12)) < 0.3).astype(float), rng.random(60) + 0.5
    y = design[:, :3] @ np.array([3.0, 2.0, 0.5]) + rng.normal(0, 0.3, 60)
    means, penalty = precision @ design / precision.sum(), 4.0
    y -= precision @ y / precision.sum()
    weights = _least(_penalised(csr_array(design.T), means, y, precision, penalty), np.zeros(12))
    centred, exact = design - means, np.zeros(12)
    for _ in range(2000):
        for j in range(12):
            residual = y - centred @ exact + centred[:, j] * exact[j]
            exact[j] = max(0.0, (precision * centred[:, j] @ residual - penalty) / (precision @ centred[:, j] ** 2))
    assert weights == pytest.approx(exact, abs=1e-4)
    assert 0 < (weights > 0).sum() < 12
    assert ((weights > 0) == (exact > 0)).all()


@pytest.mark.parametrize("unlisted", [0.0, 0.5])
def test_the_covariance_has_settled(monkeypatch, unlisted):
    """Further updates of the covariance move estimates and errors by less than a thousandth of the errors."""
    design, _, reports, shares = small(seed=7, candidates=30)
    held = np.concatenate([shares * (1 - unlisted), np.full(10, unlisted / 10)])
    counts = simulate(np.random.default_rng(8), design, held, reports, *CHROME)
    settled = fit(design[:, :20], counts, reports, *CHROME, density=density(16, 2))
    monkeypatch.setattr("deniable_aggregator.decode.bloom.bloom_regression._SETTLE", 8)
    further = fit(design[:, :20], counts, reports, *CHROME, density=density(16, 2))
    assert np.abs(settled.frequency - further.frequency).max() < 1e-3 * further.stderr.min()
    assert settled.stderr == pytest.approx(further.stderr, rel=1e-3)
