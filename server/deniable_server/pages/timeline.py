"""What a page shows of a metric over time: what changed, in words, and a picture of each line.

Places are percentages of a picture's width and height, so it fits any screen and needs no script.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isnan, log
from typing import TYPE_CHECKING

from deniable.registry import period
from deniable_server.pages import chart, number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deniable_aggregator.answer.model.series import Change, Line, Point, Series, Shift, Told

_MOST_LINES = 6
_NAMES = {"mean": "Mean", "median": "Median"}


@dataclass(frozen=True, slots=True)
class Mark:
    """A period's estimate in a picture."""

    # x, y: its place, from the top left corner
    x: float
    y: float
    ends: tuple[float, float]  # the upper and the lower end of its interval
    hollow: bool  # whether the period is open
    alone: bool  # whether no line leads to it, so that its interval is drawn
    said: str  # period and estimate, as text


@dataclass(frozen=True, slots=True)
class Picture:
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
class Row:
    """A period in the table."""

    period: str  # its name in words
    cells: tuple[str, ...]  # the estimate of each picture with its interval, as text; empty without one
    reports: str  # their number, as text
    remark: str  # why there is no estimate, or what else is to be known; empty if nothing is


@dataclass(frozen=True, slots=True)
class Shown:
    """A metric over time on a page."""

    sentence: str  # what changed; empty if no two closed periods can be compared
    # Of the most frequent values, `_MOST_LINES` at most; none if fewer than two periods have estimates.
    pictures: tuple[Picture, ...]
    rows: tuple[Row, ...]  # the same as a table, the last period first
    reports: tuple[tuple[float, float, float], ...]  # left end, width and height of a bar for each period: its number of reports
    most: str  # the largest of these numbers, as text
    versions: tuple[tuple[float, int], ...]  # where a version begins, and its number
    # first, last: the first and the last period
    first: str
    last: str
    # gaps, open: whether a period has no estimate, and whether one is open
    gaps: bool
    open: bool


def shown(series: Series) -> Shown | None:
    """Describe what a page shows of a series; None if it has no estimates."""
    lines, told = _chosen(series), series.periods
    if not lines:
        return None
    drawn = sum(each.state == "published" for each in told) > 1
    most = max(each.n for each in told)
    width = 100 / len(told)
    bars = tuple((width * (at + 0.15), width * 0.7, 100 * each.n / most) for at, each in enumerate(told) if each.n)
    ends = [end for line in lines for point in line.points if point for end in point.simultaneous]
    return Shown(
        sentence=_sentence(series),
        pictures=tuple(_picture(line, series, ends) for line in lines) if drawn else (),
        rows=tuple(_row(series, lines, at) for at in reversed(range(len(told)))),
        reports=bars,
        most=chart.count(most),
        versions=tuple(_versions(told)),
        first=moment(told[0].period, series.period_length),
        last=moment(told[-1].period, series.period_length),
        gaps=any(each.state in ("withheld", "missing") for each in told),
        open=any(each.state == "published" and not each.closed for each in told),
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


def _sentence(series: Series) -> str:
    """Say what changed most, if anything changed beyond chance."""
    changes = [(line, line.change) for line in series.lines if line.change and line.value is not False]
    if not changes:
        return ""
    moved = [each for each in changes if each[1].differs]
    since, last = (moment(name, series.period_length) for name in (changes[0][1].since, changes[0][1].last))
    if not moved:
        return f"No change beyond chance from {since} to {last}."
    line, change = max(moved, key=lambda each: abs(_size(each[1], series.scale)))
    verb = "rose" if _size(change, series.scale) > 0 else "fell"
    others = f" {len(moved) - 1} more changed." if len(moved) > 1 else ""
    if line.kind == "share":
        first, second, by = _points_moved(change)
        return f"{line.label} {verb} from {first} to {second} ({by} points) from {since} to {last}.{others}"
    first, second, by = _number_moved(change, series)
    return f"The {line.label} {verb} from {first} to {second} ({by}) from {since} to {last}."


def _size(change: Change, scale: str) -> float:
    return log(change.difference) if scale == "log" else change.difference


def _points_moved(change: Change) -> tuple[str, str, str]:
    low, high = change.simultaneous
    error = (high - low) / 4
    first, second, *ends = (chart.share(each, error) for each in (change.first, change.second, low, high))
    return first, second, " to ".join(end.removesuffix("%") for end in ends)


def _number_moved(change: Change, series: Series) -> tuple[str, str, str]:
    low, high = change.interval
    reach = (change.second / high, change.second / low) if series.scale == "log" else (low, high)
    by = number.apart((low, high), reach, series.scale, series.unit)
    return number.written(change.first, reach, series.unit), number.written(change.second, reach, series.unit), by


def moment(
    name: str,  # the period
    length: str,
) -> str:
    """Write a period in words."""
    begins, _ = period.bounds(name, length)
    if length == "week":
        return f"week {name[-2:].lstrip('0')} of {name[:4]}"
    if length == "month":
        return f"{begins:%B %Y}"
    return f"{begins.day} {begins:%B %Y}{begins:, %H:%M}" if length == "hour" else f"{begins.day} {begins:%B %Y}"


# Pictures


def _picture(line: Line, series: Series, ends: Sequence[float]) -> Picture:
    if line.kind == "share":
        axis = chart.axis(max(ends))
        low, high, edges = 0.0, axis.top, (axis.ticks[0].label, axis.ticks[-1].label)
    else:
        low, high = min(ends), max(ends)
        low, high = (low, high) if high > low else (low - 1, high + 1)
        edges = (number.written(low, (low, high), series.unit), number.written(high, (low, high), series.unit))

    def y(value: float) -> float:
        return round(100 - 100 * min(max((value - low) / (high - low), 0.0), 1.0), 2)

    def x(at: int) -> float:
        return round(100 * (at + 0.5) / len(series.periods), 2)

    runs = _runs(line.points, series.periods)
    marks = tuple(
        Mark(
            x(at),
            y(point.estimate),
            (y(point.interval[1]), y(point.interval[0])),
            hollow=not series.periods[at].closed,
            alone=len(run) == 1,
            said=f"{moment(series.periods[at].period, series.period_length)}: {_written(line, point, series)}",
        )
        for run in runs
        for at, point in run
    )
    long = [run for run in runs if len(run) > 1]
    last = next(point for point in reversed(line.points) if point)
    return Picture(
        label=_NAMES.get(line.kind, line.label),
        latest=_written(line, last, series),
        marks=marks,
        curves=tuple(_path([(x(at), y(point.estimate)) for at, point in run]) for run in long),
        bands=tuple(_band([(x(at), y(point.interval[0]), y(point.interval[1])) for at, point in run]) for run in long),
        wide=tuple(_band([(x(at), y(point.simultaneous[0]), y(point.simultaneous[1])) for at, point in run]) for run in long),
        low=edges[0],
        high=edges[1],
        shifts=tuple(_shift(line, each, series) for each in line.shifts),
        between=_between(line, series),
    )


def _shift(line: Line, each: Shift, series: Series) -> tuple[float, str]:
    names = [told.period for told in series.periods]
    begins, seen = (moment(name, series.period_length) for name in (each.begins, each.seen))
    low, high = each.interval if series.scale == "log" or each.size > 0 else (-each.interval[1], -each.interval[0])
    if line.kind == "share":
        error = (high - low) / 4
        by = " to ".join(chart.share(end, error).removesuffix("%") for end in (low, high)) + " points"
    else:
        by = number.apart((low, high), each.interval, series.scale, series.unit)
    at = sum(name < each.begins for name in names)
    name = _NAMES.get(line.kind, line.label)
    what = f"{name} {each.direction} by {by} from {begins} on, seen with {seen}"
    if each.single:
        what = f"an unusual {series.period_length}: {name} {each.direction} by {by} on {begins}, and perhaps not for long"
    return round(100 * at / len(names), 2), what


_APART = {"hour": "four hours apart", "day": "a week apart", "week": "four weeks apart", "month": "four months apart"}


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
        by = f"a factor of about {sd:.3g}" if series.scale == "log" else f"about {number.written(sd, (0, sd), series.unit)}"
    pairs = f"{line.between.pairs} pairs of {length}s {_APART[length]}"
    said = f"{length.capitalize()}s differ by {by} beyond chance (from {pairs})."
    return f"{said} A change counts only if it is larger than that explains."


# The table


_REMARKS = {"joined": "too few reports: counted with the next period", "withheld": "withheld", "missing": "no release"}


def _row(series: Series, lines: Sequence[Line], at: int) -> Row:
    told = series.periods[at]
    versions = [each.version for each in series.periods[:at] if each.version is not None]
    remarks = [_REMARKS.get(told.state, "" if told.closed else "open: more may come")]
    if versions and told.version not in (None, versions[-1]):
        remarks.append(f"version {told.version} begins")
    remarks += [_shift(line, each, series)[1] for line in lines for each in line.shifts if each.begins == told.period]
    return Row(
        moment(told.period, series.period_length),
        tuple(_with_ends(line, line.points[at], series) for line in lines),
        chart.count(told.n) if told.n else "",
        "; ".join(filter(None, remarks)),
    )


def _with_ends(line: Line, point: Point | None, series: Series) -> str:
    if point is None or isnan(point.estimate):
        return ""
    low, high = point.interval
    if line.kind == "share":
        ends = [chart.share(each, (high - low) / 4).removesuffix("%") for each in point.interval]
    else:
        ends = [number.written(each, point.interval) for each in point.interval]
    return f"{_written(line, point, series)} ({' to '.join(ends)})"


def _runs(points: Sequence[Point | None], told: Sequence[Told]) -> list[list[tuple[int, Point]]]:
    """Return the points that a line joins: those of one version, with no period without a release between them."""
    runs: list[list[tuple[int, Point]]] = []
    version, broken = None, True
    for at, (point, each) in enumerate(zip(points, told, strict=True)):
        if point is None or isnan(point.estimate):
            broken = broken or each.state != "joined"
            continue
        if broken or each.version != version:
            runs.append([])
        runs[-1].append((at, point))
        version, broken = each.version, False
    return runs


def _versions(told: Sequence[Told]) -> list[tuple[float, int]]:
    """Return where a version begins after another one, and its number."""
    found, version = [], None
    for at, each in enumerate(told):
        if each.version is not None and each.version != version:
            if version is not None:
                found.append((round(100 * at / len(told), 2), each.version))
            version = each.version
    return found


def _written(line: Line, point: Point, series: Series) -> str:
    low, high = point.interval
    if line.kind == "share":
        return chart.share(point.estimate, (high - low) / 4)
    return number.written(point.estimate, point.interval, series.unit)


def _path(points: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:g} {y:g}" for x, y in points)


def _band(ends: Sequence[tuple[float, float, float]]) -> str:
    return _path([*((x, high) for x, _, high in ends), *((x, low) for x, low, _ in reversed(ends))]) + "Z"
