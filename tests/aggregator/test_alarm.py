"""Alarms: silent on honest reports, whatever people hold, and loud on what no device would have sent."""

from __future__ import annotations

from collections import defaultdict
from itertools import product

import forgery
import numpy as np
import pytest
import tallies

from deniable import mechanisms
from deniable.mechanisms.window import for_distribution
from deniable.proof import distribution
from deniable_aggregator import tally
from deniable_aggregator.alarms import checks, tail_bounds
from deniable_aggregator.tally import set_bits

TINY = [
    ("grr", 3, {}),
    ("oue", 3, {}),
    ("subset", 4, {}),
    ("hadamard", 4, {}),
    ("pgr", 5, {}),
    ("local_hash", 3, {}),
    ("dbitflip", 4, {"buckets": 2}),
    ("rappor", 4, {"bits": 3, "hashes": 2, "cohorts": 2}),
    ("cms", 4, {"rows": 2, "width": 2}),
]


def examined(mechanism, payloads):
    counted = tally.count(mechanism.layout, payloads)
    ones = set_bits.count(mechanism.layout, payloads) if mechanism.layout.kind == "bits" else None
    return checks.examine(mechanism, counted, ones)


@pytest.mark.campaign
@pytest.mark.parametrize(("name", "domain_size", "options"), TINY)
def test_no_p_value_is_too_small(name, domain_size, options):
    """Over every outcome of two reports, with its exact probability, each test's p-value is one, whatever people hold."""
    mechanism = mechanisms.make(name, domain_size=domain_size, epsilon=2, **options)
    masses = [distribution(lambda tape, v=value: mechanism.randomize(v, source=tape)) for value in range(domain_size)]
    payloads = sorted(set().union(*masses))
    examinations = {pair: examined(mechanism, b"".join(pair)) for pair in product(payloads, repeat=2)}
    for held in ((0, 0), (0, 1), (domain_size - 1, 1)):
        chance = {pair: float(masses[held[0]][pair[0]] * masses[held[1]][pair[1]]) for pair in examinations}
        for place in range(len(examinations[payloads[0], payloads[0]])):
            total = defaultdict(float)
            for pair, findings in examinations.items():
                total[findings[place].p_value] += chance[pair]
            reached = 0.0
            for level, mass in sorted(total.items()):
                reached += mass
                assert reached <= level * (1 + 1e-9), (place, level)


def simulated(mechanism, held, rng):
    """Draw the tally and the weights of honest reports of a population, each of them exactly distributed, in one go."""
    layout, known = mechanism.layout, mechanism.bounds()
    low, high = float(known.low), float(known.high)
    n = int(held.sum())
    if layout.kind == "bits":
        counts = rng.binomial(held, high) + rng.binomial(n - held, low)
        kind = tail_bounds.ones(known)[0]
        ones = rng.multinomial(n, kind / kind.sum())
        return tally.Tally(layout, counts[None, :], np.array([n])), ones
    cells = np.zeros(layout.rows * layout.width, np.int64)
    for value, number in enumerate(held):
        supports = np.array([value in mechanism.supported(layout.pack(*divmod(c, layout.width))) for c in range(len(cells))])
        cells += rng.multinomial(number, np.where(supports, high, low) / layout.rows)
    return tally.from_cells(layout, cells), None


POPULATIONS = {
    "one": lambda d: np.eye(d)[0],
    "uniform": lambda d: np.full(d, 1 / d),
    "zipf": lambda d: 1 / np.arange(1, d + 1) / (1 / np.arange(1, d + 1)).sum(),
}


@pytest.mark.campaign
@pytest.mark.parametrize("population", POPULATIONS)
@pytest.mark.parametrize("name", ["grr", "oue", "sue", "local_hash", "hadamard", "pgr", "general_hadamard"])
def test_honest_reports_raise_no_alarm(name, population):
    """Many honest strata of one to ten million reports raise none, and their p-values stay as rare as they say."""
    rng = np.random.default_rng(11)
    mechanism = mechanisms.make(name, domain_size=12, epsilon=1)
    shares = POPULATIONS[population](12)
    findings = [
        checks.examine(mechanism, *simulated(mechanism, rng.multinomial(n, shares), rng))
        for n in np.geomspace(1, 1e7, 40).astype(int)
    ]
    assert sum(map(len, findings)) >= 80
    assert not any(checks.raised(findings))
    small = sum(each.p_value < 0.01 for stratum in findings for each in stratum)
    assert small <= 8  # of 160 at most, of which 1.6 are expected: probability below 1e-3 for this seed, which is fixed


DETECTED = [
    ("grr", {}, {"set"}),
    ("l_grr", {}, {"set"}),
    ("oue", {}, {"weight"}),
    ("sue", {}, {"weight"}),
    ("l_osue", {}, {"weight"}),
    ("rappor", {}, {"weight"}),
    ("rappor", {"cohorts": 8, "bits": 32, "hashes": 2}, {"weight"}),
    ("cms", {}, {"weight"}),
    ("local_hash", {}, {"row", "cell"}),
    ("loloha", {}, {"row", "cell"}),
    ("fast_local_hash", {}, {"row", "cell"}),
    ("hadamard", {}, {"cell"}),
    ("general_hadamard", {}, {"cell"}),
    ("pgr", {}, {"cell", "value"}),
]
TARGETS = [40, 41, 42, 43, 44]


@pytest.mark.parametrize(("name", "options", "tests"), DETECTED)
def test_maximal_gain_is_seen(name, options, tests):
    """A tenth of reports made for the greatest gain raises the alarms that fit the mechanism, by far."""
    mechanism = mechanisms.make(name, domain_size=64, epsilon=1, **options)
    rng = np.random.default_rng(2)
    n = 20_000 if mechanism.layout.kind == "index" else 5000  # bits take long to draw
    honest = [mechanism.randomize(int(value)) for value in np.minimum(rng.geometric(0.1, n) - 1, 63)]
    forged = forgery.maximal_gain(mechanism, TARGETS, n // 9, rng)
    (alarms,) = checks.raised([examined(mechanism, b"".join(honest) + forged)], 1e-8)
    assert tests <= {alarm.test for alarm in alarms}
    for alarm in alarms:
        if alarm.test == "set":
            assert set(TARGETS) & set(alarm.values)


def test_who_runs_the_mechanism_on_a_lie_is_not_seen():
    """Reports of people who all claim one answer, and randomise it, pass: an honest population could have sent them."""
    for name in ("grr", "oue", "subset", "local_hash", "hadamard"):
        mechanism = mechanisms.make(name, domain_size=64, epsilon=1)
        findings = examined(mechanism, b"".join(mechanism.randomize(7) for _ in range(5000)))
        assert not any(checks.raised([findings], 1e-9)), name


def test_counts_that_are_too_low_together():
    """Where each of many counts is low by no more than chance allows, all of them together are still found."""
    mechanism = mechanisms.make("general_hadamard", domain_size=100, epsilon=1)
    bounds, n = mechanism.bounds(), 100_000
    width = mechanism.layout.width
    least = float(n * bounds.low)
    low = least - 2.5 * np.sqrt(least)
    cells = np.full(width, int(low))
    high = int(n * bounds.high)
    raised = int((n - cells.sum()) / (high - low))
    cells[:raised] = high
    single, together = checks.examine(mechanism, tally.from_cells(mechanism.layout, cells))
    assert single.p_value > 0.01
    assert together.p_value < 1e-20
    assert "below those of values that nobody holds" in together.what


@pytest.mark.parametrize(
    ("name", "options", "tests"),
    [
        ("grr", {}, ["cell", "cell", "set"]),
        ("oue", {}, ["cell", "cell", "set", "weight"]),
        ("rappor", {"cohorts": 8, "bits": 32, "hashes": 2}, ["cell", "weight", "row"]),
        ("cms", {}, ["cell", "value", "weight", "row"]),
        ("local_hash", {}, ["cell", "cell", "value", "row"]),
        ("hadamard", {}, ["cell", "cell", "value", "value"]),
        ("general_hadamard", {}, ["cell", "cell"]),
        ("fast_local_hash", {"rows": 5}, ["cell", "cell", "row"]),
    ],
)
def test_which_tests_there_are(name, options, tests):
    """Each mechanism has the tests that its reports allow: bits of many rows, which share them, are not taken together."""
    mechanism = mechanisms.make(name, domain_size=12, epsilon=1, **options)
    assert [each.test for each in examined(mechanism, mechanism.randomize(3))] == tests


def test_impossible_reports():
    """One report that no draw can make is enough."""
    mechanism = mechanisms.make("subset", domain_size=12, epsilon=1)
    honest = b"".join(mechanism.randomize(3) for _ in range(50))
    empty = mechanism.layout.pack(0, 0)
    (alarms,) = checks.raised([examined(mechanism, honest + empty)], 1e-9)
    assert [(each.test, each.p_value) for each in alarms] == [("weight", 0.0)]
    assert alarms[0].what.startswith("1 of 51 reports have 0 bits set; of honest ones 0 or fewer")


def test_findings_of_nothing():
    """Without reports nothing is found; without weights, all but these."""
    mechanism = mechanisms.make("oue", domain_size=5, epsilon=1)
    assert checks.examine(mechanism, tally.empty(mechanism.layout)) == []
    counted = tally.count(mechanism.layout, mechanism.randomize(1))
    assert [each.test for each in checks.examine(mechanism, counted)] == ["cell", "cell", "set"]


def test_the_family_of_a_look():
    """An alarm's p-value is that of all tests of the look; findings keep their places."""
    quiet, loud = checks.Finding("row", 0.5, "-"), checks.Finding("cell", 1e-6, "-", (3,))
    assert checks.raised([[quiet, loud], [], [quiet]]) == [[checks.Finding("cell", 3e-6, "-", (3,))], [], []]
    assert checks.raised([[quiet] * 100 + [loud]])[0] == []
    assert checks.raised([]) == []


def test_the_influence_of_one_report():
    """At d = 128 and epsilon 1, an OUE report moves a count by 3.16 respondents, as one that supports and no other does."""
    assert float(mechanisms.make("oue", domain_size=128, epsilon=1).influence) == pytest.approx(3.16, abs=0.01)


def numbers_and_sets():
    """Return mechanisms of numbers and sets, each with made-up reports: all name one cell, one place's window, or one option."""
    mean = mechanisms.make("window", domain_size=65_537, epsilon=1)
    spread = mechanisms.make("window", domain_size=65_537, epsilon=2, **for_distribution(2))
    options, pairs = (mechanisms.make(name, domain_size=64, epsilon=1) for name in ("sampled_options", "sampled_pair"))
    last = mean.layout.width - 1
    return [
        (mean, [(0, last)], {"cell"}),
        (spread, [(0, 17)], {"cell"}),
        (spread, [(0, cell) for cell in range(20, 20 + spread.length)], {"cell"}),
        (options, [(3, 1)], {"cell", "row"}),
        (options, [(row, 1) for row in range(6)], {"cell"}),
        (pairs, [(row, 3) for row in range(15)], {"cell"}),
        (pairs, [(row, 3) for row, pair in enumerate(pairs.groups) if 2 in pair], {"cell", "row"}),
    ]


@pytest.mark.parametrize(("mechanism", "cells", "tests"), numbers_and_sets())
def test_made_up_numbers_and_sets_are_seen(mechanism, cells, tests):
    """Reports that were made to move a mean, a distribution or an option raise alarms; honest ones never do."""
    rng = np.random.default_rng(4)
    n, layout, few = 20_000, mechanism.layout, np.zeros(0, int)
    if mechanism.name == "window":
        honest = [tallies.of_places(mechanism, places, rng) for places in (np.zeros(n), rng.random(n), np.full(n, 0.3), few)]
    else:
        people = [np.zeros((n, 6), int), np.ones((n, 6), int), rng.integers(0, 2, (n, 6)), np.zeros((0, 6), int)]
        honest = [tallies.of_sets(mechanism, chosen, rng) for chosen in people]
    assert not any(checks.raised([checks.examine(mechanism, each) for each in honest]))
    forged = tally.count(layout, b"".join(layout.pack(*cell) for cell in cells) * (n // len(cells)))
    (alarms,) = checks.raised([checks.examine(mechanism, forged)], 1e-8)
    assert tests <= {each.test for each in alarms}
    # A fifth of all reports, among others. Spread over the options that many honest people might have, they are not seen.
    (alarms,) = checks.raised([checks.examine(mechanism, tally.merge(*[honest[2]] * 4, forged))], 1e-8)
    assert bool(alarms) == (mechanism.name == "window" or "row" in tests)


@pytest.mark.parametrize("mechanism", [each for each, _, _ in numbers_and_sets()])
def test_no_report_has_more_influence(mechanism):
    """No report moves a mean, in ranges, or the number of people with an option, by more than is said."""
    layout = mechanism.layout
    scores = [
        abs(score)
        for row in range(layout.rows)
        for cell in range(layout.width)
        for score in mechanism.scores(layout.pack(row, cell))
    ]
    assert mechanism.influence == max(scores)
    assert mechanism.influence > 1
