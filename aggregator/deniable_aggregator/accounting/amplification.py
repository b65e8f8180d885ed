"""Smaller epsilons that hold under conditions: hidden sampling, and a shuffler run by somebody else.

Neither condition holds here, so neither epsilon is claimed. The SDK sends nothing for an answer that was not sampled, and the
receiver sees who sent a report.
"""

from __future__ import annotations

from math import exp, expm1, log1p, sqrt
from typing import TYPE_CHECKING

import numpy as np

from deniable.errors import ParameterError
from deniable_aggregator import checks

if TYPE_CHECKING:
    from numpy.typing import NDArray

_SPREAD = 10.0  # standard deviations of the number of clones that the sum covers
_CLOSE = 1e-9  # nats


def sampled(
    epsilon: float,  # of a report, in nats, above 0
    share: float,  # in (0, 1]; drawn anew for each occasion, independently of the answer
    *,
    # whether nobody can see if there was a report; else sampling hides nothing, and epsilon stays as it is
    presence_hidden: bool,
) -> float:
    """Return the epsilon of an occasion on which a device reports with probability `share`, in nats."""
    # S. P. Kasiviswanathan and others: What can we learn privately? SIAM Journal on Computing 40(3), 2011, lemma 4.4.
    # B. Balle and others: Privacy amplification by subsampling. NeurIPS 2018, theorem 8.
    checks.positive("epsilon", epsilon)
    if not 0 < share <= 1:
        raise ParameterError("share: write a probability above 0", share)
    return log1p(share * expm1(epsilon)) if presence_hidden else epsilon


def shuffled(
    epsilon: float,  # of a report, in nats, above 0
    reports: int,  # of honest devices that are shuffled together, one each, at least 1
    delta: float,  # a probability
) -> float:
    """Return the epsilon of one report among many, for an observer who sees them in random order only, in nats."""
    # Each other report is a clone with probability e^-epsilon: it is equally likely under both of the answers compared. Of c
    # clones, a binomial half are of the first kind, and the report hides among these. The sum over c is taken within 10 standard
    # deviations. The result is never larger than the given epsilon.
    # V. Feldman and others: Hiding among the clones. FOCS 2021, theorem 3.2.
    from scipy.optimize import brentq  # noqa: PLC0415 - slow to import, and most statements name no shuffler
    from scipy.stats import binom  # noqa: PLC0415

    checks.positive("epsilon", epsilon)
    checks.count("reports", reports)
    checks.delta(delta)
    chance = exp(-epsilon)
    mean, spread = (reports - 1) * chance, sqrt((reports - 1) * chance * (1 - chance))
    low, high = max(0, int(mean - _SPREAD * spread - 1)), min(reports - 1, int(mean + _SPREAD * spread + _SPREAD))
    clones = np.arange(low, high + 1)
    weights = binom.pmf(clones, reports - 1, chance)
    if _delta(0.0, epsilon, clones, weights) <= delta:
        return 0.0
    least = brentq(lambda total: _delta(total, epsilon, clones, weights) - delta, 0.0, epsilon, xtol=_CLOSE)
    return min(epsilon, float(least) + _CLOSE)


def _delta(total: float, epsilon: float, clones: NDArray[np.int64], weights: NDArray[np.float64]) -> float:
    """Return the delta of a shuffled report at an epsilon of `total`."""
    from scipy.stats import binom  # noqa: PLC0415

    # Of the clones and the report, x are of the first kind. The likelihood ratio of the two answers depends on the share
    # x / (clones + 1) alone, and rises with it.
    true = 1 / (1 + exp(-epsilon))
    odds = exp(total)
    even = (odds * true - (1 - true)) / ((2 * true - 1) * (odds + 1))  # the share at which the ratio is e^total
    least = np.floor(even * (clones + 1)).astype(np.int64)  # the ratio is above e^total for more than these
    with_it, without = binom.sf(least - 1, clones, 0.5), binom.sf(least, clones, 0.5)
    first, second = true * with_it + (1 - true) * without, (1 - true) * with_it + true * without
    return float(weights @ np.maximum(first - odds * second, 0.0))
