"""What a page shows of two periods, segments or arms of an experiment: how they differ, in words, a picture and numbers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from math import exp, isnan
from typing import TYPE_CHECKING, NamedTuple

from deniable.messages.plural import plural
from deniable.registry import period
from deniable_aggregator.answer import digits, figures
from deniable_aggregator.answer.difference.sentence import beside as beside_name
from deniable_aggregator.answer.difference.sentence import (
    is_of_shares,
    measure_of,
    name_of,
    sides_in_words,
)
from deniable_aggregator.answer.figures import distance
from deniable_aggregator.answer.over_time.changes import COMPARED
from deniable_aggregator.answer.question.date_range import JOINT
from deniable_aggregator.answer.question.side import side_of
from deniable_aggregator.answer.refusal import Refusal
from deniable_server.pages.parts import chart
from deniable_server.pages.parts.chart import Scale

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from deniable_aggregator.answer.model.comparison import Comparison, ValueDiffering
    from deniable_aggregator.answer.model.fields import Span
    from deniable_aggregator.answer.model.metric import Measurement
    from deniable_aggregator.answer.question.side import Side

_MOST_TOGETHER = {"hour": 168, "day": 28, "week": 8, "month": 3}
"""How many periods are compared together with as many before."""
_MIDDLE = 50.0  # where no difference is
_MOST_PAIRS = 3  # that are offered where two sides cannot be compared
_MOST_OFFERED, _MOST_LONGER = 31, 24  # periods to choose from, and longer times of each length; the address may have others


class SideEstimate(NamedTuple):
    """What is estimated of one side."""

    estimate: str
    at: float  # place of the estimate
    interval: tuple[float, float]  # places of the ends of its interval


@dataclass(frozen=True, slots=True)
class DifferenceRow:
    """A value, or the mean."""

    label: str  # its name
    # first, second: the two sides
    first: SideEstimate
    second: SideEstimate
    # difference, between: their difference and its interval that holds together with those of all other values, as text
    difference: str
    between: str
    verdict: str  # in which direction they differ; empty if they do not differ beyond chance
    chance: str  # how often chance alone brings so large a difference of any value, in words
    # at, interval, simultaneous: places of the difference and of the ends of its two intervals; no difference is in the middle
    at: float
    interval: tuple[float, float]
    simultaneous: tuple[float, float]


@dataclass(frozen=True, slots=True)
class ComparisonView:
    """A comparison on a page."""

    headline: tuple[str, str]  # what differs most, if anything differs beyond chance, parted after its first sentence
    summary: tuple[str, str] | None  # how many values differ, and how often chance does that; None if there is one value
    test: str  # of all values together; empty if there is one
    names: tuple[str, str]  # the two sides, as text
    columns: tuple[str, str]  # the same in few words
    rows: tuple[DifferenceRow, ...]  # one for each value; none if the sides cannot be compared
    # differing, alike: the rows in which the sides differ beyond chance, and the others, the largest difference first
    differing: tuple[DifferenceRow, ...]
    alike: tuple[DifferenceRow, ...]
    scale: Scale  # of the estimates of both sides
    ends: tuple[str, str]  # what the left and the right end of the picture stand for
    wider: bool  # whether intervals of all differences at once differ from those of one
    beyond: bool  # whether the test finds a difference although its interval of all at once holds none


def default_sides(measured: Measurement) -> tuple[str, str] | None:
    """Choose two sides: the last closed period, and the one before that is like it; or two segments."""
    return default_periods(measured) or next(iter(pairs_of_segments(measured.segments)), None)


def default_periods(measured: Measurement) -> tuple[str, str] | None:
    """Choose the last closed period, and the one before that is like it; None if fewer than two are published."""
    names, length = [span.last for span in measured.periods], measured.period_length
    if not measured.closed and len(names) > 2:  # noqa: PLR2004 - of the open period, more reports may come
        names.pop()
    if len(names) > 1:
        begins, _ = period.bounds(names[-1], length)  # people do other things at night, and on Sundays
        alike = period.of(begins - COMPARED[length], length) if length in COMPARED else ""
        return alike if alike in names else names[-2], names[-1]
    return None


class LastRanges(NamedTuple):
    """The last periods, and as many before them."""

    number: int  # of either
    # a, b: as sides of a comparison
    a: str
    b: str


def last_ranges(
    names: Sequence[str],  # of the periods published, in order
    length: str,
) -> LastRanges | None:
    """Choose the last periods, half of those published at most, and as many before; None if there are fewer than four."""
    number, cycle = min(_MOST_TOGETHER[length], len(names) // 2), period.CYCLES[length]
    if number > cycle:
        number -= number % cycle
    if number < 2:  # noqa: PLR2004
        return None
    before, last = names[-2 * number : -number], names[-number:]
    return LastRanges(number, *(JOINT.join((each[0], each[-1])) for each in (before, last)))


class Times(NamedTuple):
    """Times of one length to choose from, as sides of a comparison."""

    title: str
    options: tuple[tuple[str, str], ...]  # each as the address has it, and as text


def times(
    spans: Sequence[Span],  # what is published, in order
    length: str,  # of a period
    *chosen: str | None,  # sides in the address, which stay to choose from
) -> list[Times]:
    """List the periods to choose from, the last one first, and the longer ones in which whole periods are published."""
    names = [span.last for span in spans]
    recent = names[-_MOST_OFFERED:]
    groups = [Times(f"{length.capitalize()}s", tuple((name, figures.brief(name, length)) for name in reversed(recent)))]
    for longer in period.LENGTHS[period.LENGTHS.index(length) + 1 :]:
        buckets = dict.fromkeys(_bucket(name, length, longer) for name in reversed(names))
        options = [(name, figures.brief(name, longer)) for name in buckets if _has_whole(name, length, names)]
        if len(options) > 1:
            groups.append(Times(f"{longer.capitalize()}s", tuple(options[:_MOST_LONGER])))
    listed = {value for group in groups for value, _ in group.options}
    others = [(text, words) for text in dict.fromkeys(chosen) if text and text not in listed and (words := _words(text, length))]
    return [Times("In the address", tuple(others)), *groups] if others else groups


@lru_cache(4096)  # of years of days, which are asked for again with each comparison
def _bucket(name: str, length: str, longer: str) -> str:
    """Return the longer period in which a period begins."""
    return period.of(period.bounds(name, length)[0], longer)


def _has_whole(name: str, length: str, names: Sequence[str]) -> bool:
    """Tell whether a published period lies in a longer one as a whole."""
    side = _side(name, length)
    return side is not None and any(side.first <= each <= side.last for each in names)


def _words(text: str, length: str) -> str:
    side = _side(text, length)
    return figures.beginning(side.words) if side else ""


@lru_cache(4096)
def _side(text: str, length: str) -> Side | None:
    try:
        return side_of(text, length)
    except Refusal:
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


def view(
    comparison: Comparison,
    length: str,  # of the metric's periods
) -> ComparisonView:
    """Describe what a page shows of a comparison."""
    a, b = sides_in_words(comparison, length)
    rows = comparison.differences
    reach = max((abs(distance(end, comparison.scale)) for row in rows for end in row.simultaneous), default=0.0) or 1.0
    if comparison.scale == "linear" and not comparison.unit and is_of_shares(comparison):
        reach = chart.share_scale(reach).high  # the labels of both ends are round
    scale = _scale(comparison)
    written = tuple(_row(row, comparison, Scale(-reach, reach), scale) for row in rows)
    ordered = sorted(written, key=lambda row: -abs(row.at - _MIDDLE))
    return ComparisonView(
        headline=figures.first_sentence(comparison.says),
        summary=_summary(comparison),
        test=_test(comparison),
        names=(a, b),
        columns=_columns(comparison, length),
        rows=written,
        differing=tuple(row for row in ordered if row.verdict),
        alike=tuple(row for row in ordered if not row.verdict),
        scale=scale,
        ends=_ends(comparison, reach),
        wider=any(row.interval != row.simultaneous for row in rows),
        beyond=any(row.differs and measure_of(row, comparison).holds_none(row.simultaneous) for row in rows),
    )


def _scale(comparison: Comparison) -> Scale:
    """Make the scale on which both sides are drawn: of shares from 0 on, of numbers as far as the intervals reach."""
    ends = [end for row in comparison.differences for end in (*row.first_interval, *row.second_interval) if not isnan(end)]
    if not ends or is_of_shares(comparison):
        return chart.share_scale(max(ends, default=1.0))
    low, high = min(ends), max(ends)
    return chart.number_scale(low, high if high > low else low + 1, is_log=comparison.scale == "log")


def _summary(comparison: Comparison) -> tuple[str, str] | None:
    """Say how many values differ, and how often estimates so far apart come by chance alone."""
    rows = [row for row in comparison.differences if row.value is not False]
    if len(rows) < 2 or comparison.overall is None:  # noqa: PLR2004
        return None
    number, p_value = sum(row.differs for row in rows), comparison.overall.p_value
    how_many = f"{number} of {plural(len(rows), 'value')} {'differs' if number == 1 else 'differ'} beyond chance."
    if isnan(p_value):  # of reports that no mechanism makes
        return how_many, ""
    alike = "If both sides answered alike, estimates so far apart would come by chance alone in"
    return how_many, f"{alike} {figures.chance(p_value)} cases."


def _test(comparison: Comparison) -> str:
    """Name the test of all values together."""
    overall = comparison.overall
    number = sum(row.value is not False for row in comparison.differences)
    if overall is None or isnan(overall.p_value) or number < 2:  # noqa: PLR2004
        return ""
    if overall.statistic is None or overall.degrees is None:
        return "All values together are tested by the smallest p-value."
    degrees = plural(overall.degrees, "degree")
    return f"All values together are tested by chi-square, here {overall.statistic:,.4g} on {degrees} of freedom."


def _columns(comparison: Comparison, length: str) -> tuple[str, str]:
    """Write the two sides in few words."""
    first, second = comparison.a.name, comparison.b.name
    if comparison.kind != "segments":
        return side_of(first, length).brief, side_of(second, length).brief
    return beside_name(second, first), beside_name(first, second)


def _row(
    row: ValueDiffering,
    comparison: Comparison,
    scale: Scale,  # of differences
    sides: Scale,  # of the estimates of both sides
) -> DifferenceRow:
    def at(difference: float) -> float:
        return round(scale.across(distance(difference, comparison.scale)), 1)

    def side(value: float, ends: tuple[float, float]) -> SideEstimate:
        at, low, high = (round(sides.across(place), 1) for place in (value, *ends))
        return SideEstimate(measure.estimate(value, ends), at, (low, high))

    measure = measure_of(row, comparison)
    low, high = row.simultaneous
    return DifferenceRow(
        label=name_of(row),
        first=side(row.first, row.first_interval),
        second=side(row.second, row.second_interval),
        difference=measure.difference(row.difference, row.interval),
        between=measure.signed(row.simultaneous),
        verdict=_verdict(row, comparison) if row.differs else "",
        chance="" if isnan(row.p_holm) else figures.chance(row.p_holm),
        at=at(row.difference),
        interval=(at(row.interval[0]), at(row.interval[1])),
        simultaneous=(at(low), at(high)),
    )


def _verdict(row: ValueDiffering, comparison: Comparison) -> str:
    """Say in which direction a value differs; and by how much at most, if its interval of all values at once holds none."""
    is_rise, measure = distance(row.difference, comparison.scale) > 0, measure_of(row, comparison)
    if comparison.kind == "periods":
        word = "rose" if is_rise else "fell"
    else:
        side = beside_name(comparison.a.name, comparison.b.name)
        word = f"{('more' if is_rise else 'less') if measure.is_share else 'higher' if is_rise else 'lower'} with {side}"
    # Holm's test finds a little more than the intervals exclude.
    most = f", by {measure.size(row.simultaneous, is_rise=is_rise)}" if measure.holds_none(row.simultaneous) else ""
    return f"{word}{most}"


def _ends(comparison: Comparison, reach: float) -> tuple[str, str]:
    if comparison.scale == "log":
        return f"\N{MULTIPLICATION SIGN} {exp(-reach):.3g}", f"\N{MULTIPLICATION SIGN} {exp(reach):.3g}"
    text = f"{100 * reach:.6g}" if is_of_shares(comparison) else figures.number(reach, (0, reach), comparison.unit)
    return f"{digits.MINUS}{text}", f"+{text}"
