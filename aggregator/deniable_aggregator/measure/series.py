"""The series of a metric: its estimates period by period, and what changed. Nothing here reads what is not published."""

from __future__ import annotations

from datetime import timedelta
from itertools import islice
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from msgspec import Struct

from deniable.mechanisms.permanent import Permanent
from deniable.registry import period
from deniable.registry.metric import Value
from deniable_aggregator import tally
from deniable_aggregator.decode.panel import repeats
from deniable_aggregator.inference import shift
from deniable_aggregator.inference.difference import Side
from deniable_aggregator.inference.shift import MEMORY
from deniable_aggregator.inference.slope import Course, Slope, slope
from deniable_aggregator.inference.some_values import some_values
from deniable_aggregator.measure.differing import Differing, differing, differing_means, moved
from deniable_aggregator.measure.estimates import LEVEL, decoded
from deniable_aggregator.measure.measurement import Count, Number, Span
from deniable_aggregator.measure.merge import Meaning, meaning_of
from deniable_aggregator.measure.numbers import centre_of, spread_of, to_number
from deniable_aggregator.measure.published import by_period, releases_of
from deniable_aggregator.measure.refusal import Refusal, read_cell, withheld
from deniable_aggregator.publish.breakdown import Breakdown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from deniable.declared import Declared
    from deniable.registry import Metric
    from deniable.wire.report import Stratum
    from deniable_aggregator.decode.estimate import Estimate
    from deniable_aggregator.measure.collection import Collection
    from deniable_aggregator.measure.numbers import Centre
    from deniable_aggregator.publish.release import Release
    from deniable_aggregator.tally import Tally

__all__ = [
    "COMPARED",
    "MOST_LINES",
    "Change",
    "Line",
    "Point",
    "Series",
    "Shift",
    "Told",
    "Trend",
    "listed_values",
    "series",
]

MOST_LINES = 50
"""Most values of a series: of more, the most frequent ones."""
_FEWEST, _MOST_PERIODS = 4, 100
_LISTED, _OPEN = 400_000, 20_000  # values over all periods that take no longer than a page may
_MOST_MEDIANS = 12  # likewise
_ALIKE = {"day": 7}  # periods of which only each so many are alike
COMPARED = {"hour": timedelta(days=1), "day": timedelta(weeks=1)}
"""How far before a period the one that it is compared with lies: people do other things at night, and on Sundays."""


class Told(Struct, frozen=True, forbid_unknown_fields=True):
    """What is told of a period.

    Parameters
    ----------
    period
        Its name.
    state
        ``"published"``; ``"joined"`` with the next one published, because it had too few reports; ``"withheld"``, the cell that
        was asked for, while others are published; or ``"missing"``, nothing is published.
    released
        The periods that the release covers; None if it is not published.
    version
        The version that the estimates are of; likewise None.
    n
        Its reports.
    closed
        Whether nothing more will be published for it.
    """

    period: str
    state: Literal["published", "joined", "withheld", "missing"]
    released: Span | None
    version: Count | None
    n: Count
    closed: bool


class Point(Struct, frozen=True, forbid_unknown_fields=True):
    """An estimate of one period.

    Parameters
    ----------
    estimate
        Unbiased, but for a median.
    interval
        Its pointwise interval; of a median its band.
    simultaneous
        The interval that holds together with those of all other periods.
    """

    estimate: Number
    interval: tuple[Number, Number]
    simultaneous: tuple[Number, Number]


class Change(Differing, frozen=True, forbid_unknown_fields=True):
    """What changed between the last closed period and one before.

    Parameters
    ----------
    since, last
        The two periods.
    first, second, difference, interval, simultaneous, p_value, differs
        As of `Differing`; the first is that of `since`.
    """

    since: str
    last: str


class Trend(Struct, frozen=True, forbid_unknown_fields=True):
    """The straight line through closed periods.

    Parameters
    ----------
    since, last
        The first and the last one.
    slope
        The rise in a period. Of a number on a logarithmic scale it is the factor.
    interval
        Its pointwise interval. It holds also if the same devices answered again.
    simultaneous
        The interval that holds together with those of all other values shown.
    """

    since: str
    last: str
    slope: Number
    interval: tuple[Number, Number]
    simultaneous: tuple[Number, Number]


class Shift(Struct, frozen=True, forbid_unknown_fields=True):
    """A shift: some closed periods whose mean lies beyond what those before and chance explain.

    Parameters
    ----------
    direction
        ``"rose"`` or ``"fell"``.
    begins
        The period in which it is thought to have begun.
    seen
        The closed period with which it was seen. It is not taken back later.
    size
        By how much the mean of these periods differs from those before. Of a number on a logarithmic scale it is the factor.
    interval
        Its interval. Those of all shifts of a metric in 200 periods hold together with 95%, whichever level is asked for.
    """

    direction: Literal["rose", "fell"]
    begins: str
    seen: str
    size: Number
    interval: tuple[Number, Number]


class Line(Struct, frozen=True, forbid_unknown_fields=True):
    """A value, or a mean or median, over the periods.

    Parameters
    ----------
    kind
        ``"share"`` of a value, ``"mean"``, or ``"median"``.
    value
        The answer exactly; None of a mean or median.
    label
        As it is shown.
    points
        One for each period; None where there is no estimate.
    change
        Between two periods of the version described; None if fewer than two are closed, and of a median.
    trend
        Over all its closed periods; None if there are fewer than three, and of a median.
    shifts
        Of the version described, those seen in these periods; none of a median, and unless the metric declares `least_shift`.
    """

    kind: Literal["share", "mean", "median"]
    value: Value | None
    label: str
    points: list[Point | None]
    change: Change | None
    trend: Trend | None
    shifts: list[Shift] = []


class Series(Struct, frozen=True, forbid_unknown_fields=True):
    """A metric over time.

    Parameters
    ----------
    trial
        Whether everything is published at once, however few reports there are.
    id
        The metric.
    version
        The version that change and trend are of: that of the last period.
    period_length
        Its collection window.
    segment
        The cell asked for; None: all reports.
    level
        Confidence of the intervals.
    target
        As of `Estimates`.
    unit, scale
        Of a number; else an empty unit, and ``"linear"``.
    periods
        One after the other, to the last one published.
    lines
        Values, or of a number the mean, and the median if it is estimated. None if answers are searched for: what a search finds
        differs from one period to the next.
    left_out
        How many values are not among them.
    least_shift
        As declared: the smallest shift that counts; None if shifts are not looked for.
    """

    trial: bool
    id: str
    version: Count
    period_length: str
    segment: str | None
    level: float
    target: Literal["population"]
    unit: str
    scale: Literal["linear", "log"]
    periods: list[Told]
    lines: list[Line]
    left_out: Count
    least_shift: float | None = None


class _Released(NamedTuple):
    """A release of the cell asked for."""

    declared: Declared
    stratum: Stratum
    note: Release


class _Estimated(NamedTuple):
    """What is estimated of a release."""

    released: _Released
    at: int
    counted: Tally
    periods: Mapping[str, float]

    @property
    def repeats(self) -> float:
        return repeats(self.periods.values(), self.released.declared.metric.per_period)


def series(app: Collection, asked: Sequence[Declared], segment: str | None = None, level: float = LEVEL) -> Series:
    """Estimate a metric in each of its last periods.

    Parameters
    ----------
    app
        Whose metric it is.
    asked
        Its versions, the highest first. Where several have a release of a period, the highest one counts.
    segment
        The cell; None: all reports.
    level
        Of the intervals.

    Raises
    ------
    Refusal
        If no version has such a cell, or if the cell is withheld in all periods.
    """
    found, others = _found(app, asked, segment)
    current = found[max(found)].declared if found else asked[0]
    names = _names(current, found)
    estimated = [_read(app, found[name], at) for at, name in enumerate(names) if name in found]
    metric = current.metric
    past = [] if metric.least_shift is None else [_read(app, each, at) for at, each in _past(current, found, names)]
    lines, left_out = (_numbers if metric.estimate else _shares)(current, past, estimated, names, level)
    return Series(
        trial=app.trial,
        id=metric.id,
        version=metric.version,
        period_length=metric.period,
        segment=read_cell(Breakdown.of(app.registry, metric), segment) if segment else None,
        level=level,
        target="population",
        unit=metric.unit,
        scale=metric.scale,
        periods=[_told(name, found, others) for name in names],
        lines=lines,
        left_out=left_out,
        least_shift=None if metric.least_shift is None else float(metric.least_shift),
    )


def _read(app: Collection, released: _Released, at: int) -> _Estimated:
    declared, stratum, note = released
    counted = app.store.releases.read(declared.layout, [stratum])
    return _Estimated(released, at, counted, by_period(app, declared, {stratum: note}))


def _found(app: Collection, asked: Sequence[Declared], segment: str | None) -> tuple[dict[str, _Released], set[str]]:
    """Return the releases of a cell by their last period, and the periods in which other cells are published."""
    found: dict[str, _Released] = {}
    others: set[str] = set()
    refusal: Refusal | None = None
    for declared in reversed(asked):
        breakdown = Breakdown.of(app.registry, declared.metric)
        try:
            cell = read_cell(breakdown, segment or "")
        except Refusal as each:
            refusal = each
            continue
        published = releases_of(app, declared)
        chosen = {
            stratum.period: _Released(declared, stratum, note) for stratum, note in published.items() if stratum.segment == cell
        }
        if published and not chosen:
            refusal = withheld(declared, breakdown, cell, {stratum.segment for stratum in published})
        # A metric's versions may have periods of other lengths, which are no part of one series.
        if declared.metric.period == asked[0].metric.period:
            found |= chosen
            others |= {stratum.period for stratum in published}
    if refusal and not found:
        raise refusal
    return found, others


def _names(current: Declared, found: Mapping[str, _Released]) -> list[str]:
    """Return the last periods up to the last release, from the first release among them on."""
    metric, names = current.metric, list[str]()
    size = len(current.candidates) if metric.open else 1 if metric.axis else metric.domain_size
    most = (_OPEN if metric.open else _LISTED) // max(size, 1)
    most = min(max(most, _FEWEST), _MOST_PERIODS)
    if found:
        names = list(islice(_back(max(found), min(found), metric.period), most))
    names.reverse()
    return names[next((at for at, name in enumerate(names) if name in found), 0) :]


def _back(last: str, first: str, length: str) -> Iterator[str]:
    """Yield the names of periods, the last first."""
    while last >= first:
        yield last
        begins, _ = period.bounds(last, length)
        last = period.of(begins - timedelta(seconds=1), length)


def _past(current: Declared, found: Mapping[str, _Released], names: Sequence[str]) -> list[tuple[int, _Released]]:
    """Return the closed releases before the periods shown on which their shifts depend, by their place before these."""
    if not names:
        return []
    earlier = islice(_back(names[0], min(found), current.metric.period), 1, None)
    there = ((-before, found[name]) for before, name in enumerate(earlier, 1) if name in found)
    mine = [(at, each) for at, each in there if each.declared is current and each.note.closed]
    return mine[MEMORY - 1 :: -1]


def _told(name: str, found: Mapping[str, _Released], others: set[str]) -> Told:
    if name in found:
        declared, _, note = found[name]
        return Told(name, "published", Span(note.first or None, name), declared.metric.version, note.n, note.closed)
    if any(each.note.covers(last, name) for last, each in found.items()):
        return Told(name, "joined", None, None, 0, closed=True)
    return Told(name, "withheld" if name in others else "missing", None, None, 0, closed=False)


def listed_values(values: Sequence[int], estimate: Estimate) -> list[int]:
    """Return the places of the most frequent values, `MOST_LINES` at most, as they are declared; none of unknown share."""
    known = np.flatnonzero(~np.isnan(estimate.frequency))
    largest = known[np.argsort(-estimate.frequency[known], kind="stable")[:MOST_LINES]]
    return sorted(int(place) for place in largest if place < len(values))


# Shares


def _shares(
    current: Declared, past: Sequence[_Estimated], estimated: Sequence[_Estimated], names: Sequence[str], level: float
) -> tuple[list[Line], int]:
    metric = current.metric
    if metric.discover or not estimated:
        return [], 0
    mine = [each for each in estimated if each.released.declared is current]
    counted = tally.merge(*(each.counted for each in mine))
    periods = dict(pair for each in mine for pair in each.periods.items())
    values, whole = decoded(current, counted, periods)
    assert whole is not None  # noqa: S101 - it is no number
    places = listed_values(values, whole)
    meanings = {meaning_of(metric, values[place]): values[place] for place in places}
    points: dict[Meaning, list[Point | None]] = {meaning: [None] * len(names) for meaning in meanings}
    kept: list[tuple[_Estimated, Estimate]] = []
    for each in estimated:
        own = each.released.declared.metric
        listed, estimate = decoded(each.released.declared, each.counted, each.periods)
        if estimate is None or own.discover:
            continue
        known = {meaning_of(own, position): place for place, position in enumerate(listed)}
        there = [meaning for meaning in meanings if meaning in known]
        some = some_values(estimate, [known[meaning] for meaning in there])
        for meaning, point in zip(there, _points(some, level, len(estimated)), strict=True):
            points[meaning][each.at] = point
        if each.released.declared is current and each.released.note.closed:
            kept.append((each, some))
    changes, trends = _changes(metric.period, kept, level), _trends(kept, level)
    shifted = _shifted(current, [*_earlier(current, past, places), *kept], len(values))
    lines = [
        Line(
            kind="share",
            value=metric.value(position),
            label=metric.label(position),
            points=points[meaning],
            change=changes[at] if changes else None,
            trend=trends[at] if trends else None,
            shifts=shifted.get(at, []),
        )
        for at, (meaning, position) in enumerate(meanings.items())
    ]
    return lines, len(values) - len(lines)


def _points(some: Estimate, level: float, periods: int) -> list[Point]:
    columns = (some.frequency, *some.interval(level), *some.interval(1 - (1 - level) / periods))
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return [Point(share, (low, high), (lowest, highest)) for share, low, high, lowest, highest in rows]


def _changes(length: str, kept: Sequence[tuple[_Estimated, Estimate]], level: float) -> list[Change]:
    pair = _compared(length, [each for each, _ in kept])
    if pair is None:
        return []
    first, second = kept[pair][1], kept[-1][1]
    return [_change(kept[pair][0], kept[-1][0], each) for each in differing(Side.of(first), Side.of(second), level)]


def _change(first: _Estimated, second: _Estimated, found: Differing) -> Change:
    since, last = first.released.stratum.period, second.released.stratum.period
    return Change(**{name: getattr(found, name) for name in Differing.__struct_fields__}, since=since, last=last)


def _compared(length: str, kept: Sequence[_Estimated]) -> int | None:
    """Return which closed period the last is compared with: of days a week before, of hours a day before, else the one before."""
    if len(kept) < 2:  # noqa: PLR2004
        return None
    begins, _ = period.bounds(kept[-1].released.stratum.period, length)
    wanted = period.of(begins - COMPARED[length], length) if length in COMPARED else ""
    names = [each.released.stratum.period for each in kept]
    return names.index(wanted) if wanted in names else len(kept) - 2


def _trends(kept: Sequence[tuple[_Estimated, Estimate]], level: float) -> list[Trend]:
    times, estimates = [each.at for each, _ in kept], [each for _, each in kept]
    found = slope(Course.of_shares(times, estimates, [each.repeats for each, _ in kept]))
    return _through(found, [each for each, _ in kept], level)


def _through(found: Slope | None, kept: Sequence[_Estimated], level: float) -> list[Trend]:
    if found is None:
        return []
    columns = (found.estimate, *found.interval(level), *found.interval(level, simultaneous=True))
    since, last = (kept[at].released.stratum.period for at in (0, -1))
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return [Trend(since, last, rise, (low, high), (lowest, highest)) for rise, low, high, lowest, highest in rows]


def _earlier(current: Declared, past: Sequence[_Estimated], places: list[int]) -> list[tuple[_Estimated, Estimate]]:
    """Estimate some values in earlier periods."""
    decodes = ((each, decoded(current, each.counted, each.periods)[1]) for each in past)
    return [(each, some_values(estimate, places)) for each, estimate in decodes if estimate]


def _shifted(current: Declared, kept: Sequence[tuple[_Estimated, Estimate]], values: int) -> dict[int, list[Shift]]:
    """Find the shifts of each line; of yes and no one is as the other."""
    if current.metric.least_shift is None or not kept:
        return {}
    gathered, estimates = [each for each, _ in kept], [each for _, each in kept]
    course = Course.of_shares([each.at for each in gathered], estimates, [each.repeats for each in gathered])
    level = shift.confidence(1 if current.metric.type == "boolean" else values)
    return _seen(current, gathered, course, [each.interval(level) for each in estimates], level)


def _seen(
    current: Declared,
    gathered: Sequence[_Estimated],
    course: Course,
    ends: Sequence[tuple[NDArray[np.float64], NDArray[np.float64]]],
    level: float,
) -> dict[int, list[Shift]]:
    """Return the shifts that were seen in the periods shown, of each value."""
    metric, mechanism, told = current.metric, current.mechanism, dict[int, list[Shift]]()
    distance = moved(metric) if metric.estimate else float
    low, high = (np.array(each) for each in zip(*ends, strict=True))
    p, q = mechanism.permanent_support if metric.kept and isinstance(mechanism, Permanent) else (1, 0)
    found = shift.shifts(
        course,
        (low, high),
        level,
        cycle=_ALIKE.get(metric.period, 1),
        least=float(metric.least_shift or 0),
        apart=1 / float(p - q),
    )
    for each in found:
        begins, seen = (gathered[at].released for at in (each.begins, each.seen))
        if gathered[each.seen].at >= 0:
            one = Shift(
                direction="rose" if each.size > 0 else "fell",
                begins=begins.note.first or begins.stratum.period,
                seen=seen.stratum.period,
                size=distance(each.size),
                interval=(distance(each.low), distance(each.high)),
            )
            told.setdefault(each.value, []).append(one)
    return told


# Numbers


def _numbers(
    current: Declared, past: Sequence[_Estimated], estimated: Sequence[_Estimated], names: Sequence[str], level: float
) -> tuple[list[Line], int]:
    metric = current.metric
    number, narrow = to_number(metric), 1 - (1 - level) / max(len(estimated), 1)
    means: list[Point | None] = [None] * len(names)
    medians: list[Point | None] = [None] * len(names)
    kept: list[tuple[_Estimated, Centre]] = []
    for left, each in zip(range(len(estimated), 0, -1), estimated, strict=True):
        own = each.released.declared
        if _axis(own.metric) != _axis(metric):
            continue  # another axis
        centre = centre_of(own, each.counted, each.repeats)
        ends = [tuple(number(end) for end in centre.interval(wanted)) for wanted in (level, narrow)]
        means[each.at] = Point(number(centre.place), (ends[0][0], ends[0][1]), (ends[1][0], ends[1][1]))
        if own.metric.estimate == "distribution" and left <= _MOST_MEDIANS:
            medians[each.at] = _median(each, level, narrow)
        if own is current and each.released.note.closed:
            kept.append((each, centre))
    earlier = [(each, centre_of(current, each.counted, each.repeats)) for each in past]
    shifts = _mean_shifts(current, [*earlier, *kept])
    lines = [Line("mean", None, "mean", means, _mean_change(current, kept, level), _mean_trend(current, kept, level), shifts)]
    if any(medians):
        lines.append(Line("median", None, "median", medians, None, None))
    return lines if estimated else [], 0


def _axis(metric: Metric) -> tuple[object, ...]:
    return metric.range, metric.unit, metric.scale, metric.values


def _median(each: _Estimated, level: float, narrow: float) -> Point | None:
    declared = each.released.declared
    spread = spread_of(declared, each.counted, each.repeats)
    if spread is None:
        return None
    number = to_number(declared.metric)
    middle, wide = (spread.quantile(0.5, wanted) for wanted in (level, narrow))
    return Point(number(middle.place), (number(middle.low), number(middle.high)), (number(wide.low), number(wide.high)))


def _mean_change(current: Declared, kept: Sequence[tuple[_Estimated, Centre]], level: float) -> Change | None:
    pair = _compared(current.metric.period, [each for each, _ in kept])
    if pair is None:
        return None
    found = differing_means(current.metric, kept[pair][1], kept[-1][1], level)
    return _change(kept[pair][0], kept[-1][0], found[0])


def _mean_trend(current: Declared, kept: Sequence[tuple[_Estimated, Centre]], level: float) -> Trend | None:
    gathered, course = _mean_course(kept)
    found, distance = _through(slope(course), gathered, level), moved(current.metric)
    if not found:
        return None
    each = found[0]
    ends = [(distance(low), distance(high)) for low, high in (each.interval, each.simultaneous)]
    return Trend(each.since, each.last, distance(each.slope), *ends)


def _mean_course(kept: Sequence[tuple[_Estimated, Centre]]) -> tuple[list[_Estimated], Course]:
    gathered = [each for each, _ in kept]
    columns = (np.array([[getattr(centre, name)] for _, centre in kept]) for name in ("place", "stderr", "spread"))
    times, reports = [each.at for each in gathered], [each.counted.n for each in gathered]
    return gathered, Course(times, reports, [each.repeats for each in gathered], *columns)


def _mean_shifts(current: Declared, kept: Sequence[tuple[_Estimated, Centre]]) -> list[Shift]:
    if current.metric.least_shift is None or not kept:
        return []
    gathered, course = _mean_course(kept)
    level = shift.confidence(1)
    each = (centre.interval(level) for _, centre in kept)
    ends = [(np.array([low]), np.array([high])) for low, high in each]
    return _seen(current, gathered, course, ends, level).get(0, [])
