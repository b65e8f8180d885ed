"""Ordered answers: mean position, cumulative shares and median, with exact variances.

The seeds are fixed. Bounds are such that a right estimator fails with a probability of at most 1e-4 for a random seed.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom

from deniable import mechanisms
from deniable.errors import ParameterError
from deniable_aggregator import decode, tally
from deniable_aggregator.decode.numbers.order import order
from deniable_aggregator.tally import Tally, from_cells

SURE = 1e-4
FALLING, END, EVEN = 0.6 ** np.arange(11), np.eye(11)[0], np.ones(11)


def simulated(mechanism, held, rng):
    """Draw the tally of people who hold given values."""
    layout, known, n = mechanism.layout, mechanism.bounds(), held.sum()
    low, high = float(known.low), float(known.high)
    if layout.kind == "bits":
        return Tally(layout, (rng.binomial(held, high) + rng.binomial(n - held, low))[None], np.array([n]))
    cells = np.zeros(layout.rows * layout.width, np.int64)
    for value, number in enumerate(held):
        supports = np.array([value in mechanism.supported(layout.pack(*divmod(c, layout.width))) for c in range(len(cells))])
        cells += rng.multinomial(number, np.where(supports, high, low) / layout.rows)
    return from_cells(layout, cells)


def test_it_is_exact_for_direct_answers():
    """Where the shares sum to 1, the mean is theirs, and its variance that of the scores of the reports."""
    mechanism = mechanisms.make("grr", domain_size=4, epsilon="1")
    counts = np.array([340, 260, 210, 190])
    estimate = decode.estimate(mechanism, from_cells(mechanism.layout, counts))
    result, f = order(mechanism, estimate), estimate.frequency
    assert result.mean == pytest.approx(f @ [1, 2, 3, 4])
    assert result.below == pytest.approx(np.cumsum(f))
    # Each report adds (its position - a) / (p - q) to the mean, and for a cumulative share 1 or 0 likewise.
    scale = float(mechanism.p - mechanism.q)
    seen = counts / 1000
    variance = seen @ np.arange(1, 5) ** 2 - (seen @ np.arange(1, 5)) ** 2
    assert result.stderr == pytest.approx((variance / 1000) ** 0.5 / scale)
    until = np.cumsum(seen)
    assert result.below_stderr == pytest.approx(np.sqrt(until * (1 - until) / 1000) / scale, abs=1e-9)


@pytest.mark.parametrize("name", ["grr", "oue", "hadamard"])
@pytest.mark.parametrize("shares", [FALLING, END, EVEN], ids=["falling", "end", "even"])
def test_errors_are_as_stated(name, shares):
    """In 200 replays: no bias, errors as stated, and intervals of mean, cumulative shares and median that cover."""
    runs, rng, mechanism = 200, np.random.default_rng(21), mechanisms.make(name, domain_size=11, epsilon="1")
    f = shares / shares.sum()
    mean, below = f @ np.arange(1, 12), np.cumsum(f)
    median = int(np.argmax(below >= 0.5 - 1e-9))
    errors, stated, covered, medians, inside = [], [], 0, 0, np.zeros(11)
    for _ in range(runs):
        result = order(mechanism, decode.estimate(mechanism, simulated(mechanism, rng.multinomial(1000, f), rng)))
        low, high = result.interval()
        covered += low <= mean <= high
        errors.append(result.mean - mean)
        stated.append(result.stderr**2)
        middle, first, last = result.median()
        assert first <= middle <= last
        medians += first <= median <= last
        inside += np.abs(result.below - below) <= 1.96 * result.below_stderr + 1e-9
    assert abs(np.mean(errors)) < 4.5 * np.std(errors) / runs**0.5
    assert 0.81 < np.std(errors) / np.mean(stated) ** 0.5 < 1.2
    assert covered >= binom.ppf(SURE, runs, 0.94)
    assert inside.min() >= binom.ppf(SURE / 11, runs, 0.94)
    assert medians >= binom.ppf(SURE, runs, 0.95)


@pytest.mark.parametrize(("name", "options"), [("grr", {}), ("oue", {}), ("l_grr", {"permanent": "3"})])
def test_the_same_people_in_ten_periods(name, options):
    """Reports of the same people add no people: intervals that know of the repeats cover, and are wider."""
    runs, rng = 200, np.random.default_rng(22)
    mechanism = mechanisms.make(name, domain_size=5, epsilon="2", **options)
    f = np.full(5, 0.2)
    covered = 0
    for _ in range(runs):
        held = rng.multinomial(200, f)
        if options:  # responses are kept: what is kept is held, and told by the second step
            keep, again = (float(mechanism._keeps[step]) for step in ("keep_permanent", "keep_again"))
            held = sum(rng.multinomial(k, [keep if i == j else (1 - keep) / 4 for j in range(5)]) for i, k in enumerate(held))
            cells = [
                rng.multinomial(10 * k, [again if i == j else (1 - again) / 4 for j in range(5)]) for i, k in enumerate(held)
            ]
            counted = from_cells(mechanism.layout, np.sum(cells, axis=0))
        else:
            counted = tally.merge(*(simulated(mechanism, held, rng) for _ in range(10)))
        estimate = decode.estimate(mechanism, counted, repeats=9.0, permanent=bool(options))
        result = order(mechanism, estimate, repeats=9.0, permanent=bool(options))
        low, high = result.interval()
        covered += low <= 3 <= high
        assert result.stderr > order(mechanism, estimate).stderr
    assert covered >= binom.ppf(SURE, runs, 0.94)


def test_no_reports_and_one():
    """Without reports there is nothing; one report says next to nothing of the median."""
    mechanism = mechanisms.make("grr", domain_size=5, epsilon="1")
    assert order(mechanism, decode.estimate(mechanism, tally.empty(mechanism.layout))) is None
    result = order(mechanism, decode.estimate(mechanism, tally.count(mechanism.layout, mechanism.layout.pack(0, 2))))
    assert result.mean == pytest.approx(3)
    assert result.median()[1:] == (0, 4)


def test_a_regression_is_refused():
    """Values without bits of their own are estimated by a regression: no rule gives its covariance."""
    mechanism = mechanisms.make("rappor", domain_size=6, epsilon="1", permanent="2", bits=8, hashes=2, cohorts=4)
    counted = tally.count(mechanism.layout, b"".join(mechanism.randomize(value) for value in range(6)))
    with pytest.raises(ParameterError):
        order(mechanism, decode.estimate(mechanism, counted))


@pytest.mark.campaign
@pytest.mark.nightly
@pytest.mark.parametrize("n", [1, 2, 5, 20, 2000])
@pytest.mark.parametrize("name", ["grr", "oue", "hadamard"])
def test_coverage_at_length(name, n):
    """In 1,500 runs 95% intervals of the mean cover 93.5% or more of large samples, and 88% of tiny ones."""
    runs, rng, mechanism = 1500, np.random.default_rng(23), mechanisms.make(name, domain_size=11, epsilon="1")
    for shares in (FALLING, END, EVEN):
        f = shares / shares.sum()
        covered = 0
        for _ in range(runs):
            result = order(mechanism, decode.estimate(mechanism, simulated(mechanism, rng.multinomial(n, f), rng)))
            low, high = result.interval()
            covered += low <= f @ np.arange(1, 12) <= high
        assert covered / runs >= (0.935 if n > 1000 else 0.88)
