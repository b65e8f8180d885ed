"""What is estimated of a number: its mean, its quantiles and the parts of its range."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import Meta, Struct

from deniable_aggregator.answer.model.fields import Interval, Number
from deniable_aggregator.answer.model.shares import ValueShare

if TYPE_CHECKING:
    from deniable.registry import Metric

QUANTILES = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)


def quantile_name(share: float) -> str:
    """Return what rows of a table call a quantile."""
    return f"p{round(100 * share):02}"


QUANTILE_NAMES = tuple(map(quantile_name, QUANTILES))
"""What rows of a table call the estimates of a number."""


def mean_name(metric: Metric) -> Literal["mean", "geometric_mean"]:
    """Return the name of the mean that is compared and followed over time."""
    return "geometric_mean" if metric.scale == "log" else "mean"


def mean_names(metric: Metric) -> tuple[str, ...]:
    """Name the means of a number, the one that is compared first; the arithmetic one last, where reports tell it."""
    first = mean_name(metric)
    return (first,) if first == "mean" or metric.permanent else (first, "mean")


def line_names(metric: Metric) -> tuple[str, ...]:
    """Name all that is estimated of a number."""
    return (*mean_names(metric), *(QUANTILE_NAMES if metric.estimate == "distribution" else ()))


class QuantileEstimate(Struct, frozen=True, forbid_unknown_fields=True):
    """A quantile of a number."""

    share: Annotated[float, Meta(description="The share of answers below the quantile")]
    value: Annotated[float, Meta(description="The quantile, in the metric's unit")]
    interval: Annotated[tuple[float, float], Meta(description="Band of the quantile")]
    resolved: Annotated[
        bool,
        Meta(description="Whether there are enough reports to tell its share from 0 and from 1. If not, the band may miss it."),
    ]


class NumberPart(Struct, frozen=True, forbid_unknown_fields=True):
    """A part of a number's range."""

    low: Annotated[float, Meta(description="Low end of the part, in the metric's unit")]
    high: Annotated[float, Meta(description="High end of the part, in the metric's unit")]
    share: Annotated[float, Meta(description="The share of answers in the part, by the likeliest distribution")]
    below: Annotated[float, Meta(description="The share of answers below the part's high end")]


class RangeEstimate(Struct, frozen=True, forbid_unknown_fields=True):
    """The share of answers in a range of a number: above one end, and at most the other."""

    range: Annotated[str, Meta(description="As it was asked for, such as `200..500`")]
    rounded: Annotated[
        Literal["values", "parts", "points"],
        Meta(
            description="What the range was rounded to. `values`: the values of a step in it, from `low` to `high`, both "
            "included. `parts`: the parts that a report names, from `low` to `high`. `points`: nothing; the interval allows for "
            "answers that are close to an end."
        ),
    ]
    low: Annotated[float, Meta(description="Where the range begins after rounding, in the metric's unit")]
    high: Annotated[float, Meta(description="Where it ends after rounding")]
    share: Annotated[Number, Meta(description="The share of answers in it, unbiased")]
    stderr: Annotated[Number, Meta(description="Standard error of the share")]
    interval: Annotated[Interval, Meta(description="Interval for the population that the respondents were drawn from")]
    respondents: Annotated[Interval, Meta(description="Interval for the answers that came")]
    says: Annotated[str, Meta(description="The share, its interval and the rounding in words")]


class RangeEnds(Struct, frozen=True, forbid_unknown_fields=True):
    """Where a range of a number may end so that its share is exact but for chance."""

    exact: Annotated[list[float], Meta(description="Numbers at which an end is exact, in the metric's unit; may be empty")]
    says: Annotated[str, Meta(description="Which ends are exact and what holds for others, in words")]


class GeometricMean(Struct, frozen=True, forbid_unknown_fields=True):
    """The geometric mean of a number on a logarithmic scale, whose logarithm is estimated without bias."""

    value: Annotated[Number, Meta(description="The geometric mean, in the metric's unit")]
    interval: Annotated[
        Interval, Meta(description="Its interval for the population that the respondents were drawn from; not symmetric")
    ]
    respondents: Annotated[Interval, Meta(description="Its interval for the answers that came")]


class NumberEstimate(Struct, frozen=True, forbid_unknown_fields=True):
    """What is estimated of a number, in its unit; of an ordinal of which only the mean is asked, in positions from 1 on."""

    unit: Annotated[str, Meta(description="Unit as declared; empty for positions")]
    range: Annotated[
        tuple[float, float],
        Meta(description="The least and the greatest number. Answers beyond were reported as the nearer end."),
    ]
    scale: Annotated[Literal["linear", "log"], Meta(description="Scale of the axis. `log`: there is a geometric mean")]
    geometric_mean: Annotated[
        GeometricMean | None, Meta(description="What is compared and followed over time on a logarithmic scale; else null")
    ]
    mean: Annotated[
        Number,
        Meta(
            description="The arithmetic mean, unbiased, which may lie out of range. On a logarithmic scale it is far less exact "
            "than the geometric mean, and off by at most the rounding between the points of a report. There it is null if "
            "devices keep permanent responses, which do not tell it."
        ),
    ]
    stderr: Annotated[Number, Meta(description="Standard error of the mean")]
    interval: Annotated[
        Interval,
        Meta(
            description="Interval of the mean for the population that the respondents were drawn from. On a logarithmic scale "
            "it allows for the rounding."
        ),
    ]
    respondents: Annotated[
        Interval,
        Meta(
            description="Interval of the mean for the answers that came. Of a kept mean it is the same, because rounding is "
            "part of both. Of a kept distribution both are half a part wider on each side, because an answer may lie anywhere in "
            "its part."
        ),
    ]
    sum: Annotated[
        tuple[Number, Interval] | None,
        Meta(
            description="The mean times the number of reports, with the interval for the answers that came; null without a mean"
        ),
    ]
    quantiles: Annotated[
        list[QuantileEstimate],
        Meta(description="Quantiles of the distribution; empty if only the mean is estimated"),
    ]
    bands: Annotated[
        Literal["approximate", "strict"],
        Meta(
            description="What the bands of the quantiles promise. `approximate`: each holds as stated if the quantile is "
            "resolved. `strict`: all hold together, for every population and every number of reports."
        ),
    ]
    values: Annotated[
        list[ValueShare],
        Meta(
            description="Of a number with a step: the share of each value, or of a few neighbours together, without bias. Else "
            "empty."
        ),
    ]
    range_ends: Annotated[
        RangeEnds | None, Meta(description="Which ends of a range are exact; null where the shares of ranges are not estimated")
    ]
    range_share: Annotated[
        RangeEstimate | None, Meta(description="The share of answers in the range that was asked for by `value`; else null")
    ]
    parts: Annotated[
        list[NumberPart],
        Meta(description="Parts of the range, in order: a picture, without intervals. Empty if only the mean is estimated."),
    ]
