"""Always-valid differences: seldom wrong at any of many looks, where an ordinary test is wrong at some."""

from __future__ import annotations

import numpy as np
import pytest
from panels import estimate, make, replay
from scipy.special import ndtri
from scipy.stats import binom

from deniable import mechanisms
from deniable.forecast.precision import people_needed
from deniable.registry import parse
from deniable.registry.tables import Experiment
from deniable_aggregator.decode.panel import Panel, repeats
from deniable_aggregator.inference.always_valid import AlwaysValid
from deniable_aggregator.inference.difference import Difference, Side

RARE = 1e-6  # chance that a test fails although the coverage is exact
CASES = [("binary", 2, 1), ("l_grr", 2, 1)]


def looks(case, shares, n, turnover, runs, number, seed, *, exact):
    """Yield both sides at each look: all reports so far, each run a value of its own."""
    mechanism, permanent = make(*case)
    rng = np.random.default_rng(seed)
    sums = [0, 0]
    arms = [replay(mechanism, [share] * number, n, turnover, rng, permanent=permanent, runs=runs) for share in shares]
    for look, reports in enumerate(zip(*arms, strict=True), 1):
        sums = [so_far + each for so_far, each in zip(sums, reports, strict=True)]
        yield [_side(mechanism, n * look, each, repeats([n] * look), permanent=permanent, exact=exact) for each in sums]


def _side(mechanism, n, support, more, *, permanent, exact):
    single = estimate(mechanism, n, support, permanent=False)
    side = Panel(n, single, more, mechanism if permanent else None)
    if exact:
        return Side.of(side)
    frequency, stderr = side.frequency, side.stderr  # much faster

    def interval(level):
        reach = -ndtri((1 - level) / 2) * stderr
        return frequency - reach, frequency + reach

    return Side(frequency, interval)


def missed(case, turnover, runs, number, *, exact, share=0.3, n=2000):
    """Return how many runs miss the true difference at any look: with the ordinary interval, and with this one."""
    plain, always = np.zeros(runs, bool), np.zeros(runs, bool)
    for sides in looks(case, (share, share), n, turnover, runs, number, 81, exact=exact):
        for difference, ever in ((Difference(*sides), plain), (AlwaysValid(*sides, 0.05), always)):
            low, high = difference.interval()
            ever[(low > 0) | (high < 0)] = True
    return plain.sum(), always.sum()


@pytest.mark.parametrize(("case", "turnover"), [(CASES[0], 1.0), (CASES[1], 0.1)], ids=["new people", "kept responses"])
def test_few_looks_with_few_reports(case, turnover):
    """With exact intervals of rare values, too."""
    runs = 200
    _, always = missed(case, turnover, runs, 6, exact=True, share=0.02, n=100)
    assert always <= binom.isf(RARE, runs, 0.05)


@pytest.mark.campaign
@pytest.mark.parametrize("turnover", [0.0, 0.02, 0.1, 0.3, 1.0])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_thirty_looks_are_covered(case, turnover):
    """At no look of 30 does the interval miss, in 95% of the runs."""
    runs = 4000
    _, always = missed(case, turnover, runs, 30, exact=False)
    assert always <= binom.isf(RARE, runs, 0.05)


def test_an_ordinary_interval_misses_at_some_look():
    runs = 500
    plain, always = missed(CASES[0], 1.0, runs, 30, exact=False)
    assert always < 0.05 * runs < plain


def test_a_real_difference_is_found():
    """Of .30 against .35, most are found by the last of 30 looks, and few at the first."""
    runs, power = 400, []
    for sides in looks(CASES[0], (0.3, 0.35), 2000, 1.0, runs, 30, 82, exact=False):
        low, _ = AlwaysValid(*sides, 0.05).interval()
        power.append(np.mean(low > 0))
    assert power[0] < 0.2
    assert power[-1] > 0.4


@pytest.mark.parametrize(("runs", "within"), [(500, 0.085), pytest.param(1000, 0.06, marks=pytest.mark.campaign)])
@pytest.mark.parametrize(
    ("type_", "middle"),
    [('type = "boolean"', 0.5), (f'type = "categorical"\nmechanism = "grr"\nvalues = {[f"v{k}" for k in range(50)]}', 0.975)],
    ids=["yes or no", "one of many values"],
)
@pytest.mark.parametrize("comparisons", [1, 4])
def test_as_many_people_as_lint_says_see_the_planned_difference(type_, middle, runs, within, comparisons):
    """In 80% of the experiments, if each of them makes one report, of the shares whose difference varies most."""
    text = f'format = 1\napp = "shop"\n[metrics.m]\n{type_}\nepsilon = 1\ndescription = "d"\nowner = "o"\n'
    declared = parse(text.replace("'", '"')).metrics["m"]
    mechanism, planned = mechanisms.of(declared), 0.05
    n = people_needed(declared, mechanism, Experiment(base="0", planned=planned), [str(each) for each in range(comparisons + 1)])
    rng = np.random.default_rng(84)
    p, q = float(mechanism.p), float(mechanism.q)
    shares = (middle - planned / 2, middle + planned / 2)
    sides = [Side.of(estimate(mechanism, n, rng.binomial(n, q + share * (p - q), runs), permanent=False)) for share in shares]
    low, _ = AlwaysValid(*sides, planned).interval(1 - 0.05 / comparisons)
    assert abs(np.mean(low > 0) - 0.8) < within


def test_test_and_interval_agree():
    """A value differs at a level exactly if its interval of that level excludes 0; all are wider than at one look."""
    mechanism, _ = make("grr", 8, 2)
    rng = np.random.default_rng(83)
    sides = [
        Side.of(estimate(mechanism, n, rng.binomial(n, share), permanent=False))
        for n, share in ((200, np.full(500, 0.1)), (1500, np.linspace(0.05, 0.4, 500)))
    ]
    for planned in (0.01, 0.05, 0.5):
        difference = AlwaysValid(*sides, planned)
        for alpha in (0.5, 0.05, 0.001):
            low, high = difference.interval(1 - alpha)
            assert np.mean((difference.p_value < alpha) == ((low > 0) | (high < 0))) > 0.98
            once = Difference(*sides).interval(1 - alpha)
            assert (low < once[0]).all()
            assert (high > once[1]).all()
        assert difference.p_value.max() == 1
        wide = difference.interval(simultaneous=True)
        assert (wide[0] < difference.interval()[0]).all()


def test_sides_without_reports_do_not_differ():
    mechanism, _ = make("binary", 2, 1)
    side = Side.of(estimate(mechanism, 100, np.array([50, 60]), permanent=False))
    none = Side(np.full(2, np.nan), lambda _: (np.full(2, np.nan), np.full(2, np.nan)))
    difference = AlwaysValid(none, side, 0.05)
    assert np.isnan(difference.p_value).all()
    assert np.isnan(difference.interval()).all()
