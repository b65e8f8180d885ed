"""The noise of published numbers keeps what it promises, all cells together, cut off as it is."""

from __future__ import annotations

from math import exp

import numpy as np
import pytest
from scipy.stats import chisquare

from deniable.publication import Publication
from deniable_aggregator.participation import Noise


def _law(noise):
    """Compute the probability of each number left out, 0 to 2 m."""
    reach = noise.middle + max(60, int(12 * noise.scale))
    x = np.arange(-reach, reach + 1)
    weight = np.exp(-abs(x) / noise.scale) if noise.law == "laplace" else np.exp(-(x**2) / (2 * noise.scale**2))
    weight /= weight.sum()
    law = np.zeros(2 * noise.middle + 1)
    np.add.at(law, np.clip(x, -noise.middle, noise.middle) + noise.middle, weight)
    return law


def _excess(one, other, epsilon):
    """Compute by how much any event is more probable under one law than e^epsilon times under the other."""
    return np.maximum(one - exp(epsilon) * other, 0).sum()


def _neighbours(law):
    return np.append(law, 0.0), np.insert(law, 0, 0.0)


LAWS = ("laplace", "gaussian")


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize(("epsilon", "delta"), [(0.25, 1e-6), (1, 1e-6), (2, 1e-6), (2, 1e-9), (4, 1e-5), (20, 1e-3)])
def test_one_report_more_is_hidden(epsilon, delta, law):
    """Whether there was one report more shows in a number within epsilon and delta, computed from its whole law."""
    noise = Noise.of(Publication(epsilon=epsilon, delta=delta, noise=law))
    chances = _law(noise)
    for one, other in (_neighbours(chances), _neighbours(chances)[::-1]):
        assert _excess(one, other, epsilon) <= delta * 1.0001


@pytest.mark.parametrize("law", LAWS)
def test_a_promise_that_is_too_large_is_told(law):
    """The test above tells noise that is too small."""
    noise = Noise.of(Publication(epsilon=1, noise=law))
    for wrong in (Noise(law, 0.7 * noise.scale, noise.middle), Noise(law, noise.scale, noise.middle // 2)):
        assert _excess(*_neighbours(_law(wrong)), 1.0) > 1e-6


def test_defaults():
    """What is left out by default."""
    assert Noise.of(Publication()) == Noise("laplace", 0.5, 8)
    noise = Noise.of(Publication(noise="gaussian"))
    assert (noise.law, round(noise.scale, 2), noise.middle) == ("gaussian", 2.78, 17)


@pytest.mark.parametrize("law", LAWS)
def test_draws_have_their_law(law):
    """What is drawn has the law that the promise was computed from, and its standard deviation."""
    noise = Noise.of(Publication(epsilon=1, noise=law))
    draws = np.array([noise.draw() for _ in range(4000)])
    assert draws.min() >= 0
    assert draws.max() <= 2 * noise.middle
    expected = _law(noise) * len(draws)
    places = np.arange(len(expected))
    common = expected >= 5
    seen = np.bincount(draws, minlength=len(expected))
    merged = np.append(seen[common], seen[~common].sum()), np.append(expected[common], expected[~common].sum())
    keep = merged[1] > 0
    assert chisquare(merged[0][keep], merged[1][keep]).pvalue > 1e-7
    exact = np.sqrt((_law(noise) * (places - noise.middle) ** 2).sum())
    assert noise.stderr == pytest.approx(exact, rel=1e-3)


def test_exact_numbers():
    """Where numbers are published as they are, nothing is left out."""
    noise = Noise.of(Publication(trial=True))
    assert (noise.draw(), noise.stderr, noise.middle) == (0, 0.0, 0)
