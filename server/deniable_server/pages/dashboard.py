"""Dashboard: what was published, for people. Pages are made here, and need no script.

``GET /``            the metrics of an app, each with a preview
``GET /m/<id>``      one metric: every value with its intervals
``GET /live``        what is counted of each metric, published or not: for who signed in with an admin key, as is
``GET /m/<id>/live`` one metric, from all that is counted
``GET, POST /login`` and ``POST /logout``, where pages ask for the read key
"""

from __future__ import annotations

from datetime import UTC, date, datetime
from hmac import compare_digest
from http import HTTPStatus
from math import ceil, exp, isnan
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Any, NoReturn

import redis
from flask import Blueprint, abort, g, make_response, redirect, render_template, request, session, url_for
from msgspec.structs import asdict
from werkzeug.exceptions import HTTPException

from deniable_aggregator.alarms.checks import influence
from deniable_aggregator.measure import live as counted
from deniable_aggregator.measure.measurement import Span
from deniable_aggregator.measure.published import latest
from deniable_aggregator.measure.refusal import awaited
from deniable_aggregator.process import logs
from deniable_aggregator.publish import release
from deniable_server.api import live
from deniable_server.api.audit_trail import kept
from deniable_server.api.auth import admin_only
from deniable_server.api.query import declared, measure, only_parameters, refusals
from deniable_server.http.problem import RETRY_SECONDS, Problem, log_failure
from deniable_server.pages import chart
from deniable_server.service import service

if TYPE_CHECKING:
    from flask import Response
    from werkzeug.wrappers import Response as BaseResponse

    from deniable_aggregator.measure.measurement import Estimates, Latest, Merged, ValueEstimate
    from deniable_server.service import App

__all__ = ["blueprint"]

blueprint = Blueprint("dashboard", __name__)

_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; img-src 'self' data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
_ORDERS = ("estimate", "domain")
_MOST_ROWS = 500  # a domain may have 65,536 values; a page of them all is there for who asks
_UNDETECTED_ROWS = 10
_COMPACT = 24  # rows beyond which they are set closer
_PREVIEW_ROWS = 4
_MOST_CARDS = 48
_PREVIEW_COLUMNS = 64


@blueprint.after_request
def _protect(response: Response) -> Response:
    response.headers.update(_HEADERS)
    return response


@blueprint.before_request
def _at_home() -> Response | None:
    """Refuse a page that is asked for under a name of somebody else's: a page of theirs could read it (DNS rebinding)."""
    settings = service().settings
    if not _open() or settings.answers_to(request.environ.get("HTTP_HOST", "")):
        return None
    # Not as a page, which would tell of the apps.
    detail = "open pages are shown under names of this machine; DENIABLE_HOSTS names others that are this server's"
    return Problem(421, "unknown_host", detail).response()


blueprint.after_request(kept)  # which runs first: what it says instead is protected, too


# Pages


@blueprint.get("/")
def index() -> Response:
    """List the metrics of an app, `_MOST_CARDS` of them on each ``page``."""
    app = _app()
    only_parameters("page", "app")
    known = release.summaries(app.store)
    number, ids = request.args.get("page", "1"), list(app.highest)
    pages = max(1, ceil(len(ids) / _MOST_CARDS))
    if number not in map(str, range(1, pages + 1)):
        raise Problem(404, "unknown_page", f"There are {pages} pages of metrics.")
    begin = _MOST_CARDS * (int(number) - 1)
    return _page(
        "index.html",
        app=app,
        cards=[_card(app, each) for each in latest(app, ids[begin : begin + _MOST_CARDS], known)],
        metrics=len(ids),
        page=int(number),
        pages=pages,
        total=sum(known[each.definition].n for each in app.versions.values() if each.definition in known),
    )


@blueprint.get("/m/<id_>")
def metric(id_: str) -> Response:
    """Show one metric: over everything published, or over one ``period`` or ``segment``; in the ``order`` asked for."""
    app = _app()
    only_parameters("period", "segment", "order", "rows", "app")
    period, segment = request.args.get("period") or None, request.args.get("segment") or None
    measured = measure(app, id_, period, segment)
    return _estimates(app, measured, asdict(measured) | {"name": id_, "merged": _together(measured.merged)}, period, segment)


@blueprint.get("/live")
def overview() -> Response:
    """Show what is counted of each metric, published or not, to an admin."""
    live.asked()
    app = _owned()
    only_parameters()
    shown = counted.overview(app)
    return _page(
        "live.html", app=app, live=shown, awaited=[awaited(app, app.versions[each.id, each.version]) for each in shown.metrics]
    )


@blueprint.get("/m/<id_>/live")
def live_metric(id_: str) -> Response:
    """Show one metric, from all that is counted or one ``period`` of it, to an admin; in the ``order`` asked for."""
    live.asked()
    app = _owned()
    only_parameters("period", "order", "rows")
    period = request.args.get("period") or None
    with refusals():
        measured = counted.measure(app, declared(app, id_), period)
    spans = [Span(each, each) for each in measured.periods]
    shown = {
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
    return _estimates(app, measured, asdict(measured) | shown, period)


def _estimates(app: App, measured: Estimates, shown: dict[str, Any], period: str | None, segment: str | None = None) -> Response:
    """Draw what was estimated of a metric."""
    order = request.args.get("order", "")
    if order not in _ORDERS:
        order = "domain" if measured.type in ("boolean", "ordinal") else "estimate"
    chosen = {"period": period, "segment": segment, "order": request.args.get("order")}
    return _page(
        "metric.html",
        app=app,
        m=shown | _described(app, measured),
        orders=_ORDERS,
        order=order,
        chosen={name: value for name, value in chosen.items() if value},
        compact=len(measured.estimates) > _COMPACT,
        here=".live_metric" if "live" in shown else ".metric",
        influence=influence(app.versions[measured.id, measured.version].mechanism),
        **_picture(measured, order),
    )


def _together(merged: Merged | None) -> dict[str, Any] | None:
    """Draw what versions say together."""
    if merged is None:
        return None
    rows = chart.order(merged.estimates, by_estimate=True)[:_MOST_ROWS]
    return asdict(merged) | {"chart": chart.chart(rows, over=merged.estimates)}


def _picture(measured: Estimates, order: str) -> dict[str, Any]:
    """Draw every value, or the first `_MOST_ROWS` of very many."""
    estimated = _estimated(measured)
    if not estimated:
        return {"chart": None, "left_out": 0}
    rows = chart.order(estimated, by_estimate=order == "estimate")
    most = _MOST_ROWS
    if measured.domain_size is None and order == "estimate":  # of ten thousand candidates few are worth a look
        most = min(most, sum(row.detected for row in rows) + _UNDETECTED_ROWS)
    shown = rows if request.args.get("rows") == "all" else rows[:most]
    return {"chart": chart.chart(shown, over=rows), "left_out": len(rows) - len(shown)}


def _estimated(measured: Estimates) -> list[ValueEstimate]:
    """Return the values of which something is known: none without reports, nor candidates that share their hashes."""
    return [row for row in measured.estimates if not isnan(row.frequency)]


def _card(app: App, measured: Latest) -> dict[str, Any]:
    """Describe a metric for the list, with its largest values, or with all of them where they are in order."""
    card = asdict(measured) | _described(app, measured) | {"rows": (), "columns": (), "peak": None}
    rows = _estimated(measured)
    if not rows:
        return card
    ranked = chart.order(rows, by_estimate=True)
    if measured.type == "ordinal" and _PREVIEW_ROWS < len(rows) <= _PREVIEW_COLUMNS:
        return card | {"columns": chart.columns(rows), "peak": chart.chart(ranked[:1], over=rows).rows[0]}
    top = rows if measured.type == "boolean" else ranked[:_PREVIEW_ROWS]
    return card | {"rows": chart.chart(top).rows}


def _described(app: App, measured: Estimates) -> dict[str, Any]:
    """Say in words what the pages say of a metric."""
    found = app.versions[measured.id, measured.version]
    size, limit, rest = len(measured.estimates), measured.detection_frequency, measured.unallocated
    # Rounded up: "at most" must stay true of the number that is shown.
    odds = ceil(100 * exp(measured.epsilon) - 1e-6) / 100
    return {
        "labels": [row.label for row in measured.estimates],
        "size": size,
        "what": f"{chart.count(size)} {'candidate' if measured.candidates else 'value'}{'s' if size != 1 else ''}",
        "detected": sum(row.detected for row in measured.estimates),
        "limit": None if isnan(limit) else chart.share(limit, limit),
        "rest": None if isnan(rest.frequency) else chart.share(rest.frequency, rest.stderr),
        "odds": f"{odds:,.2f}",
        "kept": found.metric.kept,
        "expired": found.metric.expired(datetime.now(UTC).date()),
        "awaited": awaited(app, found),
    }


# Access


def _app() -> App:
    """Return the app to show: the one asked for where pages are open, else the one whose key was given."""
    apps = service().apps
    if _open():
        name = request.args.get("app") or next(iter(apps))
        if name not in apps:
            raise Problem(404, "unknown_app", "No app of this name is counted here.")
        g.app, g.actor = name, "open"
        return apps[name]
    name = session.get("app", "")
    key = service().sessions.key(name, session.get("number", "")) if name in apps else None
    if key is None or not service().ring.holds(name, key, "read"):  # it was revoked since
        _sign_in()
    g.app, g.actor, g.holder = name, f"key:{key}", key
    return apps[name]


def _owned() -> App:
    """Return the app to show to who signed in with its admin key."""
    app = _app()
    if not _is_owner(app):
        raise admin_only()
    return app


def _is_owner(app: App) -> bool:
    return not _open() and service().ring.holds(app.name, g.get("holder", ""), "admin")


def _open() -> bool:
    return service().settings.dashboard == "open"


def _sign_in() -> NoReturn:
    """Leave for the form, and remember the page to come back to."""
    session.pop("app", None)
    session["wanted"] = request.full_path.rstrip("?")
    abort(redirect(url_for(".login"), 303))


@blueprint.get("/login")
def login() -> BaseResponse:
    """Ask for the read key."""
    return redirect(url_for(".index"), 303) if _open() else _page("login.html")


@blueprint.post("/login")
def enter() -> BaseResponse:
    """Open the session of the app whose read key was given."""
    if not _from_our_form():
        return _page("login.html", 400, error="This form was open for too long. Please enter the key again.")
    try:
        service().limits.login()
    except Problem as problem:
        page = _page("login.html", problem.status, error="Too many attempts came from your address. Please wait a while.")
        page.headers["Retry-After"] = str(problem.retry_after)
        return page
    key = service().ring.find(request.form.get("key", "").strip(), "read", anew=True)
    if key is None:
        return _page("login.html", 401, error="This read key is not known here. Check for a typo, and that it was not revoked.")
    wanted = session.get("wanted") or url_for(".index")
    _close()
    session.update(app=key.app, number=service().sessions.open(key.app, key.id))
    service().ring.note(key)
    return redirect(wanted, 303)


@blueprint.post("/logout")
def leave() -> BaseResponse:
    """Close the session."""
    if _from_our_form():
        _close()
    return redirect(url_for(".index"), 303)


def _close() -> None:
    """End the session where it is kept; a copy of the cookie opens nothing from now on."""
    if session.get("app") in service().apps:
        service().sessions.close(session["app"], session.get("number", ""))
    session.clear()


def _token() -> str:
    """Return the session's secret, which our own forms carry and nobody else's can."""
    if "token" not in session:
        session["token"] = token_urlsafe(24)
    return str(session["token"])


def _from_our_form() -> bool:
    return "token" in session and compare_digest(request.form.get("token", "").encode(), _token().encode())


# Failures, as pages


@blueprint.errorhandler(Problem)
def _on_problem(problem: Problem) -> Response:
    logs.note(code=problem.code)
    detail = f"{problem.detail[:1].upper()}{problem.detail[1:].removesuffix('.')}."
    if problem.code in ("nothing_published", "withheld"):
        instead: dict[str, Any] = {}
        if problem.code == "withheld":
            instead = {"period": request.args.get("period") or None, "segment": problem.extra["instead"]}
        again = url_for(".metric", id_=(request.view_args or {}).get("id_"), **instead, **_remembered())
        text = f"Show {instead['segment']}" if instead.get("segment") else "Show everything published"
        return _failure(problem.status, detail, again, text)
    return _failure(problem.status, detail)


@blueprint.errorhandler(redis.RedisError)
def _on_store(_error: redis.RedisError) -> Response:
    response = _failure(503, "The store cannot be reached. No report is lost by waiting: reload this page in a moment.")
    response.headers["Retry-After"] = str(RETRY_SECONDS)
    return response


@blueprint.errorhandler(HTTPException)
def _on_http(error: HTTPException) -> Response:
    return _failure(error.code or 500, "The server does not take this request.")


@blueprint.errorhandler(Exception)
def _on_error(error: Exception) -> Response:
    log_failure(error)
    return _failure(500, "The server failed to make this page. Its log says where.")


def _failure(status: int, text: str, again: str | None = None, again_text: str = "All metrics") -> Response:
    title = HTTPStatus(status).phrase
    return _page("failure.html", status, title=title, text=text, again=again, again_text=again_text)


# Rendering


def _page(name: str, status: int = 200, **context: Any) -> Response:
    """Render a template; every page knows the app it is about, or None, and how to link to another."""
    is_open, known = _open(), service().apps.get(g.get("app", ""))
    shared = {
        "app": None,
        "trial": known is not None and known.trial,
        "apps": list(service().apps) if is_open else [],
        "remembered": _remembered(),
        "token": None if is_open else _token(),
        "signed_in": not is_open and "app" in session,
        "owner": "app" in context and _is_owner(context["app"]),
    }
    return make_response(render_template(name, **(shared | context)), status)


def _remembered() -> dict[str, Any]:
    """Return what links repeat: the app, where pages are open and there are several."""
    several = _open() and len(service().apps) > 1
    return {"app": request.args["app"]} if several and request.args.get("app") in service().apps else {}


@blueprint.app_template_filter("span")
def _span(span: Span) -> str:
    first, last = span.first, span.last
    return last if first == last else f"{first} to {last}" if first else f"up to {last}"


@blueprint.app_template_filter("thousands")
def _thousands(number: float) -> str:
    return chart.count(number)


@blueprint.app_template_filter("moment")
def _moment(moment: datetime) -> str:
    return f"{moment.day} {moment:%b %Y, %H:%M} UTC"


@blueprint.app_template_filter("day")
def _day(day: date) -> str:
    return f"{day.day} {day:%b %Y}"
