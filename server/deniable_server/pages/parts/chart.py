"""Geometry of the dashboard's pictures.

Positions are percentages of a picture's width or height, so it fits any screen and needs no script. Only positions are clipped to
the scale. Numbers beside them are the unbiased estimates.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import ceil, exp, floor, log, log10
from typing import TYPE_CHECKING, TypeVar

from deniable_aggregator.answer import digits
from deniable_aggregator.answer.digits import MINUS
from deniable_aggregator.answer.figures import count, percent, percent_range
from deniable_aggregator.answer.model.shares import ValueEstimate, ValueShare

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Value = TypeVar("Value", bound=ValueShare)

_STEPS = 5  # most steps between ticks of shares: their labels do not overlap on a telephone
_MOST_TICKS = 6  # of numbers


@dataclass(frozen=True, slots=True)
class Tick:
    """A line across a picture."""

    at: float  # its position, in percent of the width
    label: str  # what it stands for


@dataclass(frozen=True, slots=True)
class Scale:
    """A scale, linear or logarithmic: where a value stands in a picture."""

    low: float  # what the left or lower end stands for
    high: float
    is_log: bool = False
    ticks: tuple[Tick, ...] = ()

    def across(self, value: float) -> float:
        """Return the position of a value in percent from the left, clipped to the picture."""
        return round(100 * self._portion(value), 3)

    def down(self, value: float, digits: int = 2) -> float:
        """Return the position of a value in percent from the top, clipped to the picture."""
        return round(100 - 100 * self._portion(value), digits)

    def _portion(self, value: float) -> float:
        value = min(max(value, self.low), self.high)  # first, because values below a logarithmic scale may have no logarithm
        if self.is_log:
            return log(value / self.low) / log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)


@dataclass(frozen=True, slots=True)
class ValueBar:
    """One value: its marks, and its numbers as text."""

    label: str  # the answer
    at: float  # position of the estimate
    beyond: str  # "below" or "above" if the estimate lies outside the scale, else empty
    # interval, simultaneous: positions of the ends of the two intervals
    interval: tuple[float, float]
    simultaneous: tuple[float, float]
    # reports, estimate, interval_text, simultaneous_text: the numbers
    reports: str
    estimate: str
    interval_text: str
    simultaneous_text: str
    # Whether the value was not detected, tested together with all values; of shares that are not tested, by the own interval.
    faint: bool


@dataclass(frozen=True, slots=True)
class Chart:
    """Values on one scale."""

    scale: Scale
    rows: tuple[ValueBar, ...]  # from top to bottom
    # Whether intervals of all values at once differ from those of one. They do not of two values that mirror each other.
    wider: bool


@dataclass(frozen=True, slots=True)
class Bar:
    """One value of a small picture of upright bars, in percent of its width and height, from the top left corner."""

    # left, width, top, height: of the bar
    left: float
    width: float
    top: float
    height: float
    middle: float  # where the interval is drawn
    interval: tuple[float, float]  # upper and lower end of the interval


def share_scale(
    most: float,  # largest frequency to show
) -> Scale:
    """Make a scale from 0 to the first tick not below `most`, in steps of 1, 2 or 5 times a power of ten; at most to 1."""
    most = min(most, 1.0) if most > 0 else 1.0
    exponent = floor(log10(most)) - 1
    step, steps = next(
        (step, steps)
        for power in (exponent, exponent + 1)
        for step in (10.0**power, 2 * 10.0**power, 5 * 10.0**power)
        if (steps := ceil(most / step - 1e-9)) <= _STEPS  # a quotient that should be whole may be a little larger
    )
    digits = max(0, -floor(log10(step) + 1e-9) - 2)
    places = (100 * i // steps if 100 * i % steps == 0 else round(100 * i / steps, 3) for i in range(steps + 1))  # 25, not 25.0
    ticks = tuple(Tick(at, f"{100 * i * step:.{digits}f}%") for i, at in enumerate(places))
    return Scale(0.0, step * steps, ticks=ticks)


def number_scale(low: float, high: float, *, is_log: bool) -> Scale:
    """Make a scale of a number's range, with ticks at round numbers."""
    scale = Scale(low, high, is_log)
    values = _powers(low, high) if is_log else []
    values = values if len(values) > 1 else _steps(low, high)
    return Scale(low, high, is_log, tuple(Tick(scale.across(value), _label(value)) for value in values))


def ratio_scale(low: float, high: float) -> Scale:
    """Make a linear scale of logarithms of ratios, with ticks at round ratios."""
    ratios = exp(low), exp(high)
    values = _powers(*ratios)
    values = values if len(values) > 2 else _steps(*ratios)  # noqa: PLR2004 - 1 is no difference, and there is more to see
    scale = Scale(low, high)
    return Scale(low, high, ticks=tuple(Tick(scale.across(log(value)), _label(value)) for value in values if value > 0))


def _powers(low: float, high: float) -> list[float]:
    """Return the powers of ten in a range, as many as there is room for."""
    powers = range(ceil(log10(low) - 1e-9), floor(log10(high) + 1e-9) + 1)
    every = ceil(max(len(powers), 1) / _MOST_TICKS)
    return [10.0**power for power in powers if power % every == 0]


def _steps(low: float, high: float) -> list[float]:
    """Return round numbers in a range, at equal distances."""
    step = 10.0 ** floor(log10((high - low) / _MOST_TICKS))
    step = next(step * times for times in (1, 2, 5, 10) if (high - low) / (step * times) <= _MOST_TICKS)
    return [step * place for place in range(ceil(low / step - 1e-9), floor(high / step + 1e-9) + 1)]


def _label(value: float) -> str:
    size = f"{abs(value):,.6g}" if abs(value) < 1e6 else f"{abs(value):.3g}"  # noqa: PLR2004
    return f"{MINUS if value < 0 else ''}{size}"


def round_scale(low: float, high: float) -> Scale:
    """Make a linear scale that begins and ends at round numbers, with ticks between."""
    step = 10.0 ** floor(log10((high - low) / _MOST_TICKS))
    step = next(step * times for times in (1, 2, 5, 10) if (high - low) / (step * times) <= _MOST_TICKS)
    return number_scale(step * floor(low / step + 1e-9), step * ceil(high / step - 1e-9), is_log=False)


def near_scale(low: float, high: float) -> Scale:
    """Make a scale of the shares around those of one line: between round ones, from 0 if there is only one."""
    low, high = max(low, 0.0), min(high, 1.0)
    if low >= high:
        return share_scale(high)
    scale = round_scale(100 * low, 100 * high)
    return Scale(scale.low / 100, scale.high / 100, ticks=tuple(Tick(each.at, f"{each.label}%") for each in scale.ticks))


def path(points: Iterable[tuple[float, float]], digits: str) -> str:
    """Return an SVG path through points; `digits` says how its numbers are written."""
    return "M" + "L".join(f"{x:{digits}} {y:{digits}}" for x, y in points)


def whole_path(points: Iterable[tuple[int, int]]) -> str:
    """Return a path through points of whole numbers. It has steps from one to the next, which take half the letters."""
    listed = list(points)
    steps = [f"{x - left}{' ' * (y >= above)}{y - above}" for (left, above), (x, y) in pairwise(listed)]
    return f"M{listed[0][0]} {listed[0][1]}{'l' * bool(steps)}{' '.join(steps)}"


def order(estimates: Iterable[Value], *, by_estimate: bool) -> list[Value]:
    """Sort values by their estimate, the largest first and equal ones as declared, or leave them as declared."""
    rows = list(estimates)
    return sorted(rows, key=lambda row: -row.frequency) if by_estimate else rows


def chart(
    rows: Sequence[ValueShare],  # the values, none of them nan
    over: Sequence[ValueShare] | None = None,  # values that set the scale and the number of digits; None: those drawn
) -> Chart:
    """Draw values."""
    over = rows if over is None else over
    scale = share_scale(max(row.simultaneous[1] for row in over))
    places = digits.of_share(max(row.stderr for row in over))
    return Chart(scale, tuple(_bar(row, scale, places) for row in rows), any(row.interval != row.simultaneous for row in over))


def bars(rows: Sequence[ValueShare]) -> tuple[Bar, ...]:
    """Draw values as bars side by side, over the full height of a picture."""
    most = max(row.interval[1] for row in rows)
    scale = Scale(0.0, most if most > 0 else 1.0)
    pitch = 100 / len(rows)
    return tuple(
        Bar(
            left=round(pitch * (i + 0.12), 3),
            width=round(pitch * 0.76, 3),
            top=scale.down(row.frequency, 3),
            height=scale.across(row.frequency),
            middle=round(pitch * (i + 0.5), 3),
            interval=(scale.down(row.interval[1], 3), scale.down(row.interval[0], 3)),
        )
        for i, row in enumerate(rows)
    )


def _bar(row: ValueShare, scale: Scale, places: int) -> ValueBar:
    frequency, (low, high), (lowest, highest) = row.frequency, row.interval, row.simultaneous
    return ValueBar(
        label=row.label,
        at=scale.across(frequency),
        beyond="below" if frequency < 0 else "above" if frequency > scale.high else "",
        interval=(scale.across(low), scale.across(high)),
        simultaneous=(scale.across(lowest), scale.across(highest)),
        reports=count(row.n),
        estimate=percent(frequency, places),
        interval_text=percent_range(row.interval, places),
        simultaneous_text=percent_range(row.simultaneous, places),
        faint=not (row.detected if isinstance(row, ValueEstimate) else row.interval[0] > 0),
    )
