"""Two values whose estimates sum to 1 are one hypothesis: neither tests nor intervals are corrected for two."""

from __future__ import annotations

import numpy as np
import pytest

from deniable import mechanisms
from deniable_aggregator import decode, tally
from deniable_aggregator.answer.readings.differing import differing
from deniable_aggregator.decode.some_values import some_values
from deniable_aggregator.inference.always_valid import AlwaysValid
from deniable_aggregator.inference.difference import Difference, Side
from deniable_aggregator.inference.slope import Course, slope

MIRRORED = [("coin", None), ("binary", 1), ("grr", 1), ("l_grr", 1)]
APART = [("sue", 1), ("oue", 1), ("local_hash", 1), ("hadamard", 1), ("l_osue", 1)]


def estimated(name, epsilon, ones=700, n=2000, size=2, **options):
    """Estimate shares from reports of which so many are of value 1."""
    mechanism = mechanisms.make(name, domain_size=size, **({"epsilon": epsilon} if epsilon else {}))
    rng = np.random.default_rng(91)
    payloads = b"".join(mechanism.randomize(int(each < ones)) for each in rng.permutation(n))
    counted = tally.count(mechanism.layout, payloads)
    return decode.estimate(mechanism, counted, **options)


@pytest.mark.parametrize(("name", "epsilon"), MIRRORED)
@pytest.mark.parametrize("options", [{}, {"repeats": 2.0}, {"permanent": True}], ids=["once", "again", "permanent"])
def test_yes_and_no_are_one_hypothesis(name, epsilon, options):
    """The interval of one is that of the other, turned round: if one holds, so does the other."""
    estimate = estimated(name, epsilon, **options)
    assert estimate.hypotheses == 1
    assert estimate.frequency.sum() == pytest.approx(1)
    low, high = estimate.interval(0.9)
    assert low == pytest.approx(1 - high[::-1])
    assert np.array(estimate.interval(0.9, simultaneous=True)) == pytest.approx(np.array([low, high]))
    assert some_values(estimate, [1, 0]).hypotheses == 1
    assert some_values(estimate, [1]).hypotheses == 1


@pytest.mark.parametrize(("name", "epsilon"), APART)
def test_values_that_are_estimated_apart_are_two(name, epsilon):
    estimate = estimated(name, epsilon)
    assert estimate.hypotheses == 2
    assert estimate.interval(simultaneous=True)[0] == pytest.approx(estimate.interval(0.975)[0])


def test_two_of_three_values_are_two():
    estimate = estimated("grr", 1, size=3)
    assert estimate.hypotheses == 3
    assert some_values(estimate, [0, 1]).hypotheses == 2


@pytest.mark.parametrize("kind", [Difference, lambda *sides: AlwaysValid(*sides, 0.05)], ids=["once", "at all looks"])
def test_a_difference_of_yes_is_that_of_no(kind):
    difference = kind(*(Side.of(estimated("binary", 2, ones)) for ones in (700, 900)))
    assert difference.p_value[0] == pytest.approx(difference.p_value[1])
    assert np.array(difference.interval(simultaneous=True)) == pytest.approx(np.array(difference.interval()))


def test_a_test_of_yes_is_not_corrected_for_no():
    """Both differ exactly if one does, alone."""
    difference = Difference(*(Side.of(estimated("binary", 2, ones)) for ones in (700, 800)))
    (p, _) = difference.p_value
    assert [each.differs for each in differing(difference, 1 - 1.01 * p)] == [True, True]
    assert [each.differs for each in differing(difference, 1 - 0.99 * p)] == [False, False]


def test_a_slope_of_yes_is_that_of_no():
    trend = slope(Course.of_shares(range(3), [estimated("binary", 2, ones) for ones in (700, 800, 900)], [0.0] * 3))
    assert np.array(trend.interval(simultaneous=True)) == pytest.approx(np.array(trend.interval()))
