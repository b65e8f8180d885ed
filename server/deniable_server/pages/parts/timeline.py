"""The picture of a line over time: its bands, its axes, and pins where it shifted."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from math import isnan
from typing import TYPE_CHECKING, NamedTuple

from deniable.messages.plural import plural
from deniable.registry import period
from deniable_aggregator.answer import figures
from deniable_server.pages.parts import chart
from deniable_server.pages.parts.chart import Scale, Tick

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from deniable_aggregator.answer.figures import Measure
    from deniable_aggregator.answer.model.series import Line, Point, SeriesPeriod

_SIDE, _SMALL_SIDE = 1000, 200  # units of the square of a path, which has whole numbers: of one picture, and of several
_MOST_DAYS = 15  # below so many days each has its name
_MOST_WEEKS = 9  # below so many weeks of days each Monday has its name
_MOST_TICKS = 14
_MOST_SHORT = 7  # ticks on a telephone
_FEWEST_TOGETHER = 4  # periods of which the band of all together is drawn
_MOST_WIDE = 60  # periods of which it is drawn in each of several small pictures
_MOST_HITS = 120  # periods that say what they are under the pointer; half as many over several pictures
_MOST_DOTS = 60


class Mark(NamedTuple):
    """A period's estimate in a picture."""

    # x, y: its place, from the top left corner
    x: float
    y: float
    ends: tuple[float, float]  # the upper and the lower end of its interval
    hollow: bool  # whether the period is open
    alone: bool  # whether no line leads to it, so that its interval is drawn


class Pin(NamedTuple):
    """A shift in a picture."""

    x: float
    number: int  # in the list below the picture
    text: str  # when and by how much, in few letters
    is_left: bool  # whether the text stands left of it


class Hit(NamedTuple):
    """What is shown while the pointer is over a period."""

    x: float
    width: float
    middle: float
    text: str


class TimeTick(NamedTuple):
    """A name below the picture."""

    at: float
    label: str
    is_long: bool  # whether narrow screens leave it out


@dataclass(frozen=True, slots=True, kw_only=True)
class CoursePicture:
    """Something estimated again and again, with bands."""

    marks: tuple[Mark, ...]  # one for each period with an estimate
    side: int = _SIDE  # units of the square of the paths
    # curves, bands, wide: paths: the line, its pointwise band, and that of all periods together. A gap ends a path.
    curves: tuple[str, ...]
    bands: tuple[str, ...]
    wide: tuple[str, ...] = ()
    ticks: tuple[Tick, ...]  # of the axis, in percent from the top
    zero: float  # where the axis of time lies, in percent from the top
    planned: tuple[float, ...] = ()  # where else a line is drawn across
    pins: tuple[Pin, ...] = ()
    hits: tuple[Hit, ...]  # none where there are too many
    dots: bool = True  # whether each mark is drawn
    words: str  # what the picture shows


@dataclass(frozen=True, slots=True, kw_only=True)
class LinePicture(CoursePicture):
    """A value, a mean or a median over time."""

    label: str  # its name
    is_share: bool  # whether this is an answer
    latest: str  # the last estimate, as text
    when: str  # the period that it is of, and whether more may come
    between: str  # by how much periods differ beyond chance, in words; empty where it is not known


def picture(
    line: Line,
    periods: Sequence[SeriesPeriod],
    length: str,  # of a period drawn
    measure: Measure,
    ends: Sequence[float],  # of all intervals that share the axis
    label: str,
    *,
    pins: Sequence[Pin] = (),
    between: str = "",
    pictures: int = 1,  # how many there are
) -> LinePicture:
    """Draw a line."""
    if measure.is_share:
        # Pictures of several answers are compared, so they begin at 0.
        scale = chart.near_scale(min(ends), max(ends)) if pictures == 1 else chart.share_scale(max(ends))
    else:
        low, high = min(ends), max(ends)
        scale = chart.round_scale(low, high) if high > low else Scale(low - 1, high + 1)
    ticks = tuple(Tick(round(100 - tick.at, 2), tick.label) for tick in scale.ticks)
    side = _SIDE if pictures == 1 else _SMALL_SIDE

    def x(at: int) -> float:
        return round(100 * (at + 0.5) / len(periods), 2)

    def y(value: float) -> float:
        return scale.down(value)

    def band(run: Sequence[tuple[int, Point]], intervals: Sequence[tuple[float, float]]) -> str:
        """Draw an area: along the upper ends of intervals, and back along the lower ones."""
        low, high = ([(x(at), y(ends[side])) for (at, _), ends in zip(run, intervals, strict=True)] for side in (0, 1))
        return path([*high, *reversed(low)], side) + "Z"

    joined = runs(line.points, periods)
    known = [(at, point) for run in joined for at, point in run]
    marks = tuple(
        Mark(x(at), y(point.estimate), (y(point.interval[1]), y(point.interval[0])), not periods[at].closed, len(run) == 1)
        for run in joined
        for at, point in run
    )
    long = [run for run in joined if len(run) > 1]
    has_wide = len(known) >= _FEWEST_TOGETHER and (pictures == 1 or len(known) <= _MOST_WIDE)
    width = 100 / len(periods)
    hits = (
        Hit(
            round(width * at, 2),
            round(width, 2),
            x(at),
            f"{figures.brief(periods[at].period, length)}: {estimate(point, measure)}, {plural(point.n, 'report')}",
        )
        for at, point in known
    )
    estimates = [point.estimate for _, point in known]
    bare = measure._replace(is_quantile=False)
    lowest, highest = (bare.estimate(end, known[0][1].interval) for end in (min(estimates), max(estimates)))
    end, last = known[-1]
    return LinePicture(
        label=label,
        is_share=measure.is_share,
        latest=measure.estimate(last.estimate, last.interval),
        when=f"{figures.brief(periods[end].period, length)}{'' if periods[end].closed else ', open'}",
        marks=marks,
        side=side,
        curves=tuple(path(((x(at), y(point.estimate)) for at, point in run), side) for run in long),
        bands=tuple(band(run, [point.interval for _, point in run]) for run in long),
        wide=tuple(band(run, [point.simultaneous for _, point in run]) for run in long) if has_wide else (),
        ticks=ticks,
        zero=ticks[0].at if ticks else 100.0,
        pins=tuple(pins),
        hits=tuple(hits) if pictures * len(periods) <= (_MOST_HITS if pictures == 1 else _MOST_HITS // 2) else (),
        dots=pictures * len(known) <= _MOST_DOTS,
        words=f"{label} in {len(known)} {length}s: from {lowest} to {highest}. The file has every number.",
        between=between,
    )


def estimate(point: Point, measure: Measure) -> str:
    """Write an estimate with its interval."""
    ends = measure._replace(unit="").ends(point.interval).removesuffix("%")  # the estimate before has the unit
    return f"{measure.estimate(point.estimate, point.interval)} ({ends})"


def path(points: Iterable[tuple[float, float]], side: int = _SIDE) -> str:
    """Return a path in a square of so many units, through points in percent."""
    return chart.whole_path((round(side / 100 * x), round(side / 100 * y)) for x, y in points)


def runs(points: Sequence[Point | None], periods: Sequence[SeriesPeriod]) -> list[list[tuple[int, Point]]]:
    """Return the points that a line joins: those of one version, with no period without a release between them."""
    joined: list[list[tuple[int, Point]]] = []
    version, broken = None, True
    for at, (point, of) in enumerate(zip(points, periods, strict=True)):
        if point is None or isnan(point.estimate):
            broken = broken or of.state != "joined"  # the reports of a joined period are in the next point
            continue
        if broken or of.version != version:
            joined.append([])
        joined[-1].append((at, point))
        version, broken = of.version, False
    return joined


def time_ticks(periods: Sequence[str], length: str) -> tuple[TimeTick, ...]:
    """Name months below a picture, or each day of few, or days of hours; of many names every second, third and so on."""
    begins = [period.bounds(name, length)[0] for name in periods]
    if length == "day" and len(periods) < _MOST_DAYS:
        names = [f"{each:%a} {each.day}" for each in begins]
    elif length == "day" and len(periods) < _MOST_WEEKS * 7:
        weeks = [each - timedelta(days=each.weekday()) for each in begins]
        names = [f"{each.day} {each:%b}" for each in weeks]
    elif length == "hour":
        names = [f"{each.day} {each:%b}" for each in begins]
    else:
        names = [f"{each:%b %Y}" if each.month == 1 else f"{each:%b}" for each in begins]
    first = [at for at, name in enumerate(names) if at == 0 or name != names[at - 1]]
    if len(first) > 2 and first[1] - first[0] < first[2] - first[1]:  # noqa: PLR2004 - the first month lacks its beginning
        first = first[1:]
    every = -(-len(first) // _MOST_TICKS)
    first = first[::every]
    thin = -(-len(first) // _MOST_SHORT)
    return tuple(
        TimeTick(round(100 * (at + 0.5) / len(periods), 2), names[at], place % thin > 0) for place, at in enumerate(first)
    )


def place(name: str, periods: Sequence[SeriesPeriod], length: str, by: str) -> float | None:
    """Return where a period begins in a picture that may be drawn in longer ones; None if it lies before."""
    begins, _ = period.bounds(name, length)
    names = [each.period for each in periods]
    bucket = period.of(begins, by)
    if not names or not names[0] <= bucket <= names[-1]:
        return None
    at = names.index(bucket)
    first, end = period.bounds(bucket, by)
    portion = (begins - first) / (end - first)
    return round(100 * (at + portion) / len(periods), 2)


def report_ticks(most: int) -> tuple[int, str]:
    """Return a round number not below the most reports of a period, as a number and as text."""
    power = 10 ** max(len(str(most)) - 1, 0)
    top = max(next(int(step * power) for step in (1, 1.5, 2, 3, 4, 5, 6, 8, 10) if step * power >= most), 1)
    return top, figures.count(top)
