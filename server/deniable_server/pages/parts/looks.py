"""The picture of an experiment: a difference as reports came in, with its band, no difference, and the planned one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from deniable.registry import period
from deniable_aggregator.answer.digits import MINUS
from deniable_server.pages.parts import chart, timeline
from deniable_server.pages.parts.chart import Scale, Tick
from deniable_server.pages.parts.timeline import CoursePicture, Hit, Mark, TimeTick

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from deniable_aggregator.answer.model.experiment import Look

_MOST_NAMES = 8  # below the picture; a telephone shows half of them
_ROOM = 1.5  # times the last interval's length that the picture shows: early intervals may be very long


@dataclass(frozen=True, slots=True, kw_only=True)
class LooksPicture(CoursePicture):
    """A difference as reports came in: the axis of time lies where no difference is."""

    names: tuple[TimeTick, ...]  # below the picture
    cut: bool  # whether intervals of early looks reach beyond the picture


def picture(
    looks: Sequence[Look],
    planned: float | None,  # the planned difference on the axis; None if it is not drawn
    length: str,  # of a period
    place: Callable[[float], float],  # of a difference on the axis
    write: Callable[[Look], str],  # a look as text
    *,
    is_ratio: bool,  # whether places are logarithms of ratios
    unfinished: bool,  # whether more may come for the last look
) -> LooksPicture:
    """Draw looks."""
    ends = [tuple(map(place, look.simultaneous)) for look in looks]
    last = ends[-1]
    reach = _ROOM * (last[1] - last[0])
    values = [place(look.difference) for look in looks]
    low = max(min(end[0] for end in ends), min(0.0, *values, last[0]) - reach)
    high = min(max(end[1] for end in ends), max(0.0, *values, last[1]) + reach)
    low, high = min(low, 0.0), max(high, 0.0)
    make = chart.ratio_scale if is_ratio else chart.round_scale
    scale = make(low, high) if high > low else Scale(-1, 1)
    pitch = 100 / len(looks)
    middle = [round(pitch * (at + 0.5), 2) for at in range(len(looks))]
    upper = [(x, scale.down(end[1])) for x, end in zip(middle, ends, strict=True)]
    lower = [(x, scale.down(end[0])) for x, end in zip(middle, ends, strict=True)]
    points = [(x, scale.down(value)) for x, value in zip(middle, values, strict=True)]
    texts = [write(look) for look in looks]
    return LooksPicture(
        marks=tuple(
            Mark(x, y, (up[1], down[1]), hollow=unfinished and look is looks[-1], alone=len(looks) == 1)
            for look, (x, y), up, down in zip(looks, points, upper, lower, strict=True)
        ),
        curves=(timeline.path(points),) if len(looks) > 1 else (),
        bands=(timeline.path([*upper, *reversed(lower)]) + "Z",) if len(looks) > 1 else (),
        ticks=tuple(Tick(round(100 - tick.at, 2), _label(scale, tick, is_ratio=is_ratio)) for tick in scale.ticks),
        zero=scale.down(0.0),
        planned=tuple(scale.down(side) for side in (planned, -planned) if low < side < high) if planned else (),
        cut=min(end[0] for end in ends) < scale.low or max(end[1] for end in ends) > scale.high,
        names=_names([look.last for look in looks], length, middle),
        hits=tuple(Hit(round(x - pitch / 2, 2), round(pitch, 2), x, text) for x, text in zip(middle, texts, strict=True)),
        words=f"The difference as reports came in: {'; '.join((texts[0], texts[-1]) if len(texts) > 1 else texts)}.",
    )


def _names(periods: Sequence[str], length: str, middle: Sequence[float]) -> tuple[TimeTick, ...]:
    """Name the last look and every so many before it: looks need not be periods that follow each other."""
    every = -(-len(periods) // _MOST_NAMES)
    places = [*range(len(periods) - 1, -1, -every)]
    form = "%b" if length == "month" else "%d %b"
    return tuple(
        TimeTick(middle[at], f"{period.bounds(periods[at], length)[0]:{form}}".lstrip("0"), is_long=place % 2 == 1)
        for place, at in enumerate(places)
    )


def _label(scale: Scale, tick: Tick, *, is_ratio: bool) -> str:
    """Write a difference beside the axis: with its sign, or as a factor."""
    value = scale.low + tick.at / 100 * (scale.high - scale.low)
    if is_ratio:
        return f"\N{MULTIPLICATION SIGN} {tick.label}"
    label = tick.label.replace("-", MINUS)
    return f"+{label}" if value > 1e-12 * scale.high else label
