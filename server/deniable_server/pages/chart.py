"""Geometry of the dashboard's charts, and how numbers are written.

Positions are percentages of the width of a chart, so it fits any screen and needs no script. Only drawn positions are clipped to
the axis. Numbers are the unbiased estimates.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, floor, log10
from typing import TYPE_CHECKING, TypeVar

from deniable_aggregator.answer.model.shares import ValueEstimate, ValueShare

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Value = TypeVar("Value", bound=ValueShare)

_STEPS = 5  # most steps between ticks: their labels do not overlap on a telephone
_DIGITS = 4  # after the point, at most
_MINUS = "\N{MINUS SIGN}"


@dataclass(frozen=True, slots=True)
class Tick:
    """A line across the chart."""

    at: float  # its position, in percent of the width
    label: str  # the frequency that it stands for


@dataclass(frozen=True, slots=True)
class Axis:
    """A linear scale from 0 to `top`."""

    top: float  # frequency at the right end, in (0, 1]
    ticks: tuple[Tick, ...]  # from 0 to the top

    def place(self, frequency: float) -> float:
        """Return the position of a frequency in percent of the width, clipped to the chart."""
        return round(100 * min(max(frequency / self.top, 0.0), 1.0), 3)


@dataclass(frozen=True, slots=True)
class Row:
    """One value: its marks, and its numbers as text."""

    label: str  # the answer
    at: float  # position of the estimate
    beyond: str  # "below" or "above" if the estimate lies outside the axis, else empty
    # interval, simultaneous: positions of the ends of the two intervals
    interval: tuple[float, float]
    simultaneous: tuple[float, float]
    # reports, estimate, stderr, interval_text, simultaneous_text, count: the numbers
    reports: str
    estimate: str
    stderr: str
    interval_text: str
    simultaneous_text: str
    count: str
    faint: bool  # whether the value was not detected, tested together with all values


@dataclass(frozen=True, slots=True)
class Chart:
    """Rows on one axis."""

    axis: Axis  # the scale
    rows: tuple[Row, ...]  # from top to bottom
    # Whether intervals of all values at once differ from those of one. They do not of two values that mirror each other.
    wider: bool


@dataclass(frozen=True, slots=True)
class Column:
    """One value of a small column chart, in percent of its width and height, from the top left corner."""

    # left, width: of the column
    left: float
    width: float
    # top, height: of the column
    top: float
    height: float
    middle: float  # where the interval is drawn
    interval: tuple[float, float]  # upper and lower end of the interval


def axis(
    most: float,  # largest frequency to show
) -> Axis:
    """Make an axis from 0 to the first tick not below `most`, in steps of 1, 2 or 5 times a power of ten; at most to 1."""
    most = min(most, 1.0) if most > 0 else 1.0
    exponent = floor(log10(most)) - 1
    step, steps = next(
        (step, steps)
        for power in (exponent, exponent + 1)
        for step in (10.0**power, 2 * 10.0**power, 5 * 10.0**power)
        if (steps := ceil(most / step - 1e-9)) <= _STEPS
    )
    digits = max(0, -floor(log10(step) + 1e-9) - 2)
    ticks = tuple(Tick(round(100 * i / steps, 3), f"{100 * i * step:.{digits}f}%") for i in range(steps + 1))
    return Axis(step * steps, ticks)


def order(estimates: Iterable[Value], *, by_estimate: bool) -> list[Value]:
    """Sort values by their estimate, the largest first and equal ones as declared, or leave them as declared."""
    rows = list(estimates)
    return sorted(rows, key=lambda row: -row.frequency) if by_estimate else rows


def chart(rows: Sequence[ValueShare], over: Sequence[ValueShare] | None = None) -> Chart:
    """Draw values.

    Parameters
    ----------
    rows
        Their estimates, none of them nan.
    over
        The values that the axis must include, and whose errors set the number of digits; by default those drawn.
    """
    over = rows if over is None else over
    scale = axis(max(row.simultaneous[1] for row in over))
    digits = _digits(max(row.stderr for row in over))
    return Chart(scale, tuple(_row(row, scale, digits) for row in rows), any(row.interval != row.simultaneous for row in over))


def columns(rows: Sequence[ValueShare]) -> tuple[Column, ...]:
    """Draw values as columns side by side, over the full height of a chart."""
    most = max(row.interval[1] for row in rows)
    scale = Axis(most if most > 0 else 1.0, ())
    pitch = 100 / len(rows)
    drawn = []
    for i, row in enumerate(rows):
        height = scale.place(row.frequency)
        low, high = (round(100 - scale.place(end), 3) for end in row.interval)
        left, middle = round(pitch * (i + 0.12), 3), round(pitch * (i + 0.5), 3)
        drawn.append(Column(left, round(pitch * 0.76, 3), round(100 - height, 3), height, middle, (high, low)))
    return tuple(drawn)


def percent(frequency: float, digits: int, sign: str = "%") -> str:
    """Write a frequency in percent, unclipped; what rounds to 0 has no sign."""
    text = f"{100 * frequency:.{digits}f}"
    negative = text.startswith("-") and float(text) != 0
    return f"{_MINUS if negative else ''}{text.lstrip('-')}{sign}"


def share(frequency: float, stderr: float) -> str:
    """Write a frequency in percent with as many digits as its standard error allows."""
    return percent(frequency, _digits(stderr))


def count(number: float) -> str:
    """Write a whole number in groups of three digits; what rounds to 0 has no sign."""
    whole = round(number)
    return f"{_MINUS if whole < 0 else ''}{abs(whole):,}"


def _digits(stderr: float) -> int:
    """Choose the digits after the point of a percentage so that its standard error has two significant ones."""
    return min(max(1 - floor(log10(100 * stderr)), 0), _DIGITS) if stderr > 0 else 1


def _row(row: ValueShare, scale: Axis, digits: int) -> Row:
    frequency, (low, high), (lowest, highest) = row.frequency, row.interval, row.simultaneous
    return Row(
        label=row.label,
        at=scale.place(frequency),
        beyond="below" if frequency < 0 else "above" if frequency > scale.top else "",
        interval=(scale.place(low), scale.place(high)),
        simultaneous=(scale.place(lowest), scale.place(highest)),
        reports=count(row.n),
        estimate=percent(frequency, digits),
        stderr=percent(row.stderr, digits, ""),
        interval_text=f"{percent(low, digits, '')} to {percent(high, digits)}",
        simultaneous_text=f"{percent(lowest, digits, '')} to {percent(highest, digits)}",
        count=count(row.count) if isinstance(row, ValueEstimate) else "",
        faint=isinstance(row, ValueEstimate) and not row.detected,
    )
