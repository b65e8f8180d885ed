"""The window mechanism: exact epsilon, unbiased scores, exact variance, and the presets of its makers' tables."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import pytest

from deniable import mechanisms
from deniable.errors import ParameterError
from deniable.exact.epsilon import UNIT, weight
from deniable.mechanisms.window import Window, for_distribution, for_mean
from deniable.proof import distribution, prove

SHAPES = [(1, 1), (1, 2), (1, 5), (2, 1), (2, 3), (3, 2), (7, 1)]


def small(blocks, length, domain_size=5, epsilon="1") -> Window:
    return mechanisms.make("window", domain_size=domain_size, epsilon=epsilon, blocks=blocks, length=length)


@pytest.mark.parametrize(("shape", "domain_size", "epsilon"), list(product(SHAPES, (2, 3, 8), ("0.3", "1", "4"))))
def test_every_draw(shape, domain_size, epsilon):
    """The ratio is attained exactly, for any rounding, and the mean score of every value is its share of the range."""
    proof = prove(small(*shape, domain_size, epsilon))
    assert proof.faults == ()
    assert proof.ratio == Fraction(weight(Fraction(epsilon)), UNIT)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_variance_is_exact(shape):
    """For every value; the worst variance is not below any, and attained somewhere."""
    mechanism = small(*shape, domain_size=4 * shape[0] * shape[1] + 1)
    ratios = []
    for value in range(mechanism.domain_size):
        at = Fraction(value, mechanism.domain_size - 1)
        mass = distribution(lambda tape, v=value: mechanism.randomize(v, source=tape))
        exact = sum(share * mechanism.scores(payload)[0] ** 2 for payload, share in mass.items()) - at**2
        assert mechanism.score_variance(float(at)) == pytest.approx(float(exact), rel=1e-12)
        ratios.append(exact)
    assert max(ratios) <= mechanism.worst_noise <= max(ratios) * Fraction(102, 100)


@pytest.mark.parametrize(
    ("epsilon", "blocks", "worst"),
    # Worst variance of one report, of values in [-1, 1]; one bit has 64.7, 16.67, 4.68, 1.72, 1.22, 1.08, 1.01, 1.00.
    [
        (".25", 1, 64.0),
        (".5", 1, 16.01),
        ("1", 1, 4.018),
        ("2", 2, 0.950),
        ("3", 2, 0.334),
        ("4", 3, 0.145),
        ("6", 6, 0.0327),
        ("8", 12, 0.0081),
    ],
)
def test_means_are_nearly_as_exact_as_they_can_be(epsilon, blocks, worst):
    """The preset has the blocks and the variance of the table, within 1%, in one byte."""
    mechanism = mechanisms.make("window", domain_size=1 << 16, epsilon=epsilon)
    assert {"blocks": blocks, "length": 16} == for_mean(epsilon) == mechanism.chosen
    assert 4 * float(mechanism.worst_noise) == pytest.approx(worst, rel=0.01)
    assert mechanism.layout.payload_size == 1


@pytest.mark.parametrize(("epsilon", "worst"), [(".5", 22.0), ("1", 4.94), ("2", 1.19), ("4", 0.25)])
def test_distributions_cost_the_mean_little(epsilon, worst):
    """The other preset has about 129 points and one byte; its mean has the variance of the table."""
    mechanism = mechanisms.make("window", domain_size=1 << 16, epsilon=epsilon, **for_distribution(epsilon))
    assert 127 <= mechanism.points <= 131
    assert 4 * float(mechanism.worst_noise) == pytest.approx(worst, rel=0.01)
    assert mechanism.layout.payload_size == 1


def test_other_windows_are_other_mechanisms():
    """Device and decoder must agree on the blocks, their length and the domain."""
    texts = {small(*shape, size).canonical for shape in SHAPES for size in (4, 5)}
    assert len(texts) == 2 * len(SHAPES)
    assert mechanisms.make("window", domain_size=5, epsilon=1).canonical == small(1, 16).canonical


@pytest.mark.parametrize(
    "options", [{"blocks": 0, "length": 3}, {"blocks": 2}, {"blocks": -1, "length": 1}, {"blocks": True, "length": 1}]
)
def test_a_window_has_blocks_and_a_length(options):
    """Both or none are given, as whole numbers."""
    with pytest.raises(ParameterError, match=r"(blocks|length) (= .*|is missing): write a whole number of at least 1"):
        mechanisms.make("window", domain_size=5, epsilon=1, **options)


def test_words_for_people():
    """The sentence has the probability of the window."""
    assert (
        "one of 8 parts, in order from the least answer to the greatest. With probability 0.475 it is one of the 2 around"
        in small(3, 2).says
    )


@pytest.mark.parametrize("shape", [(1, 2), (2, 3)])
def test_planted_mistakes_are_found(shape, monkeypatch):
    """A window that is too short, and a rounding that is not uniform, fail the proof."""
    sound = Window.noise

    def short(self, source, count):
        return [(r, shift - (shift == self.length - 1)) for r, shift in sound(self, source, count)]

    def crooked(self, source, count):
        return [(0, shift) for _, shift in sound(self, source, count)]

    for broken in (short, crooked):
        monkeypatch.setattr(Window, "noise", broken)
        assert prove(small(*shape)).faults
