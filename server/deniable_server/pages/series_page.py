"""What a page shows of a metric over time: what changed, in words, and a picture of each line."""

from __future__ import annotations

from dataclasses import dataclass
from math import expm1, isnan
from typing import TYPE_CHECKING

from deniable_aggregator.answer import figures
from deniable_aggregator.answer.figures import distance, moment
from deniable_aggregator.answer.over_time.sentence import NAMES, measure_of
from deniable_server.pages import chart
from deniable_server.pages.chart import Scale

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deniable_aggregator.answer.figures import Measure
    from deniable_aggregator.answer.model.series import Line, Point, Series, SeriesPeriod, Shift

_MOST_LINES = 6
_APART = {"hour": "four hours apart", "day": "a week apart", "week": "four weeks apart", "month": "four months apart"}
_REMARKS = {"joined": "too few reports: counted with the next period", "withheld": "withheld", "missing": "no release"}


@dataclass(frozen=True, slots=True)
class Mark:
    """A period's estimate in a picture."""

    # x, y: its place, from the top left corner
    x: float
    y: float
    ends: tuple[float, float]  # the upper and the lower end of its interval
    hollow: bool  # whether the period is open
    alone: bool  # whether no line leads to it, so that its interval is drawn
    title: str  # period and estimate, as text


@dataclass(frozen=True, slots=True)
class LinePicture:
    """A value, a mean or a median over time."""

    label: str  # its name
    latest: str  # the last estimate, as text
    marks: tuple[Mark, ...]  # one for each period with an estimate
    # curves, bands, wide: paths in a square of 100 by 100 units: the line, its pointwise band, and that of all periods together.
    # A gap ends a path.
    curves: tuple[str, ...]
    bands: tuple[str, ...]
    wide: tuple[str, ...]
    # low, high: what the lower and the upper edge stand for
    low: str
    high: str
    shifts: tuple[tuple[float, str], ...]  # where each shift begins, and the shift in words
    between: str  # by how much periods differ beyond chance, in words; empty where it is not known


@dataclass(frozen=True, slots=True)
class PeriodRow:
    """A period in the table."""

    period: str  # its name in words
    cells: tuple[str, ...]  # the estimate of each picture with its interval, as text; empty without one
    reports: str  # their number, as text
    remark: str  # why there is no estimate, or what else is to be known; empty if nothing is


@dataclass(frozen=True, slots=True)
class SeriesView:
    """A metric over time on a page."""

    sentence: str  # what changed; empty if no two closed periods can be compared
    trend: str  # which line rises or falls most; empty where too few periods are closed
    # Of the most frequent values, `_MOST_LINES` at most; none if fewer than two periods have estimates.
    pictures: tuple[LinePicture, ...]
    rows: tuple[PeriodRow, ...]  # the same as a table, the last period first
    reports: tuple[tuple[float, float, float], ...]  # left end, width and height of a bar for each period: its number of reports
    most: str  # the largest of these numbers, as text
    versions: tuple[tuple[float, int], ...]  # where a version begins, and its number
    # first, last: the first and the last period
    first: str
    last: str
    # gaps, open: whether a period has no estimate, and whether one is open
    gaps: bool
    open: bool


def view(series: Series) -> SeriesView | None:
    """Describe what a page shows of a series; None if it has no estimates."""
    lines, periods = _chosen(series), series.periods
    if not lines:
        return None
    most, width = max(each.n for each in periods), 100 / len(periods)
    bars = tuple((width * (at + 0.15), width * 0.7, 100 * each.n / most) for at, each in enumerate(periods) if each.n)
    ends = [end for line in lines for point in line.points if point for end in point.simultaneous]
    is_drawn = sum(each.state == "published" for each in periods) > 1
    return SeriesView(
        sentence=series.says,
        trend=_trend(series),
        pictures=tuple(_picture(line, series, ends) for line in lines) if is_drawn else (),
        rows=tuple(_row(series, lines, at) for at in reversed(range(len(periods)))),
        reports=bars,
        most=figures.count(most),
        versions=tuple(_versions(periods)),
        first=moment(periods[0].period, series.period_length),
        last=moment(periods[-1].period, series.period_length),
        gaps=any(each.state in ("withheld", "missing") for each in periods),
        open=any(each.state == "published" and not each.closed for each in periods),
    )


def _chosen(series: Series) -> list[Line]:
    """Return the lines to draw: of yes and no only yes, of many values those that are most frequent now."""
    lines = [line for line in series.lines if any(line.points) and line.value is not False]
    largest = sorted(lines, key=_latest, reverse=True)[:_MOST_LINES]
    return lines if series.lines[0:1] and series.lines[0].kind != "share" else largest


def _latest(line: Line) -> float:
    last = next(point.estimate for point in reversed(line.points) if point)
    return -1.0 if isnan(last) else last


# Words


def _trend(series: Series) -> str:
    """Say of the straight lines which is steepest, if any rises or falls beyond chance."""
    trends = [(line, line.trend) for line in series.lines if line.trend and line.value is not False]
    if not trends:
        return ""
    is_log = series.scale == "log"
    since, last = (moment(name, series.period_length) for name in (trends[0][1].since, trends[0][1].last))
    steep = [pair for pair in trends if pair[1].simultaneous[0] > is_log or pair[1].simultaneous[1] < is_log]
    if not steep:
        return f"No trend beyond chance from {since} to {last}."
    line, trend = max(steep, key=lambda pair: abs(distance(pair[1].slope, series.scale)))
    ends = [distance(end, series.scale) for end in trend.simultaneous]
    low, high = sorted(map(abs, ends))
    measure = measure_of(line, series)
    by = f"{100 * expm1(low):.2g} to {100 * expm1(high):.2g}%" if is_log else measure.difference((low, high), (low, high))
    subject = figures.quoted(line.label) if measure.is_share else f"the {NAMES[line.kind].lower()}"
    others = f" {len(steep) - 1} more {'has' if len(steep) == 2 else 'have'} a trend." if len(steep) > 1 else ""  # noqa: PLR2004
    verb = "rose" if ends[0] > 0 else "fell"
    interval = figures.interval(series.level, together=len(trends) > 1)
    return f"On average {subject} {verb} by {by} a {series.period_length} ({interval}) from {since} to {last}.{others}"


def _shift(line: Line, shift: Shift, series: Series) -> tuple[float, str]:
    """Return where a shift begins in the picture, and what it is in words."""
    begins, seen = (moment(name, series.period_length) for name in (shift.begins, shift.seen))
    ends = shift.interval
    if series.scale != "log" and shift.size <= 0:
        ends = (-ends[1], -ends[0])  # the verb says the sign
    by = measure_of(line, series).difference(ends, shift.interval)
    name = NAMES.get(line.kind) or figures.quoted(line.label)
    words = f"{name} {shift.direction} by {by} from {begins} on, seen with {seen}"
    if shift.single:
        words = f"an unusual {series.period_length}: {name} {shift.direction} by {by} on {begins}, and perhaps not for long"
    before = sum(each.period < shift.begins for each in series.periods)
    return round(100 * before / len(series.periods), 2), words


def _between(line: Line, series: Series) -> str:
    """Say by how much periods differ beyond chance."""
    if line.between is None:
        return ""
    length, sd = series.period_length, line.between.sd
    if sd == (1 if series.scale == "log" else 0):
        return f"{length.capitalize()}s differ no more than chance explains."
    if line.kind == "share":
        by = f"about {100 * sd:.2g} points"
    else:
        by = f"a factor of about {sd:.3g}" if series.scale == "log" else f"about {figures.number(sd, (0, sd), series.unit)}"
    pairs = f"{line.between.pairs} pairs of {length}s {_APART[length]}"
    sentence = f"{length.capitalize()}s differ by {by} beyond chance (from {pairs})."
    return f"{sentence} A change counts only if it is larger than that explains."


# Pictures


def _picture(line: Line, series: Series, ends: Sequence[float]) -> LinePicture:
    measure, periods = measure_of(line, series), series.periods
    if measure.is_share:
        scale = chart.share_scale(max(ends))
        edges = (scale.ticks[0].label, scale.ticks[-1].label)
    else:
        low, high = min(ends), max(ends)
        scale = Scale(low, high) if high > low else Scale(low - 1, high + 1)
        edges = (measure.estimate(scale.low, (scale.low, scale.high)), measure.estimate(scale.high, (scale.low, scale.high)))

    def x(at: int) -> float:
        return round(100 * (at + 0.5) / len(periods), 2)

    def band(run: Sequence[tuple[int, Point]], intervals: Sequence[tuple[float, float]]) -> str:
        """Draw an area: along the upper ends of intervals, and back along the lower ones."""
        low, high = ([(x(at), scale.down(ends[side])) for (at, _), ends in zip(run, intervals, strict=True)] for side in (0, 1))
        return chart.path([*high, *reversed(low)]) + "Z"

    runs = _runs(line.points, periods)
    marks = tuple(
        Mark(
            x(at),
            scale.down(point.estimate),
            (scale.down(point.interval[1]), scale.down(point.interval[0])),
            hollow=not periods[at].closed,
            alone=len(run) == 1,
            title=f"{moment(periods[at].period, series.period_length)}: {measure.estimate(point.estimate, point.interval)}",
        )
        for run in runs
        for at, point in run
    )
    long = [run for run in runs if len(run) > 1]
    last = next(point for point in reversed(line.points) if point)
    return LinePicture(
        label=NAMES.get(line.kind, line.label),
        latest=measure.estimate(last.estimate, last.interval),
        marks=marks,
        curves=tuple(chart.path((x(at), scale.down(point.estimate)) for at, point in run) for run in long),
        bands=tuple(band(run, [point.interval for _, point in run]) for run in long),
        wide=tuple(band(run, [point.simultaneous for _, point in run]) for run in long),
        low=edges[0],
        high=edges[1],
        shifts=tuple(_shift(line, shift, series) for shift in line.shifts),
        between=_between(line, series),
    )


def _runs(points: Sequence[Point | None], periods: Sequence[SeriesPeriod]) -> list[list[tuple[int, Point]]]:
    """Return the points that a line joins: those of one version, with no period without a release between them."""
    runs: list[list[tuple[int, Point]]] = []
    version, broken = None, True
    for at, (point, period) in enumerate(zip(points, periods, strict=True)):
        if point is None or isnan(point.estimate):
            broken = broken or period.state != "joined"  # the reports of a joined period are in the next point
            continue
        if broken or period.version != version:
            runs.append([])
        runs[-1].append((at, point))
        version, broken = period.version, False
    return runs


def _versions(periods: Sequence[SeriesPeriod]) -> list[tuple[float, int]]:
    """Return where a version begins after another one, and its number."""
    begins, version = [], None
    for at, period in enumerate(periods):
        if period.version is not None and period.version != version:
            if version is not None:
                begins.append((round(100 * at / len(periods), 2), period.version))
            version = period.version
    return begins


# The table


def _row(series: Series, lines: Sequence[Line], at: int) -> PeriodRow:
    period = series.periods[at]
    versions = [each.version for each in series.periods[:at] if each.version is not None]
    remarks = [_REMARKS.get(period.state, "" if period.closed else "open: more may come")]
    if versions and period.version not in (None, versions[-1]):
        remarks.append(f"version {period.version} begins")
    remarks += [_shift(line, shift, series)[1] for line in lines for shift in line.shifts if shift.begins == period.period]
    return PeriodRow(
        moment(period.period, series.period_length),
        tuple(_cell(line.points[at], measure_of(line, series)) for line in lines),
        figures.count(period.n) if period.n else "",
        "; ".join(filter(None, remarks)),
    )


def _cell(point: Point | None, measure: Measure) -> str:
    if point is None or isnan(point.estimate):
        return ""
    bare = measure._replace(unit="")  # the estimate before has the unit
    ends = " to ".join(bare.estimate(end, point.interval).removesuffix("%") for end in point.interval)
    return f"{measure.estimate(point.estimate, point.interval)} ({ends})"
