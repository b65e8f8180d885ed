"""The error to expect of the estimates of a number, of a set, or of the mean of ordered answers, in words for lint."""

from __future__ import annotations

from itertools import pairwise
from math import ceil, exp, log, sqrt
from typing import TYPE_CHECKING

from deniable.mechanisms.base import FrequencyOracle
from deniable.registry.answers.axis import BINS

if TYPE_CHECKING:
    from collections.abc import Collection

    from deniable.mechanisms import Mechanism
    from deniable.registry import Metric
    from deniable.registry.tables import Experiment

REPORTS = 10_000
"""The number of reports for which the error is told."""

_ALPHA, _POWER = 0.05, 0.8416  # chance of error of an experiment; the normal quantile of 80%

_P99_FROM = ((1.0, 600_000), (2.0, 220_000), (4.0, 12_000))
"""By epsilon, from about how many reports the 99th percentile is resolved. Simulated, and rough: it depends on the answers."""

_BAND = 0.076, -0.75
"""Half of the 95% band of the median of `REPORTS` even answers, as a share of the range: at epsilon 1, and its power of epsilon.

Simulated at epsilon 0.5 to 4. A band is as wide in shares of the answers, so it is narrower where answers are dense.
"""

_ERROR = "standard error"

_P90 = 30
"""The 90th percentile is resolved from about so many times fewer reports."""


def expected(
    metric: Metric,  # a number, a set, or an ordinal whose mean is estimated
    mechanism: Mechanism,
) -> dict[str, str]:
    """Say what is estimated of a metric that is scored or has an axis, and the error to expect; by what it is about."""
    facts = {"answers": _answers(metric)}
    if metric.kind.options:
        worst = sqrt(float(mechanism.worst_variance) / REPORTS)
        what = "of each case of a pair of options" if metric.joint else "of an option"
        return facts | {_ERROR: f"{what}, of {REPORTS:,} reports at most {100 * worst:.2g} points"}
    if metric.binned and isinstance(mechanism, FrequencyOracle):
        error = 100 * sqrt(float(mechanism.mean_variance) / REPORTS)
        return facts | {_ERROR: f"of one of {BINS} equal parts, of {REPORTS:,} reports {error:.2g} points"}
    facts |= {_ERROR: _of_the_mean(metric, float(mechanism.worst_variance))}
    if metric.rounded:
        floor = "each device rounds at one point for good, so the error of an average over many periods has a floor"
        return facts | {"averages": floor}
    return facts | (_of_the_distribution(metric, mechanism.epsilon) if metric.estimate == "distribution" else {})


def people_needed(
    metric: Metric,
    mechanism: Mechanism,
    experiment: Experiment,
    arms: Collection[str],  # all of them
) -> int | None:
    """Return how many people each arm of an experiment needs; None where it is not known."""
    if metric.binned or mechanism.searches:
        return None
    # With one report of each of so many, an experiment finds a planned difference of a share, or of a number as a share of its
    # range, in 80% of cases, at any share. It may be looked at at any time.
    comparisons = experiment.comparisons(arms, [experiment.base])
    return ceil(2 * float(mechanism.worst_variance) / variance_needed(experiment.planned, _ALPHA / comparisons))


def variance_needed(
    planned: float,  # the difference
    alpha: float,  # chance of error of its test
) -> float:
    """Return the variance of a difference's estimate at which an always-valid test finds it in 80% of cases."""
    return planned**2 / _signal(alpha)


def _signal(alpha: float) -> float:
    """Compute the square of a difference over the variance of its estimate, at which an always-valid test sees it in 80%."""
    ratio = 15.0
    for _ in range(30):  # each step comes six times as near, or more
        ratio = (sqrt((1 + 1 / ratio) * log((1 + ratio) / alpha**2)) + _POWER) ** 2
    return ratio


def _answers(metric: Metric) -> str:
    if metric.kind.options:
        return f"any of {len(metric.values)} options{metric.cap}"
    if metric.axis is None:
        return f"the mean position of {len(metric.values)} values"
    low, high = metric.range
    return f"{low} to {high} {metric.unit}{', on a logarithmic scale' if metric.scale == 'log' else ''}; beyond, the nearer end"


def _of_the_mean(metric: Metric, worst: float) -> str:
    what = "geometric mean" if metric.scale == "log" else "mean"
    return f"of the {what} of {REPORTS:,} reports at most {length(metric, sqrt(worst / REPORTS))}"


def _of_the_distribution(metric: Metric, epsilon: float) -> dict[str, str]:
    distance = length(metric, 0.7 * epsilon**-0.9 * REPORTS**-0.42)
    factor, power = _BAND
    band = length(metric, factor * epsilon**power)
    reach = f"its 95% band reaches about {band} to each side if answers are even over the range"
    p90, p99 = resolved_from(epsilon).values()
    return {
        "distribution": f"quantiles of {REPORTS:,} reports are off by about {distance}, on average over all of them",
        "median": f"{reach}; less far if many answers are near it, and farther if few are",
        "quantiles": f"p90 is resolved from about {p90:,.0f} reports, p99 from about {p99:,.0f} (rough)",
    }


def resolved_from(epsilon: float) -> dict[str, float]:
    """Return from about how many reports the 90th and the 99th percentile are resolved. Rough: it depends on the answers."""
    p99 = _p99_from(epsilon)
    return {"p90": _rough(p99 / _P90), "p99": _rough(p99)}


def _p99_from(epsilon: float) -> float:
    """Interpolate between the simulated epsilons. Below them, reports are worth the square of epsilon; above, the last holds."""
    (least, most), *_ = _P99_FROM
    if epsilon < least:
        return most * (least / epsilon) ** 2
    for (a, before), (b, after) in pairwise(_P99_FROM):
        if epsilon <= b:
            return exp(log(before) + (epsilon - a) / (b - a) * log(after / before))
    return _P99_FROM[-1][1]


def _rough(number: float) -> float:
    return float(f"{number:.1g}")


def length(metric: Metric, share: float) -> str:
    """Write a share of the range in the unit of the metric."""
    if metric.axis is None:
        return f"{share * (len(metric.values) - 1):.2g} positions"
    if metric.scale == "log":
        return f"a factor of {exp(share * log(metric.axis.high / metric.axis.low)):.3g}"
    length = share * float(metric.axis.high - metric.axis.low)
    return f"{f'{length:,.0f}' if length >= 100 else f'{length:.2g}'} {metric.unit}"  # noqa: PLR2004
