"""Public results: what is published of metrics that are declared ``public``, for everybody.

* ``GET /results``: the metrics of an app, each in a sentence
* ``GET /results/<id>``: one metric: its values, over time, and in each segment
* ``GET /results/<id>/values.csv``, ``series.csv``: the same as files

They exist where ``DENIABLE_ABOUT=results`` says so. A trial has none. All figures are made of what
`deniable_aggregator.answer.everybody` selects, and are rounded.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from flask import Blueprint, make_response, render_template, request, url_for
from msgspec.structs import replace

from deniable.messages.plural import plural
from deniable_aggregator.answer import figures
from deniable_aggregator.answer.everybody import for_everybody
from deniable_aggregator.answer.measurement import measure
from deniable_aggregator.answer.over_time import series
from deniable_aggregator.answer.readings.leading import in_words
from deniable_aggregator.answer.select import Published, state_of
from deniable_aggregator.publish import release
from deniable_aggregator.store.errors import StoreError
from deniable_server.api.answers.parameters import only_parameters
from deniable_server.http.problem import RETRY_SECONDS, Problem
from deniable_server.http.visit import visit
from deniable_server.pages import download, number_page, series_page
from deniable_server.pages.parts import chart, memo
from deniable_server.privacy import words
from deniable_server.privacy.about import HEADERS, app_named
from deniable_server.results import rounding
from deniable_server.service import service

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flask import Response

    from deniable.declared import Declared
    from deniable_aggregator.answer.everybody import PublicPart
    from deniable_aggregator.answer.model.metric import Measurement
    from deniable_aggregator.answer.model.series import Series
    from deniable_server.pages.number_page import NumberView
    from deniable_server.pages.parts.chart import Chart
    from deniable_server.pages.series_page import SeriesView
    from deniable_server.service import App

blueprint = Blueprint("results", __name__)

_LEVEL = 0.95
_MOST_VALUES, _MOST_SEGMENTS, _MOST_COLUMNS = 80, 100, 6


class SegmentRow(NamedTuple):
    """A segment in the table of all."""

    name: str
    reports: str
    cells: tuple[str, ...]  # the share of each column's value, or the mean


class Result(NamedTuple):
    """What is shown of a metric."""

    declared: Declared
    measured: Measurement  # rounded
    course: Series  # rounded
    sentence: str  # empty where nothing is published
    reports: str
    days: str
    columns: tuple[str, ...]  # of the table of segments
    segments: tuple[SegmentRow, ...]
    left_out: str  # says how much is not shown; empty where nothing is left out

    @property
    def chart(self) -> Chart | None:
        """The picture of the values."""
        rows = chart.order([row for row in self.measured.estimates if row.n], by_estimate=self.declared.metric.kind.ranked)
        return chart.chart(rows[:_MOST_VALUES], over=rows) if rows else None

    @property
    def number(self) -> NumberView | None:
        """The number, its mean and its quantiles."""
        return number_page.view(self.measured.number) if self.measured.number else None

    @property
    def over_time(self) -> SeriesView | None:
        """Its periods."""
        return series_page.view(self.course)


@blueprint.get("/results")
def results() -> Response:
    """List the results of an ``app``, by default of the first one."""
    app = public_app()
    public = [_result(app, declared) for declared in app.highest.values() if declared.metric.public]
    return _page("results.html", app, results=public)


@blueprint.get("/results/<id_>")
def result(id_: str) -> Response:
    """Show what is published of a metric."""
    app, one = _result_of(id_)
    return _page("result.html", app, one=one, m=one.declared.metric, odds=words.odds(one.declared.mechanism.epsilon))


@blueprint.get("/results/<id_>/values.csv")
def values_file(id_: str) -> Response:
    """Send the rounded estimates of all values."""
    app, one = _result_of(id_)
    return _file(app, f"{id_}-values", download.of_values(one.measured))


@blueprint.get("/results/<id_>/series.csv")
def series_file(id_: str) -> Response:
    """Send the rounded estimates of each period."""
    app, one = _result_of(id_)
    return _file(app, f"{id_}-series", download.of_series(one.course))


def public_app(*parameters: str) -> App:
    """Return the app whose results a request without a key asks for; refuse parameters that are not among these."""
    service().limits.stranger(visit())
    app = app_named()
    if app.trial:
        raise Problem(404, "not_public", "results are not shown while an app is in a trial, which protects no small group")
    only_parameters("app", *parameters)
    return app


def _result_of(id_: str) -> tuple[App, Result]:
    """Return the app that is asked for, and what is shown of one of its public metrics."""
    app = public_app()
    declared = app.highest.get(id_)
    if declared is None or not declared.metric.public:
        raise Problem(404, "not_public", "no metric of this name has public results")
    return app, _result(app, declared)


def _result(app: App, declared: Declared) -> Result:
    published = Published.of_each(app, [declared])
    about = ("result", declared.definition, state_of(app, published))
    return memo.once(app.store, about, partial(_compute, app, declared, published))


def _compute(app: App, declared: Declared, published: Sequence[Published]) -> Result:
    known = release.summaries(app.store)
    parts = [for_everybody(each) for each in published]
    published = [part.published for part in parts]
    measured = _coarse(measure(published, known, level=_LEVEL))
    cells = sorted(filter(None, published[0].cells))[:_MOST_SEGMENTS]
    segments = [(cell, _coarse(measure(published, known, segment=cell, level=_LEVEL))) for cell in cells]
    columns = _columns(measured)
    return Result(
        declared=declared,
        measured=measured,
        course=rounding.coarse_series(series(published, level=_LEVEL, look="none")),
        sentence=_sentence(declared, measured) if measured.n else "",
        reports=figures.count(measured.n),
        days=figures.days(measured.days) if measured.days else "",
        columns=columns,
        segments=tuple(_row(cell, each, columns) for cell, each in segments),
        left_out=_left_out(parts, declared.metric.period),
    )


def _left_out(parts: Sequence[PublicPart], length: str) -> str:
    """Say how much is not shown. The words do not depend on why."""
    hidden, totals = sum(part.hidden for part in parts), sum(part.totals for part in parts)
    why = "a group is too small, or nearly all of it gave one answer"
    if not totals:
        return f"{plural(hidden, length)} {'is' if hidden == 1 else 'are'} not shown: {why}." if hidden else ""
    segments = f"the segments of {plural(totals, length)}"
    return (
        f"{plural(hidden, length)} and {segments} are not shown: {why}."
        if hidden
        else f"{figures.beginning(segments)} are not shown: {why}."
    )


def _coarse(measured: Measurement) -> Measurement:
    return replace(
        measured,
        n=rounding.coarse_count(measured.n),
        estimates=[rounding.coarse_row(row) for row in measured.estimates] if measured.n else [],
        number=measured.number and rounding.coarse_number(measured.number),
        lowered_by=float("nan"),
        versions=[],
    )


def _sentence(declared: Declared, measured: Measurement) -> str:
    if measured.number is not None:
        view = number_page.view(measured.number)
        return f"The {view.first.name.lower()} is {view.first.value} ({view.first.low} to {view.first.high})." if view else ""
    if measured.leading is None:
        return ""
    return in_words(declared.metric, measured.leading, measured.estimates, measured.detection_frequency)


def _columns(measured: Measurement) -> tuple[str, ...]:
    if measured.number is not None:
        return ("Mean",)
    rows = [row for row in measured.estimates if row.value is not False]  # the share of no mirrors that of yes
    return tuple(row.label for row in chart.order(rows, by_estimate=True)[:_MOST_COLUMNS])


def _row(cell: str, measured: Measurement, columns: Sequence[str]) -> SegmentRow:
    name, reports = figures.segment(cell), figures.count(measured.n)
    if measured.number is not None:
        number = measured.number
        return SegmentRow(name, reports, (figures.number(number.mean, number.interval, number.unit),))
    by_label = {row.label: row for row in measured.estimates}
    return SegmentRow(name, reports, tuple(figures.share(by_label[label].frequency, by_label[label].stderr) for label in columns))


def _page(template: str, app: App, **context: object) -> Response:
    home = url_for(".results", app=request.args.get("app"))
    page = render_template(template, home=home, name=app.name, asked=request.args.get("app"), remembered={}, **context)
    response = make_response(page)
    response.headers.update(HEADERS)
    return response


def _file(app: App, name: str, text: str) -> Response:
    response = make_response(text)
    response.mimetype = "text/csv"
    response.headers.update(HEADERS | {"Content-Disposition": f'attachment; filename="{app.name}-{name}.csv"'})
    return response


@blueprint.errorhandler(StoreError)
def on_store(error: StoreError) -> tuple[str, int, dict[str, str]]:
    """Say that the store cannot be read."""
    service().outage.failed("", error)
    return "The results cannot be read. Try again in a moment.", 503, {"Retry-After": str(RETRY_SECONDS)}
