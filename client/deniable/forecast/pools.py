"""Pools: whether so many users fill those that a relay hands on."""

from __future__ import annotations

from fractions import Fraction
from math import ceil, prod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deniable.registry import Metric, Registry


def cells(registry: Registry, metric: Metric) -> int:
    """Return into how many pools the segments of a metric divide the reports of a period."""
    return prod(len(registry.segments[name]) for name in metric.segments)


def users_needed(registry: Registry, metric: Metric) -> int:
    """Return how many users fill all pools of a metric with `shuffled`, if each reports in each period, evenly over segments."""
    least = metric.shuffled.min if metric.shuffled else 0
    return ceil(least * cells(registry, metric) / Fraction(metric.sample))


def too_small(
    registry: Registry,
    metric: Metric,
    users: int,  # people who report once a period
) -> str:
    """Say that so many users do not fill the pools of a metric, and what to do; empty if they do, or it has none."""
    if metric.shuffled is None:
        return ""
    parts = cells(registry, metric)
    reports = int(users * Fraction(metric.sample)) // parts
    if reports >= metric.shuffled.min:
        return ""
    cell = f" of each of {parts:,} combinations of segments" if parts > 1 else ""
    fewer = "use fewer segments, or " if parts > 1 else "write "
    mend = f"{fewer}a longer period, or a smaller min with a larger central"
    few = f"{users:,} users make {reports:,} reports{cell} a period, and a relay drops pools below {metric.shuffled.min:,}"
    return f"shuffled: {few}; {mend}"
