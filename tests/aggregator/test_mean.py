"""Means of numbers: unbiased by enumeration, with errors that replays confirm.

The seeds are fixed. Bounds are such that a right estimator fails with a probability of at most 1e-4 for a random seed.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import tallies
from scipy.stats import binom

from deniable import mechanisms
from deniable.errors import ParameterError
from deniable.mechanisms.window import for_distribution
from deniable_aggregator import tally
from deniable_aggregator.decode.numbers import mean as decode_mean
from deniable_aggregator.decode.numbers.mean import mean
from deniable_aggregator.planning.simulation import Simulation
from deniable_aggregator.tally import Tally

SURE = 1e-4  # probability that a test fails although all is right
SHAPES = [
    ("1", {}),
    ("2", {}),
    ("5", {}),
    ("1", for_distribution("1")),
    ("3", for_distribution("3")),
    ("2", {"blocks": 3, "length": 1}),
]
POPULATIONS = {
    "even": (0.5, lambda rng, n: rng.random(n)),
    "low end": (0.0, lambda _, n: np.zeros(n)),
    "both ends": (0.5, lambda rng, n: rng.integers(0, 2, n) * 1.0),
    "one place": (0.5, lambda _, n: np.full(n, 0.5)),
    "near the low end": (0.2, lambda rng, n: rng.beta(2, 8, n)),
    "rare": (0.02, lambda rng, n: (rng.random(n) < 0.02) * 1.0),
}


def window(epsilon, options=None, domain_size=65_537):
    return mechanisms.make("window", domain_size=domain_size, epsilon=epsilon, **(options or {}))


def fewest(runs, coverage):
    """Return the fewest runs of which intervals that cover so often cover, except with probability `SURE`."""
    return binom.ppf(SURE, runs, coverage)


def chances(mechanism, point):
    """Return the exact probability of each cell for an answer at a point."""
    within = range(point, point + mechanism.length)
    return [mechanism.inside if cell in within else mechanism.outside for cell in range(mechanism.layout.width)]


@pytest.mark.parametrize(("epsilon", "options"), SHAPES)
def test_the_scores_are_unbiased_at_every_point(epsilon, options):
    """The exact mean score of the reports of each point is its place, and that of the squares' scores its square."""
    mechanism = window(epsilon, options)
    _, squares, least, _ = decode_mean._tables(mechanism)
    variances = []
    for point in range(mechanism.points):
        place = Fraction(point, mechanism.points - 1)
        law = chances(mechanism, point)
        scored = sum(p * score for p, score in zip(law, mechanism.cell_scores, strict=True))
        assert scored == place
        assert sum(float(p) * square for p, square in zip(law, squares, strict=True)) == pytest.approx(
            float(place) ** 2, abs=1e-9
        )
        variances.append(float(sum(p * s * s for p, s in zip(law, mechanism.cell_scores, strict=True)) - place**2))
    assert least == pytest.approx(min(variances))
    assert max(variances) <= float(mechanism.worst_noise) * (1 + 1e-12)


def test_the_variance_is_exact_over_all_pairs_of_reports():
    """Over every outcome of two reports of people drawn from a population, the mean squared error is on average the true one."""
    mechanism = window("1", {"blocks": 2, "length": 2})
    held = {0: 0.3, 1: 0.1, 4: 0.6}
    cells = sum(share * np.array(chances(mechanism, point), float) for point, share in held.items())
    truth = sum(share * point / 4 for point, share in held.items())
    variance = bias = error = 0.0
    for a, p in enumerate(cells):
        for b, q in enumerate(cells):
            estimate = mean(mechanism, Tally(mechanism.layout, np.bincount([a, b], minlength=6)[None], np.array([2])))
            bias += p * q * (estimate.place - truth)
            error += p * q * (estimate.place - truth) ** 2
            variance += p * q * estimate.stderr**2
    assert bias == pytest.approx(0, abs=1e-12)
    assert error <= variance * (1 + 1e-9)  # of two equal reports the least variance is taken, not 0


@pytest.mark.parametrize("population", POPULATIONS)
@pytest.mark.parametrize(("epsilon", "options"), SHAPES[1:4])
def test_errors_are_as_stated(epsilon, options, population):
    """In 200 replays of 400 reports: no bias, errors as stated, and 95% intervals that cover 95%, for both targets."""
    runs, n, rng = 200, 400, np.random.default_rng(5)
    mechanism, (truth, draw) = window(epsilon, options), POPULATIONS[population]
    errors, stated, covered, of_those = [], [], 0, 0
    for _ in range(runs):
        places = draw(rng, n)
        estimate = mean(mechanism, tallies.of_places(mechanism, places, rng))
        errors.append(estimate.place - truth)
        stated.append(estimate.stderr**2)
        low, high = estimate.interval()
        covered += low <= truth <= high
        low, high = estimate.interval(target="respondents")
        of_those += low <= places.mean() <= high
    assert abs(np.mean(errors)) < 4.5 * np.std(errors) / runs**0.5
    assert 0.75 < np.std(errors) / np.mean(stated) ** 0.5 < 1.2
    # Rare answers are few, so their mean is skewed.
    assert covered >= fewest(runs, 0.92 if population == "rare" else 0.94)
    assert of_those >= fewest(runs, 0.94)


def replay_periods(mechanism, places, periods, rng):
    """Draw the tally of the same devices over some periods."""
    return tally.merge(*(tallies.of_places(mechanism, places, rng) for _ in range(periods)))


@pytest.mark.parametrize("epsilon", ["1", "6"])
def test_the_same_people_in_ten_periods(epsilon):
    """Reports of the same people add no people: intervals that know of the repeats cover the population's mean, others do not."""
    runs, people, periods, rng = 300, 100, 10, np.random.default_rng(6)
    mechanism = window(epsilon)
    covered, ignorant, errors = 0, 0, []
    for _ in range(runs):
        places = rng.integers(0, 2, people) * 1.0
        counted = replay_periods(mechanism, places, periods, rng)
        estimate = mean(mechanism, counted, repeats=periods - 1)
        low, high = estimate.interval()
        covered += low <= 0.5 <= high
        low, high = mean(mechanism, counted).interval()
        ignorant += low <= 0.5 <= high
        errors.append((estimate.place - 0.5) / estimate.stderr)
    assert covered >= fewest(runs, 0.94)
    assert ignorant < covered - (runs / 10 if epsilon == "6" else 0)
    assert np.std(errors) < 1.2


def kept_tally(mechanism, ends, responses, rng):
    """Draw the reports of a period from kept responses, (people,) of 0 and 1."""
    steps = mechanism._keeps
    again = rng.random(len(ends)) < float(steps["keep_again"])
    answers = np.where(again, responses[np.arange(len(ends)), ends], 1 - responses[np.arange(len(ends)), ends])
    return tally.from_cells(mechanism.layout, np.bincount(answers, minlength=2))


@pytest.mark.parametrize("periods", [1, 10])
@pytest.mark.parametrize("changing", [False, True])
def test_a_kept_mean(periods, changing):
    """Answers are rounded at a kept point, and responses are kept: both intervals cover, also over ten periods."""
    runs, people, rng = 300, 400, np.random.default_rng(7)
    mechanism = mechanisms.make("l_grr", domain_size=2, epsilon="1", permanent="2")
    true = float(mechanism._keeps["keep_permanent"])
    covered, of_those, errors = 0, 0, []
    for _ in range(runs):
        points = rng.random(people)
        responses = np.where(rng.random((people, 2)) < true, [0, 1], [1, 0])  # to each end one permanent response
        places, sums, parts = rng.beta(2, 2, people), [], []
        for _ in range(periods):
            places = rng.beta(2, 2, people) if changing else places
            sums.append(places.mean())
            parts.append(kept_tally(mechanism, (places > points).astype(int), responses, rng))
        estimate = mean(mechanism, tally.merge(*parts), repeats=periods - 1, permanent=True)
        low, high = estimate.interval()
        covered += low <= 0.5 <= high
        low, high = estimate.interval(target="respondents")
        of_those += low <= np.mean(sums) <= high
        errors.append((estimate.place - 0.5) / estimate.stderr)
    assert abs(np.mean(errors)) < 4.5 * np.std(errors) / runs**0.5
    assert np.std(errors) < 1.2
    assert covered >= fewest(runs, 0.945)
    assert of_those >= fewest(runs, 0.945)


def test_few_people_of_whom_one_or_two_answer_otherwise():
    """Though what is seen varies little: with little noise their intervals would miss twice as often as they say."""
    mechanism, rng = window(6, domain_size=4), np.random.default_rng(9)  # replayed chance of a test, not of a device
    law, hits = Simulation(mechanism, [0, 3]), 0
    for few in rng.binomial(60, 0.05, 600):
        low, high = mean(mechanism, law.draw(np.array([60 - few, few]), rng)).interval()
        hits += low <= 0.05 <= high
    assert hits >= binom.ppf(1e-3, 600, 0.95)


def test_no_reports_and_one():
    """Without reports the mean is unknown. One report has an error at least as large as any population gives it."""
    mechanism = window("4")
    nothing = mean(mechanism, tally.empty(mechanism.layout))
    assert nothing.n == 0
    assert np.isnan([nothing.place, *nothing.interval()]).all()
    one = mean(mechanism, tally.count(mechanism.layout, mechanism.layout.pack(0, 3)))
    assert one.stderr**2 == pytest.approx(float(mechanism.worst_variance))
    low, high = one.interval()
    assert high - low > 2


def test_what_gives_no_mean_is_refused():
    """A mechanism without scores, and a tally of another layout, are refused."""
    grr, mechanism = mechanisms.make("grr", domain_size=4, epsilon="1"), window("1")
    with pytest.raises(ParameterError, match="mechanism = 'grr': choose a window, or two ends"):
        mean(grr, tally.empty(grr.layout))
    with pytest.raises(ParameterError, match="layout"):
        mean(mechanism, tally.empty(grr.layout))


@pytest.mark.campaign
@pytest.mark.nightly
@pytest.mark.parametrize("n", [1, 2, 5, 20, 3000])
@pytest.mark.parametrize("epsilon", ["0.5", "1", "2", "4", "8"])
@pytest.mark.parametrize("options", [{}, for_distribution])
def test_coverage_at_length(options, epsilon, n):
    """In 750 runs 95% intervals cover 93% or more of large samples, and 87% of tiny ones, whatever people answer."""
    runs, rng = 750, np.random.default_rng(8)
    mechanism = window(epsilon, options(epsilon) if options else {})
    for population, (truth, draw) in POPULATIONS.items():
        covered = of_those = 0
        for _ in range(runs):
            places = draw(rng, n)
            estimate = mean(mechanism, tallies.of_places(mechanism, places, rng))
            low, high = estimate.interval()
            covered += low <= truth <= high
            low, high = estimate.interval(target="respondents")
            of_those += low - 1e-12 <= places.mean() <= high + 1e-12
        least = 0.93 if n > 1000 else 0.87
        assert covered / runs >= least, population
        assert of_those / runs >= least, population
