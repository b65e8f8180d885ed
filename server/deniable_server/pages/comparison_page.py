"""What a page shows of two periods, segments or arms of an experiment: how they differ, in words, a picture and numbers."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from math import exp
from typing import TYPE_CHECKING, NamedTuple

from deniable.registry import period
from deniable_aggregator.answer import figures
from deniable_aggregator.answer.difference import compare
from deniable_aggregator.answer.figures import Measure, distance
from deniable_aggregator.answer.over_time.changes import COMPARED
from deniable_aggregator.answer.refusal import Refusal
from deniable_server.pages import chart
from deniable_server.pages.chart import Scale

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from deniable_aggregator.answer.model.comparison import Comparison, ValueDiffering
    from deniable_aggregator.answer.model.metric import Measurement
    from deniable_aggregator.answer.select import Published

_NONE = "no difference beyond chance"
_MOST_ARMS = 8  # of a metric
_MOST_NAMED = 3  # values that differ
_MOST_PAIRS = 3  # that are offered where two sides cannot be compared


@dataclass(frozen=True, slots=True)
class DifferenceRow:
    """A value, or the mean."""

    label: str  # its name
    # first, second: the estimates, as text
    first: str
    second: str
    # difference, between: their difference and its interval that holds together with those of all other values, as text
    difference: str
    between: str
    verdict: str  # whether they differ, in words
    differs: bool  # the same
    # at, interval, simultaneous: places of the difference and of the ends of its two intervals; no difference is in the middle
    at: float
    interval: tuple[float, float]
    simultaneous: tuple[float, float]


@dataclass(frozen=True, slots=True)
class ComparisonView:
    """A comparison on a page."""

    sentence: str  # what differs most, if anything differs beyond chance
    names: tuple[str, str]  # the two sides, as text
    rows: tuple[DifferenceRow, ...]  # one for each value; none if the sides cannot be compared
    ends: tuple[str, str]  # what the left and the right end of the picture stand for
    wider: bool  # whether intervals of all differences at once differ from those of one
    open: str  # the sides for which more may be published, as text; empty if none is open


class Arm(NamedTuple):
    """What a page says of an arm of an experiment."""

    sentence: str  # how it differs from the base
    # a, b: the segments of the base and of the arm
    a: str
    b: str
    sizes: str  # a warning if arms have other sizes than declared, else empty


def default_sides(measured: Measurement) -> tuple[str, str] | None:
    """Choose two sides: the last period, and the one before that is like it; or two segments."""
    return default_periods(measured) or next(iter(pairs_of_segments(measured.segments)), None)


def default_periods(measured: Measurement) -> tuple[str, str] | None:
    """Choose the last period, and the one before that is like it; None if fewer than two are published."""
    names, length = [span.last for span in measured.periods], measured.period_length
    if len(names) > 1:
        begins, _ = period.bounds(names[-1], length)  # people do other things at night, and on Sundays
        alike = period.of(begins - COMPARED[length], length) if length in COMPARED else ""
        return alike if alike in names else names[-2], names[-1]
    return None


def beside(
    name: str,  # of a segment
    segments: Sequence[str],  # those that are published
) -> list[str]:
    """Return the segments that a segment can be compared with: of the same dimensions, in one of them of another value."""
    own = _values(name)
    return [
        other
        for other in segments
        if (values := _values(other)).keys() == own.keys() and sum(values[of] != own[of] for of in own) == 1
    ]


def pairs_of_segments(segments: Sequence[str], *first: str) -> Iterator[tuple[str, str]]:
    """Name pairs of segments that can be compared: those with one of the first ones first, each pair once."""
    seen = set[frozenset[str]]()
    for name in (*(each for each in first if each in segments), *segments):
        for other in beside(name, segments):
            if frozenset((name, other)) not in seen:
                seen.add(frozenset((name, other)))
                yield name, other


def alternatives(measured: Measurement, a: str, b: str) -> list[tuple[str, str]]:
    """Name up to three pairs that can be compared, where two sides cannot: segments beside these, or periods."""
    if "=" in a + b:
        return list(islice(pairs_of_segments(measured.segments, a, b), _MOST_PAIRS))
    names = [span.last for span in measured.periods]
    pairs = [default_periods(measured), *zip(reversed(names[:-1]), reversed(names[1:]), strict=True)]
    return [pair for pair in dict.fromkeys(pairs) if pair and pair != (a, b)][:_MOST_PAIRS]


def _values(segment: str) -> dict[str, str]:
    """Return the value of each dimension of a segment."""
    return dict(part.split("=", 1) for part in segment.split(","))


def arms(
    published: Sequence[Published],
    period: str | None,  # the page shows
    level: float,
) -> list[Arm]:
    """Compare the arms of each experiment of a metric with their base, as far as they are published, in words."""
    listed = []
    for a, b in list(arm_pairs(published[0]))[:_MOST_ARMS]:
        try:
            comparison = compare(published, a, b, period=period, level=level)
        except Refusal:  # an arm that is not published has no sentence, and does not spoil the page
            continue
        if comparison.differences:
            sizes = comparison.experiment.sizes if comparison.experiment else None
            listed.append(Arm(_arm_sentence(comparison, published[0].length), a, b, sizes.says if sizes else ""))
    return listed


def arm_pairs(version: Published) -> Iterator[tuple[str, str]]:
    """Name the base and an arm, as segments: each arm of each experiment of a metric."""
    registry = version.app.registry
    for name in version.declared.metric.segments:
        experiment = registry.experiments.get(name)
        if experiment:
            for value in registry.segments.get(name, ()):
                if value != experiment.base:
                    yield f"{name}={experiment.base}", f"{name}={value}"


def view(
    comparison: Comparison,
    length: str,  # of the metric's periods
) -> ComparisonView:
    """Describe what a page shows of a comparison."""
    sides = (comparison.a.name, comparison.b.name)
    if comparison.kind == "periods":
        a, b = (figures.moment(name, length) for name in sides)
    else:
        a, b = map(figures.group, sides)
    rows = comparison.differences
    reach = max((abs(distance(end, comparison.scale)) for row in rows for end in row.simultaneous), default=0.0) or 1.0
    if comparison.scale == "linear" and not comparison.unit and _is_of_shares(comparison):
        reach = chart.share_scale(reach).high  # the labels of both ends are round
    return ComparisonView(
        _sentence(comparison, a, b),
        (a, b),
        tuple(_row(row, comparison, Scale(-reach, reach)) for row in rows),
        _ends(comparison, reach),
        wider=any(row.interval != row.simultaneous for row in rows),
        open=" and ".join(
            name for name, side in zip((a, b), (comparison.a, comparison.b), strict=True) if side.n and not side.closed
        ),
    )


def _is_of_shares(comparison: Comparison) -> bool:
    return all(row.value is not None for row in comparison.differences)


def _measure(row: ValueDiffering, comparison: Comparison) -> Measure:
    return Measure(row.value is not None, comparison.unit, comparison.scale)


def _sentence(comparison: Comparison, a: str, b: str) -> str:
    scale = comparison.scale
    rows = [row for row in comparison.differences if row.value is not False]  # the share of no mirrors that of yes
    if not rows:
        return f"{a} and {b} cannot be compared: {comparison.reason}."
    moved = sorted((row for row in rows if row.differs), key=lambda row: -abs(distance(row.difference, scale)))
    if not moved:
        return f"No difference beyond chance between {a} and {b}."
    most, *others = (_how(row, comparison) for row in moved[:_MOST_NAMED])
    more = len(moved) - _MOST_NAMED
    count = [f"{more} more {'differs' if more == 1 else 'differ'}"] if more > 0 else []
    first, second = (_estimate(each, moved[0], comparison) for each in (moved[0].first, moved[0].second))
    where = (
        f"from {a} to {b}: {first} before, {second} after"
        if comparison.kind == "periods"
        else f"with {b} than with {a}: {second} against {first}"
    )
    return " ".join(f"{figures.beginning(each)}." for each in (f"{most[0]} {where}, {most[1]}", *map(" ".join, others), *count))


def _how(row: ValueDiffering, comparison: Comparison) -> tuple[str, str]:
    """Say of one value in which direction it differs, and by how much."""
    up, of_shares = distance(row.difference, comparison.scale) > 0, _is_of_shares(comparison)
    subject = figures.quoted(row.label) if of_shares else f"the {_name(row)}"
    verb = (
        ("rose" if up else "fell")
        if comparison.kind == "periods"
        else f"is {('more' if up else 'less') + ' frequent' if of_shares else 'higher' if up else 'lower'}"
    )
    return f"{subject} {verb}", f"by {_measure(row, comparison).size(row.simultaneous, is_rise=up)}"


def _arm_sentence(comparison: Comparison, length: str) -> str:
    """Say in which value the arm differs most, or is furthest from the base if none differs."""
    rows = zip(comparison.differences, view(comparison, length).rows, strict=True)
    pairs = [(row, text) for row, text in rows if row.value is not False]
    differing = [pair for pair in pairs if pair[0].differs]
    arm, base = (side.name.partition("=")[2] for side in (comparison.b, comparison.a))
    if differing:
        most, text = min(differing, key=lambda pair: pair[0].p_value)
    else:
        most, text = max(pairs, key=lambda pair: abs(pair[0].difference))
    size = f"{text.difference}, {text.between}"
    name = text.label.capitalize() if most.value is None else figures.quoted(text.label)
    sentence = f"{name}: {text.second} with {arm}, {text.first} with {base} ({size})."
    if not differing:
        lead = "Furthest apart is " if len(pairs) > 1 else ""
        return f"{arm} and {base} do not differ beyond chance so far. {lead}{sentence}"
    more = len(differing) - 1
    others = f" {more} more {'value differs' if more == 1 else 'values differ'}." if more else ""
    return f"{sentence}{others}"


def _name(row: ValueDiffering) -> str:
    """Return what people call a value, or a mean."""
    return row.label.replace("_", " ") if row.value is None else row.label


def _row(row: ValueDiffering, comparison: Comparison, scale: Scale) -> DifferenceRow:
    def at(difference: float) -> float:
        return scale.across(distance(difference, comparison.scale))

    words = ("rose", "fell") if comparison.kind == "periods" else ("more in the second", "less in the second")
    low, high = row.simultaneous
    return DifferenceRow(
        label=_name(row),
        first=_estimate(row.first, row, comparison),
        second=_estimate(row.second, row, comparison),
        difference=_signed(row.difference, row, comparison),
        between=_measure(row, comparison).signed(row.simultaneous),
        verdict=words[0 if distance(row.difference, comparison.scale) > 0 else 1] if row.differs else _NONE,
        differs=row.differs,
        at=at(row.difference),
        interval=(at(row.interval[0]), at(row.interval[1])),
        simultaneous=(at(low), at(high)),
    )


def _estimate(value: float, row: ValueDiffering, comparison: Comparison) -> str:
    low, high = row.interval
    # The interval of a ratio times the value is one in the metric's unit.
    return _measure(row, comparison).estimate(value, (value * low, value * high) if comparison.scale == "log" else (low, high))


def _signed(value: float, row: ValueDiffering, comparison: Comparison) -> str:
    """Write a difference with its sign: in points, in the metric's unit, or as a factor."""
    if comparison.scale == "log":
        return f"\N{MULTIPLICATION SIGN} {value:.3g}"
    measure = _measure(row, comparison)
    text = measure.estimate(value, row.interval)
    text = text.removesuffix("%") if measure.is_share else text
    return f"+{text}" if value > 0 else text


def _ends(comparison: Comparison, reach: float) -> tuple[str, str]:
    if comparison.scale == "log":
        return f"\N{MULTIPLICATION SIGN} {exp(-reach):.3g}", f"\N{MULTIPLICATION SIGN} {exp(reach):.3g}"
    text = f"{100 * reach:.6g}" if _is_of_shares(comparison) else figures.number(reach, (0, reach), comparison.unit)
    return f"{figures.MINUS}{text}", f"+{text}"
