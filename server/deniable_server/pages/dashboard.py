"""The dashboard: pages of what was published, made on the server.

* ``GET /``: the metrics of an app, each with a preview
* ``GET /m/<id>``: one metric, every value with its intervals
* ``GET /m/<id>/compare``: two periods or two segments of it
* ``GET /m/<id>/values.csv``, ``series.csv`` and ``compare.csv``: its tables as files
* ``GET /live``: what is counted of each metric, published or not, for admin keys
* ``GET /m/<id>/live``: one metric, from everything that is counted, for admin keys
* ``GET, POST /login``: the form for the read key
* ``POST /logout``: the end of a session
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flask import make_response, redirect, request, url_for
from msgspec.structs import asdict

from deniable_aggregator.answer.difference import compare
from deniable_aggregator.answer.measurement import latest, measure
from deniable_aggregator.answer.over_time import series
from deniable_aggregator.answer.refusal import Incomparable, Refusal
from deniable_aggregator.process import logs
from deniable_aggregator.publish import release
from deniable_server.access.roles import why_unknown
from deniable_server.api.answers import live
from deniable_server.api.answers.parameters import level_asked, only_parameters, published_of
from deniable_server.http import paging
from deniable_server.http.problem import Problem, refused
from deniable_server.http.visit import visit
from deniable_server.pages import comparison_page, download, list_page, live_page, metric_page, series_page, visitor
from deniable_server.pages.frame import blueprint, doubt, page, sentence
from deniable_server.service import service

if TYPE_CHECKING:
    from flask import Response
    from werkzeug.wrappers import Response as BaseResponse

    from deniable_server.service import App


@blueprint.get("/")
def index() -> Response:
    """List the metrics of an app, `list_page.MOST_CARDS` of them on each ``page``."""
    app = visitor.app_shown()
    only_parameters("q", "type", "page", "app")
    summaries = release.summaries(app.store)
    search = {name: request.args[name] for name in ("q", "type") if request.args.get(name)}
    ids = list_page.matching(app, search.get("q", ""), search.get("type", ""))
    part = paging.part(ids, list_page.MOST_CARDS)
    return page(
        "index.html",
        app=app,
        doubt=doubt(app),
        cards=[list_page.card(app, measured) for measured in latest(app, part.items, summaries)],
        metrics=len(app.highest),
        types=list_page.types(app),
        search=search,
        links=visitor.remembered() | search,
        matches=len(ids),
        page=part.page,
        pages=part.pages,
        total=sum(summaries[one.definition].n for one in app.versions.values() if one.definition in summaries),
    )


@blueprint.get("/m/<id_>")
def metric(id_: str) -> Response:
    """Show one metric: over everything published, or over one ``period`` or ``segment``; in an ``order`` and a ``view``."""
    app = visitor.app_shown()
    only_parameters("period", "segment", "level", "order", "view", "page", "app")
    period, segment = _cell()
    level = level_asked()
    published = published_of(app, id_)
    measured = measure(published, release.summaries(app.store), period, segment, level)
    over_time = series_page.view(series(published, segment, level))
    arms = [] if segment else comparison_page.arms(published, period, level)
    facts = asdict(measured) | {"name": id_, "merged": metric_page.pooled(measured.merged), "arms": arms}
    facts["withheld"] = metric_page.withheld(published, measured.version, period)
    facts["earlier"] = [metric_page.before(each, level) for each in measured.earlier]
    return metric_page.page_of(app, measured, facts, period, segment, over_time)


@blueprint.get("/m/<id_>/compare")
def comparison(id_: str) -> Response:
    """Compare ``a`` and ``b``: two periods, of all or one ``segment``; or two segments, in all periods or one ``period``."""
    app = visitor.app_shown()
    only_parameters("a", "b", "period", "segment", "level", "app")
    question = {name: request.args[name] for name in ("a", "b", "period", "segment") if request.args.get(name)}
    level, published = level_asked(), published_of(app, id_)
    measured = measure(published, release.summaries(app.store))
    pairs = comparison_page.arm_pairs(published[0])
    arms = next((pair for pair in pairs if set(measured.segments).issuperset(pair)), None)
    default = arms or next(iter(comparison_page.pairs_of_segments(measured.segments)), None)
    if not question and (pair := arms or comparison_page.default_sides(measured)):
        question = {"a": pair[0], "b": pair[1]}
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
        offered=metric_page.offered(measured.periods, question.get("a"), question.get("b"), question.get("period")),
        metric=id_,
        segments=default,
        beside=comparison_page.beside(first, measured.segments) if first else [],
        alternatives=comparison_page.alternatives(measured, question.get("a", ""), question["b"]) if cannot else [],
        question=question,
        links=visitor.remembered() | question,
        level=level,
        levels=sorted({*metric_page.LEVELS, level}),
        refused=sentence(why),
        comparison=answer,
        view=answer and comparison_page.view(answer, measured.period_length),
    )


@blueprint.get("/m/<id_>/compare.csv")
def comparison_file(id_: str) -> Response:
    """Send the differences that the page of a comparison shows."""
    app = visitor.app_shown()
    only_parameters("a", "b", "period", "segment", "level", "app")
    (period, segment), sides = _cell(), (request.args.get("a", ""), request.args.get("b", ""))
    comparison = compare(published_of(app, id_), *sides, period=period, segment=segment, level=level_asked())
    return _file(app, id_, "compare", download.of_comparison(comparison))


@blueprint.get("/m/<id_>/values.csv")
def values_file(id_: str) -> Response:
    """Send the estimates that the page of a metric shows, of all values."""
    app = visitor.app_shown()
    only_parameters("period", "segment", "level", "app")
    measured = measure(published_of(app, id_), release.summaries(app.store), *_cell(), level_asked())
    return _file(app, id_, "values", download.of_values(measured))


@blueprint.get("/m/<id_>/series.csv")
def series_file(id_: str) -> Response:
    """Send a metric over time."""
    app = visitor.app_shown()
    only_parameters("segment", "level", "app")
    over_time = series(published_of(app, id_), _cell()[1], level_asked())
    return _file(app, id_, "series", download.of_series(over_time))


def _cell() -> tuple[str | None, str | None]:
    """Return the period and the segment of the request. A form sends an empty one for all."""
    return request.args.get("period") or None, request.args.get("segment") or None


def _file(app: App, id_: str, table: str, text: str) -> Response:
    response = make_response(text)
    response.mimetype = "text/csv"
    response.headers["Content-Disposition"] = f'attachment; filename="{"-".join([app.name, id_, table, *app.marks])}.csv"'
    return response


@blueprint.get("/live")
def overview() -> Response:
    """Show an admin what is counted of each metric, published or not; in pages by ``page``."""
    live.note_question()
    app = visitor.owned_app()
    only_parameters("page")
    return live_page.overview(app)


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
    text = request.form.get("key", "").strip()
    key = service().ring.find(text, "read", anew=True)
    if key is None:
        return page("login.html", 401, error=f"{why_unknown(text, 'read').capitalize()}.")
    return redirect(visitor.sign_in(key), 303)


@blueprint.post("/logout")
def leave() -> BaseResponse:
    """Close the session."""
    if visitor.from_our_form():
        visitor.sign_out()
    return redirect(url_for(".index"), 303)
