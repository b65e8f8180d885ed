"""What the list says of one metric: its last period, its picture, and whether it changed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from math import isnan, nan
from typing import TYPE_CHECKING, Literal, NamedTuple

from deniable.messages.plural import plural
from deniable_aggregator.answer import figures
from deniable_aggregator.answer.model.number import quantile_name
from deniable_aggregator.answer.model.rows import unit_of
from deniable_aggregator.answer.model.series import Trend
from deniable_aggregator.answer.over_time import sentence
from deniable_aggregator.answer.over_time.sentence import closed_periods
from deniable_aggregator.answer.readings.leading import between
from deniable_server.pages import metric_page, number_page
from deniable_server.pages.parts import chart, spark
from deniable_server.pages.parts.spark import Spark

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import date

    from deniable_aggregator.answer.app import AppMetrics
    from deniable_aggregator.answer.model.metric import Latest
    from deniable_aggregator.answer.model.series import Line, PeriodChange, Series
    from deniable_aggregator.answer.model.shares import Leading, ValueEstimate
    from deniable_server.pages.segments.clearest import Clearest

    Sparks = Callable[["Move | None"], Spark | None]

State = Literal["changed", "unpublished", "steady", "single"]
TITLES: dict[State, str] = {
    "changed": "Changed beyond chance",
    "unpublished": "Not shown yet",
    "steady": "No trend and no change beyond chance",
    "single": "One period so far",
}
"""The groups of the list, in order."""
_FIGURES = {"Median": quantile_name(0.5), "Mean": "mean", "Geometric mean": "geometric_mean"}
"""What rows of a query call the figure that stands first."""
_MOST_BARS = 24
_MOST_LEADERS = 4
_SOON = timedelta(days=30)


class Estimate(NamedTuple):
    """What stands for a metric in the list, as numbers."""

    value: str = ""  # what it is of: an answer, or a figure such as `mean` or `p50`; empty if no answer stands out
    estimate: float = nan
    unit: str = ""  # of the estimate, as in rows
    low: float = nan
    high: float = nan


class Move(NamedTuple):
    """A line of a metric with its change since the period before, or with its trend."""

    series: Series
    line: Line
    result: PeriodChange | Trend
    p_holm: float = nan  # its p-value over all tests of the list

    @property
    def is_trend(self) -> bool:
        """Whether it is a trend."""
        return isinstance(self.result, Trend)

    @property
    def is_rise(self) -> bool:
        """Whether the line went up."""
        return sentence.rises(self.result, self.series.scale)

    @property
    def size(self) -> float:
        """How far it moved, in all."""
        return sentence.size(self.result, self.series)

    @property
    def words(self) -> str:
        """By how much it moved."""
        if isinstance(self.result, Trend):
            return sentence.trend_of(self.line, self.result, self.series)
        return sentence.change_of(self.line, self.result, self.series)

    @property
    def without_yes(self) -> str:
        """By how much it moved; that it is about yes is said beside it."""
        return self.words.removeprefix(f"{figures.quoted('yes')} ") if self.line.value is True else self.words

    @property
    def between(self) -> str:
        """From when to when."""
        return figures.brief_range(self.result.since, self.result.last, self.series.period_length)


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
    shifted: str  # which shifts were seen in the last periods, in words
    segments: Clearest | None  # how its segments differ most clearly
    tests: tuple[Move, ...]  # every change and every trend that is tested
    sparks: Sparks  # draws what is said
    n: int  # reports published, of all periods
    when: str  # whether more may come, in words
    closed: bool
    awaited: str  # what the first release waits for, in words; empty once there is one
    today: date
    ends: str  # when collection ended or ends soon, in words
    is_followed: bool = True  # whether periods are compared
    moves: tuple[Move, ...] = ()  # those found beyond chance over the whole list: trends first, and the largest first
    spark: Spark | None = None

    @property
    def says(self) -> str:
        """What changed most surely, in a sentence."""
        return f"{self.moves[0].words}, {self.moves[0].between}." if self.moves else self.shifted

    @property
    def unmoved(self) -> tuple[str, ...]:
        """What was looked for and not found, in words."""
        changes = [move for move in self.tests if not move.is_trend]
        trends = [move for move in self.tests if move.is_trend and closed_periods(move.series) >= sentence.FEWEST]
        if not changes and not trends:
            return ("No two closed periods to compare yet" if self.is_followed else sentence.NOT_FOLLOWED,)
        length = self.tests[0].series.period_length
        no_change = tuple(f"No change since {_brief(move.result.since, length, self.today)}" for move in changes[:1])
        no_trend = tuple(f"No trend since {_brief(move.result.since, length, self.today)}" for move in trends[:1])
        return (*no_change, *(no_trend or (f"Too few {length}s for a trend",)))

    def decided(self, p_holm: Sequence[float], alpha: float) -> Row:
        """Return it with what is found, from a p-value of each test over the whole list."""
        moves = [move._replace(p_holm=p) for move, p in zip(self.tests, p_holm, strict=True)]
        sure = [move for move in moves if move.p_holm <= alpha]
        sure.sort(key=lambda move: (not move.is_trend, -move.size))
        state: State = "changed" if (sure or self.shifted) and self.n else self.state
        return replace(self, tests=tuple(moves), moves=tuple(sure), state=state, spark=self.sparks(next(iter(sure), None)))


def row(
    app: AppMetrics,
    measured: Latest,  # the last period
    series: Series | None,  # the last periods; None if there are none
    shifted: str,  # which shifts were seen in them, in words
    segments: Clearest | None,  # how its segments differ most clearly in them
    n: int,  # reports published of the version, in all periods
    today: date,
) -> Row:
    """Describe a metric for the list."""
    length, span = measured.period_length, measured.included[-1] if measured.included else None
    now, note, estimate = _headline(app, measured)
    tests = _tests(series) if series else ()
    single = series is None or sum(period.state == "published" for period in series.periods) < 2  # noqa: PLR2004
    brief = _brief(span.last, length, today) if span else ""
    return Row(
        id=measured.id,
        description=measured.description,
        owner=measured.owner,
        type=measured.type,
        version=measured.version,
        other_versions=_other_versions(measured),
        state="unpublished" if not measured.n else "single" if single else "steady",
        now=now,
        note=", ".join(filter(None, (note, brief))),
        estimate=estimate,
        period=span.last if span else "",
        shifted=shifted,
        segments=segments,
        tests=tests,
        sparks=partial(_spark, app, measured, series) if measured.n else lambda _: None,
        n=n,
        when="" if span is None else f"{length} open" if not measured.closed else f"to {brief}",
        closed=measured.closed,
        today=today,
        awaited="" if measured.n else _awaited(app, measured),
        ends=_ends(measured.expires, today),
        is_followed=not app.versions[measured.id, measured.version].metric.discover,
    )


# The last period


def _headline(app: AppMetrics, measured: Latest) -> tuple[str, str, Estimate]:
    """Say what stands for the last period: in a few words or a number, with its interval, and as numbers."""
    if not measured.n:
        return "Not shown yet", "", Estimate()
    view = number_page.view(measured.number) if measured.number else None
    if measured.number and view:
        first = view.first
        at, *ends = first.numbers
        estimate = Estimate(_FIGURES[first.name], at, unit_of(measured.number.unit, is_share=False), *ends)
        return first.value, f"{first.name.lower()}, {first.low} to {first.high}", estimate
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
    if leading.count <= _MOST_LEADERS and leading.count == len(names) < leading.of:
        return ", ".join(each.label for each in names), f"lead, {between(names)} each", Estimate()
    return "No clear leader", f"{leading.count:,} of {leading.of:,} may be first, {between(names)} each", Estimate()


def _share(row: ValueEstimate) -> str:
    return figures.share(figures.possible(row.frequency), row.stderr)


def _between(row: ValueEstimate) -> str:
    return figures.possible_share_range(row.interval, row.stderr)


def _estimate(row: ValueEstimate) -> Estimate:
    return Estimate(row.label, row.frequency, unit_of("", is_share=True), *row.interval)


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


def _brief(name: str, length: str, today: date) -> str:
    """Write a period in few letters; a day or a week of this year without the year."""
    text = figures.brief(name, length)
    return text if length == "month" else text.replace(f" {today.year}", "")


def _awaited(app: AppMetrics, measured: Latest) -> str:
    """Say what the first release waits for."""
    if app.trial:
        return "no report has been counted yet"
    return app.awaited(app.versions[measured.id, measured.version])


def _ends(expires: date | None, today: date) -> str:
    if expires is None or expires > today + _SOON:
        return ""
    if expires < today:
        return f"ended on {expires.day} {expires:%b %Y}"
    return f"ends in {plural((expires - today).days, 'day')}" if expires > today else "ends today"


# What is tested, and the picture


def _tests(series: Series) -> tuple[Move, ...]:
    trends = [Move(series, line, trend) for line, trend in sentence.trends_of(series)]
    return *trends, *(Move(series, line, change) for line, change in sentence.changes_of(series))


def _spark(app: AppMetrics, measured: Latest, series: Series | None, move: Move | None) -> Spark | None:
    """Draw the line that a move is of, or the one that stands for the metric, or the shape of the last period."""
    length = measured.period_length
    is_yes_or_no = any(row.value is True for row in measured.estimates)
    if series and (move or measured.number or is_yes_or_no):
        lines = [line for line in series.lines if line.value is not False]
        at = None
        if move and not move.is_trend:
            at = next(place for place, period in enumerate(series.periods) if period.period == move.result.last)
        over = f"{plural(len(series.periods), length)} to {figures.brief(series.periods[-1].period, length)}"
        usual = reversed([line for line in lines if line is lines[0] or line.label == "median"])
        for line in [move.line] if move else usual:
            known = [point for point in line.points if point and not isnan(point.estimate)]
            small = spark.line(line, series.periods, over, change=at)
            if small and (move or len(known) > len(line.points) // 2):
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
