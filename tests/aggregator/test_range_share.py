"""Shares of ranges of a number: unbiased, and their intervals hold for every population."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import tallies
from populations import NUMBERS

from deniable import mechanisms
from deniable.errors import ParameterError
from deniable.mechanisms.window import for_distribution
from deniable_aggregator import tally
from deniable_aggregator.decode.numbers.mean import point_scores
from deniable_aggregator.decode.numbers.profile import cell_chances
from deniable_aggregator.decode.numbers.range_share import _scores, ramp_length, range_share

EVERYWHERE = (-1.0, 2.0)


def window(epsilon="1"):
    return mechanisms.make("window", domain_size=65_537, epsilon=epsilon, **for_distribution(epsilon))


def within(places, low, high):
    return (places > low) & (places <= high)


@pytest.mark.parametrize("ends", [(0.0, 2.0), (-1.0, 0.0), (0.25, 0.5), (0.251, 0.499), (0.251, 0.252), (-1.0, 0.7), (0.7, 2.0)])
@pytest.mark.parametrize("ramp", [1, 3, 32])
def test_the_truth_lies_between_the_two_scores_wherever_answers_are(ends, ramp):
    """An answer between two points is rounded to one of them, so its mean score lies on the line between theirs."""
    places = np.unique([*np.linspace(0, 1, 10_001), *(end + shift for end in ends for shift in (-1e-6, 0, 1e-6))])
    places = places[(places >= 0) & (places <= 1)]
    least, middle, most = (np.interp(places, np.linspace(0, 1, 129), each) for each in _scores(128, *ends, ramp))
    truth = within(places, *ends)
    assert np.all(least <= truth + 1e-12)
    assert np.all(most >= truth - 1e-12)
    assert np.all(least <= most)
    assert np.all((middle >= -1e-12) & (middle <= 1))


@pytest.mark.parametrize("ramp", [1, 5])
def test_shares_of_ranges_that_join_add_up(ramp):
    ends = (-1.0, 0.1, 0.105, 0.5, 2.0)
    assert sum(_scores(128, *each, ramp)[1] for each in pairwise(ends)) == pytest.approx(np.ones(129))


@pytest.mark.parametrize("epsilon", ["0.5", "4"])
def test_scores_are_unbiased(epsilon):
    """Over all cells that a report can name, with their exact probabilities."""
    mechanism = window(epsilon)
    for scores in _scores(mechanism.points - 1, 0.3, 0.6, 2):
        cells, variances = point_scores(mechanism, tuple(scores.tolist()))
        chances = cell_chances(mechanism, np.linspace(0, 1, mechanism.points))
        assert chances @ cells == pytest.approx(scores, abs=1e-9)
        assert chances @ cells**2 - scores**2 == pytest.approx(variances)


def test_ramps_are_shorter_with_more_reports_and_depend_on_nothing_else():
    mechanism = window()
    lengths = [ramp_length(mechanism, n) for n in (1, 100, 10_000, 1_000_000)]
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[0] > 16
    assert lengths[-1] == 1


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize(("epsilon", "n"), [("0.5", 100), ("1", 20), ("2", 2000), ("4", 500)])
def test_intervals_hold(name, epsilon, n):
    """Beside atoms and at both ends, too. Each case is 20 tallies of five ranges; the seed is fixed."""
    mechanism, rng, numbers = window(epsilon), np.random.default_rng(7), NUMBERS[name]
    population = numbers.places(np.random.default_rng(0), 200_000)
    median = float(np.quantile(population, 0.5, method="inverted_cdf"))
    ranges = [(0.0, 2.0), (-1.0, median), (median, 2.0), (0.1, 0.4), (0.999_999, 2.0)]
    held = []
    for _ in range(20):
        counted = tallies.of_places(mechanism, numbers.places(rng, n), rng)
        for ends in ranges:
            low, high = range_share(mechanism, counted, *ends).interval()
            held.append(low - 1e-9 <= within(population, *ends).mean() <= high + 1e-9)
    assert np.mean(held) >= 0.9


@pytest.mark.parametrize("ends", [(0.0, 2.0), (-1.0, 0.0)])
def test_an_impossible_share_lies_within_its_interval(ends):
    """Of about half of all tallies the unbiased share is above 1, or below 0: no end of the interval is the share itself."""
    mechanism, rng = window("1"), np.random.default_rng(3)
    shares = [range_share(mechanism, tallies.of_places(mechanism, np.full(500, 0.6), rng), *ends) for _ in range(20)]
    assert any(not 0 <= each.share <= 1 for each in shares)
    for share in shares:
        low, high = share.interval()
        assert low < share.share < high


def test_the_interval_of_a_narrow_range_holds_that_of_its_own_share():
    """By chance what is surely in a range may have a larger share than what may be in it: few answers are in either."""
    mechanism, rng = window("2"), np.random.default_rng(3)
    for _ in range(200):
        counted = tallies.of_places(mechanism, np.where(rng.random(2000) < 0.9, 0.0, rng.random(2000)), rng)
        of = range_share(mechanism, counted, 0.585, 0.665)
        low, high = of.interval()
        assert min(of.share - low, high - of.share) > 1.95 * of.stderr


def test_of_values_the_share_is_of_those_in_the_range():
    mechanism, rng = window("4"), np.random.default_rng(1)
    values = np.linspace(0, 1, 11)
    places = rng.choice(values, 20_000, p=np.arange(11) / 55)
    share = range_share(mechanism, tallies.of_places(mechanism, places, rng), 0.2, 0.45, values=values)
    assert (share.of, share.low, share.high, share.blur) == ("values", pytest.approx(0.3), pytest.approx(0.4), 0)
    low, high = share.interval(0.9999)
    assert low <= 7 / 55 <= high
    assert high - low < 0.1
    with pytest.raises(ParameterError, match="value in it"):
        range_share(mechanism, tallies.of_places(mechanism, places, rng), 0.21, 0.29, values=values)


def test_of_values_an_end_that_is_one_is_in_the_range_only_above():
    mechanism, rng = window("4"), np.random.default_rng(1)
    values = np.linspace(0, 1, 5)
    counted = tallies.of_places(mechanism, np.full(5000, 0.25), rng)
    assert range_share(mechanism, counted, 0.25, 2.0, values=values).share == pytest.approx(0, abs=0.05)
    assert range_share(mechanism, counted, -1.0, 0.25, values=values).share == pytest.approx(1, abs=0.05)


def test_of_kept_answers_a_range_is_rounded_to_their_parts():
    mechanism = mechanisms.make("l_osue", domain_size=16, epsilon="2", permanent="4")
    payloads = b"".join(mechanism.randomize(part) for part in (3, 4, 5) for _ in range(300))
    counted = tally.count(mechanism.layout, payloads)
    share = range_share(mechanism, counted, 0.26, 0.4, permanent=True)
    assert (share.of, share.low, share.high) == ("parts", 4 / 16, 6 / 16)
    low, high = share.interval(0.999_999)
    assert low <= 2 / 3 <= high
    narrow = range_share(mechanism, counted, 0.26, 0.27, permanent=True)
    assert (narrow.low, narrow.high) == (4 / 16, 5 / 16)


@pytest.mark.parametrize("values", [(), (0.0, 0.5, 1.0)])
def test_without_reports_nothing_is_known(values):
    mechanism = window()
    share = range_share(mechanism, tally.empty(mechanism.layout), 0.2, 0.6, values=values)
    assert np.isnan([share.share, share.stderr, *share.interval()]).all()


def test_a_range_ends_above_where_it_begins():
    with pytest.raises(ParameterError, match="range"):
        range_share(window(), tally.empty(window().layout), 0.5, 0.5)


def test_answers_of_the_same_people_are_allowed_for():
    mechanism, rng = window("4"), np.random.default_rng(1)
    counted = tallies.of_places(mechanism, rng.random(4000), rng)
    once, again = (range_share(mechanism, counted, 0.2, 0.6, repeats=repeats) for repeats in (0, 3))
    assert again.stderr**2 - once.stderr**2 == pytest.approx(3 * 0.24 / 4000, rel=0.1)
    assert again.interval()[0] < once.interval()[0] < once.interval()[1] < again.interval()[1]
    assert once.interval(target="respondents")[0] > once.interval()[0]
