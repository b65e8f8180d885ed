"""What a page shows of two periods or two segments: how they differ, in words, in a picture and in numbers.

Places are percentages of a picture's width, with no difference in its middle, so it fits any screen and needs no script.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, log
from typing import TYPE_CHECKING

from deniable.registry import period
from deniable_aggregator.answer.over_time.changes import COMPARED
from deniable_server.pages import chart, number
from deniable_server.pages.timeline import moment

if TYPE_CHECKING:
    from deniable_aggregator.answer.model.comparison import Comparison, ValueDiffering
    from deniable_aggregator.answer.model.metric import Measurement

_NONE = "no difference beyond chance"


@dataclass(frozen=True, slots=True)
class Row:
    """A value, or the mean."""

    label: str  # its name
    # first, second: the estimates, as text
    first: str
    second: str
    # difference, between: their difference and its interval that holds together with those of all other values, as text
    difference: str
    between: str
    said: str  # whether they differ, in words
    differs: bool  # the same
    # at, interval, simultaneous: places of the difference and of the ends of its two intervals
    at: float
    interval: tuple[float, float]
    simultaneous: tuple[float, float]


@dataclass(frozen=True, slots=True)
class Shown:
    """A comparison on a page."""

    sentence: str  # what differs most, if anything differs beyond chance
    names: tuple[str, str]  # the two sides, as text
    rows: tuple[Row, ...]  # one for each value; none if the sides cannot be compared
    ends: tuple[str, str]  # what the left and the right end of the picture stand for
    wider: bool  # whether intervals of all differences at once differ from those of one


def usual(
    measured: Measurement,  # what there is
) -> tuple[str, str] | None:
    """Choose two sides: the last period, and the one before that is like it; or two segments of one dimension."""
    names, length = [each.last for each in measured.periods], measured.period_length
    if len(names) > 1:
        begins, _ = period.bounds(names[-1], length)
        wanted = period.of(begins - COMPARED[length], length) if length in COMPARED else ""
        return wanted if wanted in names else names[-2], names[-1]
    first: dict[str, str] = {}
    for name in measured.segments:
        dimension = name.partition("=")[0]
        if "," not in name and dimension in first:
            return first[dimension], name
        first[dimension] = name
    return None


def shown(
    found: Comparison,
    length: str,  # the length of the metric's periods
) -> Shown:
    """Describe what a page shows of a comparison."""
    periods = found.kind == "periods"
    names = tuple(moment(side.name, length) if periods else _segment(side.name) for side in (found.a, found.b))
    reach = max((abs(_place(end, found)) for each in found.differences for end in each.simultaneous), default=0.0) or 1.0
    if found.scale == "linear" and not found.unit and _shares(found):
        reach = chart.axis(reach).top
    rows = tuple(_row(each, found, reach) for each in found.differences)
    wider = any(each.interval != each.simultaneous for each in found.differences)
    return Shown(_sentence(found, names[0], names[1]), (names[0], names[1]), rows, _ends(found, reach), wider)


def _segment(name: str) -> str:
    return name.replace("=", " = ").replace(",", ", ")


def _shares(found: Comparison) -> bool:
    return all(each.value is not None for each in found.differences)


def _place(difference: float, found: Comparison) -> float:
    return log(difference) if found.scale == "log" else difference


def _sentence(found: Comparison, a: str, b: str) -> str:
    told = [each for each in found.differences if each.value is not False]
    if not told:
        return f"{a} and {b} cannot be compared: one of them has no published reports of this version."
    moved = [each for each in told if each.differs]
    if not moved:
        return f"No difference beyond chance between {a} and {b}."
    most = max(moved, key=lambda each: abs(_place(each.difference, found)))
    up = _place(most.difference, found) > 0
    first, second, by = _first(most, found), _second(most, found), _by(most, found)
    what = most.label if _shares(found) else f"The {most.label}"
    others = f" {len(moved) - 1} more differ{'s' if len(moved) == 2 else ''}." if len(moved) > 1 else ""  # noqa: PLR2004
    if found.kind == "periods":
        return f"{what} {'rose' if up else 'fell'} from {first} in {a} to {second} in {b}, by {by}.{others}"
    how = ("more" if up else "less") + " frequent" if _shares(found) else "higher" if up else "lower"
    return f"{what} is {how} in {b} than in {a}: {second} against {first}, by {by}.{others}"


def _row(each: ValueDiffering, found: Comparison, reach: float) -> Row:
    up = _place(each.difference, found) > 0
    words = ("rose", "fell") if found.kind == "periods" else ("more in the second", "less in the second")
    low, high = each.simultaneous

    def at(difference: float) -> float:
        return round(50 + 50 * min(max(_place(difference, found) / reach, -1.0), 1.0), 3)

    return Row(
        label=each.label,
        first=_first(each, found),
        second=_second(each, found),
        difference=_difference(each.difference, each, found),
        between=f"{_difference(low, each, found)} to {_difference(high, each, found)}",
        said=words[0 if up else 1] if each.differs else _NONE,
        differs=each.differs,
        at=at(each.difference),
        interval=(at(each.interval[0]), at(each.interval[1])),
        simultaneous=(at(low), at(high)),
    )


def _first(each: ValueDiffering, found: Comparison) -> str:
    return _estimate(each.first, each, found)


def _second(each: ValueDiffering, found: Comparison) -> str:
    return _estimate(each.second, each, found)


def _estimate(value: float, each: ValueDiffering, found: Comparison) -> str:
    low, high = each.interval
    if each.value is not None:
        return chart.share(value, (high - low) / 4)
    return number.written(value, (value * low, value * high) if found.scale == "log" else (low, high), found.unit)


def _difference(value: float, each: ValueDiffering, found: Comparison) -> str:
    """Write a difference with its sign: in points, in the metric's unit, or as a factor."""
    low, high = each.interval
    if found.scale == "log":
        return f"\N{MULTIPLICATION SIGN} {value:.3g}"
    if each.value is not None:
        text = chart.share(value, (high - low) / 4).removesuffix("%")
    else:
        text = number.written(value, (low, high), found.unit)
    return f"+{text}" if value > 0 else text


def _by(each: ValueDiffering, found: Comparison) -> str:
    """Write the size of a difference without its sign, the least first."""
    ends = each.simultaneous
    if found.scale == "log":
        low, high = sorted(exp(abs(log(end))) for end in ends)
        return f"a factor of {low:.3g} to {high:.3g}"
    low, high = sorted(abs(end) for end in ends)
    if each.value is not None:
        error = (each.interval[1] - each.interval[0]) / 4
        return f"{chart.share(low, error).removesuffix('%')} to {chart.share(high, error).removesuffix('%')} points"
    return f"{number.written(low, ends)} to {number.written(high, ends, found.unit)}"


def _ends(found: Comparison, reach: float) -> tuple[str, str]:
    if found.scale == "log":
        return f"\N{MULTIPLICATION SIGN} {exp(-reach):.3g}", f"\N{MULTIPLICATION SIGN} {exp(reach):.3g}"
    if _shares(found):
        text = f"{100 * reach:.6g}"
        return f"\N{MINUS SIGN}{text}", f"+{text}"
    text = number.written(reach, (0, reach), found.unit)
    return f"\N{MINUS SIGN}{text}", f"+{text}"
