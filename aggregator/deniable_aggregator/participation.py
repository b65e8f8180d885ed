"""Participation: the noise that hides one report more or less in the numbers of reports that are published.

The number of reports of a release is that of the reports counted, less ``K = m + X``, where X is discrete noise, cut off at -m
and m: so K is never negative, and that many reports can be left out (`deniable_aggregator.thinning`). With one report more the
number changes by 1, its sensitivity. Where a metric has segments, reports are left out of each of the finest cells, of which a
report is in one; the numbers of all others are sums of theirs.

The noise is drawn by OpenDP, which works with exact integers and fractions: no float is ever a sample.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import ceil, exp, log, log1p, sqrt
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Callable

    from deniable.publication import Publication

__all__ = ["Noise"]


@dataclass(frozen=True, slots=True)
class Noise:
    """How many reports are left out of a tally that is published.

    Parameters
    ----------
    law
        ``"laplace"``: discrete Laplace; ``"gaussian"``: discrete Gaussian; ``"none"``: none are left out.
    scale
        Of the discrete Laplace distribution, P(X = x) proportional to exp(-|x| / scale); of the Gaussian, its sigma. In reports.
    middle
        m: the number left out on average, and half of the largest.

    References
    ----------
    A. Ghosh, T. Roughgarden, M. Sundararajan: Universally utility-maximizing privacy mechanisms. STOC 2009 (geometric mechanism).
    C. Canonne, G. Kamath, T. Steinke: The discrete Gaussian for differential privacy. NeurIPS 2020, theorem 4 and proposition 25.
    M. Bun, T. Steinke: Concentrated differential privacy. TCC 2016, proposition 1.3 (from rho to epsilon and delta).
    """

    law: Literal["laplace", "gaussian", "none"]
    scale: float
    middle: int

    @classmethod
    def of(cls, publication: Publication) -> Noise:
        """Choose the noise of each number of reports.

        Cutting the tails off costs ``(1 + e^epsilon)`` times their probability, which is given delta; with Gaussian noise, whose
        ``rho = 1 / (2 sigma^2)`` gives ``epsilon = rho + 2 sqrt(rho ln(2 / delta))``, half of it.

        Parameters
        ----------
        publication
            With the law, epsilon and delta.
        """
        if publication.trial:
            return cls("none", 0.0, 0)
        epsilon, delta = publication.epsilon, publication.delta
        spare = log(delta) - log(1 + exp(epsilon))
        if publication.noise == "laplace":
            scale = 1 / epsilon  # P(|X| > m) = 2 e^(-(m + 1) / scale) / (1 + e^(-1 / scale))
            return cls("laplace", scale, max(0, ceil(scale * (log(2) - log1p(exp(-1 / scale)) - spare) - 1)))
        part = log(2 / delta)
        sigma = sqrt(0.5) / (sqrt(part + epsilon) - sqrt(part))
        # P(|X| > m) <= 2 e^(-m^2 / (2 sigma^2)), since the discrete Gaussian is as subgaussian as the continuous one
        return cls("gaussian", sigma, ceil(sigma * sqrt(2 * (2 * log(2) - spare))))

    def draw(self) -> int:
        """Draw how many reports to leave out, in [0, 2 m]."""
        if self.law == "none":
            return 0
        return self.middle + max(-self.middle, min(self.middle, _measurement(self.law, self.scale)(0)))

    @property
    def stderr(self) -> float:
        """Standard deviation of the number left out, in reports."""
        if self.law == "none":
            return 0.0
        if self.law == "gaussian":
            return self.scale
        ratio = exp(-1 / self.scale)
        return sqrt(2 * ratio) / (1 - ratio)


@lru_cache(maxsize=8)
def _measurement(law: str, scale: float) -> Callable[[int], int]:
    """Make the mechanism of OpenDP that adds noise to an integer, and let it say that its loss is what was planned."""
    import opendp.prelude as dp  # noqa: PLC0415 - it takes a second to load; a worker that publishes nothing yet does without

    dp.enable_features("contrib")
    space = dp.atom_domain(T=int), dp.absolute_distance(T=int)
    make: Any = dp.m.make_laplace if law == "laplace" else dp.m.make_gaussian
    made: Callable[[int], int] = make(*space, scale=scale)
    return made
