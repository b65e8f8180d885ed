"""Sets: shares of options and of pairs, and how many options people choose, against exact laws and replays.

The seeds are fixed. Bounds are such that a right estimator fails with a probability of at most 1e-4 for a random seed.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import tallies
from scipy.stats import binom

from deniable import mechanisms
from deniable.errors import ParameterError
from deniable_aggregator import tally
from deniable_aggregator.decode.panel import Panel
from deniable_aggregator.decode.sets import options
from deniable_aggregator.decode.sets import pairs as decode_pairs
from deniable_aggregator.decode.sets.option_estimate import OptionShares
from deniable_aggregator.decode.sets.pairs import pairs
from deniable_aggregator.tally import Tally

SURE = 1e-4
FEW = np.array([0.02, 0.1, 0.5, 0.9])
MANY = np.array([0.6, 0.4, 0.3, 0.2, 0.1, 0.05, 0.05, 0.02, 0.02, 0.01, 0.01, 0.0])
BOTH = pytest.mark.parametrize("name", ["sampled_options", "sampled_pair"])


def sets(name, shares, epsilon="2"):
    return mechanisms.make(name, domain_size=1 << len(shares), epsilon=epsilon)


def people(rng, n, shares, together=0.0):
    """Draw sets, (n, options) of 0 and 1; a part of the people choose all options that are more frequent than some share."""
    draws = rng.random((n, len(shares)))
    return (np.where(rng.random((n, 1)) < together, draws[:, :1], draws) < shares).astype(int)


def fewest(runs, coverage):
    return binom.ppf(SURE, runs, coverage)


@BOTH
def test_shares_are_unbiased_and_their_errors_exact(name):
    """Over every outcome of a report: the mean share of an option is the true one, and so is the variance."""
    mechanism = sets(name, FEW[:2], "1")
    shares, chances = np.array([0.3, 0.8]), []
    for option in range(2):
        p = sum(
            np.prod(np.where(held, shares, 1 - shares))
            * sum(
                float(mechanism.keep if index == true else mechanism.other)
                for index in range(mechanism.layout.width)
                if index >> place & 1
            )
            for held in product([0, 1], repeat=2)
            for row, group in enumerate(mechanism.groups[:1] if name == "sampled_pair" else [mechanism.groups[option]])
            for place in [group.index(option)]
            for true in [sum(held[each] << k for k, each in enumerate(group))]
        )
        chances.append(p)
    n = 100_000
    counts = np.zeros((mechanism.layout.rows, mechanism.layout.width), np.int64)
    estimate = options.option_shares(mechanism, Tally(mechanism.layout, counts, counts.sum(axis=1)))
    assert np.isnan(estimate.frequency).all()
    expected = OptionShares(n, np.round(np.array(chances) * n).astype(int), np.full(2, n), estimate.channel)
    assert expected.frequency == pytest.approx(shares, abs=1e-4)
    variance = np.array(chances) * (1 - np.array(chances)) / n / estimate.channel.gain**2
    assert np.square(expected.stderr) == pytest.approx(variance, rel=1e-3)


@BOTH
@pytest.mark.parametrize("shares", [FEW, MANY])
@pytest.mark.parametrize(("n", "together"), [(20, 0.0), (3000, 0.0), (3000, 0.8)])
def test_intervals_cover(name, shares, n, together):
    """In 150 replays intervals of the shares cover for both targets, as do those of how many options people chose."""
    runs, rng, mechanism = 150, np.random.default_rng(11), sets(name, shares)
    covered, of_those, size, errors, stated, known = np.zeros(len(shares)), np.zeros(len(shares)), 0, [], [], 0
    for _ in range(runs):
        chosen = people(rng, n, shares, together)
        counted = tallies.of_sets(mechanism, chosen, rng)
        estimate = options.option_shares(mechanism, counted)
        low, high = estimate.interval()
        covered += ~((low > shares) | (high < shares))
        low, high = estimate.interval(target="respondents")
        true = chosen.mean(axis=0)
        of_those += ~((low > true + 1e-12) | (high < true - 1e-12))
        mean, stderr = options.chosen(mechanism, counted)
        if np.isfinite(mean):
            known += 1
            size += abs(mean - shares.sum()) <= 1.96 * stderr
            errors.append(mean - shares.sum())
            stated.append(stderr**2)
    assert covered.min() >= fewest(runs, 0.94)
    assert of_those.min() >= fewest(runs, 0.94)
    assert size >= fewest(known, 0.94)
    if n > 1000:  # with few reports those of an option may all say the same
        assert 0.8 < np.std(errors) / np.mean(stated) ** 0.5 < 1.23
        assert abs(np.mean(errors)) < 4.5 * np.std(errors) / known**0.5


@BOTH
@pytest.mark.parametrize("together", [0.0, 1.0])
def test_the_same_people_in_ten_periods(name, together):
    """Reports of the same people add no people: intervals that know of the repeats cover: shares, pairs, and the number."""
    runs, rng, mechanism = 100, np.random.default_rng(12), sets(name, FEW, "3")
    covered, size, ignorant, both = np.zeros(len(FEW)), 0, 0, 0
    for _ in range(runs):
        chosen = people(rng, 200, FEW, together)
        counted = tally.merge(*(tallies.of_sets(mechanism, chosen, rng) for _ in range(10)))
        low, high = Panel(counted.n, options.option_shares(mechanism, counted), 9.0).interval()
        covered += ~((low > FEW) | (high < FEW))
        mean, stderr = options.chosen(mechanism, counted, repeats=9.0)
        size += abs(mean - FEW.sum()) <= 1.96 * stderr
        mean, stderr = options.chosen(mechanism, counted)
        ignorant += abs(mean - FEW.sum()) <= 1.96 * stderr
        if name == "sampled_pair":
            low, high = (end[5] for end in pairs(mechanism, counted, repeats=9.0).interval())  # the two most frequent options
            both += low <= (0.5 if together else 0.45) <= high
    assert covered.min() >= fewest(runs, 0.94)
    assert size >= fewest(runs, 0.94)
    if together:
        assert ignorant < size - runs / 20
    if name == "sampled_pair":
        assert both >= fewest(runs, 0.94)


def test_pairs_that_depend_are_seen():
    """Of options chosen together the test of independence says so; of others not."""
    rng, mechanism = np.random.default_rng(13), sets("sampled_pair", [0.3] * 3)
    alike = people(rng, 30_000, np.array([0.3, 0.3, 0.3]))
    alike[:, 1] = alike[:, 0]
    counted = tallies.of_sets(mechanism, alike, rng)
    result = pairs(mechanism, counted)  # (0, 1), (0, 2), (1, 2)
    assert result.p_value[0] < 1e-6
    assert result.p_value[1:].min() > SURE
    assert (np.abs(result.both - (0.3, 0.09, 0.09)) < 4.5 * result.stderr).all()


# Any false pair of 190 was found in 91 of 100 tallies at worst, by the normal law and shares from the pair's reports alone.
@pytest.mark.first_cases(3)
@pytest.mark.parametrize("runs", [20, pytest.param(40, marks=pytest.mark.campaign)])
@pytest.mark.parametrize("shares", [[0.5] * 20, [0.02] * 20, [0.97] + [0.1] * 19], ids=["half", "rare", "one of .97"])
@pytest.mark.parametrize(("epsilon", "reports"), [("1", 10), ("3", 3), ("3", 32)])
def test_few_reports_make_no_pair(shares, epsilon, reports, runs):
    """Of independent choices, in few tallies any of 190 pairs is found at 5% of all, however few reports are about each."""
    rng, mechanism = np.random.default_rng(14), sets("sampled_pair", shares, epsilon)
    results = [
        pairs(mechanism, tallies.of_sets(mechanism, people(rng, 190 * reports, np.array(shares)), rng)) for _ in range(runs)
    ]
    assert sum(np.nanmin(each.p_value) < 0.05 / 190 for each in results) <= binom.ppf(1 - SURE, runs, 0.06)


@pytest.mark.parametrize("runs", [200, pytest.param(400, marks=pytest.mark.campaign)])
def test_one_pair_alone(runs):
    """With two options the shares come from the same reports as the test, and it holds its level."""
    rng, shares = np.random.default_rng(15), np.array([0.5, 0.1])
    mechanism = sets("sampled_pair", shares, "3")
    tests = [pairs(mechanism, tallies.of_sets(mechanism, people(rng, 60, shares), rng)).p_value[0] for _ in range(runs)]
    assert np.mean(np.array(tests) < 0.05) <= binom.ppf(1 - SURE, runs, 0.05) / runs


def test_the_saddlepoint_is_near_all_outcomes():
    """Where all outcomes can be gone through, the approximation differs by little, in the far tail, too."""
    score, chance = np.array([[0.3, -0.8, -1.1, 2.4]]), np.array([[0.5, 0.2, 0.2, 0.1]])
    for n in (25, 40):
        for away in (0.0, 4.0, 10.0, 20.0, 30.0):
            exact = decode_pairs._exact(n, score[0], chance[0], away)
            near = decode_pairs._saddlepoint(np.array([n]), score, chance, np.array([away]))[0]
            assert near == pytest.approx(exact, rel=0.25, abs=1e-7)
    most = n * 2.4 - n * float((score @ chance.T)[0, 0])
    assert decode_pairs._saddlepoint(np.array([n]), score, chance, np.array([most]))[0] == pytest.approx(0.1**n, rel=1e-6)
    assert decode_pairs._saddlepoint(np.array([n]), score, chance, np.array([most + 1]))[0] == 0


def test_no_reports_and_one():
    """What no report is about is unknown; one report leaves an interval of all shares."""
    mechanism = sets("sampled_options", FEW, "1")
    nothing = tally.empty(mechanism.layout)
    assert np.isnan(options.chosen(mechanism, nothing)).all()
    one = tally.count(mechanism.layout, mechanism.layout.pack(2, 1))
    estimate = options.option_shares(mechanism, one)
    assert np.isnan(estimate.frequency).tolist() == [True, True, False, True]
    low, high = estimate.interval()
    assert low[2] <= 0
    assert high[2] >= 1
    assert np.isnan(options.chosen(mechanism, one)).all()


def test_what_is_no_set_is_refused():
    """A mechanism that is not of sets, a tally of another layout, and pairs of reports about one option are refused."""
    grr, mechanism = mechanisms.make("grr", domain_size=4, epsilon="1"), sets("sampled_options", FEW)
    for refused in (
        lambda: options.option_shares(grr, tally.empty(grr.layout)),
        lambda: options.option_shares(mechanism, tally.empty(grr.layout)),
        lambda: pairs(mechanism, tally.empty(mechanism.layout)),
    ):
        with pytest.raises(ParameterError):
            refused()
