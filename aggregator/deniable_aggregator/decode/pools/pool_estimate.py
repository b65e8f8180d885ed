"""An estimate from the tally of a pool of hash functions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import bdtrik, ndtr, ndtri

from deniable_aggregator.decode.binomial import clopper_pearson
from deniable_aggregator.decode.channel import Channel
from deniable_aggregator.decode.estimate import Estimate

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from deniable.mechanisms.texts.sketch import Sketch
    from deniable_aggregator.decode.estimate import Target
    from deniable_aggregator.decode.pools.absent_support import Absent


@dataclass(frozen=True, eq=False)
class Pooled(Estimate):
    """Frequencies from the support that each value has in cells cleared of the plainly present ones."""

    mechanism: Sketch  # what the devices ran
    n: int  # reports
    support: NDArray[np.float64]  # (values,): reports that support each value, less what other values add that were cleared
    cleared: NDArray[np.float64]  # (values,): the sum of the squared shares of other values that were cleared
    absent: Absent  # the distribution of the support of a value that nobody holds
    # The share that none of the values accounts for, and its standard error; from the cells before any value was cleared.
    remainder: tuple[float, float]

    @cached_property
    def frequency(self) -> NDArray[np.float64]:
        """Unbiased share of each value, ``(support / n - q) / (p - q)``."""
        return self.channel.debias(self.support / self.n)

    @property
    def unallocated(self) -> tuple[float, float]:
        """The share of the population that none of these values accounts for, and its standard error; nan where not known."""
        return self.remainder

    @property
    def stderr(self) -> NDArray[np.float64]:
        """Standard error of the frequency in the population that the respondents were drawn from."""
        return self._stderr(self._noise("population"))

    @property
    def respondents_stderr(self) -> NDArray[np.float64]:
        """Standard error of the frequency among the respondents: only the randomness of the devices."""
        return self._stderr(self._noise("respondents"))

    @property
    def absent_stderr(self) -> NDArray[np.float64]:
        """Standard error of the frequency of each value if nobody held it."""
        return np.full(len(self.support), self._stderr(self._absent_noise))

    @property
    def p_value(self) -> NDArray[np.float64]:
        """Chance of as much support if nobody held the value."""
        return np.asarray(ndtr(-self.absent.score(self.support)), np.float64)

    def _half_detected(self, chance: float) -> NDArray[np.float64]:
        """Compute the share of each value at which half of all p-values are below `chance`; nan if there is none."""
        rows, width = self.absent.cells.shape
        if width**-rows > chance:  # as often does a value that nobody holds share all its places with one that everybody holds
            return np.full(len(self.support), np.nan)
        least = self.absent.support(-ndtri(chance)) - self.absent.mean
        return np.full(len(self.support), least / self._scale)

    def _interval(self, chance: float, target: Target) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Compute Clopper and Pearson's intervals, lengthened by what hash functions confuse."""
        support, people = np.clip(self.support, 0, self.n), self.n * self.channel.variance(self.plausible)
        known = np.sqrt(self._noise("population") / people)
        ends = clopper_pearson(support, self.n, chance)
        nearer = [self.channel.narrowing(self.channel.debias(end)) if target == "respondents" else 1.0 for end in ends]
        below, above = (known * part * abs(self.n * end - support) for part, end in zip(nearer, ends, strict=True))
        # Confusion makes the tails of `absent` longer than those of the noise. The squares of both are added, as if both were
        # normal; if not, the interval is too long.
        fewer, more = self._excess(chance)
        return self.frequency - np.hypot(below, more) / self._scale, self.frequency + np.hypot(above, fewer) / self._scale

    def _excess(self, chance: float) -> tuple[float, float]:
        """Return what confusion adds to the lower and the upper tail of the support of an absent value, in squares."""
        n, q, score = self.n, self.channel.q, float(ndtri(chance))
        tails = self.absent.support(score) - self.absent.mean, self.absent.support(-score) - self.absent.mean
        noise = bdtrik(chance, n, q) + 0.5 - n * q, bdtrik(1 - chance, n, q) + 0.5 - n * q
        known = self._absent_noise / (n * q * (1 - q))
        fewer, more = (np.sqrt(max(tail**2 - known * part**2, 0.0)) for tail, part in zip(tails, noise, strict=True))
        return fewer, more

    def _noise(self, target: Target) -> NDArray[np.float64]:
        """Compute the variance of each support without confusion. It is at least that of the devices in known rows."""
        f, p = self.plausible, self.channel.p
        total = self.channel.variance(f) if target == "population" else self.channel.noise(f)
        devices = Channel(p, float(self.mechanism.other)).noise(f)
        return self.n * np.maximum(total - self._allocation * self.cleared, devices)

    def _stderr(self, noise: NDArray[np.float64] | float) -> NDArray[np.float64]:
        """Return the standard error of a frequency whose support has this variance without confusion."""
        return np.asarray(np.sqrt(noise + self._confusion) / self._scale)

    @property
    def _absent_noise(self) -> float:
        q = self.channel.q
        return self.n * (q * (1 - q) - self._allocation * float(self.cleared.max(initial=0.0)))

    @property
    def _allocation(self) -> float:
        """Variance of a report's support, if all others hold one value, because it is drawn whether they collide in its row."""
        # Of cleared values it is known. If they are several, each has this variance times its squared share.
        width = self.mechanism.width
        return float(self.mechanism.p - self.mechanism.other) ** 2 * (width - 1) / width**2

    @property
    def _confusion(self) -> float:
        """Variance that values that were not cleared add to each support."""
        return max(self.absent.variance - self._absent_noise, 0.0)

    @property
    def _scale(self) -> float:
        """Support that a value has more if everybody holds it."""
        return self.n * self.channel.gain

    @cached_property
    def channel(self) -> Channel:
        """What a report says of a value."""
        return Channel.of(self.mechanism)
