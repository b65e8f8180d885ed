"""Sets: shares of options, from reports that are each about one option or one pair."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import sqrt
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import betainc

from deniable.errors import ParameterError
from deniable.mechanisms.sampled_option import Sampled, SampledPair
from deniable_aggregator.decode.binomial import clopper_pearson, half_significant
from deniable_aggregator.decode.channel import Channel
from deniable_aggregator.decode.estimate import Estimate

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from deniable.mechanisms import Mechanism
    from deniable_aggregator.decode.estimate import Target
    from deniable_aggregator.tally import Tally


@dataclass(frozen=True, eq=False)
class OptionShares(Estimate):
    """The share of people who chose each option: ``(support / covering - q) / (p - q)``."""

    n: int  # reports
    support: NDArray[np.int64]  # (options,): reports that say that the option was chosen
    covering: NDArray[np.int64]  # (options,): reports about the option
    channel: Channel  # the probabilities that a report about an option says so, if it was chosen, and if not

    @property
    def reports(self) -> NDArray[np.int64]:
        """How many reports are about each option."""
        return self.covering

    @cached_property
    def frequency(self) -> NDArray[np.float64]:
        """Unbiased share of each option; nan where there are no reports about it."""
        return self.channel.debias(self.support / self._covering)

    @property
    def stderr(self) -> NDArray[np.float64]:
        """Standard error of the share in the population that the respondents were drawn from."""
        return np.asarray(np.sqrt(self.channel.variance(self.plausible) / self._covering) / self.channel.gain, np.float64)

    @property
    def respondents_stderr(self) -> NDArray[np.float64]:
        """Standard error of the share among all respondents, of whom a random part was asked about the option."""
        f = self.plausible
        noise = self.channel.noise(f) / self.channel.gain**2
        sampling = f * (1 - f) * (1 - self.covering / (self.n or np.nan))
        return np.asarray(np.sqrt((noise + sampling) / self._covering), np.float64)

    @property
    def plausible(self) -> NDArray[np.float64]:
        """Shares from which errors can be computed. Those of options need not sum to 1."""
        return np.clip(np.nan_to_num(self.frequency), 0.0, 1.0)

    @property
    def absent_stderr(self) -> NDArray[np.float64]:
        """Standard error of the share of each option if nobody chose it."""
        q = self.channel.q
        return np.asarray(np.sqrt(q * (1 - q) / self._covering) / self.channel.gain, np.float64)

    @property
    def p_value(self) -> NDArray[np.float64]:
        """Chance of an estimate at least as large if nobody chose the option: an exact binomial tail."""
        c = self.support
        return np.where(c > 0, betainc(np.maximum(c, 1), self.covering - c + 1, self.channel.q), 1.0)

    def _half_detected(self, chance: float) -> NDArray[np.float64]:
        """Compute the share of each option at which half of all p-values are below `chance`."""
        return self.channel.debias(half_significant(self._covering, self.channel.q, chance))

    def _interval(self, chance: float, target: Target) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Compute Clopper and Pearson's intervals; for respondents narrower in proportion to the standard error."""
        ends = [self.channel.debias(end) for end in clopper_pearson(self.support, self.covering, chance)]
        if target == "respondents":
            ends = [self.frequency + (end - self.frequency) * self.respondents_stderr / self.stderr for end in ends]
        return ends[0], ends[1]

    @property
    def _covering(self) -> NDArray[np.float64]:
        return np.where(self.covering > 0, self.covering, np.nan)


def option_shares(
    mechanism: Mechanism,  # `SampledOption` or `SampledPair`
    tally: Tally,  # the sum of their reports
) -> OptionShares:
    """Estimate the share of people who chose each option."""
    # A report about a pair tells of both of its options. It says that an option was chosen in two of its four cases. If it was,
    # one of them is the true one. So p is then `keep + other`, and q is `2 other`.
    sets = _checked(mechanism, tally)
    cases = 1 << len(sets.groups[0])
    options = sets.domain_size.bit_length() - 1
    support, covering = (np.zeros(options, np.int64) for _ in range(2))
    for place in range(len(sets.groups[0])):
        named = [group[place] for group in sets.groups]
        yes = [index for index in range(cases) if index >> place & 1]
        np.add.at(support, named, tally.counts[:, yes].sum(axis=1))
        np.add.at(covering, named, tally.reports)
    p, q = sets.keep + (cases // 2 - 1) * sets.other, cases // 2 * sets.other
    return OptionShares(tally.n, support, covering, Channel(float(p), float(q)))


def chosen(
    mechanism: Mechanism,
    tally: Tally,
    *,
    repeats: float = 0.0,  # other reports of a report's device, at most: see `panel`
) -> tuple[float, float]:
    """Estimate how many options people chose on average, with its standard error; nan without reports about some option."""
    # The mean is the sum of all shares. So is its variance, where each report is about one option. Reports about two add the
    # covariance that they show, if it is above 0. Few reports about an option may all say the same by chance. So two of each kind
    # are added for the variance.
    # A. Agresti, B. Coull: Approximate is better than "exact" for binomial proportions. The American Statistician 52(2), 1998.
    sets, shares = _checked(mechanism, tally), option_shares(mechanism, tally)
    total = float(shares.frequency.sum())
    if not np.isfinite(total):
        return float("nan"), float("nan")
    # What two reports of a person share is how many options the person chose. It varies most if people who choose a rare option
    # choose all that are more frequent.
    falling = np.sort(shares.plausible)[::-1]
    most = float(falling @ (2 * np.arange(len(falling)) + 1)) - float(falling.sum()) ** 2
    smoothed = (shares.support + 2) / (shares.covering + 4)
    single = float((smoothed * (1 - smoothed) / shares.covering).sum()) / shares.channel.gain**2
    variance = single + max(_together(sets, tally, shares), 0.0)
    return total, sqrt(variance + repeats * most / tally.n)


def _together(sets: Sampled, tally: Tally, shares: OptionShares) -> float:
    """Estimate twice the sum of the covariances of shares: a report about a pair is about two of them."""
    if not isinstance(sets, SampledPair):
        return 0.0
    first, second = np.array(sets.groups).T
    alone = shares.support / shares.covering
    excess = tally.counts[:, 3] - tally.reports * alone[first] * alone[second]
    return 2 * float((excess / shares.covering[first] / shares.covering[second]).sum()) / shares.channel.gain**2


def _checked(mechanism: Mechanism, tally: Tally) -> Sampled:
    if not isinstance(mechanism, Sampled):
        raise ParameterError("mechanism: choose one of sets, whose reports show shares of options", mechanism.name)
    tally.check_decoder(mechanism)
    return mechanism
