"""How a mean and quantiles of a number differ between two sides."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from deniable_aggregator.answer.model.number import QUANTILE_NAMES, QUANTILES, mean_name
from deniable_aggregator.answer.readings.differing import between
from deniable_aggregator.answer.readings.number import to_number
from deniable_aggregator.inference.difference import Several
from deniable_aggregator.inference.quantiles import QuantileDifference

if TYPE_CHECKING:
    from deniable.registry import Metric
    from deniable_aggregator.answer.readings.number import NumberReading

MEDIAN: Literal["median"] = "median"


def of_mean_and_median(
    first: NumberReading,
    second: NumberReading,
    planned: float | None = None,  # as of `between`
) -> tuple[list[str], Several]:
    """Compare the means, and the medians if these can be compared; with the name of each."""
    mean = between(first.centre.side, second.centre.side, planned)
    median = of_quantile(first, second, 0.5) if planned is None else None
    name = mean_name(first.declared.metric)
    return ([name, MEDIAN], Several([mean, median])) if median else ([name], Several([mean]))


def of_quantile(first: NumberReading, second: NumberReading, share: float) -> QuantileDifference | None:
    """Compare a quantile; None if one of the sides does not tell which places can hold it."""
    near = first.near(share), second.near(share)
    return QuantileDifference(near[0], near[1]) if near[0] and near[1] else None


def interval_of(
    reading: NumberReading,  # one side
    name: str,  # of the mean, or `MEDIAN`
    level: float,
) -> tuple[float, float]:
    """Compute the interval of the mean or of the median of one side, in the metric's unit."""
    number = to_number(reading.declared.metric)
    if name != MEDIAN or (spread := reading.spread) is None:  # the fit of a distribution is slow, and no mean needs it
        low, high = reading.centre.interval(level)
    else:
        quantile = spread.quantile(0.5, level)
        low, high = quantile.low, quantile.high
    return number(low), number(high)


def share_of(name: str) -> float | None:
    """Return the share of answers below the quantile of this name; None of a mean."""
    return QUANTILES[QUANTILE_NAMES.index(name)] if name in QUANTILE_NAMES else None


def alone(metric: Metric, planned: float | None) -> str:
    """Say why no quantile of a metric is compared; empty if they are."""
    mean = mean_name(metric).replace("_", " ")
    if metric.permanent:
        return f"quantiles of permanent responses are not compared: compare the {mean}"
    if planned is not None:
        return f"quantiles of arms are not compared, for no interval of theirs holds at every look: compare the {mean}"
    return ""
