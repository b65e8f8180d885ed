"""A channel: with which probabilities a report supports a value, and the shares of people that follow from support."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

if TYPE_CHECKING:
    from fractions import Fraction

    from numpy.typing import NDArray


class Pure(Protocol):
    """What the devices ran, if a report supports the true value with probability p, and any other with probability q."""

    @property
    def p(self) -> Fraction:
        """The probability that the report of a person who holds the value supports it."""

    @property
    def q(self) -> Fraction:
        """The probability that any other report does."""


@dataclass(frozen=True, slots=True)
class Channel:
    """The probabilities with which a report supports a value."""

    p: float  # if the person holds it
    q: float  # if not

    @classmethod
    def of(cls, mechanism: Pure) -> Channel:
        """Return the channel of what the devices ran."""
        return cls(float(mechanism.p), float(mechanism.q))

    @property
    def gain(self) -> float:
        """What a holder adds to the probability."""
        return self.p - self.q

    def debias(self, support: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the share of people that a share of reports stands for, ``(support - q) / (p - q)``; unbiased."""
        return (support - self.q) / self.gain

    def support(self, frequency: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the share of reports that support a value of this share of people."""
        return self.q + frequency * self.gain

    def variance(self, frequency: NDArray[np.float64]) -> NDArray[np.float64]:
        """Compute the variance of a report's support, of a person drawn from the population."""
        share = self.support(frequency)
        return share * (1 - share)

    def noise(self, frequency: NDArray[np.float64]) -> NDArray[np.float64]:
        """Compute the mean variance of a report's support, given who the person is."""
        return frequency * self.p * (1 - self.p) + (1 - frequency) * self.q * (1 - self.q)

    def narrowing(self, frequency: NDArray[np.float64]) -> NDArray[np.float64]:
        """Compute by what factor an error is smaller among respondents, for values of these shares, which are cut at 0 and 1."""
        share = np.clip(frequency, 0.0, 1.0)
        return np.asarray(np.sqrt(self.noise(share) / self.variance(share)))
