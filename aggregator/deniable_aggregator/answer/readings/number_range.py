"""The share of answers in a range of a number, as it is answered: in numbers, and in words."""

from __future__ import annotations

from itertools import product
from math import isnan
from typing import TYPE_CHECKING

import numpy as np

from deniable_aggregator.answer import digits, figures
from deniable_aggregator.answer.model.number import RangeEstimate
from deniable_aggregator.answer.question import number_range
from deniable_aggregator.answer.question.date_range import JOINT
from deniable_aggregator.answer.readings.number import moved, to_number
from deniable_aggregator.inference.difference import Side

if TYPE_CHECKING:
    from collections.abc import Sequence
    from fractions import Fraction

    from deniable.registry import Metric
    from deniable.registry.answers.axis import Axis
    from deniable_aggregator.answer.readings.number import NumberReading
    from deniable_aggregator.decode.numbers.range_share import RangeShare
    from deniable_aggregator.inference.difference import Ends

_MUCH = 0.7  # a much narrower interval is at most so wide as another one
_FARTHER = 0.5  # an end moves away from answers by at least their blur, and by at most so much of it more
_MOST_NAMED = 2
_DIGITS = 12


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
        says="" if isnan(share.share) else f"{_share(metric, share, text, level)} {rounding(reading, text)}",
    )


def side(reading: NumberReading, text: str) -> Side:
    """Return the share of a range as a side of a comparison."""
    share = reading.range_share(text)

    def interval(level: float) -> Ends:
        low, high = share.interval(level)
        return np.array([low]), np.array([high])

    return Side(np.array([share.share]), interval)


def _share(metric: Metric, share: RangeShare, text: str, level: float) -> str:
    ends, words = share.interval(level), number_range.read(text, metric).words(metric.unit)
    error, name = digits.stderr(ends), figures.interval(level)
    if share.is_blurred:  # a point between its ends would be one of the smoothed range
        between = figures.possible_share_range(ends, error, "and")
        return f"Between {between} of answers are {words} ({name}): many lie near an end of the range."
    of_all, between = figures.share(figures.possible(share.share), error), figures.possible_share_range(ends, error)
    return f"{of_all} of answers are {words} ({name} {between})."


def rounding(reading: NumberReading, text: str) -> str:
    """Say what the range was rounded to, and which ranges near it have narrower intervals."""
    metric, share = reading.declared.metric, reading.range_share(text)
    number = to_number(metric)
    low, high = (f"{number(place):.6g}" for place in (share.low, share.high))
    if share.of == "values":
        listed = f"{low} to {high} {metric.unit} are" if low != high else f"{low} {metric.unit} is"
        return f"Of the values that answers have, {listed} in this range."
    if share.of == "parts":
        return f"The range was rounded to the parts that devices report: {low} to {high} {metric.unit}."
    if (share.low, share.high) == (0.0, 1.0):  # a range without both ends is none, so this is above the least number
        blur = f"It leaves out only answers of {low} {metric.unit}: with them it is 100% of all answers."
        return f"{blur}{_advice(narrower(reading, text))}"
    left_out = ""
    if share.low == 0.0 and number_range.read(text, metric).above is not None:  # often zeros, of which there are many
        with_them = f"{JOINT}{text.partition(JOINT)[2]}"
        left_out = f"It leaves out answers of {low} {metric.unit}: to count them, ask for {with_them}. "
    distance = f"{moved(metric)(share.blur):.3g}"
    near = f"a factor of {distance}" if metric.scale == "log" else f"{distance} {metric.unit}"
    blur = f"Answers within {near} of an end may count on either side of it: the interval allows for that."
    return f"{left_out}{blur}{_advice(narrower(reading, text))}"


def _advice(ranges: Sequence[str]) -> str:
    """Say which ranges have narrower intervals, if any have."""
    if not ranges:
        return ""
    intervals = f"interval of {ranges[0]} is" if len(ranges) == 1 else f"intervals of {' and '.join(ranges)} are"
    return f" Many answers lie that close to an end: the {intervals} much narrower."


def narrower(reading: NumberReading, text: str) -> list[str]:
    """Return ranges near one whose intervals are much narrower, as they are asked for; none if its ends are not why."""
    # An end moves away from where the answers lie, a little farther than answers are blurred: one of them if that is enough, else
    # both. The middle of the range stays within it.
    share, metric = reading.range_share(text), reading.declared.metric
    if metric.axis is None or not share.is_blurred:
        return []
    choices = [_moved(metric.axis, end, share.blur) for end in number_range.read(text, metric)]
    middle = (share.low + share.high) / 2
    for moves in (1, 2):
        others = [
            f"{low}{JOINT}{high}" for (at, low), (to, high) in product(*map(enumerate, choices)) if (at > 0) + (to > 0) == moves
        ]
        others = [each for each in others if number_range.fits(each, metric)]
        shares = {each: reading.range_share(each) for each in others}
        best = [each for each, of in shares.items() if of.low <= middle <= of.high and _width(of) <= _MUCH * _width(share)]
        if best:
            return best[:_MOST_NAMED]
    return []


def _width(share: RangeShare) -> float:
    low, high = share.interval()
    return high - low


def _moved(axis: Axis, end: Fraction | None, blur: float) -> list[str]:
    """Return an end as it is, and moved to either side by a little more than answers are blurred, with few digits."""
    if end is None:
        return [""]
    number, place = axis.number, axis.share(float(end))
    ends = [f"{float(end):.12g}"]
    for side_ in (-1, 1):
        near, far = (place + side_ * factor * blur for factor in (1, 1 + _FARTHER))
        if 0 < far < 1:
            ends.append(_short(*sorted((number(near), number(far)))))
    return ends


def _short(low: float, high: float) -> str:
    """Return a number between two, of as few digits as one has."""
    for count in range(1, _DIGITS):
        text = f"{(low + high) / 2:.{count}g}"
        if low <= float(text) <= high:
            return f"{float(text):.12g}"
    return f"{(low + high) / 2:.12g}"
