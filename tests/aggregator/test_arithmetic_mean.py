"""The arithmetic mean of numbers on a logarithmic scale: from the same reports as the geometric one, within known bounds."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import binom

from deniable import mechanisms
from deniable.mechanisms.window import for_distribution
from deniable.registry.answers.axis import Axis
from deniable_aggregator import tally
from deniable_aggregator.decode.numbers import mean as decode_mean
from deniable_aggregator.decode.numbers.mean import arithmetic_mean
from deniable_aggregator.tally import Tally

SURE = 1e-4  # probability that a test fails although all is right
AXIS = Axis(Fraction(1), Fraction(60_000), "log")
SHAPES = [("1", {}), ("4", {}), ("1", for_distribution("1")), ("2", for_distribution("2")), ("4", for_distribution("4"))]
LAWS = {}
POPULATIONS = {
    "log-normal": lambda rng, n: np.exp(rng.normal(5.5, 1.2, n)),
    "even on the axis": lambda rng, n: 60_000 ** rng.random(n),
    "at the least": lambda _, n: np.ones(n),
    "both ends": lambda rng, n: np.where(rng.random(n) < 0.5, 1.0, 60_000.0),
    "between two points": lambda _, n: np.full(n, 60_000 ** (0.5 / 16)),
}


def window(epsilon, options=None):
    return mechanisms.make("window", domain_size=AXIS.steps + 1, epsilon=epsilon, **(options or {}))


def scores_of(mechanism):
    return np.array([(AXIS.number(i / (mechanism.points - 1)) - 1) / 59_999 for i in range(mechanism.points)])


def chances(mechanism):
    """Return the probability of each cell for an answer at each point."""
    rows = np.full((mechanism.points, mechanism.layout.width), float(mechanism.outside))
    for point in range(mechanism.points):
        rows[point, point : point + mechanism.length] = float(mechanism.inside)
    return rows / rows.sum(axis=1, keepdims=True)


def answered(rng, mechanism, numbers):
    """Sum the reports of answers, each rounded to one of two points and randomised."""
    places = np.log(np.clip(numbers, 1, 60_000)) / np.log(60_000) * (mechanism.points - 1)
    points = np.minimum(np.floor(places + rng.random(len(places))).astype(int), mechanism.points - 1)
    counts = rng.multinomial(np.bincount(points, minlength=mechanism.points), LAWS[mechanism]).sum(axis=0)
    return Tally(mechanism.layout, counts[None], np.array([len(numbers)]))


@pytest.mark.parametrize(("epsilon", "options"), SHAPES)
def test_the_scores_are_unbiased_at_every_point(epsilon, options):
    """The exact mean score of the reports of each point is the number of the point, of its square its square."""
    mechanism = window(epsilon, options)
    scores, law = scores_of(mechanism), chances(mechanism)
    cells, squares, least, worst = decode_mean._scored(mechanism, tuple(scores))
    assert law @ cells == pytest.approx(scores, abs=1e-9)
    assert law @ squares == pytest.approx(scores**2, abs=1e-9)
    variances = law @ cells**2 - scores**2
    assert least == pytest.approx(variances.min())
    between = [
        ((1 - u) * law[i] + u * law[i + 1]) @ cells**2 - ((1 - u) * scores[i] + u * scores[i + 1]) ** 2
        for i in range(mechanism.points - 1)
        for u in np.linspace(0, 1, 21)
    ]
    assert max(between) <= worst * (1 + 1e-9)
    # Any other first cell of a row of cells is unbiased, too, and has a larger variance on average.
    for row in (0, mechanism.length - 1):
        other = cells.copy()
        other[row :: mechanism.length] += 0.05
        other -= (law @ other - scores)[0]
        assert law @ other == pytest.approx(scores, abs=1e-9)
        assert (law @ other**2).mean() > (law @ cells**2).mean()


@pytest.mark.parametrize(("epsilon", "options"), SHAPES)
def test_rounding_is_bounded(epsilon, options):
    """The mean of the two points is at least the number between them, and at most so many times as large."""
    mechanism = window(epsilon, options)
    steps, most = mechanism.points - 1, 0.0
    for u in np.linspace(0, 1, 1001):
        mean = (1 - u) * AXIS.number(0) + u * AXIS.number(1 / steps)
        most = max(most, mean / AXIS.number(u / steps))
        assert mean >= AXIS.number(u / steps) * (1 - 1e-12)
    estimate = arithmetic_mean(mechanism, tally.empty(mechanism.layout), AXIS)
    assert estimate.rounding == pytest.approx(most, abs=1e-6)


@pytest.mark.first_cases(8)
@pytest.mark.parametrize("population", POPULATIONS)
@pytest.mark.parametrize(("epsilon", "options"), SHAPES)
def test_intervals_hold_the_mean(epsilon, options, population):
    """Of replays, as many intervals as stated hold the mean of the answers, or of the population."""
    mechanism, rng, runs, n = window(epsilon, options), np.random.default_rng(7), 100, 3000
    LAWS.setdefault(mechanism, chances(mechanism))
    true = {
        "log-normal": np.clip(POPULATIONS["log-normal"](rng, 1_000_000), 1, 60_000).mean(),
        "even on the axis": 59_999 / np.log(60_000),
        "at the least": 1.0,
        "both ends": 30_000.5,
        "between two points": 60_000 ** (0.5 / 16),
    }[population]
    held = {"population": 0, "respondents": 0}
    for _ in range(runs):
        numbers = np.clip(POPULATIONS[population](rng, n), 1, 60_000)
        estimate = arithmetic_mean(mechanism, answered(rng, mechanism, numbers), AXIS)
        for target, mean in (("population", true), ("respondents", numbers.mean())):
            low, high = estimate.interval(0.95, target=target)
            held[target] += low <= mean <= high
            assert low < estimate.value < high
    assert min(held.values()) >= binom.ppf(SURE, runs, 0.945)


def test_two_ends_do_not_tell_it():
    """Answers of 1 and 60,000 and answers in the middle give the same reports, so there is no estimate."""
    mechanism = mechanisms.make("l_grr", domain_size=2, epsilon="1", permanent="2")
    assert arithmetic_mean(mechanism, tally.empty(mechanism.layout), AXIS) is None
