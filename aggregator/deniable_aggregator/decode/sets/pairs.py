"""Pairs of options: the share of people who chose both, and a test whether the choices are independent, for few reports, too."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import ndtr

from deniable.errors import ParameterError
from deniable.mechanisms.sets.sampled_options import SampledPair
from deniable_aggregator.decode.binomial import clopper_pearson
from deniable_aggregator.decode.channel import Channel
from deniable_aggregator.decode.multiple_testing import tail
from deniable_aggregator.decode.sets.options import option_shares

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from deniable.mechanisms import Mechanism
    from deniable_aggregator.tally import Tally

_CASES = 4  # neither, the first alone, the second alone, both
_EXACT = 40  # reports up to which all outcomes are gone through
_BISECTIONS = 80
_SAME = 1e-9  # of a score: closer ones are equal
_NEAR = 1e-4  # of a standard error: nearer to the mean, the normal law is taken


@dataclass(frozen=True, eq=False)
class Pairs:
    """Pairs of options, in the order of the mechanism's rows."""

    n: NDArray[np.int64]  # (pairs,): reports about each
    support: NDArray[np.int64]  # (pairs,): those that say that both were chosen
    channel: Channel  # the probabilities that a report says so, if they were, and if not
    more: float  # how many other reports about the same pair the device of a report has made, on average, at most
    # (pairs,), chance of reports at least as far from what they are on average if the choices are independent; nan without
    # reports.
    p_value: NDArray[np.float64]

    @property
    def both(self) -> NDArray[np.float64]:
        """Unbiased share of people who chose both; nan where there are no reports."""
        return self.channel.debias(self.support / self._n)

    @property
    def stderr(self) -> NDArray[np.float64]:
        """Its standard error in the population that the respondents were drawn from."""
        share = np.clip(np.nan_to_num(self.both), 0.0, 1.0)
        noise = self.channel.variance(share) / self.channel.gain**2
        return np.asarray(np.sqrt((noise + self.more * share * (1 - share)) / self._n), np.float64)

    def interval(self, level: float = 0.95) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the intervals of Clopper and Pearson, for as many reports of different people as have these errors."""
        share = np.clip(np.nan_to_num(self.both), 0.0, 1.0)
        noise = self.channel.variance(share) / self.channel.gain**2
        part = noise / (noise + self.more * share * (1 - share))
        low, high = (self.channel.debias(end) for end in clopper_pearson(self.support * part, self.n * part, tail(level)))
        return low, high

    @property
    def _n(self) -> NDArray[np.float64]:
        return np.where(self.n > 0, self.n, np.nan)


def pairs(
    mechanism: Mechanism,  # `SampledPair`
    tally: Tally,
    *,
    repeats: float = 0.0,  # other reports of a report's device, at most: see `panel`
) -> Pairs:
    """Estimate the share of people who chose both options of each pair, and test whether they chose them independently."""
    # The score of a person is (x - a) (y - b): x and y are 1 for a chosen option, a and b are the shares of people who chose
    # each. If the choices are independent, its mean is 0. A report has a score of the same mean. The shares come from all reports
    # that tell of the option, which are m - 1 times those about the pair. So the test is of the sum of scores, given the shares.
    # Up to 40 reports the chance is that of all outcomes, and above 40 it is a saddlepoint approximation.
    #
    # Reports of the same people about the same pair widen the law of the sum. Then the distance is divided by as much.
    # R. Lugannani, S. Rice: Saddle point approximation for the distribution of the sum. Adv. Appl. Prob. 12(2), 1980.
    if not isinstance(mechanism, SampledPair):
        raise ParameterError(
            "mechanism: choose one about pairs, whose reports show which options are chosen together", mechanism.name
        )
    tally.check_decoder(mechanism)
    p, q, more = float(mechanism.keep), float(mechanism.other), repeats / len(mechanism.groups)
    shares = option_shares(mechanism, tally)
    covering = np.maximum(shares.covering, 1)
    held = np.clip(np.nan_to_num(shares.frequency), 0.5 / covering, 1 - 0.5 / covering)
    a, b = (held[options] for options in np.array(mechanism.groups).T)
    score = np.stack([a * b, -(1 - a) * b, -a * (1 - b), (1 - a) * (1 - b)], axis=1)
    score = (score - q * score.sum(axis=1, keepdims=True)) / (p - q)
    chance = q + (p - q) * np.stack([(1 - a) * (1 - b), a * (1 - b), (1 - a) * b, a * b], axis=1)
    mean = np.sum(score * chance, axis=1)
    variance = np.sum(score**2 * chance, axis=1) - mean**2
    away = np.abs(np.sum(tally.counts * score, axis=1) - tally.reports * mean)
    away /= np.sqrt(1 + more * a * (1 - a) * b * (1 - b) / variance)
    few = tally.reports <= _EXACT
    p_values = np.full(len(score), np.nan)
    p_values[~few] = _saddlepoint(tally.reports[~few], score[~few], chance[~few], away[~few])
    for row in np.flatnonzero(few & (tally.reports > 0)):
        p_values[row] = _exact(int(tally.reports[row]), score[row], chance[row], away[row])
    return Pairs(tally.reports, tally.counts[:, _CASES - 1], Channel(p, q), more, p_values)


def _exact(n: int, score: NDArray[np.float64], chance: NDArray[np.float64], away: float) -> float:
    """Return the chance of a sum of n scores that is at least so far away from its mean, over all outcomes."""
    counts, ways = _outcomes(n)
    sums = counts @ score - n * float(score @ chance)
    far = np.abs(sums) >= away - _SAME
    return min(1.0, float(np.exp(ways[far] + counts[far] @ np.log(chance)).sum()))


@lru_cache(_EXACT)
def _outcomes(n: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """List how often each of four cases can occur in n reports, and the logarithm of the number of orders of each."""
    first, second, third = np.meshgrid(*[np.arange(n + 1)] * 3, indexing="ij")
    fourth = n - first - second - third
    counts = np.stack([each[fourth >= 0] for each in (first, second, third, fourth)], axis=1)
    factorials = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, n + 1)))])
    return counts.astype(np.float64), factorials[n] - factorials[counts].sum(axis=1)


def _saddlepoint(
    n: NDArray[np.int64], score: NDArray[np.float64], chance: NDArray[np.float64], away: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Approximate the chance of a sum of n scores that is at least so far away from its mean, on either side; (pairs,)."""
    centred = score - np.sum(score * chance, axis=1, keepdims=True)
    return np.minimum(_upper_tail(n, centred, chance, away) + _upper_tail(n, -centred, chance, away), 1.0)


def _upper_tail(
    n: NDArray[np.int64], score: NDArray[np.float64], chance: NDArray[np.float64], away: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Approximate the chance that n scores with mean 0 sum to `away` or more; (pairs,)."""
    variance = np.sum(score**2 * chance, axis=1)
    target, most = away / n, score.max(axis=1)
    low, high = np.zeros(len(n)), np.full(len(n), 60.0) / (most - score.min(axis=1))

    def tilted(t: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Return the cumulant generating function and its first two derivatives."""
        weights = chance * np.exp(t[:, None] * (score - most[:, None]))
        total = weights.sum(axis=1)
        first = np.sum(weights * score, axis=1) / total
        return np.log(total) + t * most, first, np.sum(weights * score**2, axis=1) / total - first**2

    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        below = tilted(middle)[1] < target
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    cumulant, _, second = tilted(low)
    w = np.sqrt(np.maximum(2 * n * (low * target - cumulant), 0.0))
    u = low * np.sqrt(n * second)
    near = (w < _NEAR) | (u < _NEAR)
    with np.errstate(divide="ignore", invalid="ignore"):
        tails = ndtr(-w) + np.exp(-(w**2) / 2) / np.sqrt(2 * np.pi) * (1 / u - 1 / w)
    tails = np.where(near, ndtr(-away / np.sqrt(n * variance)), tails)
    # All reports of the case with the greatest score: the tail has this outcome alone, or none.
    last = chance[np.arange(len(n)), score.argmax(axis=1)] ** n
    tails = np.where(target >= most - _SAME, np.where(target > most + _SAME, 0.0, last), tails)
    return np.asarray(np.clip(tails, 0.0, 1.0), np.float64)
