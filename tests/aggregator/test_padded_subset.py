"""Capped sets: shares of cut answers, how many options are kept, which one leads; several options at once.

The seeds are fixed. Bounds are such that a right estimator fails with a probability of at most 1e-4 for a random seed.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from math import comb
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import binom, chi2

from deniable import mechanisms
from deniable.proof import distribution
from deniable.registry import Metric
from deniable_aggregator import tally
from deniable_aggregator.alarms import checks
from deniable_aggregator.decode.sets import options
from deniable_aggregator.decode.share_difference import difference_variance
from deniable_aggregator.people.truth import _figures
from deniable_aggregator.planning.population import cut
from deniable_aggregator.planning.precision import precision
from deniable_aggregator.planning.rehearsal import OfOptions

SURE = 1e-4


def padded(m, most, epsilon="1"):
    return mechanisms.make("padded_subset", domain_size=1 << m, epsilon=epsilon, most=most)


def at_once(m, epsilon="4"):
    return mechanisms.make("sampled_options", domain_size=1 << m, epsilon=epsilon)


def reports(mechanism, values):
    """Count one report of the device of each answer."""
    return tally.count(mechanism.layout, b"".join(map(mechanism.randomize, values)))


def positions(chosen):
    return [sum(1 << option for option in np.flatnonzero(row).tolist()) for row in chosen]


def people(rng, n, m, name):
    """Draw who chooses what, (n, m)."""
    draws, shares = rng.random((n, m)), np.linspace(0.3, 0.0, m)
    if name == "alike":
        draws = np.where(rng.random((n, 1)) < 0.8, draws[:, :1], draws)
    populations = {"rare": draws < 0.01, "same": np.arange(m) < 2 + 0 * draws, "empty": draws < 0, "long": draws < 0.6}
    return populations.get(name, draws < shares)


@pytest.mark.parametrize("name", ["some", "alike", "rare", "same", "empty", "long"])
@pytest.mark.parametrize(
    "make", [lambda: padded(8, 2), lambda: padded(8, 1, "0.3"), lambda: at_once(8)], ids=["2", "1", "at once"]
)
def test_intervals_of_real_reports_cover(name, make):
    """With reports of the device's own code: shares of cut answers, and how many options are kept on average."""
    mechanism, rng, runs, n = make(), np.random.default_rng(7), 60, 120
    most = getattr(mechanism, "most", 8)
    large = people(rng, 200_000, 8, name)
    truth = (large * np.minimum(most / np.maximum(large.sum(axis=1), 1), 1)[:, None]).mean(axis=0)
    covered, number = 0, 0
    for _ in range(runs):
        counted = reports(mechanism, positions(people(rng, n, 8, name)))
        estimate = options.option_shares(mechanism, counted)
        low, high = estimate.interval(0.95)
        covered += int(((low <= truth + 1e-3) & (truth - 1e-3 <= high)).sum())
        mean, stderr = options.chosen(mechanism, counted)
        number += abs(mean - truth.sum()) <= 1.96 * stderr + 8e-3
    assert covered >= binom.ppf(SURE, 8 * runs, 0.94)
    assert number >= binom.ppf(SURE, runs, 0.94)


@pytest.mark.parametrize("make", [lambda: padded(4, 2, "0.1"), lambda: padded(4, 1, "0.5"), lambda: at_once(4, "3")])
def test_two_options_at_once(make):
    """The probabilities that a report says yes of two options are stated, and the bound of the difference of shares is met."""
    mechanism = make()
    masses = [distribution(lambda tape, v=value: mechanism.randomize(v, source=tape)) for value in range(16)]
    for value, mass in enumerate(masses):
        if value.bit_count() > getattr(mechanism, "most", 4):
            continue  # it is a mixture of shorter ones
        for first, second in product(range(4), repeat=2):
            reported = [(mechanism.options_of(payload), share) for payload, share in mass.items()]
            about = sum(share for options_, share in reported if {first, second} <= {*options_})
            both = sum(share for options_, share in reported if options_.get(first) and options_.get(second))
            if first != second and about:
                assert both / about == mechanism.both[(value >> first & 1) + (value >> second & 1)]
    # People who choose the first option or the second, never both, in equal parts: the difference varies most.
    n, rng = 4000, np.random.default_rng(8)
    differences, stated = [], []
    for _ in range(150):
        counted = tally_of(mechanism, masses, rng.multinomial(n, [0, 0.5, 0.5, *[0] * 13]), rng)
        estimate = options.option_shares(mechanism, counted)
        differences.append(estimate.frequency[0] - estimate.frequency[1])
        stated.append(difference_variance(estimate, np.array([0]))[0, 1])
    ratio = np.var(differences) / np.mean(stated)
    assert ratio < chi2.ppf(1 - SURE, 149) / 149
    assert ratio > chi2.ppf(SURE, 149) / 149


def tally_of(mechanism, masses, held, rng):
    """Draw the tally of so many people with each answer, by the exact distributions of their reports."""
    payloads = sorted(masses[0])
    counts = sum(
        rng.multinomial(n, [float(mass.get(payload, 0)) for payload in payloads])
        for n, mass in zip(held.tolist(), masses, strict=True)
        if n
    )
    return tally.count(mechanism.layout, b"".join(payload * n for payload, n in zip(payloads, counts.tolist(), strict=True)))


def test_the_number_of_options_with_few_reports():
    """One report leaves an interval of the average, and none leaves nothing."""
    mechanism = padded(6, 2)
    assert np.isnan(options.chosen(mechanism, tally.empty(mechanism.layout))).all()
    mean, stderr = options.chosen(mechanism, reports(mechanism, [0]))
    assert np.isfinite(mean)
    assert stderr > 0


@pytest.mark.parametrize(("m", "most", "epsilon"), [(4, 1, "0.3"), (5, 2, "0.2"), (6, 3, "0.1"), (6, 2, "2")])
def test_alarms_may_take_bits_together(m, most, epsilon):
    """Any options are named together, or left out together, at most as often as if their bits were independent."""
    mechanism = padded(m, most, epsilon)
    options_, most_named = range(1 << m), mechanism.size
    for value in (0, 1, (1 << most) - 1, (1 << m) - 1):
        weights = {
            named: mechanism.likelihood(mechanism.layout.pack(0, named), value) * ways(mechanism, named)
            for named in options_
            if most_named - most <= named.bit_count() <= most_named
        }
        total = sum(weights.values())
        chance = [sum(weight for named, weight in weights.items() if named >> bit & 1) / total for bit in range(m)]
        for group in range(1, 1 << m):
            bits = [bit for bit in range(m) if group >> bit & 1]
            every = sum(weight for named, weight in weights.items() if named & group == group) / total
            none = sum(weight for named, weight in weights.items() if not named & group) / total
            assert every <= np.prod([chance[bit] for bit in bits])
            assert none <= np.prod([1 - chance[bit] for bit in bits])


def ways(mechanism, named):
    """Return how many subsets of the padded set leave these options once their blanks are dropped."""
    return Fraction(comb(mechanism.most, mechanism.size - named.bit_count()))


def test_made_up_reports_raise_an_alarm():
    """Honest reports raise none; an option in every report does, and so do reports of too few options."""
    mechanism, rng = padded(10, 2, "0.5"), np.random.default_rng(9)
    honest = reports(mechanism, positions(people(rng, 3000, 10, "some")))
    weights = np.bincount([mechanism.size] * 10, minlength=11)
    assert not checks.raised([checks.examine(mechanism, honest)])[0]
    assert "weight" not in {each.test for each in checks.raised([checks.examine(mechanism, honest, weights)])[0]}
    forged = tally.count(mechanism.layout, mechanism.layout.pack(0, 1) * 1500)
    assert {each.test for each in checks.raised([checks.examine(mechanism, tally.merge(honest, forged))])[0]} == {"cell"}
    too_many = np.bincount([10] * 100, minlength=11)
    assert "weight" in {each.test for each in checks.raised([checks.examine(mechanism, honest, too_many)])[0]}


def test_the_plan_and_the_rehearsal_of_a_capped_set():
    """The plan has the exact variance; the rehearsal's truth is that of cut answers, and its errors are as planned."""
    metric = Metric(id="m", type="set", values=tuple("abcdef"), epsilon="1", most=2)
    shares = np.array([0.9, 0.5, 0.4, 0.2, 0.1, 0.0])
    chosen = np.array(list(product([0, 1], repeat=6)))
    chances = np.prod(np.where(chosen, shares, 1 - shares), axis=1)
    parts = np.minimum(2 / np.maximum(chosen.sum(axis=1), 1), 1)
    assert cut(shares, 2) == pytest.approx((chances * parts) @ chosen)
    mechanism = mechanisms.of(metric)
    rehearsal = OfOptions(metric=metric, mechanism=mechanism, shares=shares)
    assert rehearsal.truth == pytest.approx(cut(shares, 2))
    assert precision(metric, mechanism, 6).variance(0.25) == pytest.approx(float(mechanism.option_variance(Fraction(1, 4))))
    result = rehearsal.run(20_000, 200, np.random.default_rng(10))
    assert 0.94 < result.coverage < 0.96
    assert abs(result.ratio - 1) < 5 * result.ratio_stderr


def test_what_simulated_people_answered_is_cut():
    """Of an answer of three options each counts two thirds, if two are kept."""
    metric = Metric(id="m", type="set", values=("a", "b", "c"), epsilon="1", most=2)
    answers = SimpleNamespace(metric=metric, positions=[0b111, 0b001])
    figures = _figures(answers, np.array([3, 1]))
    assert figures == pytest.approx({"a": 0.75, "b": 0.5, "c": 0.5})
