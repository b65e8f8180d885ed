"""What may be a mistake in a metric of a number."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from deniable.registry.answers.axis import MOST_STEP_VALUES, read_number
from deniable.registry.tables import duration

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deniable.registry import Metric

_LONG = 1e9  # seconds; a longer time is treated alike
_USUAL = {"us": 100_000, "ms": 10_000, "s": 60, "bytes": 1_000_000, "kB": 10_000, "MB": 100, "percent": 100}
"""By unit, the least upper end of a range that is not suspiciously narrow."""


def doubts(
    metric: Metric,
    *,
    is_whole: bool,  # whether its step is written as `whole = true`
) -> Iterator[tuple[str, object]]:
    """Find what may be a mistake: the rule and its value."""
    if not metric.axis:
        return
    if metric.scale == "log" and metric.estimate == "mean":
        yield "scale: the geometric mean is estimated, which is less than the mean; write 'linear' for the mean", metric.scale
    low, high = metric.range
    if metric.unit in _USUAL and metric.axis.high < _USUAL[metric.unit]:
        rule = f"range ends at {high}, and {metric.unit} are often more: write a wider range, which costs little"
        yield f"{rule}{'' if metric.scale == 'log' else ' on a logarithmic scale'}", ...
    yield from _step_doubts(metric, "whole = true" if is_whole else f"step = {metric.step}")
    if metric.none is not None and not metric.axis.covers(read_number(metric.none)):
        yield f"none: it is beyond the range, and is reported as the nearer end; write a number from {low} to {high}", metric.none
    yield from _moment_doubts(metric)


def _moment_doubts(metric: Metric) -> Iterator[tuple[str, object]]:
    """Report what `timed` makes of a long range. Whether an app uses it, a registry does not say."""
    longest = metric.longest_seconds
    if longest is None:
        return
    end = f"{metric.range[1]} {metric.unit}"
    travels = timedelta(seconds=min(longest, _LONG) + metric.delay_seconds)
    if travels + timedelta(hours=1) > duration("grace", metric.grace):
        rule = f"a time by `timed` travels {end} after its block begins, which is after the grace"
        yield f"{rule} of {metric.grace}: write a shorter range if you use `timed`", ...


def _step_doubts(
    metric: Metric,
    step: str,  # as it is written
) -> Iterator[tuple[str, object]]:
    if metric.axis is None or metric.estimate != "distribution" or metric.permanent:
        if metric.step is not None:
            yield f"{step}: remove it; it has an effect on the distribution of a number without epsilon_permanent only", ...
        return
    low, high = metric.axis.low, metric.axis.high
    if metric.step is not None and not metric.step_values:
        yield f"{step} has no effect, since the range then has more than {MOST_STEP_VALUES} values; remove it", ...
    integers = low.denominator == high.denominator == 1
    if metric.step is None and integers and metric.scale == "linear" and high - low < MOST_STEP_VALUES:
        yield "if answers are whole numbers, write whole = true: quantiles then are exact values", ...
