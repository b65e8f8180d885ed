"""The share of answers in a range of a number, as it is answered: in numbers, and in words."""

from __future__ import annotations

from math import isnan
from typing import TYPE_CHECKING

import numpy as np

from deniable_aggregator.answer import figures
from deniable_aggregator.answer.model.number import RangeEstimate
from deniable_aggregator.answer.question import number_range
from deniable_aggregator.answer.readings.number import moved, to_number
from deniable_aggregator.inference.difference import Side

if TYPE_CHECKING:
    from deniable.registry import Metric
    from deniable_aggregator.answer.readings.number import NumberReading
    from deniable_aggregator.decode.numbers.range_share import RangeShare
    from deniable_aggregator.inference.difference import Ends


def estimate(reading: NumberReading, text: str, level: float) -> RangeEstimate:
    """Answer which share of answers lies in a range, as it is written in a question."""
    metric, share = reading.declared.metric, reading.range_share(text)
    number, interval = to_number(metric), share.interval(level)
    return RangeEstimate(
        range=text,
        rounded=share.of,
        low=number(share.low),
        high=number(share.high),
        share=share.share,
        stderr=share.stderr,
        interval=interval,
        respondents=share.interval(level, target="respondents"),
        says="" if isnan(share.share) else f"{_share(metric, share, text, level)} {rounding(metric, share)}",
    )


def side(reading: NumberReading, text: str) -> Side:
    """Return the share of a range as a side of a comparison."""
    share = reading.range_share(text)

    def interval(level: float) -> Ends:
        low, high = share.interval(level)
        return np.array([low]), np.array([high])

    return Side(np.array([share.share]), interval)


def _share(metric: Metric, share: RangeShare, text: str, level: float) -> str:
    ends = share.interval(level)
    error = figures.stderr(ends)
    words = number_range.read(text, metric).words(metric.unit)
    between = figures.share_range(ends, error)
    return f"{figures.share(figures.possible(share.share), error)} of answers are {words} ({figures.interval(level)} {between})."


def rounding(metric: Metric, share: RangeShare) -> str:
    """Say what the range was rounded to."""
    number = to_number(metric)
    low, high = (f"{number(place):.6g}" for place in (share.low, share.high))
    if share.of == "values":
        listed = f"{low} to {high} {metric.unit} are" if low != high else f"{low} {metric.unit} is"
        return f"Of the values that answers have, {listed} in this range."
    if share.of == "parts":
        return f"The range was rounded to the parts that devices report: {low} to {high} {metric.unit}."
    if (share.low, share.high) == (0.0, 1.0):  # a range without both ends is none, so this is above the least number
        return f"It leaves out only answers of {low} {metric.unit}: with them it is 100% of all answers."
    distance = f"{moved(metric)(share.blur):.3g}"
    near = f"a factor of {distance}" if metric.scale == "log" else f"{distance} {metric.unit}"
    return f"Answers within {near} of an end may count on either side of it: the interval allows for that."
