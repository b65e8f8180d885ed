"""What a page shows of a number: its mean or median in words, its distribution as a picture, and its quantiles."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from deniable_aggregator.answer import figures
from deniable_aggregator.answer.headline import figures_of, in_words
from deniable_aggregator.answer.model.fields import LEVEL
from deniable_server.pages.parts import chart
from deniable_server.pages.parts.chart import Scale

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deniable_aggregator.answer.model.number import NumberEstimate, NumberPart
    from deniable_server.pages.parts.chart import Tick

VIEWS = ("density", "cumulative")


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
    resolved: bool  # whether there are enough reports for it
    at: float  # its position on the scale of the picture, in percent
    interval: tuple[float, float]  # positions of the ends of its band


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
    words: str  # what the median and the means are, with their intervals; empty if that is said above
    ticks: tuple[Tick, ...]  # of the scale
    picture: NumberPicture | None  # None if only the mean is estimated
    quantiles: tuple[Quantile, ...]  # none if only the mean is estimated
    unresolved: str  # the shares of the quantiles that have too few reports, as text


def view(
    number: NumberEstimate,
    kind: str = VIEWS[0],  # of picture: one of `VIEWS`
    level: float = LEVEL,  # of the intervals
) -> NumberView | None:
    """Describe what a page shows of a number; None without an estimate."""
    figures_listed = figures_of(number)
    if not figures_listed:
        return None
    low, high = number.range
    scale = chart.number_scale(low, high, is_log=number.scale == "log")

    def figure(name: str, value: float, interval: tuple[float, float]) -> Figure:
        return Figure(
            name,
            figures.number(value, interval, number.unit),
            figures.number(interval[0], interval),
            figures.number(interval[1], interval, number.unit),
            scale.across(value),
            (scale.across(interval[0]), scale.across(interval[1])),
            (value, *interval),
        )

    listed = [figure(*each) for each in figures_listed]
    measure = figures.Measure(is_share=False, unit=number.unit)
    table = tuple(
        Quantile(
            f"{100 * quantile.share:g}%",
            measure.estimate(quantile.value, quantile.interval),
            measure.ends(quantile.interval),
            quantile.resolved,
            scale.across(quantile.value),
            (scale.across(quantile.interval[0]), scale.across(quantile.interval[1])),
        )
        for quantile in number.quantiles
    )
    return NumberView(
        first=listed[0],
        figures=tuple(listed),
        words=_words(number, level),
        ticks=scale.ticks,
        picture=_picture(number.parts, scale, kind) if number.parts else None,
        quantiles=table,
        unresolved=_listed([row.share for row in table if not row.resolved]),
    )


def _words(number: NumberEstimate, level: float) -> str:
    """Say what the median and the means are. A mean alone is in the headline already."""
    listed = [figure for figure in figures_of(number) if not figure.name.startswith("Sum")]
    median = "Half of the answers are at most the median." if listed[0].name == "Median" else ""
    return " ".join([*(in_words(number, figure, level) for figure in listed), median]).strip() if len(listed) > 1 else ""


def _picture(parts: Sequence[NumberPart], scale: Scale, kind: str) -> NumberPicture:
    edges = [0.0, *(scale.across(part.high) for part in parts)]
    if kind == "cumulative":
        return _drawing(edges, [0.0, *(part.below for part in parts)], 1.0)
    places, heights = [], []  # a step for each part
    for part, (begin, end) in zip(parts, pairwise(edges), strict=True):
        places += [begin, end]
        heights += 2 * [part.share / (end - begin)]
    return _drawing(places, heights, max(heights) or 1.0)


def _drawing(places: Sequence[float], heights: Sequence[float], top: float) -> NumberPicture:
    """Draw a line, and the area below it."""
    upright = Scale(0.0, top)
    line = list(zip(places, map(upright.down, heights), strict=True))
    area = [(places[0], 100.0), *line, (places[-1], 100.0)]
    return NumberPicture(chart.path(line, ".2f"), chart.path(area, ".2f") + "Z")


def _listed(names: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))
