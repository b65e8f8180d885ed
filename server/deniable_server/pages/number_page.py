"""What a page shows of a number: its mean or median in words, its distribution as a picture, and its quantiles."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from deniable_aggregator.answer import digits, figures
from deniable_aggregator.answer.headline import figures_of, quantile_measure, written
from deniable_server.pages.parts import chart
from deniable_server.pages.parts.chart import Scale

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from deniable_aggregator.answer.model.number import NumberEstimate, NumberPart, QuantileEstimate
    from deniable_server.pages.parts.chart import Tick

VIEWS = ("density", "cumulative")
# What is true of a quantile also if many answers are this very number, as whole numbers are.
_WORDS = {
    0.05: "at most one in twenty is below",
    0.1: "at most one in ten is below",
    0.25: "at most a quarter are below",
    0.5: "at most half are below, at most half above",
    0.75: "at most a quarter are above",
    0.9: "at most one in ten is above",
    0.95: "at most one in twenty is above",
    0.99: "at most one in a hundred is above",
}
# How a sentence names the median, and says that answers are above a quantile, by the end of the range that it may be at.
_BY_END = {
    0.5: {0: "the median is", -1: "at least half of the answers are", 1: "at least half of the answers are"},
    0.9: {0: "at most one answer in ten is above", -1: "at least nine in ten are", 1: "at least one in ten is"},
}
_HEIGHTS = {0.5: 0, 0.9: 42, 0.95: 64}  # of the notes in the picture, in percent from the top, by the quantile that they name
_NAMED = {0.5: "median", 0.9: "90% quantile"}
_BEYOND = 0.01  # share of answers at either end for which a picture has no room, unless everything is asked for
_MOST_OF_RANGE = 0.8  # a picture of more of the range is one of all
_NOTHING = 0.0005  # a smaller share is written as 0
# How much room a note may take to the right of its place, and one letter of it, in percent of the width of a telephone's picture
_ROOM, _LETTER = 108, 2


@dataclass(frozen=True, slots=True)
class Figure:
    """One number with its interval, as text."""

    name: str  # what it is, such as `Median`
    # value, low, high: as text, with the unit
    value: str
    low: str
    high: str
    # at, interval: its position and those of its interval, in percent of the scale
    at: float
    interval: tuple[float, float]
    numbers: tuple[float, float, float]  # the number and the ends of its interval


@dataclass(frozen=True, slots=True)
class Quantile:
    """A row of the table of quantiles."""

    share: str  # the share of answers below it, as text
    # value, between: the quantile and its band, as text
    value: str
    between: str
    words: str  # what it says
    resolved: bool  # whether there are enough reports for it
    at: float  # its position on the scale of the picture, in percent
    interval: tuple[float, float]  # positions of the ends of its band
    beyond: tuple[bool, bool]  # whether its band goes on below and above the scale


class Note(NamedTuple):
    """What the picture says of a quantile."""

    at: float
    height: int  # in percent from the top
    text: str
    is_left: bool  # whether the text stands left of it


@dataclass(frozen=True, slots=True)
class NumberPicture:
    """A distribution: a line, and the area below it, as paths in a square of 100 by 100 units."""

    line: str
    area: str


@dataclass(frozen=True, slots=True)
class NumberView:
    """A number on a page."""

    first: Figure  # what stands first: the median if the distribution is estimated, else the mean
    figures: tuple[Figure, ...]  # this one, the mean, the sum
    ticks: tuple[Tick, ...]  # of the scale
    picture: NumberPicture | None  # None if only the mean is estimated
    quantiles: tuple[Quantile, ...]  # none if only the mean is estimated
    unresolved: str  # the shares of the quantiles that have too few reports, as text
    says: str  # what a reader wants to know first; empty where no distribution is estimated, or of too few reports
    detail: str  # the same with intervals
    notes: tuple[Note, ...]  # in the picture
    beyond: str  # how many answers lie beyond the picture, in words; empty if none do
    all_words: str  # what the picture would have if it had everything; empty if it has


def view(
    number: NumberEstimate,
    kind: str = VIEWS[0],  # of picture: one of `VIEWS`
    *,
    everything: bool = True,  # whether the picture has the whole range, or what nearly all answers need
) -> NumberView | None:
    """Describe what a page shows of a number; None without an estimate."""
    figures_listed = figures_of(number)
    if not figures_listed:
        return None
    low, high = number.range if everything else _needed(number)
    scale = chart.number_scale(low, high, is_log=number.scale == "log")

    listed = [
        Figure(
            each.name,
            written(number, each),
            *figures.number_ends(each.interval, number.unit),
            scale.across(each.value),
            (scale.across(each.interval[0]), scale.across(each.interval[1])),
            (each.value, *each.interval),
        )
        for each in figures_listed
    ]
    measure = quantile_measure(number)
    table = tuple(
        Quantile(
            f"{100 * quantile.share:g}%",
            measure.estimate(quantile.value, quantile.interval),
            measure.ends(quantile.interval),
            _in_words(measure, quantile),
            quantile.resolved,
            scale.across(quantile.value),
            (scale.across(quantile.interval[0]), scale.across(quantile.interval[1])),
            (quantile.interval[0] < low, quantile.interval[1] > high),
        )
        for quantile in number.quantiles
    )
    return NumberView(
        first=listed[0],
        figures=tuple(listed),
        ticks=scale.ticks,
        picture=_picture(number.parts, scale, kind) if number.parts else None,
        quantiles=table,
        unresolved=_listed([row.share for row in table if not row.resolved]),
        says=_says(number),
        detail=_detail(number, listed),
        notes=tuple(_notes(number, table)) if number.parts else (),
        beyond=_beyond(number, low, high),
        all_words="" if (low, high) == tuple(number.range) else f"all, {_ends(number.range, number.unit)}",
    )


def _needed(number: NumberEstimate) -> tuple[float, float]:
    """Return the part of the range that has nearly all answers, and the bands of all quantiles that are resolved."""
    least, most = number.range
    if not number.parts or number.scale == "log":
        return least, most
    edges, below = [least, *(part.high for part in number.parts)], [0.0, *(part.below for part in number.parts)]
    bands = [quantile.interval for quantile in number.quantiles if quantile.resolved]
    first = max(edge for edge, share in zip(edges, below, strict=True) if share < _BEYOND)
    last = min((edge for edge, share in zip(edges, below, strict=True) if share > 1 - _BEYOND), default=most)
    first, last = min([first, *(band[0] for band in bands)]), max([last, *(band[1] for band in bands)])
    if last - first > _MOST_OF_RANGE * (most - least) or first >= last:
        return least, most
    scale = chart.round_scale(first, last)
    return max(scale.low, least), min(scale.high, most)


def _beyond(number: NumberEstimate, low: float, high: float) -> str:
    """Say how many answers lie beyond a part of the range."""
    sides = (
        ("below", sum(part.share * _portion(part, number.range[0], low) for part in number.parts), low > number.range[0]),
        ("above", sum(part.share * _portion(part, high, number.range[1]) for part in number.parts), high < number.range[1]),
    )
    if not any(is_cut for *_, is_cut in sides):
        return ""
    cut = [f"{100 * share:.1f}% {side}" for side, share, is_cut in sides if is_cut and share > _NOTHING]
    words = f" An estimated {figures.listed(cut)} lie beyond." if cut else ""
    return f"The picture has {_ends((low, high), number.unit)}.{words}"


def _portion(part: NumberPart, low: float, high: float) -> float:
    """Return how much of a part lies between two numbers."""
    return max(min(part.high, high) - max(part.low, low), 0.0) / (part.high - part.low)


def _ends(ends: tuple[float, float], unit: str) -> str:
    low, high = (f"{end:,.6g}".replace("-", digits.MINUS) for end in ends)
    return f"{low} to {high} {unit}".rstrip()


def _says(number: NumberEstimate) -> str:
    """Say what the median is, and above which number at most one in ten is; what their bands say at an end."""
    measure = quantile_measure(number)
    resolved = {each.share: each for each in number.quantiles if each.resolved}
    if 0.5 not in resolved or not number.unit:  # noqa: PLR2004
        return ""
    parts: dict[str, str] = {}  # by the quantile as text: of whole numbers several quantiles may be the same end of the range
    for share, words in _BY_END.items():
        if quantile := resolved.get(share):
            text = measure.one_sided(quantile.value, quantile.interval)
            parts.setdefault(text, words[_end(measure, quantile)])
    return figures.beginning(", and ".join(f"{words} {text}" for text, words in parts.items()))


def _end(measure: figures.Measure, quantile: QuantileEstimate) -> int:
    """Return at which end of the range a quantile is or may be: -1 the least, 1 the greatest, 0 neither."""
    return measure.reaches(quantile.value, quantile.interval) or measure.at_end(quantile.value)


def _in_words(measure: figures.Measure, quantile: QuantileEstimate) -> str:
    if not quantile.resolved:
        return "not resolved"
    if side := _end(measure, quantile):
        share = quantile.share if side < 0 else 1 - quantile.share
        beyond = "below" if side < 0 else "above"
        return f"{100 * share:g}% or more are here{'' if measure.at_end(quantile.value) else f' or {beyond}'}"
    return _WORDS.get(quantile.share, "")


def _detail(number: NumberEstimate, listed: Sequence[Figure]) -> str:
    """Say between which numbers these lie."""
    measure = quantile_measure(number)
    bands = {each.share: _lying(measure.ends(each.interval)) for each in number.quantiles if each.resolved}
    named = [(name, bands[share]) for share, name in _NAMED.items() if share in bands]
    lying = ", ".join(f"the {name} {'' if index else 'lies '}{where}" for index, (name, where) in enumerate(named))
    mean = next((each for each in listed if each.name != "Median" and "ean" in each.name), None)
    also = f" The {mean.name.lower()} is {mean.value} ({mean.low} to {mean.high})." if mean else ""
    return f"{figures.beginning(lying)}.{also}" if lying else ""


def _lying(ends: str) -> str:
    """Say between which numbers, such as `5 to 9 min`, a quantile lies; of answers that are whole numbers it may be at one."""
    low, _, high = ends.partition(" to ")
    return f"at {high}" if figures.are_alike(low, high) else f"between {low} and {high}"


def _notes(number: NumberEstimate, table: Sequence[Quantile]) -> Iterator[Note]:
    for quantile, row in zip(number.quantiles, table, strict=True):
        if row.resolved and quantile.share in _HEIGHTS and 0 < row.at < 100:  # noqa: PLR2004
            text = f"{'median' if quantile.share == 0.5 else f'{row.share}:'} {row.value}"  # noqa: PLR2004
            yield Note(row.at, _HEIGHTS[quantile.share], text, row.at + _LETTER * len(text) > _ROOM)


def _picture(parts: Sequence[NumberPart], scale: Scale, kind: str) -> NumberPicture:
    edges = [scale.across(parts[0].low), *(scale.across(part.high) for part in parts)]
    if kind == "cumulative":
        return _drawing(edges, [0.0, *(part.below for part in parts)], 1.0)
    places, heights = [], []  # a step for each part
    for part, (begin, end) in zip(parts, pairwise(edges), strict=True):
        if end > begin:  # else it lies beyond the picture
            places += [begin, end]
            heights += 2 * [part.share * _portion(part, scale.low, scale.high) / (end - begin)]
    return _drawing(places, heights, max(heights) or 1.0)


def _drawing(places: Sequence[float], heights: Sequence[float], top: float) -> NumberPicture:
    """Draw a line, and the area below it."""
    upright = Scale(0.0, top)
    line = list(zip(places, map(upright.down, heights), strict=True))
    area = [(places[0], 100.0), *line, (places[-1], 100.0)]
    return NumberPicture(chart.path(line, ".2f"), chart.path(area, ".2f") + "Z")


def _listed(names: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))
