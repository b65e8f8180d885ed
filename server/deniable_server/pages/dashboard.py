"""The dashboard: pages of what was published, made on the server. They need no script; two have one for convenience.

* ``GET /``: the metrics of an app, each with a preview
* ``GET /m/<id>``: one metric, every value with its intervals
* ``GET /m/<id>/compare``: two periods or two segments of it
* ``GET /m/<id>/values.csv``, ``GET /m/<id>/series.csv``: its tables as files
* ``GET /live``: what is counted of each metric, published or not, for admin keys
* ``GET /m/<id>/live``: one metric, from everything that is counted, for admin keys
* ``GET, POST /login``: the form for the read key
* ``POST /logout``: the end of a session
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from flask import Blueprint, make_response, redirect, render_template, request, url_for
from msgspec.structs import asdict
from werkzeug.exceptions import HTTPException

from deniable_aggregator.answer import live as counted
from deniable_aggregator.answer.difference import compare
from deniable_aggregator.answer.measurement import latest, measure
from deniable_aggregator.answer.model.fields import LEVEL, Span
from deniable_aggregator.answer.over_time import series
from deniable_aggregator.answer.refusal import Refusal
from deniable_aggregator.process import logs
from deniable_aggregator.publish import release
from deniable_aggregator.store.errors import StoreError
from deniable_server.access.roles import why_unknown
from deniable_server.api.answers import live
from deniable_server.api.answers.parameters import find_metric, level_asked, only_parameters, published_of
from deniable_server.api.audit_trail import log_query
from deniable_server.http import paging
from deniable_server.http.problem import RETRY_SECONDS, Problem, log_failure, refused, written
from deniable_server.http.visit import visit
from deniable_server.pages import chart, compared, download, experiment, number, shown, timeline, visitor
from deniable_server.pages.headline import headline
from deniable_server.service import service

if TYPE_CHECKING:
    from datetime import date, datetime

    from flask import Response
    from werkzeug.wrappers import Response as BaseResponse

    from deniable_aggregator.answer.model.metric import Estimates
    from deniable_server.service import App

blueprint = Blueprint("dashboard", __name__)

_POLICY = (
    "default-src 'none'; style-src 'self'; img-src 'self' data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_SCRIPTED = ("index.html", "metric.html")  # they load static/pages.js
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
_ORDERS = ("estimate", "domain")
_VIEWS = ("unbiased", "consistent")
_COMPACT = 24  # rows above which they are set closer
_LEVELS = (0.9, 0.95, 0.99, 0.999)
_MOST_CARDS = 48


@blueprint.after_request
def _protect(response: Response) -> Response:
    response.headers.update(_HEADERS)
    response.headers.setdefault("Content-Security-Policy", _POLICY)
    return response


@blueprint.before_request
def _at_home() -> Response | None:
    """Refuse a page under an unknown host name: a foreign page could read it (DNS rebinding)."""
    settings = service().settings
    if not visitor.pages_are_open() or settings.answers_to(request.environ.get("HTTP_HOST", "")):
        return None
    # Not as a page, which would list the apps.
    detail = "open pages are shown under names of this machine only; DENIABLE_HOSTS may list more names of this server"
    return written(Problem(421, "unknown_host", detail))


blueprint.after_request(log_query)  # this runs first, so that its answer gets these headers, too


# Pages


@blueprint.get("/")
def index() -> Response:
    """List the metrics of an app, `_MOST_CARDS` of them on each ``page``."""
    app = visitor.app_shown()
    only_parameters("q", "type", "page", "app")
    known = release.summaries(app.store)
    sought = {name: request.args[name] for name in ("q", "type") if request.args.get(name)}
    ids = shown.found(app, sought.get("q", ""), sought.get("type", ""))
    part = paging.part(ids, _MOST_CARDS)
    return _page(
        "index.html",
        app=app,
        cards=[shown.card(app, each) for each in latest(app, part.items, known)],
        metrics=len(app.highest),
        types=shown.types(app),
        sought=sought,
        links=visitor.remembered() | sought,
        found=len(ids),
        page=part.page,
        pages=part.pages,
        total=sum(known[each.definition].n for each in app.versions.values() if each.definition in known),
    )


@blueprint.get("/m/<id_>")
def metric(id_: str) -> Response:
    """Show one metric: over everything published, or over one ``period`` or ``segment``; in an ``order`` and a ``view``."""
    app = visitor.app_shown()
    only_parameters("period", "segment", "level", "order", "view", "page", "app")
    period, segment = request.args.get("period") or None, request.args.get("segment") or None
    level = level_asked()
    published = published_of(app, id_)
    measured = measure(published, release.summaries(app.store), period, segment, level)
    course = timeline.shown(series(published, segment, level))
    arms = [] if segment else experiment.said(published, period, level)
    told = asdict(measured) | {"name": id_, "merged": shown.together(measured.merged), "arms": arms}
    return _estimates(app, measured, told, period, segment, course)


@blueprint.get("/m/<id_>/compare")
def comparison(id_: str) -> Response:
    """Compare ``a`` and ``b``: two periods, of one ``segment`` if it is named; or two segments, of one ``period`` likewise."""
    app = visitor.app_shown()
    only_parameters("a", "b", "period", "segment", "level", "app")
    asked = {name: request.args[name] for name in ("a", "b", "period", "segment") if request.args.get(name)}
    level, published = level_asked(), published_of(app, id_)
    measured = measure(published, release.summaries(app.store))
    arms = next((pair for pair in experiment.pairs(published[0]) if set(measured.segments).issuperset(pair)), None)
    if not asked and (pair := arms or compared.usual(measured)):
        asked = {"a": pair[0], "b": pair[1]}
    found, why, status = None, "", 200
    if "a" in asked and "b" in asked:
        try:
            found = compare(published, **asked, level=level)
        except Refusal as refusal:
            why, status = refusal.detail, refused(refusal).status
            logs.note(code=refusal.code)
    return _page(
        "compare.html",
        status,
        app=app,
        m=measured,
        offered=shown.offered(measured.periods, asked.get("a"), asked.get("b"), asked.get("period")),
        metric=id_,
        segments=arms or measured.segments[:2],
        asked=asked,
        level=level,
        levels=sorted({*_LEVELS, level}),
        refused=_sentence(why),
        found=found,
        shown=found and compared.shown(found, measured.period_length),
    )


@blueprint.get("/m/<id_>/values.csv")
def values_file(id_: str) -> Response:
    """Send the estimates that the page of a metric shows, of all values."""
    app = visitor.app_shown()
    only_parameters("period", "segment", "level", "app")
    period, segment = request.args.get("period") or None, request.args.get("segment") or None
    measured = measure(published_of(app, id_), release.summaries(app.store), period, segment, level_asked())
    return _file(app, id_, "values", download.of_values(measured))


@blueprint.get("/m/<id_>/series.csv")
def series_file(id_: str) -> Response:
    """Send a metric over time."""
    app = visitor.app_shown()
    only_parameters("segment", "level", "app")
    told = series(published_of(app, id_), request.args.get("segment") or None, level_asked())
    return _file(app, id_, "series", download.of_series(told))


def _file(app: App, id_: str, what: str, text: str) -> Response:
    response = make_response(text)
    response.mimetype = "text/csv"
    response.headers["Content-Disposition"] = f'attachment; filename="{app.name}-{id_}-{what}.csv"'
    return response


@blueprint.get("/live")
def overview() -> Response:
    """Show an admin what is counted of each metric, published or not; `_MOST_CARDS` of them on each ``page``."""
    live.note_question()
    app = visitor.owned_app()
    only_parameters("page")
    told = counted.overview(app)
    part = paging.part(told.metrics, _MOST_CARDS)
    waits = [app.awaited(app.versions[each.id, each.version]) for each in part.items]
    return _page("live.html", app=app, live=told, awaited=waits, metrics=part.items, page=part.page, pages=part.pages)


@blueprint.get("/m/<id_>/live")
def live_metric(id_: str) -> Response:
    """Show an admin one metric, from everything that is counted or from one ``period``; in an ``order`` and a ``view``."""
    live.note_question()
    app = visitor.owned_app()
    only_parameters("period", "order", "view", "page")
    period = request.args.get("period") or None
    measured = counted.measure(app, find_metric(app, id_), period)
    spans = [Span(each, each) for each in measured.periods]
    told = {
        "name": id_,
        "versions": [],
        "merged": None,
        "periods": spans,
        "included": spans if measured.period is None else [Span(measured.period, measured.period)],
        "segments": [],
        "segment": None,
        "warnings": [],
        "updated": None,
    }
    return _estimates(app, measured, asdict(measured) | told, period)


def _estimates(
    app: App,
    measured: Estimates,
    told: dict[str, Any],
    period: str | None,
    segment: str | None = None,
    course: timeline.Shown | None = None,
) -> Response:
    """Show the estimates of a metric."""
    order = request.args.get("order", "")
    if order not in _ORDERS:
        order = "domain" if measured.type in ("boolean", "ordinal") else "estimate"
    views = _VIEWS if measured.number is None else number.VIEWS
    view = request.args.get("view", "")
    if view not in views:
        view = views[0]
    page = paging.number()
    drawn = shown.picture(measured, order, view, page)
    paging.check(page, drawn["pages"])
    chosen = {"period": period, "segment": segment} | {name: request.args.get(name) for name in ("level", "order", "view")}
    return _page(
        "metric.html",
        app=app,
        m=told | shown.described(app, measured),
        headline=headline(measured),
        near=shown.near(app, measured.id),
        offered=shown.offered(told["periods"], *(each.last for each in told["included"] if period)),
        levels=sorted({*_LEVELS, told.get("level", LEVEL)}),
        timeline=course,
        orders=_ORDERS,
        order=order,
        views=views,
        view=view,
        chosen={name: value for name, value in chosen.items() if value},
        compact=len(measured.estimates) > _COMPACT,
        here=".live_metric" if "live" in told else ".metric",
        influence=float(app.versions[measured.id, measured.version].mechanism.influence),
        page=page,
        **drawn,
    )


# Signing in


@blueprint.get("/login")
def login() -> BaseResponse:
    """Show the form for the read key."""
    return redirect(url_for(".index"), 303) if visitor.pages_are_open() else _page("login.html")


@blueprint.post("/login")
def enter() -> BaseResponse:
    """Open a session of the app whose read key was given."""
    if not visitor.from_our_form():
        return _page("login.html", 400, error="This form was open for too long. Please enter the key again.")
    try:
        service().limits.login(visit())
    except Problem as problem:
        page = _page("login.html", problem.status, error="Too many attempts came from your address. Please wait a while.")
        page.headers["Retry-After"] = str(problem.retry_after)
        return page
    text = request.form.get("key", "").strip()
    key = service().ring.find(text, "read", anew=True)
    if key is None:
        return _page("login.html", 401, error=f"{why_unknown(text, 'read').capitalize()}.")
    return redirect(visitor.sign_in(key), 303)


@blueprint.post("/logout")
def leave() -> BaseResponse:
    """Close the session."""
    if visitor.from_our_form():
        visitor.sign_out()
    return redirect(url_for(".index"), 303)


# Failures, as pages


@blueprint.errorhandler(Problem)
def _on_problem(problem: Problem) -> Response:
    logs.note(code=problem.code)
    detail = _sentence(problem.detail)
    if problem.code == "withheld":
        instead = {"period": request.args.get("period") or None, "segment": problem.extra["instead"]}
        again = url_for(".metric", id_=(request.view_args or {}).get("id_"), **instead, **visitor.remembered())
        text = f"Show {instead['segment']}" if instead["segment"] else "Show everything published"
        return _failure(problem.status, detail, again, text)
    return _failure(problem.status, detail)


@blueprint.errorhandler(Refusal)
def _on_refusal(refusal: Refusal) -> Response:
    return _on_problem(refused(refusal))


@blueprint.errorhandler(StoreError)
def _on_store(_error: StoreError) -> Response:
    response = _failure(503, "The store cannot be reached. No report is lost. Reload this page in a moment.")
    response.headers["Retry-After"] = str(RETRY_SECONDS)
    return response


@blueprint.errorhandler(HTTPException)
def _on_http(error: HTTPException) -> Response:
    return _failure(error.code or 500, "The server does not take this request.")


@blueprint.errorhandler(Exception)
def _on_error(error: Exception) -> Response:
    log_failure(error)
    return _failure(500, "The server failed to make this page. The cause is in its log.")


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:].removesuffix('.')}." if text else ""


def _failure(status: int, text: str, again: str | None = None, again_text: str = "All metrics") -> Response:
    title = HTTPStatus(status).phrase
    return _page("failure.html", status, title=title, text=text, again=again, again_text=again_text)


# Rendering


def _page(name: str, status: int = 200, **context: Any) -> Response:
    """Render a template. Every page gets its app, or None, and what its links need."""
    is_open, known = visitor.pages_are_open(), service().apps.get(visit().app)
    shared = {
        "app": None,
        "trial": known is not None and known.trial,
        "apps": list(service().apps) if is_open else [],
        "remembered": visitor.remembered(),
        "token": None if is_open else visitor.token(),
        "signed_in": visitor.is_signed_in(),
        "owner": "app" in context and visitor.is_owner(context["app"]),
    }
    page = make_response(render_template(name, **(shared | context)), status)
    if name in _SCRIPTED:
        page.headers["Content-Security-Policy"] = f"{_POLICY}; script-src 'self'"
    return page


@blueprint.app_template_filter("span")
def _span(span: Span) -> str:
    first, last = span.first, span.last
    return last if first == last else f"{first} to {last}" if first else f"up to {last}"


@blueprint.app_template_filter("thousands")
def _thousands(number: float) -> str:
    return chart.count(number)


@blueprint.app_template_filter("hour")
def _hour(moment: datetime) -> str:
    return f"{moment.day} {moment:%b %Y}, in the hour from {moment:%H:%M} UTC"


@blueprint.app_template_filter("day")
def _day(day: date) -> str:
    return f"{day.day} {day:%b %Y}"
