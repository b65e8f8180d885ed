"""A range of a number, as it is asked for: above one number, and at most another."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

from deniable.errors import ParameterError
from deniable.registry.answers.axis import read_number
from deniable_aggregator.answer.question.date_range import JOINT
from deniable_aggregator.answer.refusal import UnknownValue

if TYPE_CHECKING:
    from deniable.registry import Metric
    from deniable.registry.answers.axis import Axis
    from deniable_aggregator.answer.model.query import Query

_HYPHENATED = re.compile(r"(-?\d+(?:\.\d+)?) *[-\u2013] *(-?\d+(?:\.\d+)?)")
_SHOWN = 40  # characters of what was asked for


class NumberRange(NamedTuple):
    """A range. One of its ends is a number within the range of the metric."""

    above: Fraction | None  # None: from the beginning
    at_most: Fraction | None  # None: to the end

    def places(self, metric: Metric) -> tuple[float, float]:
        """Return where it begins and ends on the metric's axis; -1 and 2 beyond both ends."""
        assert metric.axis is not None  # noqa: S101 - `read` has looked
        low, high = (None if end is None else metric.axis.share(float(end)) for end in self)
        return -1.0 if low is None else low, 2.0 if high is None else high

    def words(self, unit: str) -> str:
        """Write it for people, in the metric's unit."""
        above = [] if self.above is None else [f"above {_plain(self.above)}"]
        at_most = [] if self.at_most is None else [f"at most {_plain(self.at_most)}"]
        return f"{' and '.join([*above, *at_most])} {unit}"


def is_range(text: str) -> bool:
    """Return whether a line of a number is of a range, and not of a mean or a quantile."""
    return JOINT in text


def has_ranges(metric: Metric) -> bool:
    """Return whether the shares of ranges are estimated: of a number, with its distribution."""
    return metric.axis is not None and metric.estimate == "distribution"


def filtered(query: Query) -> list[str]:
    """Return the texts that the filters of a query may mean as ranges of a number."""
    words = (word for each in query.filters if each.dimension == "value" and each.op == "is" for word in each.values)
    return list(dict.fromkeys(filter(is_range, words)))


def fits(text: str, metric: Metric) -> bool:
    """Return whether a text is a range of a metric."""
    try:
        read(text, metric)
    except UnknownValue:
        return False
    return True


def read(
    text: str,  # `200..500`: above 200 and at most 500. One of them may be left out.
    metric: Metric,
) -> NumberRange:
    """Read a range; raise `UnknownValue` if it is none of this metric."""
    if not has_ranges(metric) or metric.axis is None:
        raise UnknownValue(f"ranges are of numbers whose distribution is estimated; {metric.id} is none")
    low, high = metric.axis.low, metric.axis.high
    above_, at_most_ = _example(metric.axis)
    written = repr(text[:_SHOWN])
    ends = text.split(JOINT)
    try:
        above, at_most = (read_number(end) if end else None for end in ends)
    except (ParameterError, ValueError):
        above = at_most = None
    if above is None and at_most is None:
        raise UnknownValue(
            f"write a range of {metric.id} as {above_}..{at_most_}, above {above_} and at most {at_most_}, or leave one end out; "
            f"this is {written}"
        )
    if above is not None and at_most is not None and above > at_most:
        right = f"{_plain(at_most)}{JOINT}{_plain(above)}"
        raise UnknownValue(f"{written} has its ends in the wrong order: write {right}, above {ends[1]} and at most {ends[0]}")
    if above is not None and above == at_most:
        around = f"end it above {ends[0]}, or leave one end out"
        raise UnknownValue(f"{written} has nothing in it, for it is above {ends[0]} and at most {ends[0]}: {around}")
    # Numbers beyond the range of the metric were reported as its ends.
    inside_above = above if above is not None and above >= low else None
    inside_at_most = at_most if at_most is not None and at_most < high else None
    is_all = inside_above is None and inside_at_most is None
    has_none = (inside_above is not None and inside_above >= high) or (inside_at_most is not None and inside_at_most < low)
    if is_all or has_none:
        answers = f"answers of {metric.id} are {_plain(low)} to {_plain(high)} {metric.unit}".rstrip()
        parts = "all" if is_all else "none"
        if at_most is not None and at_most < low:  # somebody may ask who answered 0
            least = _plain(low)
            raise UnknownValue(f"{answers}; smaller ones were reported as {least}: write {JOINT}{least} for these")
        raise UnknownValue(f"{answers}, and {written} has {parts} of them: let an end lie within, such as {above_}..{at_most_}")
    return NumberRange(inside_above, inside_at_most)


def meant(
    word: str,  # a value that a metric does not have, such as ">30"
    metric: Metric,  # with ranges
) -> str:
    """Say how the range is written that somebody may have meant; empty if it was none."""
    if ends := _HYPHENATED.fullmatch(word):
        return f"; a range of {metric.id} is written {ends[1]}{JOINT}{ends[2]}"
    number = word.lstrip("<>=\u2264\u2265 ")
    try:
        meant_ = read_number(number)
    except (ParameterError, ValueError):
        return ""
    beyond = ""
    if metric.axis is not None and meant_ < metric.axis.low:
        beyond, number = f"smaller numbers than {_plain(metric.axis.low)} were reported as this, and ", _plain(metric.axis.low)
    return f"; {beyond}a range of {metric.id} is written {number}.. for more than {number}, and ..{number} for at most that"


def _example(axis: Axis) -> tuple[str, str]:
    """Return two numbers of an axis, of few digits."""
    quarter, half = (float(axis.low + (axis.high - axis.low) * part) for part in (Fraction(1, 4), Fraction(1, 2)))
    return f"{float(f'{quarter:.2g}'):.12g}", f"{float(f'{half:.2g}'):.12g}"


def _plain(number: Fraction) -> str:
    return f"{float(number):.12g}"
