"""What the list says of one metric: its last period, its picture, and whether it changed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from math import isnan, nan
from typing import TYPE_CHECKING, Literal, NamedTuple

from deniable.messages.plural import plural
from deniable_aggregator.answer import figures
from deniable_aggregator.answer.figures import distance
from deniable_aggregator.answer.over_time.sentence import changes_of, largest, measure_of
from deniable_server.pages import chart, metric_page, number_page
from deniable_server.pages.parts import spark
from deniable_server.pages.parts.spark import Spark

if TYPE_CHECKING:
    from datetime import date

    from deniable_aggregator.answer.app import AppMetrics
    from deniable_aggregator.answer.model.metric import Latest
    from deniable_aggregator.answer.model.series import Line, PeriodChange, Series
    from deniable_aggregator.answer.model.shares import Leading, ValueEstimate

State = Literal["changed", "unpublished", "steady", "single"]
TITLES: dict[State, str] = {
    "changed": "Changed beyond chance",
    "unpublished": "Not shown yet",
    "steady": "No change beyond chance",
    "single": "One period so far",
}
"""The groups of the list, in order."""
_MOST_BARS = 24
_MOST_LEADERS = 4
_SOON = timedelta(days=30)


class Estimate(NamedTuple):
    """What stands for a metric in the list, as numbers."""

    value: str = ""  # what it is of: an answer, or `mean` or `median`; empty if no answer stands out
    estimate: float = nan
    low: float = nan
    high: float = nan


class Change(NamedTuple):
    """The largest change of a metric between its last closed period and one before."""

    words: str  # such as `rose 4.2 to 7.6 points`
    is_rise: bool
    between: str  # the two periods, in words
    line: Line
    change: PeriodChange
    p_value: float  # of all values together, by Holm


@dataclass(frozen=True, slots=True)
class Row:
    """A metric in the list."""

    id: str
    description: str
    owner: str
    type: str
    version: int
    other_versions: str  # what was published of others, in words
    state: State
    now: str  # the last period, in a few words or a number
    note: str  # its interval and what it is of
    estimate: Estimate
    period: str  # the last period
    spark: Spark | None
    change: Change | None  # None if no two closed periods can be compared
    n: int  # reports published, of all periods
    when: str  # whether more may come, in words
    closed: bool
    awaited: str  # what the first release waits for, in words; empty once there is one
    ends: str  # when collection ended or ends soon, in words


def row(
    app: AppMetrics,
    measured: Latest,  # the last period
    series: Series | None,  # the last periods; None if there are none
    n: int,  # reports published of the version, in all periods
    today: date,
) -> Row:
    """Describe a metric for the list."""
    length, span = measured.period_length, measured.included[-1] if measured.included else None
    now, note, estimate = _headline(app, measured)
    change = _change(series) if series else None
    single = series is None or sum(period.state == "published" for period in series.periods) < 2  # noqa: PLR2004
    brief = figures.brief(span.last, length) if span else ""
    return Row(
        id=measured.id,
        description=measured.description,
        owner=measured.owner,
        type=measured.type,
        version=measured.version,
        other_versions=_other_versions(measured),
        state="unpublished"
        if not measured.n
        else "changed"
        if change and change.change.differs
        else "steady"
        if not single
        else "single",
        now=now,
        note=", ".join(filter(None, (note, brief))),
        estimate=estimate,
        period=span.last if span else "",
        spark=_spark(app, measured, series, change) if measured.n else None,
        change=change,
        n=n,
        when="" if span is None else f"{length} open" if not measured.closed else f"to {brief}",
        closed=measured.closed,
        awaited="" if measured.n else app.awaited(app.versions[measured.id, measured.version]),
        ends=_ends(measured.expires, today),
    )


# The last period


def _headline(app: AppMetrics, measured: Latest) -> tuple[str, str, Estimate]:
    """Say what stands for the last period: in a few words or a number, with its interval, and as numbers."""
    if not measured.n:
        return "Not shown yet", "", Estimate()
    view = number_page.view(measured.number) if measured.number else None
    if view:
        first = view.first
        return first.value, f"{first.name.lower()}, {first.low} to {first.high}", Estimate(first.name.lower(), *first.numbers)
    rows = metric_page.estimated(measured)
    if not rows:
        return "Too few to say", "", Estimate()
    yes = next((each for each in rows if each.value is True), None)
    if yes:
        return f"{_share(yes)} {figures.quoted('yes')}", _between(yes), _estimate(yes)
    is_set = app.versions[measured.id, measured.version].metric.kind.options
    return _leading(measured.leading, rows, "most chosen" if is_set else "most frequent")


def _leading(leading: Leading | None, rows: list[ValueEstimate], first: str) -> tuple[str, str, Estimate]:
    """Name the most frequent answer, or those that may be it."""
    if leading is None or not leading.leaders:
        return "Nothing detected", "", Estimate()
    names = [each for value in leading.leaders for each in rows if each.value == value]
    if leading.count == 1:
        return names[0].label, f"{first}: {_share(names[0])} ({_between(names[0])})", _estimate(names[0])
    shares = [each.frequency for each in names]
    between = figures.share_range((min(shares), max(shares)), max(each.stderr for each in names))
    if leading.count <= _MOST_LEADERS and leading.count == len(names) < leading.of:
        return ", ".join(each.label for each in names), f"lead, {between} each", Estimate()
    return "No clear leader", f"{leading.count:,} of {leading.of:,} may be first, {between}", Estimate()


def _share(row: ValueEstimate) -> str:
    return figures.share(row.frequency, row.stderr)


def _between(row: ValueEstimate) -> str:
    return figures.share_range(metric_page.possible(row.interval), row.stderr)


def _estimate(row: ValueEstimate) -> Estimate:
    return Estimate(row.label, row.frequency, *row.interval)


def _other_versions(measured: Latest) -> str:
    others = [
        f"version {each.version} has {plural(each.n, 'report')}{', and is replaced in the registry' if each.former else ''}"
        for each in measured.versions
        if each.version != measured.version
    ]
    earlier = [
        f"{plural(each.earlier, 'report')} published under an earlier definition of version {each.version}"
        for each in measured.versions
        if each.earlier
    ]
    return "; ".join([*([f"version {measured.version}"] if others else []), *others, *earlier])


def _ends(expires: date | None, today: date) -> str:
    if expires is None or expires > today + _SOON:
        return ""
    if expires < today:
        return f"ended on {expires.day} {expires:%b %Y}"
    return f"ends in {plural((expires - today).days, 'day')}" if expires > today else "ends today"


# Its change and its picture


def _change(series: Series) -> Change | None:
    """Find the largest change; None if no two closed periods can be compared."""
    pairs = changes_of(series)
    if not pairs:
        return None
    tests = 1 if series.lines[0].kind == "share" and len(series.lines) + series.left_out == 2 else len(pairs) + series.left_out  # noqa: PLR2004
    p_value = min(1.0, tests * min(change.p_value for _, change in pairs))
    moved = [pair for pair in pairs if pair[1].differs] or pairs
    line, change = largest(moved, series.scale)
    measure = measure_of(line, series)
    is_rise = distance(change.difference, series.scale) > 0
    ends = change.simultaneous if measure.is_share else change.interval
    low, high = ends if is_rise or series.scale == "log" else (-ends[1], -ends[0])
    subject = (
        "" if line.value is True else f"{figures.quoted(line.label)} " if measure.is_share else f"{line.label} ".replace("_", " ")
    )
    words = f"{subject}{'rose' if is_rise else 'fell'} {measure.difference((low, high), ends)}"
    between = figures.brief_range(change.since, change.last, series.period_length)
    return Change(words, is_rise, between, line, change, p_value)


def _spark(app: AppMetrics, measured: Latest, series: Series | None, change: Change | None) -> Spark | None:
    length = measured.period_length
    is_yes_or_no = any(row.value is True for row in measured.estimates)
    if series and (measured.number or is_yes_or_no):
        lines = [line for line in series.lines if line.value is not False]
        at = None
        if change and change.change.differs:
            at = next(place for place, period in enumerate(series.periods) if period.period == change.change.last)
        words = f"{plural(len(series.periods), length)} to {figures.brief(series.periods[-1].period, length)}"
        for line in reversed([line for line in lines if line is lines[0] or line.label == "median"]):
            known = [point for point in line.points if point and not isnan(point.estimate)]
            small = spark.line(line, series.periods, words, change=at)
            if small and len(known) > len(line.points) // 2:
                return small
    if measured.number:
        view = number_page.view(measured.number)
        return Spark(f"{view.first.name}: {view.first.value}", number=view) if view else None
    rows = metric_page.estimated(measured)
    if not rows:
        return None
    kind = app.versions[measured.id, measured.version].metric.kind
    largest = chart.order(rows, by_estimate=True)
    listed = rows if (kind.ordered or not kind.ranked) and len(rows) <= 2 * _MOST_BARS else largest[:_MOST_BARS]
    top = largest[0]
    return spark.shape(listed, f"{plural(len(rows), kind.noun)}; the largest is {top.label}, {_share(top)}")
