"""The dashboard: pages of what was published, made on the server.

* ``GET /``: the metrics of an app, by what happened to them; ``GET /overview.csv``: the same as a file
* ``GET /m/<id>``: one metric, every value with its intervals
* ``GET /m/<id>/compare``: two periods or two segments of it
* ``GET /experiments``: all experiments of an app
* ``GET /m/<id>/experiment``: one of a metric, as reports came in; ``GET /m/<id>/experiment.csv``: the same as a file
* ``GET /m/<id>/query``: the same as a query, to copy
* ``GET /m/<id>/values.csv``, ``series.csv``, ``segments.csv``, ``compare.csv``, ``chart.svg``: its tables and picture as files
* ``GET /budgets``: what keys may spend on questions about withheld segments
* ``GET, POST /m/<id>/withheld``: such a question, for people who signed in
* ``GET /live``: what is counted of each metric, published or not, for admin keys
* ``GET /m/<id>/live``: one metric, from everything that is counted, for admin keys
* ``GET, POST /login``: the form for the read key
* ``POST /logout``: the end of a session
* ``GET /theme``: light or dark, kept in a cookie
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlencode

from flask import make_response, redirect, render_template, request, url_for
from msgspec.structs import asdict

from deniable_aggregator.answer.difference import compare
from deniable_aggregator.answer.difference.sentence import planned_in_words
from deniable_aggregator.answer.measurement import measure
from deniable_aggregator.answer.over_time import looks
from deniable_aggregator.answer.over_time.arms import arms_of
from deniable_aggregator.answer.question.date_range import JOINT
from deniable_aggregator.answer.readings.numbers_differing import alone
from deniable_aggregator.answer.refusal import Incomparable, Refusal
from deniable_aggregator.process import logs
from deniable_aggregator.publish import release
from deniable_server.api.answers import live
from deniable_server.api.answers.parameters import find_metric, level_asked, only_parameters, published_of
from deniable_server.api.auth import find_anew
from deniable_server.http.problem import Problem, refused
from deniable_server.http.visit import visit
from deniable_server.pages import (
    comparison_page,
    download,
    experiment_page,
    list_page,
    live_page,
    metric_page,
    query_page,
    visitor,
)
from deniable_server.pages.frame import blueprint, page, sentence
from deniable_server.pages.paid import budgets_page, withheld_page
from deniable_server.pages.parts import theme
from deniable_server.pages.parts.metric_data import MetricData
from deniable_server.service import service

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flask import Response
    from werkzeug.wrappers import Response as BaseResponse

    from deniable_aggregator.answer.model.experiment import ExperimentAnswer
    from deniable_aggregator.answer.model.metric import Measurement
    from deniable_aggregator.answer.select import Published
    from deniable_server.service import App

_METRIC = ("range", "period", "segment", "level", "app")
"""What a page and its files are asked by."""


@blueprint.get("/")
def index() -> Response:
    """List the metrics of an app, `list_page.MOST_ROWS` of them on each ``page``."""
    app = visitor.app_shown()
    only_parameters("q", "type", "owner", "state", "sort", "page", "app")
    return list_page.page_of(app)


@blueprint.get("/overview.csv")
def overview_file() -> Response:
    """Send what the list shows, of all metrics that were searched for."""
    app = visitor.app_shown()
    only_parameters("q", "type", "owner", "state", "sort", "app")
    return _file(app, "overview", download.of_rows(list_page.sought(app)))


@blueprint.get("/m/<id_>")
def metric(id_: str) -> BaseResponse:
    """Show one metric: over a ``range`` or a ``period``, of all reports or a ``segment``, in an ``order`` and a ``view``."""
    app = visitor.app_shown()
    only_parameters(*_METRIC, "from", "to", "above", "at_most", "by", "base", "segments", "value", "order", "view", "x", "page")
    if request.args.get("above") or request.args.get("at_most"):  # a form has two fields, and an address one range
        question = {name: value for name, value in request.args.items() if value and name not in ("above", "at_most", "value")}
        question["value"] = JOINT.join(request.args.get(name, "") for name in ("above", "at_most"))
        return redirect(f"{url_for('.metric', id_=id_)}?{urlencode(question)}#range", 303)
    data = MetricData.of_request(app, id_)
    if request.args.get("from") or request.args.get("to"):
        question = {name: value for name, value in request.args.items() if value and name not in ("from", "to", "range")}
        address = url_for(".metric", id_=id_)
        return redirect(f"{address}?{urlencode({**question, 'range': data.range.text})}", 303)
    measured = data.measured
    arms = arms_of(data.published, data.period, data.segment, data.level, ranged=bool(data.range.text))
    facts = asdict(measured) | {"name": id_, "merged": metric_page.pooled(measured.merged), "arms": arms}
    facts["withheld"] = metric_page.withheld(data.published, measured.version, data.period)
    facts["earlier"] = [metric_page.before(each, data.level) for each in measured.earlier]
    return metric_page.page_of(app, measured, facts, data)


@blueprint.get("/m/<id_>/query")
def query(id_: str) -> Response:
    """Write what the page of a metric shows as a query: for Python, the command and curl."""
    app = visitor.app_shown()
    only_parameters("range", "period", "segment", "value", "level", "app")
    data = MetricData.of_request(app, id_)
    return page(
        "query.html",
        app=app,
        metric=data.name,
        back_to=url_for(".metric", id_=id_, **visitor.remembered() | data.question),
        python=query_page.of_python(data),
        command=query_page.of_command(data),
        shell=query_page.of_shell(data),
    )


@blueprint.get("/m/<id_>/chart.svg")
def chart_file(id_: str) -> Response:
    """Send the pictures of a metric over time, or that of one ``value``."""
    app = visitor.app_shown()
    only_parameters(*_METRIC, "by", "value")
    data = MetricData.of_request(app, id_)
    over_time = data.chart
    if not over_time or not over_time.pictures:
        data.check_value()
        raise Problem(404, "no_picture", f"a picture needs two published periods{' of a value of the metric' * bool(data.value)}")
    labels = [picture.label for picture in over_time.pictures]
    marks = [f"{mark.capitalize()}." for mark in app.marks]
    text = render_template(
        "chart.svg",
        pictures=over_time.pictures,
        ticks=over_time.ticks,
        title=f"{app.name}, {data.name}{f': {labels[0]}' if len(labels) == 1 else ''}, by {over_time.length}",
        note=f"{100 * data.level:g}% intervals of one {over_time.length}, and of all together",
        foot=" ".join(filter(None, (over_time.note, *marks, "Estimated from randomised answers."))),
    )
    return _file(app, f"{id_}-chart", text, "svg")


@blueprint.get("/m/<id_>/compare")
def comparison(id_: str) -> Response:
    """Compare ``a`` and ``b``: two periods or ranges, of all or one ``segment``; or two segments, in all or one ``period``."""
    app = visitor.app_shown()
    only_parameters("a", "b", "period", "segment", "level", "app")
    level, published = level_asked(), published_of(app, id_)
    measured = measure(published, release.summaries(app.store))
    arms = _arms(published, measured)
    default = arms or next(iter(comparison_page.pairs_of_segments(measured.segments)), None)
    question = _sides(measured, arms)
    answer, why, status = None, "", 200
    if "a" in question and "b" in question:
        try:
            answer = compare(published, **question, level=level)
        except Refusal as refusal:  # shown above the form, so that another pair can be chosen
            # Two sides that are there, and cannot be compared, are an answer. A side that there is not is a fault.
            status = 200 if isinstance(refusal, Incomparable) else refused(refusal).status
            why = refusal.on_page
            logs.note(code=refusal.code)
    cannot = bool(question.get("b")) and (answer is None or not answer.differences) and not measured.discover
    first = question["a"] if question.get("a") in measured.segments else (default or ("",))[0]
    return page(
        "compare.html",
        status,
        app=app,
        m=measured,
        times=comparison_page.times(
            measured.periods,
            measured.period_length,
            *(question.get(name) for name in ("a", "b") if "=" not in question.get(name, "")),
        ),
        offered=metric_page.offered(measured.periods, question.get("period")),
        metric=id_,
        sides={"segments": default, "periods": comparison_page.default_periods(measured)},
        beside=comparison_page.beside(first, measured.segments) if first else [],
        together=comparison_page.last_ranges([span.last for span in measured.periods], measured.period_length),
        alternatives=comparison_page.alternatives(measured, question.get("a", ""), question["b"]) if cannot else [],
        question=question,
        links=visitor.remembered() | question,
        level=level,
        levels=sorted({*metric_page.LEVELS, level}),
        **({"fault": sentence(why)} if why else {}),
        comparison=answer,
        view=answer and comparison_page.view(answer, measured.period_length),
    )


def _arms(published: Sequence[Published], measured: Measurement) -> tuple[str, str] | None:
    """Return the first pair of arms that are published."""
    return next((pair for pair in looks.arm_pairs(published[0]) if set(measured.segments).issuperset(pair)), None)


def _sides(measured: Measurement, arms: tuple[str, str] | None) -> dict[str, str]:
    """Return what the address compares; if it names nothing, arms, or two sides that are chosen."""
    question = {name: request.args[name] for name in ("a", "b", "period", "segment") if request.args.get(name)}
    pair = None if question else arms or comparison_page.default_sides(measured)
    return dict(zip("ab", pair, strict=True)) if pair else question


@blueprint.get("/m/<id_>/compare.csv")
def comparison_file(id_: str) -> Response:
    """Send the differences that the page of a comparison shows."""
    app = visitor.app_shown()
    only_parameters("a", "b", "period", "segment", "level", "app")
    published = published_of(app, id_)
    measured = measure(published, release.summaries(app.store))
    question = _sides(measured, _arms(published, measured))
    if not question:
        raise Incomparable("there is nothing to compare yet: it takes two published periods, or two published segments")
    compared = compare(published, **{"a": "", "b": "", **question}, level=level_asked())
    return _file(app, f"{id_}-compare", download.of_comparison(compared))


@blueprint.get("/experiments")
def experiments() -> Response:
    """List the experiments of an app."""
    app = visitor.app_shown()
    only_parameters("app")
    return page("experiments.html", app=app, experiments=experiment_page.listed(app))


@blueprint.get("/m/<id_>/experiment")
def experiment(id_: str) -> Response:
    """Show an experiment: of the ``segment`` whose values are its arms, the difference of one ``value`` as reports came in."""
    app = visitor.app_shown()
    only_parameters("segment", "value", "level", "app")
    answer, declared = _experiment(app, id_), find_metric(app, id_)
    arms = experiment_page.arm_views(answer, declared.metric)
    return page(
        "experiment.html",
        app=app,
        m=declared.metric,
        metric=id_,
        answer=answer,
        arms=arms,
        headline=experiment_page.headline(arms) if arms else "",
        planned=planned_in_words(answer.planned, declared.metric),
        medians=alone(declared.metric, answer.planned) if declared.metric.estimate == "distribution" else "",
        epsilon=declared.mechanism.epsilon,
        levels=sorted({*metric_page.LEVELS, answer.level}),
        question={name: request.args[name] for name in ("segment", "value", "level") if request.args.get(name)},
    )


@blueprint.get("/m/<id_>/experiment.csv")
def experiment_file(id_: str) -> Response:
    """Send the differences as reports came in."""
    app = visitor.app_shown()
    only_parameters("segment", "value", "level", "app")
    return _file(app, f"{id_}-experiment", download.of_experiment(_experiment(app, id_)))


def _experiment(app: App, id_: str) -> ExperimentAnswer:
    segment, value = (request.args.get(name) or None for name in ("segment", "value"))
    return experiment_page.answer_of(published_of(app, id_), segment, value, level_asked())


@blueprint.get("/m/<id_>/values.csv")
def values_file(id_: str) -> Response:
    """Send the estimates that the page of a metric shows, of all values."""
    app = visitor.app_shown()
    only_parameters(*_METRIC, "value")
    measured = MetricData.of_request(app, id_).measured
    return _file(app, f"{id_}-values", download.of_values(measured, measured.reason or ""))


@blueprint.get("/m/<id_>/series.csv")
def series_file(id_: str) -> Response:
    """Send a metric over time, in the periods that the page draws or ``by`` names."""
    app = visitor.app_shown()
    only_parameters("range", "segment", "level", "by", "app")
    return _file(app, f"{id_}-series", download.of_series(MetricData.of_request(app, id_).outline))


@blueprint.get("/m/<id_>/segments.csv")
def segments_file(id_: str) -> Response:
    """Send all segments side by side, by one ``value``."""
    app = visitor.app_shown()
    only_parameters("range", "period", "level", "base", "value", "app")
    data = MetricData.of_request(app, id_)
    return _file(app, f"{id_}-segments", download.of_segments(data.measured, data.segments))


def _file(app: App, table: str, text: str, kind: str = "csv") -> Response:
    response = make_response(text)
    response.mimetype = {"csv": "text/csv", "svg": "image/svg+xml"}[kind]
    response.headers["Content-Disposition"] = f'attachment; filename="{"-".join([app.name, table, *app.marks])}.{kind}"'
    return response


@blueprint.get("/budgets")
def budgets() -> Response:
    """Show what the visitor's key may spend, and to an admin what each key has spent."""
    visit().question = {"question": "budgets"}
    app = visitor.app_shown()
    only_parameters()
    return budgets_page.page_of(app, visitor.key_of(app))


@blueprint.get("/m/<id_>/withheld")
def withheld(id_: str) -> Response:
    """Show the form of a question about withheld segments."""
    app = visitor.app_shown()
    only_parameters("period", "cell")
    return withheld_page.form(app, visitor.key_of(app), find_metric(app, id_))


@blueprint.post("/m/<id_>/withheld")
def ask_withheld(id_: str) -> Response:
    """Answer the form, and have it paid. Nothing but our own form of this session spends the budget."""
    app = visitor.app_shown()
    key, declared = visitor.key_of(app), find_metric(app, id_)
    if not visitor.from_our_form():
        raise Problem(400, "form_too_old", "this form was open for too long: open it anew, and ask again")
    return withheld_page.answered(app, key, declared)


@blueprint.get("/live")
def overview() -> Response:
    """Show an admin what is counted of each metric, published or not; in pages by ``page``."""
    live.note_question()
    app = visitor.owned_app()
    only_parameters("page")
    return live_page.overview(app)


@blueprint.get("/health")
def health() -> Response:
    """Show an admin whether the pipeline runs, what was refused, and what looks made up."""
    live.note_question()
    app = visitor.owned_app()
    only_parameters()
    return live_page.health(app)


@blueprint.get("/m/<id_>/live")
def live_metric(id_: str) -> Response:
    """Show an admin one metric, from everything that is counted or from one ``period``; in an ``order`` and a ``view``."""
    live.note_question()
    app = visitor.owned_app()
    only_parameters("period", "order", "view", "page")
    return live_page.metric(app, id_)


# Signing in


@blueprint.get("/login")
def login() -> BaseResponse:
    """Show the form for the read key."""
    return redirect(url_for(".index"), 303) if visitor.pages_are_open() else page("login.html")


@blueprint.post("/login")
def enter() -> BaseResponse:
    """Open a session of the app whose read key was given."""
    if not visitor.from_our_form():
        return page("login.html", 400, error="This form was open for too long. Please enter the key again.")
    try:
        service().limits.login(visit())
    except Problem as problem:
        response = page("login.html", problem.status, error="Too many attempts came from your address. Please wait a while.")
        response.headers["Retry-After"] = str(problem.retry_after)
        return response
    try:
        key = find_anew(service(), request.form.get("key", "").strip(), "read")
    except Problem as problem:
        return page("login.html", problem.status, error=sentence(problem.detail))
    return redirect(visitor.sign_in(key), 303)


@blueprint.post("/logout")
def leave() -> BaseResponse:
    """Close the session."""
    if visitor.from_our_form():
        visitor.sign_out()
    return redirect(url_for(".index"), 303)


@blueprint.get("/theme")
def choose_theme() -> BaseResponse:
    """Keep the theme ``to`` in a cookie, and lead ``back`` to the page."""
    only_parameters("to", "back")
    return theme.choose(request.args.get("to", ""), request.args.get("back", ""))
