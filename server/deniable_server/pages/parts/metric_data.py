"""What the page of a metric, its files and its picture are made of: read from the request, and from the releases."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlencode

from flask import request, url_for

from deniable.registry import period
from deniable_aggregator.answer.measurement import measure
from deniable_aggregator.answer.model.fields import LEVEL
from deniable_aggregator.answer.model.number import line_names, quantile_name
from deniable_aggregator.answer.over_time import series
from deniable_aggregator.answer.question import labels, number_range, unknown_value
from deniable_aggregator.answer.refusal import UnknownValue
from deniable_aggregator.answer.select import state_of
from deniable_aggregator.publish import release
from deniable_server.api.answers.parameters import LONGEST_SHOWN, level_asked, published_of
from deniable_server.http.visit import visit
from deniable_server.pages import series_page
from deniable_server.pages.parts import memo, time_range
from deniable_server.pages.segments.table import table

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from deniable_aggregator.answer.model.fields import Span
    from deniable_aggregator.answer.model.metric import Measurement
    from deniable_aggregator.answer.model.series import Series
    from deniable_aggregator.answer.select import Published
    from deniable_server.pages.parts.time_range import TimeRange
    from deniable_server.pages.segments.table import SegmentTable
    from deniable_server.pages.series_page import SeriesView
    from deniable_server.service import App

T = TypeVar("T")
_PARAMETERS = ("period", "segment", "by", "base", "value")


@dataclass(frozen=True)
class MetricData:
    """One metric, as a request asks for it."""

    app: App
    name: str  # `metric` or `metric@version`
    published: Sequence[Published]
    level: float
    period: str | None
    segment: str | None
    range: TimeRange
    within: str | None  # a range of a number
    by: str  # the parameter
    base: str
    value: str  # the answer, or the figure of a number, by which segments are compared, and which a picture is of

    @classmethod
    def of_request(cls, app: App, name: str) -> MetricData:
        """Read what the request asks of a metric. A form sends an empty parameter for all."""
        period, segment, by, base, value = (request.args.get(each) or None for each in _PARAMETERS)
        published, dates = published_of(app, name), time_range.of_request()
        if dates.dates:  # as the audit log has the range of a query
            visit().details["period"] = "/".join(dates.dates.names(published[0].length))
        is_range = value is not None and number_range.is_range(value) and published[0].declared.metric.axis is not None
        within, value = (value, None) if is_range else (None, value)
        return cls(app, name, published, level_asked(), period, segment, dates, within, by or "", base or "", value or "")

    @property
    def is_part(self) -> bool:
        """Whether only some periods or some reports are asked for."""
        return bool(self.period or self.segment or self.range.text)

    @cached_property
    def measured(self) -> Measurement:
        """Its estimates."""
        known = release.summaries(self.app.store)
        return measure(self.published, known, self.period, self.segment, self.level, dates=self.range.dates, within=self.within)

    @cached_property
    def version(self) -> Published:
        """What was published of the version that is estimated."""
        return next(each for each in self.published if each.declared.metric.version == self.measured.version)

    @cached_property
    def spans(self) -> list[Span]:
        """Its releases in the range, whatever period is chosen."""
        first, last = self.range.dates.names(self.version.length) if self.range.dates else ("", "~")
        return [span for span in self.measured.periods if first <= span.last <= last]

    @property
    def closed_range(self) -> str:
        """The range of the closed periods of what is shown; empty if there are none, and of hours: a range is of days."""
        length, cells = self.version.length, self.version.cells.get(self.measured.segment or "", {})
        closed = [span for span in self.measured.included if span.last in cells and cells[span.last][1].closed]
        if not closed or length == "hour":
            return ""
        begins, ends = period.bounds(closed[0].first or closed[0].last, length)[0], period.bounds(closed[-1].last, length)[1]
        return f"{begins.date()}..{(ends - timedelta(microseconds=1)).date()}"

    @cached_property
    def units(self) -> tuple[str, list[str]]:
        """The length of the periods that are drawn, and all to choose from."""
        return time_range.unit(self.spans, self.version.declared, self.by)

    @cached_property
    def course(self) -> Series:
        """It over time, period by period, with what changed."""
        return series(self.published, self.segment, self.level, dates=self.range.dates)

    @cached_property
    def outline(self) -> Series:
        """It over time, in the periods that are drawn."""
        unit, _ = self.units
        if unit == self.course.period_length:
            return self.course
        return series(self.published, self.segment, self.level, dates=self.range.dates, by=unit)

    @cached_property
    def over_time(self) -> SeriesView | None:
        """It over time, as the page shows it."""

        def make() -> SeriesView | None:
            return series_page.view(self.course, self.outline, len(self.spans), of_outline=bool(self.by))

        return self._once("over time", (self.units[0], self.by), make)

    @cached_property
    def segments(self) -> SegmentTable | None:
        """All segments; None where one is chosen."""
        self.check_value()
        if self.segment:
            return None

        def make() -> SegmentTable | None:
            return table(self.published, self.measured, self._days(), self.base, self.value)

        return self._once("segments", (self.period, self.base, self.value), make)

    @property
    def chart(self) -> SeriesView | None:
        """What a picture of it over time has: one answer if it is chosen."""
        if not self.value:
            return self.over_time
        name = "median" if self.value == quantile_name(0.5) else self.value
        return series_page.view(self.course, self.outline, len(self.spans), only=name)

    def check_value(self) -> None:
        """Refuse an answer that the metric does not have. What a search may find is not known before."""
        metric = self.version.declared.metric
        known = labels(self.version.declared)
        if self.value and not metric.discover and self.value not in known:
            raise UnknownValue(unknown_value(self.value[:LONGEST_SHOWN], known, metric.id))

    @property
    def question(self) -> dict[str, str]:
        """The parameters that say what is parameters of it."""
        parameters = {"range": self.range.text, "period": self.period, "segment": self.segment, "value": self.within}
        level = {} if self.level == LEVEL else {"level": f"{self.level:g}"}
        return {name: value for name, value in parameters.items() if value} | level

    @property
    def query_address(self) -> str:
        """The page that writes the same as a query."""
        return f"{url_for('dashboard.query', id_=self.name)}?{urlencode(self.question)}".rstrip("?")

    @property
    def query(self) -> dict[str, Any]:
        """The members of the same query."""
        query: dict[str, Any] = {"metrics": [self.name]}
        if self.segment:
            query["filters"] = [["is", name, [value]] for name, value in (part.split("=", 1) for part in self.segment.split(","))]
        if self.within:
            figures = [*line_names(self.version.declared.metric), self.within]
            query["filters"] = [*query.get("filters", []), ["is", "value", figures]]
        if days := self._days():
            query["date_range"] = list(days)
        return query if self.level == LEVEL else query | {"level": self.level}

    def _days(self) -> tuple[str, str] | None:
        """Return the first and the last day or time of the range or period; None: all."""
        if self.range.days:
            return str(self.range.days[0]), str(self.range.days[1])
        if not self.period or not self.measured.included:
            return None
        begins, ends = period.bounds(self.measured.included[-1].last, self.version.length)
        if self.version.length == "hour":
            return begins.isoformat(), begins.isoformat()
        return str(begins.date()), str((ends - timedelta(microseconds=1)).date())

    def _once(self, part: str, question: tuple[object, ...], make: Callable[[], T]) -> T:
        dates = self.range.dates and self.range.dates.names(self.version.length)
        about = (part, self.name, state_of(self.app, self.published), dates, self.segment, self.level, *question)
        return memo.once(self.app.store, about, make)
