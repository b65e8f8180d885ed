"""Figures of withheld cells: what one report can change, what the noise costs, and that intervals hold for any number."""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache

import numpy as np
import pytest
from registries import metric_toml, registry_toml

from deniable import mechanisms, registry
from deniable.declared import Declared
from deniable.errors import ParameterError
from deniable.limits.allowance import MICRO
from deniable_aggregator import tally
from deniable_aggregator.decode.numbers.mean import PARTS, scores_of
from deniable_aggregator.questions import central_noise, figures

MEANS = [("window", {}, 1), ("window", {}, 4), ("window", {"blocks": 2, "length": 64}, 1), ("l_grr", {"permanent": 3}, 1)]
COST = 500_000


def mechanism_of(name, options, epsilon):
    return mechanisms.make(name, domain_size=2 if name == "l_grr" else 1025, epsilon=epsilon, **options)


def declared(**members):
    text = registry_toml(metric_toml("m", **members))
    return Declared.of(registry.parse(text).metrics["m"])


def number(**members):
    return declared(**({"range": [10, 30], "estimate": "mean", "epsilon": 4, "unit": "EUR"} | members))


# What one report can change


@pytest.mark.parametrize(("name", "options", "epsilon"), MEANS)
def test_scores_are_unbiased_and_bounded_whatever_a_payload_says(name, options, epsilon):
    """The mean score of an answer is its place; and no payload that the layout allows has a larger score than the sensitivity."""
    mechanism = mechanism_of(name, options, epsilon)
    scores = scores_of(mechanism)
    assert len(scores.cells) == mechanism.layout.width
    assert scores.chances.sum(axis=1) == pytest.approx(1)
    assert scores.chances @ scores.cells / PARTS == pytest.approx(np.linspace(-0.5, 0.5, len(scores.chances)), abs=1 / PARTS)
    assert scores.sensitivity == max(abs(int(score)) for score in scores.cells)
    largest = float(mechanism.influence - Fraction(1, 2)) if name == "window" else None
    assert largest is None or scores.sensitivity / PARTS == pytest.approx(largest, abs=1 / PARTS)


@pytest.mark.parametrize("figure", ["sum", "mean"])
def test_no_report_changes_a_sum_by_more_than_the_sensitivity(figure, monkeypatch):
    """Whatever reports a cell has, with one more of any payload the sum before noise moves by the sensitivity at most."""
    metric = number()
    question, layout = figures.figure_of(figure, metric, 1), metric.mechanism.layout
    monkeypatch.setattr(central_noise, "total", lambda total, sensitivity, _: (total, sensitivity))
    before = tally.count(layout, b"".join(layout.pack(0, cell % layout.width) for cell in range(50)))
    first, sensitivity = question.draw(before, COST)
    changes = []
    for cell in range(layout.width):
        total, _ = question.draw(tally.merge(before, tally.count(layout, layout.pack(0, cell))), COST)
        changes.append(abs(total - first))
    assert max(changes) == sensitivity


@pytest.mark.parametrize("name", ["grr", "oue", "subset", "hadamard", "local_hash", "pgr"])
def test_a_report_raises_no_support_by_more_than_one(name):
    """A report in the cell adds 1 or 0 to the support of each value, never takes off: so half of the noise is enough."""
    mechanism = mechanisms.make(name, domain_size=7, epsilon=1)
    layout = mechanism.layout
    for _ in range(40):
        supports = figures.decode.supports(mechanism, tally.count(layout, mechanism.randomize(3)))
        assert set(supports.tolist()) <= {0, 1}


# What the noise costs


@pytest.mark.parametrize("cost", [10_000, 333_333, MICRO, 1_234_567])
@pytest.mark.parametrize("sensitivity", [1, 548_001, 2_632_163])
def test_a_sum_loses_no_more_than_it_costs(cost, sensitivity):
    """By OpenDP's own account, for a report that changes the sum by the sensitivity."""
    loss = Fraction(central_noise._measurement("laplace", cost, sensitivity).map(sensitivity))
    assert Fraction(cost, MICRO) * Fraction(999_999, MICRO) < loss <= Fraction(cost, MICRO)
    assert central_noise._measurement("leading", cost).map(1) <= cost / MICRO


def test_both_halves_are_the_whole_cost():
    """The number of reports and the figure are two answers about the same reports: what they cost adds up to the price."""
    for cost in (10_000, 10_001, 333_333, MICRO):
        assert sum(figures.halves(cost)) == cost
        assert min(figures.halves(cost)) > 0


def test_the_choice_of_a_value_has_the_law_that_is_paid_for():
    """It is permute-and-flip with the whole epsilon; and a report more changes no probability by more than e^epsilon."""
    cost, times, counts = 700_000, 4000, [6, 5, 5, 2]
    from .test_central import _flipped, _matches

    draws = np.bincount([central_noise.leading(counts, cost) for _ in range(times)], minlength=4)
    assert _matches(draws, _flipped(counts, 2 * cost) * times) > 1e-7
    assert _matches(draws, _flipped(counts, cost) * times) < 1e-7
    before = _flipped(counts, 2 * cost)
    for subset in range(16):
        after = _flipped([n + (subset >> place & 1) for place, n in enumerate(counts)], 2 * cost)
        assert abs(np.log(after / before)).max() <= cost / MICRO + 1e-9


# Intervals


@pytest.mark.parametrize(("name", "options", "epsilon"), MEANS)
@pytest.mark.parametrize("t", [-3.0, -0.2, 0.2, 3.0])
def test_the_moment_holds_for_the_least_favourable_answer(name, options, epsilon, t):
    """It is the largest of all answers, at points and between them, and no more than that."""
    scores = scores_of(mechanism_of(name, options, epsilon))
    steps = len(scores.chances) - 1
    moments = scores.chances @ np.exp(t * scores.cells / PARTS)
    places = np.linspace(0, 1, 20 * steps + 1)
    exact = np.log(np.interp(places, np.linspace(0, 1, steps + 1), moments)) - t * (places - 0.5)
    assert exact.max() - 1e-9 <= scores.log_moment(t) <= exact.max() + 1e-3


def laplace(rng, epsilon, size):
    """Draw discrete Laplace noise, as OpenDP does, but fast: the difference of two geometric numbers."""
    p = -np.expm1(-epsilon)
    return rng.geometric(p, size) - rng.geometric(p, size)


def sums_of(scores, place, n, size, rng):
    """Draw sums of the scores of n reports of an answer."""
    steps = len(scores.chances) - 1
    at = min(int(place * steps), steps - 1)
    part = place * steps - at
    chances = (1 - part) * scores.chances[at] + part * scores.chances[at + 1]
    return rng.multinomial(n, chances / chances.sum(), size) @ scores.cells


@pytest.fixture
def quick(monkeypatch):
    """Compute the reaches of each noisy number of reports once."""
    monkeypatch.setattr(figures._Scored, "_reaches", lru_cache(maxsize=None)(figures._Scored._reaches))


@pytest.mark.slow("answers of many populations")
@pytest.mark.parametrize("n", [0, 1, 3, 40])
@pytest.mark.parametrize("place", [0.0, 0.3, 1.0])
@pytest.mark.usefixtures("quick")
def test_intervals_hold_for_few_reports(n, place):
    """Sums, means and numbers of 0, 1, 3 and 40 reports lie in their intervals at least as often as is said."""
    metric, rng, runs = number(), np.random.default_rng([n, int(place * 10)]), 600
    scores = scores_of(metric.mechanism)
    of_count, of_figure = (half / MICRO for half in figures.halves(COST))
    counts = n + laplace(rng, of_count, runs)
    totals = sums_of(scores, place, n, runs, rng) + laplace(rng, of_figure / scores.sensitivity, runs)
    truth = {"sum": n * (10 + 20 * place), "mean": 10 + 20 * place}
    for name in ("sum", "mean") if n else ("sum",):
        figure = figures.figure_of(name, metric, 1)
        answers = [
            figure.fields(total, count, COST, 0.95, 10**6) for count, total in zip(counts.tolist(), totals.tolist(), strict=True)
        ]
        held = [low - 1e-9 <= truth[name] <= high + 1e-9 for low, high in (answer["interval"] for answer in answers)]
        assert np.mean(held) >= 0.926  # 600 runs: 0.95 less 2.7 standard errors
        if name == "sum":  # unbiased
            errors = np.array([answer["estimate"] for answer in answers]) - truth[name]
            assert abs(errors.mean()) < 5 * errors.std() / np.sqrt(runs)


@pytest.mark.slow("many populations")
@pytest.mark.parametrize(("epsilon", "n", "weight"), [(1, 1, 0.5), (1, 60, 0.5), (4, 5, 0.5), (4, 400, 1.0), (0.5, 200, 20.0)])
def test_reaches_are_hardly_wider_than_they_need_to_be(epsilon, n, weight):
    """Beyond a reach lies the chance that is left or less; within two thirds of it, for answers that vary most, there is more."""
    metric, rng, runs = number(epsilon=epsilon), np.random.default_rng(n), 40_000
    figure, scores = figures.figure_of("mean", metric, 1), scores_of(metric.mechanism)
    of_count, of_figure = (half / MICRO for half in figures.halves(COST))
    below, above = figure._reaches(n, COST, 0.95, n, weight)
    noise = laplace(rng, of_figure / scores.sensitivity, runs) / PARTS - weight * laplace(rng, of_count, runs)
    places = (0.0, 0.5, 1.0)
    errors = [sums_of(scores, place, n, runs, rng) / PARTS - n * (place - 0.5) + noise for place in places]
    side = 0.05 * 0.95 / 2  # less what is left to the number of reports
    for beyond, within in (
        (max((error > above).mean() for error in errors), max((error > above / 1.5).mean() for error in errors)),
        (max((error < -below).mean() for error in errors), max((error < -below / 1.5).mean() for error in errors)),
    ):
        assert beyond <= side + 0.002
        assert within > side


def test_a_cell_has_no_more_reports_than_the_release():
    """What is published bounds a withheld cell: with few reports in all, the devices' noise has less room."""
    figure = figures.figure_of("sum", number(), 1)
    narrow, wide = (figure.fields(0, 300, COST, 0.95, most)["interval"] for most in (50, 10**6))
    assert narrow[1] - narrow[0] < wide[1] - wide[0]


@pytest.mark.parametrize("alike", [1, 3])
def test_reports_of_one_device_have_noise_in_common(alike):
    """Of a number with kept responses, three periods in one release may be three times the same noise."""
    metric = number(epsilon=1, epsilon_permanent=3.0)
    figure = figures.figure_of("mean", metric, alike)
    rng, runs, devices = np.random.default_rng(alike), 20_000, 100
    _, above = figure._reaches(devices * alike, COST, 0.95, devices * alike, 0.0)
    rounded = rng.binomial(devices, 0.5, runs) - devices / 2  # kept: at which point a device rounds a number in the middle
    assert (alike * rounded > above).mean() < 0.025


@pytest.mark.parametrize("name", ["grr", "oue", "hadamard", "local_hash"])
@pytest.mark.parametrize("answer", [0, 1, 2])
def test_the_support_of_two_values_differs_no_more_than_is_taken(name, answer):
    """The moment of the difference of two supports is that of the reports of a device, or above it, whatever the answer is."""
    mechanism = mechanisms.make(name, domain_size=5, epsilon=1)
    reports = [mechanism.supported(mechanism.randomize(answer)) for _ in range(1500)]
    differences = np.array([(0 in each) - (1 in each) for each in reports])
    gain = float(mechanism.p - mechanism.q)
    mean = {0: gain, 1: -gain}.get(answer, 0.0)
    bounds = figures._pair_moments(float(mechanism.p), float(mechanism.q), 1)
    for at in (60, 75):
        t = figures._AT[at]
        moments = np.exp(t * (differences - mean))
        assert np.log(moments.mean()) - 4 * moments.std() / moments.mean() / np.sqrt(len(moments)) <= bounds[at]


@pytest.mark.parametrize("held", [0, 2])
@pytest.mark.parametrize("n", [4, 120, 3000])
def test_the_most_frequent_value_is_no_farther_behind_than_is_said(held, n):
    """The share of the value that is named lies within the bound of the largest, however few reports there are."""
    metric = declared(values=["a", "b", "c"], epsilon=2)
    figure, rng = figures.figure_of("value", metric, 1), np.random.default_rng(n)
    mechanism, runs = metric.mechanism, 300
    p, q = float(mechanism.p), float(mechanism.q)
    shares = np.roll([0.5, 0.3, 0.2], held)
    held_by = np.round(shares * n).astype(int)
    misses, bounds = 0, []
    for count in (n + laplace(rng, COST / 2 / MICRO, runs)).tolist():
        support = rng.binomial(held_by, p) + rng.binomial(n - held_by, q)  # as if values were independent
        named = int(np.argmax(support + rng.exponential(2 * MICRO / COST, 3)))
        answer = figure.fields(named, count, COST, 0.95, 10**6)
        assert answer["value"] == "abc"[named]
        bounds.append(answer["behind"])
        misses += held_by.max() - held_by[named] > answer["behind"] * n + 1e-9
    assert misses / runs <= 0.05
    assert np.median(bounds) < 0.3 if n == 3000 else max(bounds) <= 1


def test_of_nearly_no_reports_nothing_is_claimed():
    """Where the number may be 0, any mean is possible and any value may be first."""
    metric = number()
    answer = figures.figure_of("mean", metric, 1).fields(0, 0, COST, 0.95, 100)
    assert (answer["estimate"], answer["interval"]) == (None, [10, 30])
    named = figures.figure_of("value", declared(values=["a", "b"]), 1).fields(1, 3, COST, 0.95, 100)
    assert named == {"value": "b", "behind": 1.0}


@pytest.mark.parametrize(
    ("figure", "members", "words"),
    [
        ("sum", {"values": ["a", "b"]}, "sum is for a number; of m ask for count or value"),
        (
            "mean",
            {"range": [1, 100], "unit": "ms", "scale": "log", "estimate": "mean"},
            "its scale is logarithmic; ask for count",
        ),
        (
            "mean",
            {"range": [1, 100], "unit": "ms", "estimate": "distribution", "epsilon_permanent": 2.0},
            "its reports name one of a few parts of the range; ask for count",
        ),
        ("value", {"range": [1, 100], "unit": "ms", "estimate": "mean"}, "value is for a metric of listed answers"),
        ("value", {"type": "set", "values": ["a", "b", "c"]}, "value is for a metric of listed answers"),
        ("value", {"values": [str(n) for n in range(9)], "mechanism": "rappor"}, "value is for a metric of listed answers"),
    ],
)
def test_a_figure_that_reports_do_not_have_is_refused(figure, members, words):
    """It is said which figures the metric has, before anything is read."""
    metric = declared(**members)
    with pytest.raises(ParameterError) as refused:
        figures.figure_of(figure, metric, 1)
    assert words in refused.value.rule
