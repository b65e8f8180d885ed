"""Tail bounds of counts, which hold for any number of reports and far out in the tails.

An honest count is a sum of independent events. Their probabilities depend on the population, but lie within known bounds. So the
count is stochastically between the binomials of the lower and the upper bound. Every probability here is exact for the worst
population, or above it.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import bdtr, betainc, gammaln, rel_entr, xlog1py, xlogy

if TYPE_CHECKING:
    from collections.abc import Sequence
    from fractions import Fraction

    from numpy.typing import ArrayLike, NDArray

    from deniable.mechanisms.bounds import Bounds

_LAMBDAS = np.linspace(0.02, 0.9, 45)
_REACH = 32.0  # standard deviations, beyond which Chernoff's bound is used
_LIGHTEST = 700.0  # minus the logarithm of the lightest mass that a float holds
_EDGES = 1500  # parts of that range; each uses its worst count
_STEPS = np.geomspace(1e-4, 20.0, 120)


def at_least(hits: ArrayLike, of: ArrayLike, chance: ArrayLike) -> NDArray[np.float64]:
    """Compute the probability of at least `hits` successes in `of` trials of probability `chance`."""
    k, n, p = np.broadcast_arrays(np.asarray(hits, np.float64), np.asarray(of, np.float64), np.asarray(chance, np.float64))
    inside = (k > 0) & (k <= n)
    tail = betainc(np.where(inside, k, 1.0), np.where(inside, n - k + 1, 1.0), np.clip(p, 0.0, 1.0))
    return np.where(k <= 0, 1.0, np.where(inside, tail, 0.0))


def at_most(hits: ArrayLike, of: ArrayLike, chance: ArrayLike) -> NDArray[np.float64]:
    """Compute the probability of at most `hits` successes in `of` trials of probability `chance`."""
    n = np.asarray(of, np.float64)
    return at_least(n - np.asarray(hits), n, 1 - np.asarray(chance, np.float64))


def shortfall(
    counts: NDArray[np.int64],  # int64 array of any shape
    of: int,  # number of reports
    least: float,  # each count's event has at least this probability in each report, in (0, 1)
) -> float:
    """Bound the probability that counts are together this far below their expectation, if none has to be."""
    # The bound is at least P(T >= t), where T is the sum of n KL(count / n, least) over the counts below n least. Each term falls
    # as its count grows, so it is stochastically largest for a binomial count of `least`. The counts must be negatively
    # associated. Counts of exclusive events and of independent bits are. Then so are the terms, and E exp(lambda T) is at most
    # the product of theirs (Joag-Dev and Proschan). Chernoff's bound is taken at the best lambda. For counts that are too large,
    # pass of - counts and one minus the greatest probability.
    # K. Joag-Dev, F. Proschan: Negative association of random variables, with applications. Annals of Statistics 11(1), 1983.
    if not of or not 0 < least < 1:
        return 1.0
    total = float(_below(counts.ravel(), of, least).sum())
    if total <= 0:
        return 1.0
    log_bound = counts.size * _log_moments(of, least) - _LAMBDAS * total
    return float(np.exp(min(0.0, log_bound.min())))


def _below(counts: NDArray[np.int64], of: int, least: float) -> NDArray[np.float64]:
    share = counts / of
    gap = rel_entr(share, least) + rel_entr(1 - share, 1 - least)
    return np.asarray(np.where(share < least, of * gap, 0.0), np.float64)


def _log_moments(of: int, least: float) -> NDArray[np.float64]:
    """Bound log E exp(lambda G) for each lambda, where G is the term of a binomial count of `least`."""
    mean = of * least
    first = max(0, int(mean - _REACH * np.sqrt(mean * (1 - least))))
    last = int(np.ceil(mean))  # from here on the term is 0
    edges = np.unique(np.linspace(first, last, _EDGES).astype(np.int64))
    below = np.where(edges > 0, bdtr(np.maximum(edges - 1.0, 0.0), of, least), 0.0)
    masses = np.diff(below)
    terms = _below(edges[:-1], of, least)  # the largest term of each part
    heavy = masses > 0
    logs = _LAMBDAS[:, None] * terms[heavy] + np.log(masses[heavy])
    # For counts below the first edge, and masses too small for a float: P(G >= t) <= exp(-t) by Chernoff, integrated.
    if first or terms[0] > _LIGHTEST:
        beyond = (_LAMBDAS - 1) * min(terms[0], _LIGHTEST) - np.log(1 - _LAMBDAS)
    else:
        beyond = np.full(len(_LAMBDAS), -np.inf)
    above = np.log(max(1 - below[-1], np.finfo(float).tiny))
    return np.asarray(np.logaddexp(np.logaddexp(np.logaddexp.reduce(logs, axis=1, initial=-np.inf), beyond), above), np.float64)


def log_choose(of: int, size: NDArray[np.int64]) -> NDArray[np.float64]:
    """Compute the logarithm of the number of sets."""
    return np.asarray(gammaln(of + 1.0) - gammaln(size + 1.0) - gammaln(of - size + 1.0), np.float64)


def ones(bounds: Bounds) -> NDArray[np.float64]:
    """Return the distributions of the number of ones that reports may have, (kinds, width + 1); none of reports without bits."""
    return np.array(bounds.counts, np.float64) if bounds.counts else binomial_sums(bounds.ones)


def binomial_sums(
    # for each sum the trials and the probability of its parts; all sums have the same number of trials
    kinds: Sequence[Sequence[tuple[int, Fraction]]],
) -> NDArray[np.float64]:
    """Compute the distributions of sums of independent binomial counts, (kinds, trials + 1)."""
    return np.array([reduce(np.convolve, (_binomial(trials, float(chance)) for trials, chance in kind)) for kind in kinds])


def _binomial(of: int, chance: float) -> NDArray[np.float64]:
    k = np.arange(of + 1)
    return np.asarray(np.exp(log_choose(of, k) + xlogy(k, chance) + xlog1py(of - k, -chance)), np.float64)


def set_surplus(
    counts: NDArray[np.int64],  # (values,): reports that support each value
    of: int,  # number of reports
    # p, q: probabilities that a report supports the value held, and any other
    p: float,
    q: float,
    *,
    # whether a report supports a single value; if not, it supports values independently, or with negative dependence
    exclusive: bool,
) -> tuple[float, int]:
    """Bound the probability that some set of values has more support than people could give it, and name its size."""
    # The p-value is over all sets of up to half of the values, with a union bound.
    values = len(counts)
    sizes = np.arange(1, max(values // 2, 1) + 1)
    sums = np.sort(counts)[::-1].cumsum()[: len(sizes)]
    if exclusive:
        with np.errstate(divide="ignore"):
            logs = np.log(at_least(sums, of, p + (sizes - 1) * q))
    else:  # a person holds one value of the set at most: E exp(s S) of a report is at most that of its independent bits
        grown = np.expm1(_STEPS)
        moment = of * (np.log1p(p * grown) + (sizes[:, None] - 1) * np.log1p(q * grown))
        logs = np.minimum((moment - _STEPS * sums[:, None]).min(axis=1), 0.0)
    logs += log_choose(values, sizes) + np.log(len(sizes))
    best = int(np.argmin(logs))
    return float(np.exp(min(0.0, logs[best]))), int(sizes[best])
