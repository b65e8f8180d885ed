"""Tails: how unlikely counts are, by bounds that hold at any number of reports and as far out as an alarm must look.

An honest count is a sum of independent events, whose probabilities depend on what people hold but lie within known bounds. It
is then no larger, in distribution, than the binomial of the upper bound, and no smaller than that of the lower one, whatever
people hold. So every probability here is exact for the worst population, or above it.
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

__all__ = ["at_least", "at_most", "binomial_sums", "log_choose", "set_surplus", "shortfall"]

_LAMBDAS = np.linspace(0.02, 0.9, 45)
_REACH = 32.0  # standard deviations, beyond which Chernoff's own bound serves
_LIGHTEST = 700.0  # minus the logarithm of the lightest mass that a float holds
_EDGES = 1500  # parts of that range; the bound is that of the worst count in each
_STEPS = np.geomspace(1e-4, 20.0, 120)


def at_least(hits: ArrayLike, of: ArrayLike, chance: ArrayLike) -> NDArray[np.float64]:
    """Compute the probability of at least so many successes in `of` trials of probability `chance`."""
    k, n, p = np.broadcast_arrays(np.asarray(hits, np.float64), np.asarray(of, np.float64), np.asarray(chance, np.float64))
    inside = (k > 0) & (k <= n)
    tail = betainc(np.where(inside, k, 1.0), np.where(inside, n - k + 1, 1.0), np.clip(p, 0.0, 1.0))
    return np.where(k <= 0, 1.0, np.where(inside, tail, 0.0))


def at_most(hits: ArrayLike, of: ArrayLike, chance: ArrayLike) -> NDArray[np.float64]:
    """Compute the probability of at most so many successes in `of` trials of probability `chance`."""
    n = np.asarray(of, np.float64)
    return at_least(n - np.asarray(hits), n, 1 - np.asarray(chance, np.float64))


def shortfall(counts: NDArray[np.int64], of: int, least: float) -> float:
    """Bound the probability that counts fall short as much as these, taken together, where none need fall short.

    Parameters
    ----------
    counts
        int64 array of any shape.
    of
        Reports.
    least
        What each of them counts has at least this probability in each report, in (0, 1).

    Returns
    -------
    float
        At least P(T >= t), where T is the sum of ``n KL(count / n, least)`` over the counts below ``n least``.

    Notes
    -----
    Each term falls as its count grows, so it is largest, in distribution, for a binomial count of `least`. The counts must be
    negatively associated, as those of what excludes each other are, and of independent bits: then so are the terms, and
    E exp(lambda T) is at most the product of theirs (Joag-Dev and Proschan). Chernoff's bound is taken at the best lambda. For
    counts that are too large, give ``of - counts`` and one less the greatest probability.

    References
    ----------
    K. Joag-Dev, F. Proschan: Negative association of random variables, with applications. Annals of Statistics 11(1), 1983.
    """
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
    """Bound log E exp(lambda G) for each lambda, G the term of a binomial count of `least`."""
    mean = of * least
    first = max(0, int(mean - _REACH * np.sqrt(mean * (1 - least))))
    last = int(np.ceil(mean))  # from here up the term is 0
    edges = np.unique(np.linspace(first, last, _EDGES).astype(np.int64))
    below = np.where(edges > 0, bdtr(np.maximum(edges - 1.0, 0.0), of, least), 0.0)
    masses = np.diff(below)
    terms = _below(edges[:-1], of, least)  # of each part the largest
    heavy = masses > 0
    logs = _LAMBDAS[:, None] * terms[heavy] + np.log(masses[heavy])
    # What lies below the first edge, or has a mass that a float cannot hold: P(G >= t) <= exp(-t) by Chernoff, integrated.
    if first or terms[0] > _LIGHTEST:
        beyond = (_LAMBDAS - 1) * min(terms[0], _LIGHTEST) - np.log(1 - _LAMBDAS)
    else:
        beyond = np.full(len(_LAMBDAS), -np.inf)
    above = np.log(max(1 - below[-1], np.finfo(float).tiny))
    return np.asarray(np.logaddexp(np.logaddexp(np.logaddexp.reduce(logs, axis=1, initial=-np.inf), beyond), above), np.float64)


def log_choose(of: int, some: NDArray[np.int64]) -> NDArray[np.float64]:
    """Compute the logarithm of how many sets there are."""
    return np.asarray(gammaln(of + 1.0) - gammaln(some + 1.0) - gammaln(of - some + 1.0), np.float64)


def binomial_sums(kinds: Sequence[Sequence[tuple[int, Fraction]]]) -> NDArray[np.float64]:
    """Compute the distributions of sums of independent binomial counts.

    Parameters
    ----------
    kinds
        For each sum the trials and the probability of its parts. All sums have as many trials.

    Returns
    -------
    float array (kinds, trials + 1)
    """
    return np.array([reduce(np.convolve, (_binomial(trials, float(chance)) for trials, chance in kind)) for kind in kinds])


def _binomial(of: int, chance: float) -> NDArray[np.float64]:
    k = np.arange(of + 1)
    return np.asarray(np.exp(log_choose(of, k) + xlogy(k, chance) + xlog1py(of - k, -chance)), np.float64)


def set_surplus(counts: NDArray[np.int64], of: int, p: float, q: float, *, exclusive: bool) -> tuple[float, int]:
    """Bound the probability that some set of values has so many supports, more than all people together could give it.

    Parameters
    ----------
    counts
        int64 array (values,): reports that support each.
    of
        Reports.
    p, q
        Probability that a report supports the value held, and any other.
    exclusive
        Whether a report supports a single value; else it supports them independently of each other, or less than that.

    Returns
    -------
    p_value : float
        Over all sets of up to half of the values: the union of the sets is accounted for.
    size : int
        Of the most unlikely set.
    """
    values = len(counts)
    sizes = np.arange(1, max(values // 2, 1) + 1)
    sums = np.sort(counts)[::-1].cumsum()[: len(sizes)]
    if exclusive:
        with np.errstate(divide="ignore"):
            logs = np.log(at_least(sums, of, p + (sizes - 1) * q))
    else:  # one of the set is held at most: E exp(s S) of a report is at most that of its independent bits
        grown = np.expm1(_STEPS)
        moment = of * (np.log1p(p * grown) + (sizes[:, None] - 1) * np.log1p(q * grown))
        logs = np.minimum((moment - _STEPS * sums[:, None]).min(axis=1), 0.0)
    logs += log_choose(values, sizes) + np.log(len(sizes))
    best = int(np.argmin(logs))
    return float(np.exp(min(0.0, logs[best]))), int(sizes[best])
