"""An estimate of the share of each option of a set."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import betainc

from deniable_aggregator.decode.binomial import clopper_pearson, half_significant
from deniable_aggregator.decode.estimate import Estimate

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from deniable_aggregator.decode.channel import Channel
    from deniable_aggregator.decode.estimate import Target

    Integers = NDArray[np.int64]
    Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class OptionShares(Estimate):
    """The share of people who chose each option: ``(support / covering - q) / (p - q)``."""

    n: int  # reports
    support: Integers  # (options,): reports that say that the option was chosen
    covering: Integers  # (options,): reports about the option
    channel: Channel  # the probabilities that a report about an option says so, if it was chosen, and if not
    # Of reports about two options: the probabilities that one says yes of both, if none is chosen, one, and both; and how many
    # such reports each option of some places has with each other one, (places, options).
    both: tuple[float, ...] = ()
    common: Callable[[NDArray[np.intp]], Integers] | None = None

    @property
    def reports(self) -> Integers:
        """How many reports are about each option."""
        return self.covering

    @cached_property
    def frequency(self) -> Floats:
        """Unbiased share of each option; nan where there are no reports about it."""
        return self.channel.debias(self.support / self._covering)

    @property
    def stderr(self) -> Floats:
        """Standard error of the share in the population that the respondents were drawn from."""
        return np.asarray(np.sqrt(self.channel.variance(self.plausible) / self._covering) / self.channel.gain, np.float64)

    @property
    def respondents_stderr(self) -> Floats:
        """Standard error of the share among all respondents, of whom a random part was asked about the option."""
        f = self.plausible
        noise = self.channel.noise(f) / self.channel.gain**2
        sampling = f * (1 - f) * (1 - self.covering / (self.n or np.nan))
        return np.asarray(np.sqrt((noise + sampling) / self._covering), np.float64)

    @property
    def plausible(self) -> Floats:
        """Shares from which errors can be computed. Those of options need not sum to 1."""
        return np.clip(np.nan_to_num(self.frequency), 0.0, 1.0)

    @property
    def absent_stderr(self) -> Floats:
        """Standard error of the share of each option if nobody chose it."""
        q = self.channel.q
        return np.asarray(np.sqrt(q * (1 - q) / self._covering) / self.channel.gain, np.float64)

    @property
    def p_value(self) -> Floats:
        """Chance of an estimate at least as large if nobody chose the option: an exact binomial tail."""
        c = self.support
        return np.where(c > 0, betainc(np.maximum(c, 1), self.covering - c + 1, self.channel.q), 1.0)

    def _half_detected(self, chance: float) -> Floats:
        """Compute the share of each option at which half of all p-values are below `chance`."""
        return self.channel.debias(half_significant(self._covering, self.channel.q, chance))

    def _interval(self, chance: float, target: Target) -> tuple[Floats, Floats]:
        """Compute Clopper and Pearson's intervals; for respondents narrower in proportion to the standard error."""
        ends = [self.channel.debias(end) for end in clopper_pearson(self.support, self.covering, chance)]
        if target == "respondents":
            ends = [self.frequency + (end - self.frequency) * self.respondents_stderr / self.stderr for end in ends]
        return ends[0], ends[1]

    @property
    def _covering(self) -> Floats:
        return np.where(self.covering > 0, self.covering, np.nan)

    def least_covariance(self, places: NDArray[np.intp]) -> Floats:
        """Return the least covariance that the estimates of some options may have with those of all, (places, options)."""
        f = self.plausible
        if self.common is None:  # each report is about one option
            return np.zeros((len(places), len(f)))
        # It depends on how many people choose both, which is not known. The least is at one end of what is possible.
        own, other = f[places, None], f[None, :]
        none, one, two = self.both
        ends = np.maximum(own + other - 1, 0.0), np.minimum(own, other)
        chances = [none + (own + other) * (one - none) + end * (two - 2 * one + none) for end in ends]
        says = self.channel.support(f)
        excess = np.minimum(*chances) - says[places, None] * says
        covering = self._covering[places, None] * self._covering
        return np.asarray(self.common(places) * excess / covering / self.channel.gain**2, np.float64)
