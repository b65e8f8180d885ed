"""Associations: the table against closed forms, errors and tests against chance."""

from __future__ import annotations

from math import e

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import chi2_contingency

from deniable import mechanisms, proof
from deniable.errors import ParameterError
from deniable.mechanisms.texts import google_rappor
from deniable_aggregator import tally
from deniable_aggregator.decode.pair_support import pair_support
from deniable_aggregator.decode.tables import joint, joint_table, likelihood
from deniable_aggregator.decode.tables.independence import Chi2

# The chance of these tests is replayed; it is not a device's.


def direct(values, size, epsilon, rng):
    """Likelihoods of direct answers: the truth with odds e^epsilon."""
    n, ratio = len(values), np.exp(epsilon)
    lies = (values + rng.integers(1, size, n)) % size if size > 1 else values
    answers = np.where(rng.random(n) < ratio / (ratio + size - 1), values, lies)
    return np.where(answers[:, None] == np.arange(size), 1.0, 1 / ratio)


def rappor(values, strings, params, rng, *, p, q, cohorts=None):
    """Cohorts, bits and filters of a RAPPOR variable; p and q are those of both steps together."""
    n, k = len(values), params.bits
    cohorts = rng.integers(0, params.cohorts, n) if cohorts is None else cohorts
    filters = [google_rappor.bloom(string, cohort, params) for cohort in range(params.cohorts) for string in strings]
    masks = likelihood.pack(filters, k).reshape(params.cohorts, len(strings), -1)
    held = np.unpackbits(masks[cohorts, values], axis=1, count=k, bitorder="little")
    bits = rng.random((n, k)) < np.where(held, q, p)
    return cohorts, np.packbits(bits, axis=1, bitorder="little"), masks


def rappor_likelihood(values, strings, params, rng, *, p, q, cohorts=None):
    """Likelihoods of a RAPPOR variable's reports."""
    return likelihood.bit_likelihood(*rappor(values, strings, params, rng, p=p, q=q, cohorts=cohorts), p=p, q=q)


def plain_params(bits, hashes, cohorts):
    """Parameters of a Bloom filter; the probabilities are given apart."""
    return google_rappor.Params(bits=bits, hashes=hashes, cohorts=cohorts, prob_p=0, prob_q=1, prob_f=0)


def draw(table, n, rng):
    """Values of n people whose joint shares are a table's."""
    cells = rng.choice(table.size, n, p=table.ravel() / table.sum())
    return np.unravel_index(cells, table.shape)


def test_three_equal_variables_without_noise():
    """Two strings, always the same in all three variables: half and half on the diagonal, for each variable, too."""
    rng, params, values = np.random.default_rng(3), plain_params(12, 2, 4), np.repeat([0, 1], 50)
    parts = [rappor_likelihood(values, [b"1", b"2"], params, rng, p=0, q=1, cohorts=np.arange(100) % 4)] * 3
    table = joint.joint(parts)
    assert table.frequency[0, 0, 0] == pytest.approx(0.5, abs=0.01)
    assert table.frequency[1, 1, 1] == pytest.approx(0.5, abs=0.01)
    assert table.frequency.sum(axis=(1, 2)) == pytest.approx([0.5, 0.5], abs=0.01)
    assert joint.joint(parts[:1]).frequency == pytest.approx([0.5, 0.5], abs=0.01)


def test_unlisted_strings_are_others():
    """With one of two strings unknown, its half goes to the others."""
    rng, params, values = np.random.default_rng(4), plain_params(12, 2, 4), np.repeat([0, 1], 50)
    cohorts, bits, masks = rappor(values, [b"1", b"2"], params, rng, p=0, q=1, cohorts=np.arange(100) % 4)
    ones = np.unpackbits(bits, axis=1, count=12, bitorder="little")
    counts = np.stack([ones[cohorts == cohort].sum(axis=0) for cohort in range(4)])
    rates = likelihood.other_rates(counts, np.bincount(cohorts), masks[:, :1], np.array([0.5]), p=0, q=1)
    table = joint.joint([likelihood.bit_likelihood(cohorts, bits, masks[:, :1], p=0, q=1, other=rates)])
    assert table.frequency == pytest.approx([0.5, 0.5], abs=0.1)


def test_permanent_noise_keeps_the_diagonal():
    """With f = 0.2 two equal variables still have about half on each diagonal cell."""
    rng, params, values = np.random.default_rng(5), plain_params(12, 2, 2), np.repeat([0, 1], 50)
    parts = [rappor_likelihood(values, [b"1", b"2"], params, rng, p=0.1, q=0.9) for _ in range(2)]
    assert np.diag(joint.joint(parts).frequency) == pytest.approx([0.5, 0.5], abs=0.15)


def test_poisson_values_and_their_successors():
    """The second value is the first or the next, evenly: such cells share the mass evenly, all others have next to none."""
    rng, n, params = np.random.default_rng(6), 1000, plain_params(16, 2, 4)
    first = rng.poisson(1, n)
    second = first + rng.integers(0, 2, n)
    noise = 0.1 * 0.95 + 0.9 * 0.05
    parts = [
        rappor_likelihood(values, [b"%d" % i for i in range(values.max() + 1)], params, rng, p=noise, q=1 - noise)
        for values in (first, second)
    ]
    table = joint.joint(parts).frequency
    assert abs(table[0, 0] - table[0, 1]) < 0.1
    assert abs(table[1, 1] - table[1, 2]) < 0.1
    assert abs(table[2, 2] - table[2, 3]) < 0.06
    assert table[0, 0] + table[0, 1] == pytest.approx(1 / e, abs=0.1)
    for cell in ((0, 2), (0, 3), (1, 0), (1, 3), (2, 0), (2, 1)):
        assert table[cell] < 0.02, cell


def test_without_noise_all_is_closed():
    """Values seen as they are: shares, multinomial covariance, the sum of logarithms, and Pearson's statistic."""
    counts = np.array([[30, 10, 5], [20, 25, 10]])
    rows, columns = (np.repeat(axis.ravel(), counts.ravel()) for axis in np.indices(counts.shape))
    table = joint.joint([np.eye(2)[rows], np.eye(3)[columns]])
    f = counts.ravel() / 100
    assert table.converged
    assert table.frequency.ravel() == pytest.approx(f, abs=1e-6)
    assert table.raw.ravel() == pytest.approx(f, abs=1e-6)
    assert table.covariance == pytest.approx((np.diag(f) - np.outer(f, f)) / 100, abs=1e-8)
    assert table.log_likelihood == pytest.approx(100 * f @ np.log(f), abs=1e-3)
    test, expected = table.independence(), chi2_contingency(counts, correction=False)
    assert (test.statistic, test.degrees, test.p_value) == pytest.approx(
        (expected.statistic, expected.dof, expected.pvalue), rel=1e-5
    )


def test_the_table_is_the_maximum():
    """A general-purpose optimiser finds no better table, and the same one, its zeros included."""
    rng = np.random.default_rng(2)
    truth = np.array([[0.5, 0.0, 0.1], [0.0, 0.3, 0.1]])
    values = draw(truth, 400, rng)
    parts = [direct(values[0], 2, 0.5, rng), direct(values[1], 3, 1, rng)]
    table = joint.joint(parts, gap=1e-8)
    rows = (parts[0][:, :, None] * parts[1][:, None, :]).reshape(400, 6)
    plain = minimize(
        lambda f: -np.log(rows @ f).sum(),
        np.full(6, 1 / 6),
        jac=lambda f: -(rows / (rows @ f)[:, None]).sum(axis=0),
        bounds=[(0, 1)] * 6,
        constraints={"type": "eq", "fun": lambda f: f.sum() - 1},
        method="SLSQP",
        options={"ftol": 1e-12, "maxiter": 1000},
    )
    assert (table.frequency == 0).any()
    assert table.frequency.ravel() == pytest.approx(plain.x, abs=2e-4)
    assert table.log_likelihood >= -plain.fun - 1e-6
    assert table.log_likelihood == pytest.approx(np.log(rows @ table.frequency.ravel()).sum(), abs=1e-6)


def test_the_gap_bounds_what_is_missing():
    """Wherever the search stops, the log-likelihood lacks no more than the gap asked for, and not converged is told."""
    rng = np.random.default_rng(8)
    values = draw(np.array([[0.3, 0.2], [0.1, 0.4]]), 3000, rng)
    parts = [direct(part, 2, 1, rng) for part in values]
    best = joint.joint(parts, gap=1e-9).log_likelihood
    for gap in (100.0, 10.0, 1.0, 1e-3):
        table = joint.joint(parts, gap=gap, errors=False)
        assert table.converged
        assert best - gap <= table.log_likelihood <= best + 1e-9
        assert np.isnan(table.stderr).all()
    assert not joint.joint(parts, limit=2).converged


def test_noisy_tables_take_few_passes(monkeypatch):
    """Where expectation and maximization need hundreds, some 20 passes do, also with the curvature of a few reports."""
    rng = np.random.default_rng(16)
    strings, params = [b"%d" % i for i in range(12)], plain_params(16, 1, 8)
    values = draw(np.eye(12) + 0.1, 4000, rng)
    parts = [rappor_likelihood(part, strings, params, rng, p=0.3, q=0.7) for part in values]
    table = joint.joint(parts, errors=False)
    assert table.converged
    assert table.iterations < 30
    monkeypatch.setattr(joint_table, "_AFFORDED", 0)
    sampled = joint.joint(parts, errors=False)
    assert sampled.converged
    assert sampled.iterations < 120
    assert sampled.log_likelihood == pytest.approx(table.log_likelihood, abs=2e-3)
    monkeypatch.setattr(joint_table, "_EXPECTATIONS", 200)
    assert joint.joint(parts, limit=200, errors=False).log_likelihood < table.log_likelihood - 1e-3


def test_equal_and_reordered_reports_change_nothing():
    """Reports brought together, repeated or in another order give the same table and errors."""
    rng = np.random.default_rng(9)
    values = draw(np.array([[0.3, 0.2, 0.1], [0.1, 0.1, 0.2]]), 300, rng)
    parts = [direct(values[0], 2, 2, rng), direct(values[1], 3, 2, rng)]
    blurred = [part * rng.uniform(1, 2, (300, 1)) for part in parts]  # a factor of a row says nothing, but parts equal ones
    order = rng.permutation(300)
    first = joint.joint(parts, gap=1e-8)
    for other in (blurred, [part[order] for part in parts], [part.astype(np.float32) for part in parts]):
        again = joint.joint(other, gap=1e-8)
        assert again.frequency == pytest.approx(first.frequency, abs=1e-5)
        assert again.covariance == pytest.approx(first.covariance, rel=1e-3, abs=1e-8)
    double = joint.joint([np.tile(part, (2, 1)) for part in parts], gap=1e-8)
    assert double.covariance == pytest.approx(first.covariance / 2, rel=1e-3, abs=1e-8)


@pytest.mark.campaign
def test_errors_are_those_of_replays():
    """Standardised errors of `raw` have mean 0 and spread 1 in every cell, also where nobody is; intervals cover."""
    truth = np.array([[0.4, 0.1, 0.0], [0.05, 0.15, 0.3]])
    params = plain_params(16, 2, 4)
    scores, covered, shares = [], [], []
    for seed in range(120):
        rng = np.random.default_rng(seed)
        first, second = draw(truth, 1500, rng)
        parts = [direct(first, 2, 2, rng), rappor_likelihood(second, [b"a", b"b", b"c"], params, rng, p=0.25, q=0.75)]
        table = joint.joint(parts)
        scores.append((table.raw - truth) / table.stderr)
        low, high = table.interval(0.95)
        covered.append((low <= truth) & (truth <= high))
        columns = np.tile(np.eye(3), 2)  # sums of the table's cells
        errors = np.sqrt(np.diag(columns @ table.covariance @ columns.T))
        shares.append(columns @ (table.raw - truth).ravel() / errors)
    for standardised in (np.array(scores), np.array(shares)):
        assert 0.9 <= standardised.std() <= 1.1
        assert np.abs(standardised.mean(axis=0)).max() < 0.35
        assert (standardised.std(axis=0) > 0.8).all()
        assert (standardised.std(axis=0) < 1.2).all()
    assert 0.92 <= np.mean(covered) <= 0.98


def test_a_bootstrap_agrees_with_the_errors():
    """Away from 0 the likeliest tables of resampled reports spread as the standard errors say."""
    rng = np.random.default_rng(10)
    parts = [direct(part, 2, 2, rng) for part in draw(np.array([[0.3, 0.2], [0.1, 0.4]]), 2000, rng)]
    table = joint.joint(parts)
    draws = [rng.integers(0, 2000, 2000) for _ in range(200)]
    tables = np.array([joint.joint([part[sample] for part in parts], errors=False).frequency for sample in draws])
    assert tables.std(axis=0) == pytest.approx(table.stderr, rel=0.25)


def test_one_variable_has_nothing_to_be_independent_of():
    """A table of one variable has no degree of freedom for a test."""
    rng = np.random.default_rng(11)
    table = joint.joint([direct(rng.integers(0, 3, 2000), 3, 2, rng)])
    assert table.independence() == Chi2(0.0, 0)
    assert table.independence().p_value == 1


def test_simultaneous_intervals_share_the_error():
    """Over c cells together they are pointwise intervals at an error c times smaller; a level is a confidence."""
    rng = np.random.default_rng(12)
    table = joint.joint([direct(part, 2, 2, rng) for part in draw(np.full((2, 2), 0.25), 500, rng)])
    assert np.allclose(table.interval(0.95, simultaneous=True), table.interval(1 - 0.05 / 4))
    for level in (0, 1, float("nan")):
        with pytest.raises(ParameterError, match=r"level = .*: write a confidence between 0 and 1"):
            table.interval(level)


@pytest.mark.campaign
@pytest.mark.parametrize(
    ("n", "epsilon", "first", "second"),
    [
        (400, 1.0, [0.6, 0.3, 0.1], [0.5, 0.3, 0.15, 0.05]),  # the likeliest table has zeros
        (1000, 6.0, 1 / np.arange(1, 9), 1 / np.arange(1, 9)),  # next to no noise, few reports a cell
        (600, 2.0, [0.9, 0.1, 0.0], [0.5, 0.5]),  # a value that nobody has
    ],
)
def test_independent_values_are_rarely_called_dependent(n, epsilon, first, second):
    """The test at 5% rejects 2 to 8% of tables of independent variables."""
    table = np.outer(first, second)
    rejected = 0
    for seed in range(240):
        rng = np.random.default_rng(seed)
        parts = [direct(v, size, epsilon, rng) for v, size in zip(draw(table, n, rng), table.shape, strict=True)]
        rejected += joint.joint(parts, gap=0.05, errors=False).independence().p_value < 0.05
    assert 0.02 <= rejected / 240 <= 0.08


def test_rappor_variables_of_one_cohort_keep_the_size():
    """That a device has the same cohort in both variables makes no dependence, if the cohort is told (else 14% are rejected)."""
    params, table = plain_params(8, 1, 4), np.outer([0.5, 0.3, 0.2], [0.7, 0.3])
    rejected = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        cohorts = rng.integers(0, 4, 500)
        parts = [
            rappor_likelihood(v, [b"a", b"b", b"c"][:size], params, rng, p=0.25, q=0.75, cohorts=cohorts)
            for v, size in zip(draw(table, 500, rng), table.shape, strict=True)
        ]
        rejected += joint.joint(parts, strata=cohorts, gap=0.05, errors=False).independence().p_value < 0.05
    assert 0.015 <= rejected / 200 <= 0.085


def test_dependence_is_found():
    """A dependent table is found most of the time, and three variables of which only all three are dependent, too."""
    pair = np.array([[0.35, 0.15], [0.15, 0.35]])
    parity = np.array([[[4, 1], [1, 4]], [[1, 4], [4, 1]]]) / 20
    for table, n, degrees in ((pair, 800, 1), (parity, 3000, 4)):
        hits = []
        for seed in range(40):
            rng = np.random.default_rng(seed)
            parts = [direct(part, 2, 2, rng) for part in draw(table, n, rng)]
            test = joint.joint(parts, gap=0.05, errors=False).independence()
            assert test.degrees == degrees
            hits.append(test.p_value < 0.05)
        assert np.mean(hits) > 0.9


def test_one_category_has_every_share():
    """A variable of one value takes nothing from the other; alone it is everybody, without error."""
    rng = np.random.default_rng(13)
    values = rng.integers(0, 2, 500)
    table = joint.joint([np.ones((500, 1)), direct(values, 2, 2, rng)])
    alone = joint.joint([direct(values, 2, 2, np.random.default_rng(13))])
    assert table.frequency.shape == (1, 2)
    assert table.independence() == Chi2(0.0, 0)
    assert table.frequency.sum() == pytest.approx(1)
    assert alone.frequency.sum() == pytest.approx(1)
    sole = joint.joint([np.full((500, 1), 0.5)])
    assert (sole.frequency, sole.stderr) == (1, 0)
    assert sole.log_likelihood == pytest.approx(500 * np.log(0.5))


def test_no_reports_give_no_numbers():
    """Without reports there is no estimate and no test: nan, not zero."""
    table = joint.joint([np.ones((0, 2)), np.ones((0, 3))])
    grr = mechanisms.make("grr", domain_size=6, epsilon=1)
    for nothing in (table, joint.from_product(grr, tally.empty(grr.layout), (2, 3))):
        assert nothing.n == 0
        assert nothing.frequency.shape == (2, 3)
        assert np.isnan(nothing.frequency).all()
        assert np.isnan(nothing.stderr).all()
        assert nothing.independence().degrees == 2
        assert np.isnan(nothing.independence().p_value)


def test_values_that_look_the_same_have_no_error():
    """Two values of equal likelihoods cannot be told apart: their errors are nan, the others' are not, nor is their sum wrong."""
    rng = np.random.default_rng(14)
    answers = direct(rng.integers(0, 2, 500), 2, 2, rng)
    table = joint.joint([np.column_stack([answers, answers[:, 1]])])
    assert np.isnan(table.stderr).tolist() == [False, True, True]
    assert table.raw[0] == pytest.approx(joint.joint([answers]).raw[0], abs=1e-3)
    assert table.stderr[0] == pytest.approx(joint.joint([answers]).stderr[0], rel=1e-3)


@pytest.mark.parametrize(
    ("parts", "rule"),
    [
        ([], r"likelihoods have the shapes .*: give \(n, values\) for each variable"),
        ([np.ones(3)], r"likelihoods have the shapes .*: give \(n, values\) for each variable"),
        ([np.ones((3, 0))], r"likelihoods have the shapes .*: give \(n, values\) for each variable"),
        ([np.ones((3, 2)), np.ones((4, 2))], "the same reports"),
        ([np.ones((3, 2), int)], "float32 or float64"),
        ([np.array([[1.0, 1.0], [0.0, 0.0]])], "report 1 of variable 0 is impossible under every value: leave it out"),
        ([np.array([[1.0, -1.0]])], "at least 0"),
        ([np.array([[1.0, np.inf]])], "finite"),
        ([np.array([[1.0, np.nan]])], "finite"),
        ([np.ones((3, 65))] * 2, r"shape = \(65, 65\): write one of 4096 cells at most"),
    ],
)
def test_what_is_no_likelihood_is_refused(parts, rule):
    """The error names the rule, before anything is computed."""
    with pytest.raises(ParameterError, match=rule):
        joint.joint(parts)


def test_a_gap_is_above_zero():
    """No search could end with a gap of 0."""
    with pytest.raises(ParameterError, match="gap"):
        joint.joint([np.ones((3, 2))], gap=0)


def test_each_report_has_a_stratum():
    """Strata are as many as reports."""
    with pytest.raises(ParameterError, match=r"strata have the shape \(2,\): give one for each of 3 reports"):
        joint.joint([np.ones((3, 2))], strata=np.zeros(2, np.int64))


@pytest.mark.parametrize(
    ("name", "size", "epsilon"),
    [
        ("coin", 2, None),
        ("grr", 2, 1),
        ("grr", 6, 1),
        ("oue", 6, 1),
        ("sue", 6, 1),
        ("subset", 6, 1),
        ("hadamard", 6, 1),
        ("local_hash", 6, 1),  # 3 cells: lines of three values
        ("local_hash", 6, 2),  # 7 cells: one line
        ("local_hash", 12, "0.4"),  # 2 cells: no line has a third value
        ("fast_local_hash", 12, 1),
        ("pgr", 4, 1),
        ("pgr", 12, "0.5"),  # over 3 elements
        ("pgr", 12, 1),  # over 4 elements
        ("cms", 4, 1),
        ("hcms", 12, 1),
        ("dbitflip", 4, 1),
        ("rappor", 4, 1),
    ],
)
def test_covariance_of_a_product_is_exact(name, size, epsilon):
    """Walking all draws gives the covariance stated, wherever the people are."""
    mechanism = mechanisms.make(name, domain_size=size, epsilon=epsilon)
    payloads, chances = payload_chances(mechanism)
    speaks = np.array([[float(value in mechanism.supported(payload)) for value in range(size)] for payload in payloads])
    for f in (np.arange(size) / np.arange(size).sum(), np.eye(size)[1]):
        first, second = f @ chances @ speaks, (speaks.T * (f @ chances)) @ speaks
        exact = (second - np.outer(first, first)) / (100 * float(mechanism.p - mechanism.q) ** 2)
        assert pair_support(mechanism).covariance(f, 100) == pytest.approx(exact, abs=1e-12)


@pytest.mark.parametrize("name", ["grr", "oue", "local_hash"])
def test_a_product_has_honest_errors_and_size(name):
    """Errors standardise to 1, independence is rejected in 2 to 8% of independent tables and found where it is not."""
    table = np.outer([0.6, 0.3, 0.1], [0.5, 0.3, 0.2])
    mechanism = mechanisms.make(name, domain_size=9, epsilon=2)
    scores, rejected = [], []
    for product in product_estimates(mechanism, table, 500, range(200)):
        scores.append((product.raw - table) / product.stderr)
        rejected.append(product.independence().p_value < 0.05)
    assert 0.9 <= np.std(scores) <= 1.1
    assert 0.015 <= np.mean(rejected) <= 0.085
    dependent = np.diag([0.4, 0.3, 0.1]) + 0.2 / 9
    (product,) = product_estimates(mechanism, dependent, 1000, [0])
    assert product.independence().p_value < 1e-3
    assert product.independence().degrees == 4


@pytest.mark.first_cases(2)
@pytest.mark.parametrize(
    ("name", "options", "n"),
    [
        ("local_hash", {}, 3000),
        ("loloha", {"permanent": 4}, 3000),
        ("hadamard", {}, 3000),
        ("hadamard", {}, 300),
        ("pgr", {}, 3000),
    ],
)
def test_one_common_combination_misleads_nobody(name, options, n):
    """Most people give one answer: independence is still rejected in about 5% of tables, and margins cover at 95%."""
    mechanism = mechanisms.make(name, domain_size=24, epsilon=2, **options)
    p_values, covered = independent_products(mechanism, [0.9, *[0.1 / 3] * 3], [0.9, *[0.02] * 5], n, 400)
    assert 0.02 <= np.mean(p_values < 0.05) <= 0.085
    assert np.mean(covered) > 0.935
    assert np.mean(covered, axis=0).min() > 0.91


@pytest.mark.campaign
@pytest.mark.nightly
@pytest.mark.parametrize("epsilon", [1, 4])
@pytest.mark.parametrize(
    ("name", "options"),
    [("grr", {}), ("local_hash", {}), ("loloha", {"permanent": 8}), ("hadamard", {}), ("pgr", {}), ("hcms", {})],
)
def test_products_keep_their_level(name, options, epsilon):
    """Over many replays p-values of independent tables are uniform, and each margin is covered at 95%."""
    mechanism = mechanisms.make(name, domain_size=64, epsilon=epsilon, **options)
    p_values, covered = independent_products(mechanism, 1 / np.arange(1, 9), 0.5 ** np.arange(8), 20000, 1000)
    for level in (0.05, 0.2, 0.5, 0.8):
        assert abs(np.mean(p_values < level) - level) < 4 * np.sqrt(level * (1 - level) / 1000)
    assert np.mean(covered, axis=0).min() > 0.925
    assert 0.939 < np.mean(covered) < 0.964


def independent_products(mechanism, first, second, n, runs):
    """Replay tables of two independent variables: p-values, and for each margin whether its interval covers it."""
    shape, product = (len(first), len(second)), np.outer(first, second)
    table = product / product.sum()
    sums = np.vstack([np.kron(np.eye(shape[0]), np.ones(shape[1])), np.kron(np.ones(shape[0]), np.eye(shape[1]))])
    layout, bounds = mechanism.layout, mechanism.bounds()
    numbers = [number.to_bytes(layout.payload_size, "little") for number in range(layout.rows * layout.width)]
    supported = map(mechanism.supported, numbers)
    speaks = np.array([[value in values for value in range(table.size)] for values in supported]).T
    # A payload is likelier under the values that it supports.
    chances = table.ravel() @ np.where(speaks, float(bounds.high), float(bounds.low))
    rng, p_values, covered = np.random.default_rng(17), [], []
    for _ in range(runs):
        sent = rng.multinomial(n, chances / chances.sum())
        estimated = joint.from_product(mechanism, tally.from_cells(layout, sent), shape)
        error = np.sqrt(np.einsum("ij,jk,ik->i", sums, estimated.covariance, sums))
        p_values.append(estimated.independence().p_value)
        covered.append(np.abs(sums @ (estimated.raw - table).ravel()) <= 1.96 * error)
    return np.array(p_values), covered


def payload_chances(mechanism):
    """Payloads, and the exact chance of each under each value, (values, payloads)."""
    values = range(mechanism.domain_size)
    masses = [proof.distribution(lambda tape, v=value: mechanism.randomize(v, source=tape)) for value in values]
    payloads = sorted(masses[0])
    return payloads, np.array([[float(mass[payload]) for payload in payloads] for mass in masses])


def product_estimates(mechanism, table, n, seeds):
    """Estimates from n reports each, drawn from the exact distribution."""
    payloads, chances = payload_chances(mechanism)
    for seed in seeds:
        sent = np.random.default_rng(seed).multinomial(n, table.ravel() @ chances)
        reports = b"".join(payload * count for payload, count in zip(payloads, sent.tolist(), strict=True))
        yield joint.from_product(mechanism, tally.count(mechanism.layout, reports), table.shape)


def test_a_product_is_the_decoders_estimate():
    """The table is the decoder's vector in the product's shape, negative shares included."""
    mechanism = mechanisms.make("oue", domain_size=6, epsilon="0.5")
    (product,) = product_estimates(mechanism, np.full((2, 3), 1 / 6), 50, [15])
    assert product.frequency is not None
    assert np.array_equal(product.frequency, product.raw)
    assert np.isnan(product.log_likelihood)
    assert product.converged


@pytest.mark.parametrize("shape", [(2, 2), (7,), (), (6, 0), (3, 3)])
def test_a_shape_fits_the_domain(shape):
    """A shape that has not as many cells as the domain has values is refused."""
    mechanism = mechanisms.make("grr", domain_size=6, epsilon=1)
    with pytest.raises(ParameterError, match="6 cells"):
        joint.from_product(mechanism, tally.empty(mechanism.layout), shape)


def test_a_pool_of_functions_has_no_covariance():
    """Where estimates confuse values, a product is refused."""
    mechanism = mechanisms.make("cms", domain_size=6, epsilon=1, rows=8, width=16)
    payloads = b"".join(mechanism.randomize(value) for value in range(6))
    with pytest.raises(ParameterError, match="complete family"):
        joint.from_product(mechanism, tally.count(mechanism.layout, payloads), (2, 3))
