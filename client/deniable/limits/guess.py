"""How often the best guess about a device's answer is right, from all of its reports of that answer.

Lint, `deniable plan` and the privacy report ask here. Two answers are equally likely before, and luck alone is right in half of
the cases. All figures are upper bounds.
"""

from __future__ import annotations

from math import exp, lgamma, log, log1p
from typing import TYPE_CHECKING

from deniable.limits.allowance import MICRO, cost
from deniable.registry.period import most_in_days

if TYPE_CHECKING:
    from deniable.declared import Declared
    from deniable.registry import Metric

_YEAR = 365  # days


def in_year(declared: Declared) -> float:
    """Return how often the best guess is right at most from all reports of one answer in a year."""
    if not declared.metric.permanent:
        mechanism = declared.mechanism
        return right(cost(mechanism.ratio), reports_in_year(declared.metric), float(mechanism.telling))
    permanent = declared.permanent
    if permanent is None or permanent.permanent_ratio is None:
        return 1.0  # the kept response may be the answer itself
    return right(cost(permanent.permanent_ratio), 1, 1.0)


def reports_in_year(metric: Metric) -> int:
    """Return how many reports a device makes of a metric in a year, at most."""
    return metric.per_period * most_in_days(metric.period, _YEAR)


def right(
    epsilon: int,  # of a report, in millionths of a nat
    reports: int,  # independent ones, at least 1
    share: float,  # probability that a report says anything about the two answers, in (0, 1]
) -> float:
    """Return how often the best guess is right from independent reports, each of which favours the true answer by epsilon."""
    # The best guess is what most of the reports favour that say anything. Let S(m) be how often the majority of m is right, and a
    # coin if there is none. Then S(0) = 1/2, S(2k) = S(2k - 1), and S(2k + 1) - S(2k - 1) = (2p - 1) C(2k - 1, k) (pq)^k.
    # So the mean of S is a sum of such steps, each times the probability that so many reports say anything.
    p = 1 / (1 + exp(-epsilon / MICRO))
    variance, step, total = p * (1 - p), p - 0.5, 0.5
    many = _at_least(reports, share)
    for k in range((reports + 1) // 2):
        total += step * many[2 * k + 1]
        step *= 2 * (2 * k + 1) / (k + 1) * variance
    return min(1.0, total)


def _at_least(count: int, share: float) -> list[float]:
    """Return the probability that at least 0, 1, 2, ... of `count` independent events of probability `share` happen."""
    if share == 1:
        return [1.0] * (count + 1)
    yes, no, ways = log(share), log1p(-share), lgamma(count + 1)
    tails = [0.0]
    for m in range(count, -1, -1):
        tails.append(tails[-1] + exp(ways - lgamma(m + 1) - lgamma(count - m + 1) + m * yes + (count - m) * no))
    return tails[:0:-1]
