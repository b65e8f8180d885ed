"""What a page shows of a metric over time: what changed, in words, and a picture of each line."""

from __future__ import annotations

from dataclasses import dataclass
from math import isnan
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

from deniable.messages.plural import plural
from deniable_aggregator.answer import figures
from deniable_aggregator.answer.figures import moment
from deniable_aggregator.answer.over_time.sentence import NAMES, NOT_FOLLOWED, changes_of, measure_of, trends_of
from deniable_aggregator.answer.readings.numbers_differing import MEDIAN
from deniable_server.pages.parts import chart, timeline
from deniable_server.pages.parts.chart import Scale
from deniable_server.pages.parts.timeline import Pin

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from deniable_aggregator.answer.figures import Measure
    from deniable_aggregator.answer.model.series import Line, Point, Series, SeriesPeriod, Shift
    from deniable_server.pages.parts.timeline import LinePicture, TimeTick

_MOST_LINES = 6
_MOST_SHIFTS = 3  # that are named one by one
_MOST_POINTS = 30  # of a line in a row
_ROW_SIDE = 99  # units of the path of a line in a row: two digits
_MOST_CELLS = 600  # of the table
_APART = {"hour": "four hours apart", "day": "a week apart", "week": "four weeks apart", "month": "four months apart"}
_DIRECTIONS = {"rose": "shifted up", "fell": "shifted down"}  # a line may shift, and show no trend
_REMARKS = {"joined": "too few reports: counted with the next period", "withheld": "withheld", "missing": "no release"}

_NONE = "\N{EN DASH}"  # stands for an estimate that there is not: the remark says why


@dataclass(frozen=True, slots=True)
class ShiftText:
    """A shift in the list below the pictures."""

    number: int
    moved: str  # what did what
    begins: str  # when, in a sentence
    when: str  # when it began
    what: str  # what shifted, and by how much
    more: str  # when it was seen, and whether it may be of one period alone


@dataclass(frozen=True, slots=True)
class PeriodRow:
    """A period in the table."""

    period: str  # its name in words
    cells: tuple[str, ...]  # the estimate of each label with its interval, as text; empty without one
    reports: str  # their number, as text
    remark: str  # why there is no estimate, or what else is to be known; empty if nothing is


class ValueLine(NamedTuple):
    """A value over time, in a row of a table."""

    path: str  # in a square of `_ROW_SIDE` units, on its own scale
    words: str  # the first estimate and the last


@dataclass(frozen=True, slots=True)
class SeriesView:
    """A metric over time on a page."""

    sentence: str  # what changed; empty if no two closed periods can be compared
    shifted: str  # which line shifted when; empty without a shift
    trend: str  # which lines rise or fall; empty where too few periods are closed
    leads: bool  # whether the trend is what happened: nothing changed since the period before
    ends: tuple[str, str] | None  # the first and the last period of a trend that was not found, which can be compared
    # Of the most frequent values, `_MOST_LINES` at most; none if fewer than two periods have estimates.
    pictures: tuple[LinePicture, ...]
    lines: Mapping[str, ValueLine]  # of each value that has one, by its label
    labels: tuple[str, ...]  # of the columns of the table: those of the pictures, and then the other values
    rows: tuple[PeriodRow, ...]  # the same as a table, the last period first
    reports: tuple[tuple[float, float, float], ...]  # left end, width and height of a bar for each period: its number of reports
    most: str  # what the top of these bars stands for
    versions: tuple[tuple[float, int], ...]  # where a version begins, and its number
    ticks: tuple[TimeTick, ...]  # names below the pictures
    shifts: tuple[ShiftText, ...]
    length: str  # of a period drawn
    note: str  # what is drawn, of how much
    # gaps, open: whether a period has no estimate, and whether one is open
    gaps: bool
    open: bool


def view(
    series: Series,  # period by period
    outline: Series | None = None,  # the same in longer periods, which are drawn; None: each period is drawn
    total: int | None = None,  # how many releases there are; None: those of the series
    *,
    of_outline: bool = False,  # whether the sentences are of the longer periods, too
    only: str = "",  # label of the line to draw; empty: the most frequent ones
) -> SeriesView | None:
    """Describe what a page shows of a series; None if it has no estimates."""
    course = outline or series
    every, periods, length = _ranked(course), course.periods, course.period_length
    lines = [line for line in every if line.label == only] if only else every[:_MOST_LINES]
    if not lines:
        return None
    listed = every if len(every) * len(periods) <= _MOST_CELLS else lines
    top, most = timeline.report_ticks(max(each.n for each in periods))
    width = 100 / len(periods)
    bars = tuple((width * (at + 0.15), width * 0.7, 100 * each.n / top) for at, each in enumerate(periods) if each.n)
    ends = [end for line in lines for point in line.points if point for end in point.simultaneous]
    is_drawn = sum(each.state == "published" for each in periods) > 1
    pins, shifts = _pins(series, course, lines)
    own = {line.label: line for line in series.lines}
    words = course if of_outline else series
    trends = [trend for _, trend in trends_of(words)]
    has_trend = any(trend.differs for trend in trends)
    return SeriesView(
        sentence=words.says,
        shifted=_shifted(shifts, series.period_length),
        trend=words.trend_says,
        leads=has_trend and not any(each.differs for _, each in changes_of(words)),
        ends=(trends[0].since, trends[0].last) if trends and not has_trend else None,
        pictures=tuple(
            timeline.picture(
                line,
                periods,
                length,
                measure_of(line, series),
                ends,
                NAMES.get(line.kind, line.label),
                pins=pins.get(line.label, ()),
                between=" ".join(filter(None, (_between(own[line.label], series) if line.label in own else "", line.left_out))),
                pictures=len(lines),
            )
            for line in lines
        )
        if is_drawn
        else (),
        lines={line.label: drawing for line in every if (drawing := _value_line(line, measure_of(line, series)))},
        labels=tuple(NAMES.get(line.kind, line.label) for line in listed),
        rows=tuple(_row(course, listed, at) for at in reversed(range(len(periods)))),
        reports=bars,
        most=most,
        versions=tuple(_versions(periods)),
        ticks=timeline.time_ticks([each.period for each in periods], length),
        shifts=tuple(shifts),
        length=length,
        note=" ".join(filter(None, (_note(series, course, total), _lines_note(course, len(lines), len(every), len(listed))))),
        gaps=any(each.state in ("withheld", "missing") for each in periods),
        open=any(each.state == "published" and not each.closed for each in periods),
    )


def shifted_in_words(
    series: Series,
    since: str,  # the first period with which a shift may have been seen
) -> str:
    """Say what shifted when, as the page of the metric says it; empty without such a shift."""
    _, shifts = _pins(series, series, _ranked(series)[:_MOST_LINES], since)
    return _shifted(shifts, series.period_length)


def _note(series: Series, course: Series, total: int | None) -> str:
    """Say what is drawn, of how much."""
    length, number = series.period_length, sum(each.state == "published" for each in course.periods)
    if course.period_length != length:
        all_ = plural(total or 0, length) if total is not None else f"The {length}s"
        return f"{all_} of the range are drawn as {plural(number, course.period_length)}."
    if total is not None and total > number:
        return f"The last {number} of {plural(total, length)} are drawn."
    return ""


def _pins(
    series: Series,
    course: Series,
    lines: Sequence[Line],
    since: str = "",  # the first period with which a shift may have been seen
) -> tuple[dict[str, list[Pin]], list[ShiftText]]:
    """Give the shifts of the lines that are drawn numbers, in the order of time. Return pins by line, and the list."""
    labels, length = {line.label for line in lines}, series.period_length
    listed = sorted(
        ((shift, line) for line in series.lines if line.label in labels for shift in line.shifts if shift.seen >= since),
        key=lambda pair: pair[0].begins,
    )
    pins: dict[str, list[Pin]] = {}
    texts = []
    for number, (shift, line) in enumerate(listed, 1):
        when, what, more = _shift(line, shift, series)
        moved = f"{_subject(line)} {_DIRECTIONS[shift.direction]}"
        texts.append(ShiftText(number, moved, moment(shift.begins, length), when, what, more))
        at = timeline.place(shift.begins, course.periods, length, course.period_length)
        if at is not None:
            by = _by(line, shift, series, sign=True)
            name = figures.brief(shift.begins, length)
            begin = name.rpartition(" ")[0] if length == "day" else name  # the year stands in the list
            pins.setdefault(line.label, []).append(Pin(at, number, f"{begin}: {by}", at > 50))  # noqa: PLR2004
    return pins, texts


def _lines_note(series: Series, pictures: int, lines: int, columns: int) -> str:
    """Say how many values are drawn, of how many, and where the others are."""
    every = lines + series.left_out
    if series.lines[0].kind != "share" or pictures == every:
        return ""
    sentence = f"{pictures} of {every} are drawn, the most frequent ones."
    return sentence if columns == every else f"{sentence} The file of {series.period_length}s has more."


def _ranked(series: Series) -> list[Line]:
    """Return the lines that have points: of yes and no only yes, of many values the most frequent over all periods first."""
    lines = [line for line in series.lines if any(line.points) and line.value is not False]
    return lines if series.lines[0:1] and series.lines[0].kind != "share" else sorted(lines, key=_overall, reverse=True)


def _overall(line: Line) -> float:
    """Return the estimate of all periods together."""
    known = [point for point in line.points if point and not isnan(point.estimate)]
    n = sum(point.n for point in known)
    return sum(point.n * point.estimate for point in known) / n if n else -1.0


# Words


def _shift(line: Line, shift: Shift, series: Series) -> tuple[str, str, str]:
    """Say of a shift when it began, what it is, and what else is to be known."""
    begins, seen = figures.brief(shift.begins, series.period_length), moment(shift.seen, series.period_length)
    what = f"{_subject(line)} {_DIRECTIONS[shift.direction]} by {_by(line, shift, series)}"
    if shift.single:
        return begins, what, f"an unusual {series.period_length}, and perhaps not for long"
    return begins, what, f"seen with {seen}"


def _subject(line: Line) -> str:
    return NAMES.get(line.kind) or figures.quoted(line.label)


def _shifted(shifts: Sequence[ShiftText], length: str) -> str:
    """Say what shifted when; of many shifts how many there are, and which is the last."""
    at = "on" if length in ("hour", "day") else "in"
    if len(shifts) > _MOST_SHIFTS:
        return f"Answers shifted {len(shifts)} times. The last time {shifts[-1].moved}, {at} {shifts[-1].begins}."
    by_move: dict[str, list[str]] = {}
    for shift in shifts:
        by_move.setdefault(shift.moved, []).append(shift.begins)
    moves = "; ".join(f"{moved} {at} {figures.listed(begins)}" for moved, begins in by_move.items())
    return f"{moves}." if moves else ""


def _by(line: Line, shift: Shift, series: Series, *, sign: bool = False) -> str:
    """Write the size of a shift: without a sign, or in few letters with one."""
    measure = measure_of(line, series)
    if sign:
        return measure.signed(shift.interval).removesuffix(" points")
    return measure.size(shift.interval, is_rise=shift.direction == "rose")


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


def _value_line(line: Line, measure: Measure) -> ValueLine | None:
    """Draw a value in a row, as high as its intervals: what is no more than noise does not fill the row. None of one point."""
    known = [(at, point) for at, point in enumerate(line.points) if point and not isnan(point.estimate)]
    if len(known) < 2:  # noqa: PLR2004
        return None
    low, high = min(point.interval[0] for _, point in known), max(point.interval[1] for _, point in known)
    scale, number = Scale(low, high if high > low else low + 1), max(len(line.points) - 1, 1)
    together = -(-len(known) // _MOST_POINTS)  # a row has few pixels: of many points some neighbours become their mean
    runs = [known[at : at + together] for at in range(0, len(known), together)]
    means = [(fmean(at for at, _ in run), fmean(point.estimate for _, point in run)) for run in runs]
    places = [(round(_ROW_SIDE * at / number), round(_ROW_SIDE * scale.down(estimate) / 100)) for at, estimate in means]
    ends = [measure.estimate(point.estimate, point.interval) for _, point in (known[0], known[-1])]
    return ValueLine(chart.whole_path(places), f"{ends[0].removesuffix('%')} \N{RIGHTWARDS ARROW} {ends[1]}")


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
    of_period = [(line, shift) for line in lines for shift in line.shifts if shift.begins == period.period]
    remarks += [", ".join(_shift(line, shift, series)[1:]) for line, shift in of_period]
    if any(line.points[at] for line in lines):
        unknown = [line for line in lines if (point := line.points[at]) is None or (period.n and isnan(point.estimate))]
        remarks += dict.fromkeys(why_none(series, line, at) for line in unknown if line.kind == MEDIAN or line.points[at])
    return PeriodRow(
        figures.brief(period.period, series.period_length),
        tuple(_cell(line.points[at], measure_of(line, series)) for line in lines),
        figures.count(period.n) if period.n else "",
        "; ".join(filter(None, remarks)),
    )


def why_none(series: Series, line: Line | None, at: int) -> str:
    """Say why a line has no estimate of a period; or with None, why no line has."""
    state = series.periods[at].state
    if line and line.points[at]:
        return "too few reports for an estimate"
    if line and line.kind == MEDIAN:
        known = sum(point is not None for point in line.points)
        return f"no median: it is estimated for the last {plural(known, series.period_length)} only"
    other = "its version has other answers" if series.lines else figures.within(NOT_FOLLOWED)
    return _REMARKS.get(state, other)


def _cell(point: Point | None, measure: Measure) -> str:
    return _NONE if point is None or isnan(point.estimate) else timeline.estimate(point, measure)
