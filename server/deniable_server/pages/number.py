"""What a page shows of a number: its mean or median in words, its distribution as a picture, and its quantiles.

Pictures are 100 units wide and high, and stretched to the place where they stand. So they need no script.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import ceil, floor, isnan, log, log10
from typing import TYPE_CHECKING

from deniable_server.pages.chart import Tick

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from deniable_aggregator.answer.model.number import NumberEstimate

VIEWS = ("density", "cumulative")
_MOST_TICKS = 6
_MINUS = "\N{MINUS SIGN}"
_THIN = "\N{NARROW NO-BREAK SPACE}"


@dataclass(frozen=True, slots=True)
class Figure:
    """One number with its interval, as text."""

    name: str  # what it is, such as `Median`
    # value, low, high: as text, with the unit
    value: str
    low: str
    high: str
    # at, interval: its position and those of its interval, in percent of the axis
    at: float
    interval: tuple[float, float]


@dataclass(frozen=True, slots=True)
class Quantile:
    """A row of the table of quantiles."""

    share: str  # the share of answers below it, as text
    # value, between: the quantile and its band, as text
    value: str
    between: str
    resolved: bool  # whether there are enough reports for it


@dataclass(frozen=True, slots=True)
class Picture:
    """A distribution: a line, and the area below it."""

    # line, area: paths in a square of 100 by 100 units
    line: str
    area: str
    top: str  # what the upper end stands for: a cumulative share; empty for a density, whose height has no unit


@dataclass(frozen=True, slots=True)
class Shown:
    """A number on a page."""

    first: Figure  # what stands first: the median if the distribution is estimated, else the mean
    figures: tuple[Figure, ...]  # all figures: this one, the mean, the sum
    ticks: tuple[Tick, ...]  # of the axis
    picture: Picture | None  # None if only the mean is estimated
    quantiles: tuple[Quantile, ...]  # likewise none
    unresolved: str  # the shares of the quantiles that have too few reports, as text


def shown(
    number: NumberEstimate,
    view: str = VIEWS[0],  # one of `VIEWS`
) -> Shown | None:
    """Describe what a page shows of a number; None without an estimate."""
    if isnan(number.mean):
        return None
    mean = _figure(number, "Geometric mean" if number.scale == "log" else "Mean", number.mean, number.interval)
    figures = [mean]
    for each in number.quantiles:
        if each.share == 0.5:  # noqa: PLR2004
            figures.insert(0, _figure(number, "Median", each.value, each.interval))
    if number.sum is not None:
        total, ends = number.sum
        figures.append(_figure(number, "Sum over the answers", total, ends))
    table = tuple(
        Quantile(
            f"{100 * each.share:g}%",
            written(each.value, each.interval, number.unit),
            _between(each.interval, number.unit),
            each.resolved,
        )
        for each in number.quantiles
    )
    return Shown(
        first=figures[0],
        figures=tuple(figures),
        ticks=tuple(_ticks(number)),
        picture=_picture(number, view) if number.parts else None,
        quantiles=table,
        unresolved=_listed([each.share for each in table if not each.resolved]),
    )


def written(value: float, interval: tuple[float, float], unit: str = "") -> str:
    """Write a number with its unit, and with as many digits as its interval allows: two of half its length.

    Values of a number that has whole ones only are written so.

    Examples
    --------
    >>> written(412.345, (398.2, 431.0), "ms")
    '412\u202fms'
    >>> written(4.0, (4.0, 5.0))
    '4'
    """
    reach = abs(interval[1] - interval[0]) / 2
    digits = 1 - floor(log10(reach)) if reach > 0 else 2
    if all(float(each).is_integer() for each in (value, *interval)):
        digits = min(digits, 0)
    text = f"{abs(round(value, digits)):,.{min(max(digits, 0), 6)}f}"
    sign = _MINUS if value < 0 and float(text.replace(",", "")) else ""
    return f"{sign}{text}{_THIN + unit if unit else ''}"


def apart(ends: tuple[float, float], reach: tuple[float, float], scale: str, unit: str) -> str:
    """Write between which ends a difference of numbers lies, or on a logarithmic scale their ratio; digits as for `reach`."""
    low, high = ends
    if scale == "log":
        return f"a factor of {low:.3g} to {high:.3g}"
    return f"{written(low, reach)} to {written(high, reach, unit)}"


def _between(interval: tuple[float, float], unit: str) -> str:
    low, high = (written(end, interval) for end in interval)
    return f"{low} to {high}{_THIN + unit if unit else ''}"


def _figure(number: NumberEstimate, name: str, value: float, interval: tuple[float, float]) -> Figure:
    low, high = interval
    ends = (_place(number, low), _place(number, high))
    return Figure(
        name,
        written(value, interval, number.unit),
        written(low, interval),
        written(high, interval, number.unit),
        _place(number, value),
        ends,
    )


def _place(number: NumberEstimate, value: float) -> float:
    """Return the position of a number on the axis in percent, clipped to it."""
    low, high = number.range
    value = min(max(value, low), high)
    share = log(value / low) / log(high / low) if number.scale == "log" else (value - low) / (high - low)
    return round(100 * share, 3)


def _ticks(number: NumberEstimate) -> Iterator[Tick]:
    low, high = number.range
    if number.scale == "log":
        powers = range(ceil(log10(low) - 1e-9), floor(log10(high) + 1e-9) + 1)
        every = ceil(max(len(powers), 1) / _MOST_TICKS)
        values = [10.0**power for power in powers if power % every == 0]
        values = values if len(values) > 1 else [low, high]
    else:
        step = 10.0 ** floor(log10((high - low) / _MOST_TICKS))
        step = next(step * times for times in (1, 2, 5, 10) if (high - low) / (step * times) <= _MOST_TICKS)
        values = [step * place for place in range(ceil(low / step - 1e-9), floor(high / step + 1e-9) + 1)]
    for value in values:
        yield Tick(_place(number, value), f"{value:,.6g}" if abs(value) < 1e6 else f"{value:.3g}")  # noqa: PLR2004


def _picture(number: NumberEstimate, view: str) -> Picture:
    parts = number.parts
    edges = [0.0, *(_place(number, each.high) for each in parts)]
    if view == "cumulative":
        return _drawn(edges, [0.0, *(each.below for each in parts)], 1.0, "100%")
    places, heights = [], []  # a step for each part
    for each, (begin, end) in zip(parts, pairwise(edges), strict=True):
        places += [begin, end]
        heights += 2 * [each.share / (end - begin)]
    return _drawn(places, heights, max(heights) or 1.0, "")


def _drawn(places: Sequence[float], heights: Sequence[float], top: float, name: str) -> Picture:
    """Draw a line, and the area below it."""
    line = list(zip(places, heights, strict=True))
    return Picture(_path(line, top), _path([(places[0], 0.0), *line, (places[-1], 0.0)], top) + "Z", name)


def _path(points: Sequence[tuple[float, float]], top: float) -> str:
    return "M" + "L".join(f"{x:.2f} {100 - 100 * y / top:.2f}" for x, y in points)


def _listed(names: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))
