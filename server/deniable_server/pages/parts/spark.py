"""Small pictures without an axis: a line over some periods, or the shape of one period. Each has its own scale."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from deniable_aggregator.answer.over_time.sentence import NAMES
from deniable_server.pages.parts import chart
from deniable_server.pages.parts.chart import Scale
from deniable_server.pages.parts.timeline import runs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deniable_aggregator.answer.model.series import Line, SeriesPeriod
    from deniable_aggregator.answer.model.shares import ValueShare
    from deniable_server.pages.number_page import NumberView

_SIDE = 1000  # units of a path's square: paths have whole numbers
_ROOM = 0.06  # of the height, above and below


@dataclass(frozen=True, slots=True)
class Spark:
    """A small picture. Only one of its kinds is drawn."""

    label: str  # what it shows, in words
    of: str = ""  # what a line is of
    # bands, curves: paths in a square of `_SIDE` units, one for each run of periods without a gap
    bands: tuple[str, ...] = ()
    curves: tuple[str, ...] = ()
    last: tuple[float, float] | None = None  # the place of the last period, in percent
    hollow: bool = False  # whether it is open
    change: float | None = None  # where the last change lies, in percent
    # bars, whiskers: of a shape, with their intervals, each as one path
    bars: str = ""
    whiskers: str = ""
    number: NumberView | None = None


def line(
    of: Line,
    periods: Sequence[SeriesPeriod],
    label: str,
    *,
    change: int | None = None,  # the period with which the line changed, by its place
) -> Spark | None:
    """Draw a line over its periods; None if it has fewer than two points."""
    joined = runs(of.points, periods)
    known = [pair for run in joined for pair in run]
    if len(known) < 2:  # noqa: PLR2004
        return None
    low = min(point.interval[0] for _, point in known)
    high = max(point.interval[1] for _, point in known)
    margin = _ROOM * (high - low) or 1.0
    scale = Scale(low - margin, high + margin)

    def x(at: int) -> int:
        return round(_SIDE * (at + 0.5) / len(periods))

    def y(value: float) -> int:
        return round(_SIDE * scale.down(value, 4) / 100)

    bands, curves = [], []
    for run in joined:
        upper = [(x(at), y(point.interval[1])) for at, point in run]
        lower = [(x(at), y(point.interval[0])) for at, point in reversed(run)]
        bands.append(chart.whole_path([*upper, *lower]) + "Z")
        curves.append(chart.whole_path((x(at), y(point.estimate)) for at, point in run))
    at, point = known[-1]
    name = NAMES.get(of.kind, of.label)
    return Spark(
        f"{name}, {label}",
        name,
        tuple(bands),
        tuple(curves),
        last=(x(at) / 10, y(point.estimate) / 10),
        hollow=not periods[at].closed,
        change=None if change is None else round(100 * change / len(periods), 1),
    )


def shape(
    rows: Sequence[ValueShare],
    label: str,
) -> Spark:
    """Draw values as bars side by side."""
    bars = chart.bars(rows)
    # A bar is drawn from its upper left corner, and an interval from its upper end.
    rects = (f"M{10 * bar.left:.0f} {10 * bar.top:.0f}h{10 * bar.width:.0f}V{_SIDE}h-{10 * bar.width:.0f}z" for bar in bars)
    ends = (f"M{10 * bar.middle:.0f} {10 * bar.interval[0]:.0f}V{10 * bar.interval[1]:.0f}" for bar in bars)
    return Spark(label, bars="".join(rects), whiskers="".join(ends))
