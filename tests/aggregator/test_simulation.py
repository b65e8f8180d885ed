"""Tallies without devices have the law of those that devices make."""

from __future__ import annotations

from collections import Counter
from functools import partial
from itertools import product

import numpy as np
import pytest
from scipy.stats import chi2

from deniable import mechanisms
from deniable.errors import ParameterError
from deniable.proof import distribution
from deniable_aggregator import tally
from deniable_aggregator.decode.sets.options import options_of
from deniable_aggregator.planning import simulation
from deniable_aggregator.planning.simulation import Simulation

CHANCE = 1e-7
"""Probability that one of these tests fails though the law is right."""
DRAWS = 1000


def law(mechanism, people):
    """Return the probability of each tally of a few people, by walking every draw of their devices."""
    chances = Counter({b"": 1.0})
    for value in people:
        output, before = distribution(partial(mechanism.randomize, value)), chances
        chances = Counter()
        for (reports, chance), (payload, likely) in product(before.items(), output.items()):
            chances[reports + payload] += chance * float(likely)
    tallies = Counter()
    for reports, chance in chances.items():
        tallies[tally.count(mechanism.layout, reports).cells.tobytes()] += chance
    return tallies


def fits(seen, chances):
    """Test counts against a law by chi-square; outcomes expected less than five times are one."""
    draws = sum(seen.values())
    assert set(seen) <= {each for each, chance in chances.items() if chance > 0}
    common = [each for each, chance in chances.items() if chance * draws >= 5]
    remainder = max(1 - sum(chances[each] for each in common), 1e-9)
    statistic = sum((seen[each] - draws * chances[each]) ** 2 / (draws * chances[each]) for each in common)
    statistic += (
        (draws - sum(seen[each] for each in common) - draws * remainder) ** 2 / (draws * remainder) if remainder > 1e-6 else 0
    )
    return chi2.sf(statistic, max(len(common) - (remainder <= 1e-6), 1))


@pytest.mark.parametrize("name", mechanisms.names())
def test_the_law_is_that_of_devices(name):
    """A tally of two people has the exact joint law of two devices."""
    size = 2 if name in ("coin", "binary") else 3
    mechanism = mechanisms.make(name, domain_size=size, **({} if name == "coin" else {"epsilon": 1}))
    if name == "cms":  # complete families of sketches are wide: a narrow pool has fewer tallies
        mechanism = mechanisms.make(name, domain_size=3, epsilon=1, rows=2, width=3)
    if name == "hcms":
        mechanism = mechanisms.make(name, domain_size=3, epsilon=1, rows=2, width=4)
    simulation, rng, held = Simulation(mechanism), np.random.default_rng(11), np.array([1, 1, 0][:size])
    seen = Counter(simulation.draw(held, rng).cells.tobytes() for _ in range(DRAWS))
    assert fits(seen, law(mechanism, [0, 1])) > CHANCE / len(mechanisms.names())


def test_a_wrong_law_is_seen():
    """The test above has power: the tally of two other people is refused."""
    mechanism = mechanisms.make("grr", domain_size=3, epsilon=1)
    rng = np.random.default_rng(11)
    seen = Counter(Simulation(mechanism).draw(np.array([1, 1, 0]), rng).cells.tobytes() for _ in range(DRAWS))
    assert fits(seen, law(mechanism, [0, 2])) < CHANCE


@pytest.mark.parametrize("name", ["subset", "oue", "local_hash", "hadamard"])
def test_very_many_people_are_drawn_in_parts(name, monkeypatch):
    """People beyond what is drawn at once are drawn in parts, and each sends one report."""
    mechanism = mechanisms.make(name, domain_size=20, epsilon=1)
    monkeypatch.setattr(simulation, "_MOST", 1000)
    held = np.arange(20) * 100
    counted = Simulation(mechanism).draw(held, np.random.default_rng(1))
    assert counted.n == held.sum()


def test_a_billion_people_take_seconds():
    """The time does not grow with the people."""
    for name in ("binary", "subset", "oue", "local_hash", "pgr"):
        size = 2 if name == "binary" else 64
        held = np.full(size, 1_000_000_000 // size)
        counted = Simulation(mechanisms.make(name, domain_size=size, epsilon=1)).draw(held, np.random.default_rng(2))
        assert counted.n == held.sum()


def test_the_law_of_a_window_is_that_of_devices():
    """A tally of two people who hold numbers has the exact joint law of two devices, with their rounding."""
    mechanism = mechanisms.make("window", domain_size=8, epsilon=1, blocks=2, length=2)
    simulation, rng = Simulation(mechanism, [3, 7]), np.random.default_rng(11)
    seen = Counter(simulation.draw(np.array([1, 1]), rng).cells.tobytes() for _ in range(DRAWS))
    assert fits(seen, law(mechanism, [3, 7])) > CHANCE
    assert fits(seen, law(mechanism, [2, 7])) < CHANCE


@pytest.mark.parametrize("name", ["sampled_options", "sampled_pair"])
def test_the_law_of_sets_is_that_of_devices(name):
    """A tally of one report has the law of a person who chooses each option independently; of two reports likewise."""
    mechanism, shares, rng = mechanisms.make(name, domain_size=8, epsilon=1), np.array([0.9, 0.5, 0.0]), np.random.default_rng(11)
    chances = {(a, b): (0.9 if a else 0.1) * 0.5 for a, b in product((0, 1), (0, 1))}
    for people in (1, 2):
        expected = Counter()
        for chosen in product(chances, repeat=people):
            likely = np.prod([chances[each] for each in chosen])
            for cells, chance in law(mechanism, [a + 2 * b for a, b in chosen]).items():
                expected[cells] += likely * chance
        seen = Counter(options_of(mechanism).draw_sets(people, shares, rng).cells.tobytes() for _ in range(2 * DRAWS))
        assert fits(seen, expected) > CHANCE
    other = Counter(options_of(mechanism).draw_sets(2, shares[::-1], rng).cells.tobytes() for _ in range(2 * DRAWS))
    assert fits(other, expected) < CHANCE


def test_a_billion_numbers_and_sets_take_no_longer():
    """The time does not grow with the people here, either."""
    mechanism, rng = mechanisms.make("window", domain_size=65537, epsilon=1), np.random.default_rng(2)
    assert Simulation(mechanism, [0, 9, 65536]).draw(np.array([10**9, 5, 10**9]), rng).n == 2 * 10**9 + 5
    mechanism = mechanisms.make("sampled_pair", domain_size=1 << 20, epsilon=1)
    assert options_of(mechanism).draw_sets(10**9, np.full(20, 0.3), rng).n == 10**9


def test_what_has_no_given_values_is_refused():
    """A search and a set have other laws."""
    with pytest.raises(ParameterError):
        Simulation(mechanisms.make("pem", domain_size=1 << 64, epsilon=1))
    with pytest.raises(ParameterError):
        Simulation(mechanisms.make("sampled_options", domain_size=8, epsilon=1))
