"""What is estimated of a number: its mean, its quantiles and the parts of its range."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from deniable_aggregator.answer.model.fields import Interval, Number
from deniable_aggregator.answer.model.shares import ValueShare

MEAN = "mean"
QUANTILES = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)
QUANTILE_NAMES = tuple(f"p{round(100 * share):02}" for share in QUANTILES)
"""What rows of a table call the estimates of a number."""


class QuantileEstimate(Struct, frozen=True, forbid_unknown_fields=True):
    """A quantile of a number."""

    share: Annotated[float, Meta(description="The share of answers below the quantile")]
    value: Annotated[float, Meta(description="The quantile, in the metric's unit")]
    interval: Annotated[tuple[float, float], Meta(description="Band of the quantile")]
    resolved: Annotated[
        bool,
        Meta(description="Whether there are enough reports to tell its share from 0 and from 1. If not, the band may miss it."),
    ]


class Part(Struct, frozen=True, forbid_unknown_fields=True):
    """A part of a number's range."""

    low: Annotated[float, Meta(description="Low end of the part, in the metric's unit")]
    high: Annotated[float, Meta(description="High end of the part, in the metric's unit")]
    share: Annotated[float, Meta(description="The share of answers in the part, by the likeliest distribution")]
    below: Annotated[float, Meta(description="The share of answers below the part's high end")]


class NumberEstimate(Struct, frozen=True, forbid_unknown_fields=True):
    """What is estimated of a number, in its unit; of an ordinal of which only the mean is asked, in positions from 1 on."""

    unit: Annotated[str, Meta(description="Unit as declared; empty for positions")]
    range: Annotated[
        tuple[float, float],
        Meta(description="The least and the greatest number. Answers beyond were reported as the nearer end."),
    ]
    scale: Annotated[Literal["linear", "log"], Meta(description="`log`: the mean is the geometric mean")]
    mean: Annotated[
        Number,
        Meta(description="The unbiased mean, which may lie out of range. On a logarithmic scale its logarithm is unbiased."),
    ]
    stderr: Annotated[
        Number,
        Meta(description="Standard error of the mean; null on a logarithmic scale, where the interval is not symmetric"),
    ]
    interval: Annotated[
        Interval,
        Meta(description="Interval of the mean for the population that the respondents were drawn from"),
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
            description="The mean times the number of reports, with the interval for the answers that came; null on a "
            "logarithmic scale"
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
    parts: Annotated[
        list[Part],
        Meta(description="Parts of the range, in order: a picture, without intervals. Empty if only the mean is estimated."),
    ]
