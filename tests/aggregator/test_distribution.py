"""Distributions of numbers: the fit is the one that it replaces, and bands cover.

The seeds are fixed. Bounds are such that a right estimator fails with a probability of at most 1e-4 for a random seed.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import tallies
from populations import NUMBERS
from scipy.stats import beta, binom, norm, uniform

from deniable import mechanisms
from deniable.errors import ParameterError
from deniable.forecast.precision import _BAND, REPORTS
from deniable.mechanisms.window import for_distribution
from deniable_aggregator import tally
from deniable_aggregator.decode.numbers import distribution as decode_distribution
from deniable_aggregator.decode.numbers.distribution import distribution, fit
from deniable_aggregator.decode.numbers.profile import cell_chances, value_shares
from deniable_aggregator.tally import Tally

SURE = 1e-4


class Mixture:
    """Two humps."""

    def rvs(self, n, random_state):
        first = random_state.random(n) < 0.5
        return np.where(first, random_state.normal(0.25, 0.06, n), random_state.normal(0.7, 0.1, n))

    def cdf(self, x):
        return (norm(0.25, 0.06).cdf(x) + norm(0.7, 0.1).cdf(x)) / 2


POPULATIONS = {"low": beta(2, 8), "even": uniform(), "two humps": Mixture()}


def window(epsilon):
    return mechanisms.make("window", domain_size=65_537, epsilon=epsilon, **for_distribution(epsilon))


def quantile(population, share):
    """Return the place of a true quantile."""
    places = np.linspace(0, 1, 100_001)
    return places[np.searchsorted(population.cdf(places), share)]


def replay(mechanism, population, n, rng):
    return tallies.of_places(mechanism, np.clip(population.rvs(n, random_state=rng), 0, 1), rng)


def matrix(mechanism):
    """Return the probability of each cell at each point."""
    cells = np.arange(mechanism.layout.width)
    return np.array(
        [
            np.where((cells >= point) & (cells < point + mechanism.length), float(mechanism.inside), float(mechanism.outside))
            for point in range(mechanism.points)
        ]
    )


def plain_fit(mechanism, counts):
    """Fit by expectation maximisation as textbooks have it, with the whole matrix, until a step gains little."""
    likely, mass, before = matrix(mechanism), np.full(mechanism.points, 1 / mechanism.points), -np.inf
    while True:
        cells = mass @ likely
        gained = counts @ np.log(cells)
        if gained - before < 1e-3 * float(mechanism.ratio):
            return mass
        before = gained
        mass = mass * (likely @ (counts / cells)) / counts.sum()


@pytest.mark.parametrize(("epsilon", "n"), [("0.5", 2000), ("1", 20_000), ("4", 20_000)])
def test_the_fit_ends_where_plain_steps_end(epsilon, n):
    """Longer steps lead to the same distribution, but for a fiftieth of its standard error."""
    rng, mechanism = np.random.default_rng(31), window(epsilon)
    counts = replay(mechanism, POPULATIONS["low"], n, rng).counts[0].astype(float)
    others = rng.multinomial(n, counts / n, 30).astype(float)
    fast, plain = (
        np.cumsum(fit(mechanism, others), axis=1),
        np.cumsum([plain_fit(mechanism, each) for each in others[:3]], axis=1),
    )
    assert np.abs(fast[:3] - plain).max() < fast.std(axis=0).max() / 50


def test_each_step_raises_the_likelihood(monkeypatch):
    """A fit that may go on gains, and comes near the greatest likelihood."""
    rng, mechanism = np.random.default_rng(32), window("2")
    counts = replay(mechanism, POPULATIONS["two humps"], 5000, rng).counts[0].astype(float)
    gained = []
    for gain in (1.0, 1e-2, 1e-4):
        monkeypatch.setattr(decode_distribution, "_GAIN", gain)
        gained.append(counts @ np.log(fit(mechanism, counts[None])[0] @ matrix(mechanism)))
    assert gained == sorted(gained)
    # For a maximum, no point's mean ratio of likelihoods is above 1.
    ratios = matrix(mechanism) @ (counts / (fit(mechanism, counts[None])[0] @ matrix(mechanism))) / 5000
    assert ratios.max() < 1.02


def far(estimate, mass, population):
    """Return how far a distribution is from the true one (W1), as a share of the axis."""
    return np.abs(np.concatenate([[0], np.cumsum(mass)]) - population.cdf(estimate.edges)).mean()


@pytest.mark.first_cases(1)
@pytest.mark.parametrize("population", ["even", "low"])
def test_smooth_answers_are_smoothed(population):
    """Where answers are smooth, so is the distribution that is shown; it is then nearer to the true one."""
    rng, mechanism, true = np.random.default_rng(42), window("2"), POPULATIONS[population]
    estimates = [distribution(mechanism, replay(mechanism, true, 20_000, rng)) for _ in range(5)]
    smoothed, rough = (np.mean([far(one, getattr(one, kind), true) for one in estimates]) for kind in ("mass", "rough"))
    assert smoothed < 0.85 * rough


@pytest.mark.parametrize("name", ["a constant", "stars"])
def test_peaks_are_not_smoothed(name):
    """Where many answers are equal, nothing smooths but the early stop."""
    rng, mechanism = np.random.default_rng(43), window("2")
    for _ in range(3):
        estimate = distribution(mechanism, tallies.of_places(mechanism, NUMBERS[name].places(rng, 20_000), rng))
        assert (estimate.mass == estimate.rough).all()


@pytest.mark.parametrize("values", [(), np.linspace(0, 1, 21)])
def test_smoothing_takes_nothing_from_a_band(monkeypatch, values):
    """Bands are those of the fit that is not smoothed, and hold what is shown."""
    rng, mechanism = np.random.default_rng(44), window("2")
    counted = replay(mechanism, POPULATIONS["two humps"], 5000, rng)
    smoothed = distribution(mechanism, counted, values=values)
    assert (smoothed.mass != smoothed.rough).any()
    monkeypatch.setattr(decode_distribution, "_SMOOTHINGS", (0.0,))
    rough = distribution(mechanism, counted, values=values)
    assert (rough.mass == smoothed.rough).all()
    for share in TENTHS:
        band, least = smoothed.quantile(share), rough.quantile(share)
        assert band.low <= min(least.low, band.place)
        assert band.high >= max(least.high, band.place)
        assert smoothed.resolves(least) == rough.resolves(least)


def test_a_step_of_smoothing():
    """Smoothing keeps the sum, leaves even answers even, and spreads a peak evenly to both sides."""
    even = np.array([[0.5, 1, 1, 1, 0.5], [0, 0, 1, 0, 0], [0.5, 0, 0, 0, 0]])
    decode_distribution._smooth(even, np.full((3, 1), 0.25))
    assert even.tolist() == [[0.5, 1, 1, 1, 0.5], [0, 0.25, 0.5, 0.25, 0], [0.25, 0.25, 0, 0, 0]]


@pytest.mark.first_cases(1)
@pytest.mark.parametrize("epsilon", ["1", "0.5", "2", "4"])
def test_lint_knows_the_band_of_a_median(epsilon):
    """What lint says of even answers is what they have: to each side within a third."""
    factor, power = _BAND
    rng = np.random.default_rng(36)
    bands = [
        distribution(window(epsilon), replay(window(epsilon), POPULATIONS["even"], REPORTS, rng)).quantile(0.5) for _ in "ab"
    ]
    half = np.mean([band.high - band.low for band in bands]) / 2
    assert factor * float(epsilon) ** power == pytest.approx(half, rel=1 / 3)


@pytest.mark.first_cases(1)
@pytest.mark.parametrize("population", POPULATIONS)
def test_quantiles_are_covered(population):
    """Of ten replays of 2,000 reports at epsilon 4, the bands of resolved quantiles hold the true ones in nearly all."""
    runs, rng, mechanism, true = 10, np.random.default_rng(33), window("4"), POPULATIONS[population]
    covered, resolved, distances = dict.fromkeys((0.1, 0.5, 0.9), 0), dict.fromkeys((0.1, 0.5, 0.9), 0), []
    for _ in range(runs):
        estimate = distribution(mechanism, replay(mechanism, true, 2000, rng))
        distances.append(np.abs(estimate.cumulative - true.cdf(estimate.edges)).mean())
        for share in covered:
            band = estimate.quantile(share)
            assert band.low <= band.place <= band.high
            resolved[share] += estimate.resolves(band)
            covered[share] += estimate.resolves(band) and band.low <= quantile(true, share) <= band.high
    assert min(resolved.values()) > runs / 2
    assert all(covered[share] >= binom.ppf(SURE, resolved[share], 0.9) for share in covered)
    assert np.mean(distances) < 0.02


@pytest.mark.parametrize("runs", [10, pytest.param(20, marks=pytest.mark.campaign)])
def test_the_same_people_in_ten_periods(runs):
    """Reports of the same people add no people: bands that know of the repeats cover the median, others do not."""
    rng, mechanism, true = np.random.default_rng(34), window("6"), POPULATIONS["even"]
    covered = ignorant = 0
    for _ in range(runs):
        places = rng.random(200)
        counted = tally.merge(*(tallies.of_places(mechanism, places, rng) for _ in range(10)))
        band = distribution(mechanism, counted, repeats=9.0).quantile(0.5)
        assert band.high - band.low < 0.25
        covered += band.low <= quantile(true, 0.5) <= band.high
        band = distribution(mechanism, counted).quantile(0.5)
        ignorant += band.low <= quantile(true, 0.5) <= band.high
    assert covered >= binom.ppf(SURE, runs, 0.93)
    assert ignorant < covered


@pytest.mark.parametrize("periods", [1, 5])
def test_a_kept_distribution(periods):
    """Of kept responses over equal parts the bands of quantiles cover, also where the same people answer in several periods."""
    runs, people, rng = 12, 4000, np.random.default_rng(35)
    mechanism = mechanisms.make("l_osue", domain_size=16, epsilon="2", permanent="4")
    p1, q1 = map(float, mechanism.permanent_support)
    p, q = float(mechanism.p), float(mechanism.q)
    step = (p - q) / (p1 - q1)  # what a kept bit adds to the chance of a reported one
    covered = dict.fromkeys((0.25, 0.5, 0.75), 0)
    for _ in range(runs):
        held = rng.multinomial(people, np.diff(beta(2, 4).cdf(np.linspace(0, 1, 17))))
        ones = rng.binomial(held, p1) + rng.binomial(people - held, q1)
        counts = rng.binomial(periods * ones, q - q1 * step + step) + rng.binomial(periods * (people - ones), q - q1 * step)
        counted = Tally(mechanism.layout, counts[None], np.array([people * periods]))
        estimate = distribution(mechanism, counted, repeats=periods - 1, permanent=True)
        for share in covered:
            band = estimate.quantile(share)
            covered[share] += band.low <= quantile(beta(2, 4), share) <= band.high
    assert min(covered.values()) >= binom.ppf(SURE, runs, 0.95)


def test_bands_hold_what_they_belong_to():
    """Masses sum to 1, cumulative shares rise, every band holds its estimate, and equal tallies have equal bands."""
    rng, mechanism = np.random.default_rng(36), window("1")
    counted = replay(mechanism, POPULATIONS["low"], 500, rng)
    estimate, again = distribution(mechanism, counted, repeats=2.0), distribution(mechanism, counted, repeats=2.0)
    assert estimate.mass.sum() == pytest.approx(1)
    assert (estimate.mass >= 0).all()
    assert (np.diff(estimate.cumulative) >= 0).all()
    for share in (0.05, 0.5, 0.95):
        band = estimate.quantile(share)
        assert band.low <= band.place <= band.high
    assert estimate.quantile(0.5) == again.quantile(0.5)
    assert estimate.quantile(0.5, 0.99).high >= estimate.quantile(0.5).high


def test_no_reports_and_one():
    """Without reports there is no distribution; of one report nothing is resolved."""
    mechanism = window("1")
    assert distribution(mechanism, tally.empty(mechanism.layout)) is None
    estimate = distribution(mechanism, tally.count(mechanism.layout, mechanism.layout.pack(0, 3)))
    assert not any(estimate.resolves(estimate.quantile(share)) for share in (0.05, 0.5, 0.95))
    with pytest.raises(ParameterError, match="layout"):
        distribution(mechanism, tally.empty(mechanisms.make("grr", domain_size=4, epsilon="1").layout))


def test_quantiles_take_no_resampled_fits():
    """They take nearly all of the time of a picture, and neither a band nor whether it is resolved depends on them."""
    rng, mechanism = np.random.default_rng(45), window("2")
    for values in ((), np.linspace(0, 1, 21)):
        estimate = distribution(mechanism, replay(mechanism, POPULATIONS["low"], 2000, rng), values=values)
        alone = replace(estimate, resample=None)
        resolved = [alone.resolves(alone.quantile(share)) for share in (0.001, 0.5)]
        assert resolved == [False, True]


def test_the_error_of_a_share_is_that_of_its_estimates():
    """Over many tallies, at the true place of a median; fewer people have a larger one."""
    rng, mechanism, errors, estimates = np.random.default_rng(46), window("2"), [], []
    for _ in range(60):
        profile = distribution(mechanism, replay(mechanism, POPULATIONS["even"], 2000, rng)).profile
        errors.append(profile.error(0.5))
        estimates.append(profile.cumulative[mechanism.points // 2])
    assert np.median(errors) == pytest.approx(np.std(estimates), rel=0.5)
    counted = replay(mechanism, POPULATIONS["even"], 2000, rng)
    once, often = (distribution(mechanism, counted, repeats=repeats).profile.error(0.5) for repeats in (0, 9))
    assert often**2 - once**2 == pytest.approx(0.25 * 9 / 2000)


# Of these, bands that came from resampling smooth fits held 0 to 90%.
ATOMS = ("a constant", "60% keep a default", "doctor visits, to 100", "battery, a third full", "stars", "80% zero")
TENTHS = (0.1, 0.25, 0.5, 0.75, 0.9)


def held(numbers, epsilon, n, runs, *, step=False):
    """Return how many bands of resolved quantiles hold the true one, and how many there are."""
    rng, mechanism, true = np.random.default_rng(38), window(epsilon), numbers.quantiles(TENTHS)
    values, hits = np.linspace(0, 1, numbers.values) if step else (), []
    for _ in range(runs):
        estimate = distribution(mechanism, tallies.of_places(mechanism, numbers.places(rng, n), rng), values=values)
        bands = [estimate.quantile(share) for share in TENTHS]
        assert not step or all({each.low, each.place, each.high} <= set(values) for each in bands)
        pairs = [(band, place) for band, place in zip(bands, true, strict=True) if estimate.resolves(band)]
        hits += [band.low - 1e-9 <= place <= band.high + 1e-9 for band, place in pairs]
    return sum(hits), len(hits)


@pytest.mark.first_cases(2)
@pytest.mark.parametrize("name", ATOMS)
def test_bands_hold_where_many_answers_are_equal(name):
    """Of whole numbers, defaults, zeros and a constant, the bands of quantiles hold as those of smooth numbers do."""
    hits, bands = held(NUMBERS[name], "4", 20_000, 3)
    assert bands >= 7
    assert hits >= binom.ppf(SURE, bands, 0.93)


@pytest.mark.first_cases(1)
@pytest.mark.parametrize("name", [name for name, each in NUMBERS.items() if each.values])
def test_a_step_gives_exact_values(name):
    """With a step, quantiles and the ends of their bands are values, and the bands hold."""
    hits, bands = held(NUMBERS[name], "2", 5000, 3, step=True)
    assert hits >= binom.ppf(SURE, bands, 0.93)


def test_quantiles_of_a_step_are_smooth_where_the_reports_allow_it():
    """The best fit is spiky: for values without peaks the smooth fit is nearer to the truth; a peak stays where it is."""
    rng, mechanism, values = np.random.default_rng(39), window("2"), np.linspace(0, 1, 121)
    smooth, best = 0.0, 0.0
    for _ in range(2):
        estimate = distribution(mechanism, replay(mechanism, POPULATIONS["low"], 10_000, rng), values=values)
        for share in (0.25, 0.5, 0.75):
            true, band = quantile(POPULATIONS["low"], share), estimate.quantile(share)
            smooth += abs(band.place - true)
            best += abs(values[estimate.profile.quantile(share, 0.95)[0]] - true)
            assert band.low <= band.place <= band.high
    assert smooth < 0.9 * best
    places = np.where(rng.random(10_000) < 0.6, 0.25, rng.random(10_000))
    peak = distribution(mechanism, tallies.of_places(mechanism, places, rng), values=values)
    assert peak.quantile(0.5).place == pytest.approx(0.25)


@pytest.mark.first_cases(1)
@pytest.mark.parametrize("name", ["stars", "doctor visits, to 8", "battery, a third full"])
def test_shares_of_values(name):
    """With a step, shares of values, or of neighbours together, are unbiased, and their intervals hold."""
    numbers, runs = NUMBERS[name], 200
    rng, mechanism = np.random.default_rng(40), window("2")
    chances = cell_chances(mechanism, np.linspace(0, 1, numbers.values))
    starts = range(0, numbers.values, -(-numbers.values // 21))
    people = np.round(numbers.places(np.random.default_rng(0), 1_000_000) * (numbers.values - 1)).astype(int)
    true = np.add.reduceat(np.bincount(people, minlength=numbers.values) / len(people), starts)
    off = []
    for _ in range(runs):
        counted = tallies.of_places(mechanism, numbers.places(rng, 3000), rng)
        shares, stderr = value_shares(chances, counted.counts[0].astype(float), starts)
        assert shares.sum() == pytest.approx(1)
        off.append((shares - true) / stderr)
    assert np.mean(np.abs(off) < 1.96) >= 0.935
    assert np.abs(np.mean(off, axis=0)).max() < 4 / np.sqrt(runs)


def test_values_of_people_who_answered_before():
    """Shares of values allow for repeats: their errors are those of fewer people."""
    mechanism = window("8")
    chances = cell_chances(mechanism, np.linspace(0, 1, 5))
    counted = tallies.of_places(mechanism, np.repeat(np.linspace(0, 1, 5), 200), np.random.default_rng(41))
    once, often = (value_shares(chances, counted.counts[0].astype(float), range(5), repeats)[1] for repeats in (0, 9))
    assert (often / once > 2).all()


@pytest.mark.campaign
@pytest.mark.nightly
@pytest.mark.parametrize("step", [False, True])
@pytest.mark.parametrize(("epsilon", "n"), [("1", 20_000), ("4", 20_000)])
@pytest.mark.parametrize("name", NUMBERS)
def test_bands_hold_in_all_populations(name, epsilon, n, step):
    """The bands of resolved quantiles hold 93%, but for chance, of every population; see benchmarks/atoms.py for more.

    Where a quarter of all answers is 0 and the 25% quantile is asked for, it may be any number up to 1. Such a tie needs a step.
    """
    numbers = NUMBERS[name]
    if step and not numbers.values:
        return
    hits, bands = held(numbers, epsilon, n, 6, step=step)
    tie = name == "doctor visits, to 8" and not step
    assert hits >= binom.ppf(0.001, bands, 0.75 if tie else 0.93)


@pytest.mark.campaign
@pytest.mark.nightly
@pytest.mark.parametrize("population", POPULATIONS)
@pytest.mark.parametrize(("epsilon", "n", "runs"), [("1", 10_000, 25), ("2", 2000, 40), ("4", 10_000, 40)])
def test_coverage_at_length(epsilon, n, population, runs):
    """The bands of resolved quantiles cover 90%, but for chance, where a tenth of the runs resolve them."""
    rng, mechanism, true = np.random.default_rng(37), window(epsilon), POPULATIONS[population]
    estimates = [distribution(mechanism, replay(mechanism, true, n, rng)) for _ in range(runs)]
    for share in (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99):
        place = quantile(true, share)
        bands = [band for one in estimates if one.resolves(band := one.quantile(share))]
        if len(bands) > runs / 10:
            assert sum(each.low <= place <= each.high for each in bands) >= binom.ppf(0.01, len(bands), 0.9), share
