"""What all pages have in common: headers, the frame around a page, filters of templates, and failures as pages."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from flask import Blueprint, current_app, g, make_response, render_template, request, url_for
from markupsafe import Markup, escape
from werkzeug.datastructures import ImmutableMultiDict
from werkzeug.exceptions import HTTPException

from deniable.messages.plural import plural, plural_noun
from deniable.wire.headers import EVERYWHERE
from deniable_aggregator.answer import figures
from deniable_aggregator.answer.refusal import Refusal, WithheldCell
from deniable_aggregator.process import logs
from deniable_aggregator.store.errors import CommandForbidden, StoreError, unusable
from deniable_server.agreement import Agreement
from deniable_server.api.audit_trail import log_query
from deniable_server.http.problem import RETRY_SECONDS, Problem, log_failure, of_http, refused, written
from deniable_server.http.visit import visit
from deniable_server.pages import visitor
from deniable_server.pages.parts import theme
from deniable_server.service import service

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import date, datetime

    from flask import Response

    from deniable_aggregator.answer.model.fields import Span
    from deniable_server.service import App

blueprint = Blueprint("dashboard", __name__)

_POLICY = (
    "default-src 'none'; style-src 'self'; img-src 'self' data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_OF_PROGRAMS = ("/api/", "/v1/")
_SCRIPTED = ("index.html", "metric.html")  # they load static/pages.js


@blueprint.after_request
def _protect(response: Response) -> Response:
    response.headers.update(EVERYWHERE)
    response.headers.setdefault("Content-Security-Policy", _POLICY)
    return response


# Flask runs the function registered last first. So what the audit trail answers, if it cannot be written, gets these headers too.
blueprint.after_request(log_query)


@blueprint.before_request
def _at_home() -> Response | None:
    """Refuse a page under an unknown host name: a foreign page could read it (DNS rebinding)."""
    settings = service().settings
    if not visitor.pages_are_open() or settings.answers_to(request.environ.get("HTTP_HOST", "")):
        return None
    # Not as a page, which would list the apps.
    detail = "open pages are shown under names of this machine only; DENIABLE_HOSTS may list more names of this server"
    return written(Problem(421, "unknown_host", detail))


def page(template: str, status: int = 200, **context: Any) -> Response:
    """Render a template. Every page gets its app, or None, and what its links need."""
    is_open, app = visitor.pages_are_open(), service().apps.get(visit().app)
    shared = {
        "app": None,
        "trial": app is not None and app.trial,
        "simulated": context["app"].store.simulated if context.get("app") else "",
        "apps": list(service().apps) if is_open else [],
        "off": list(service().off) if is_open else [],
        "remembered": visitor.remembered(),
        "token": None if is_open else visitor.token(),
        "signed_in": visitor.is_signed_in(),
        "owner": "app" in context and visitor.is_owner(context["app"]),
        "theme": theme.chosen(),
        "themes": theme.THEMES,
        "back": request.full_path.rstrip("?"),
        "fault": g.get("fault", ""),
        "typed": typed(),
    }
    response = make_response(render_template(template, **(shared | context)), status)
    if template in _SCRIPTED:
        response.headers["Content-Security-Policy"] = f"{_POLICY}; script-src 'self'"
    return response


def doubt(app: App) -> str:
    """Say which processes have loaded another registry than the file; empty if none."""
    try:
        return Agreement.of(app.store, app.source).doubt
    except CommandForbidden:
        return ""


def sentence(text: str) -> str:
    """Write the detail of a refusal as a sentence. The name of a metric or a parameter stays as it is."""
    ends = not text or text.endswith((".", "?"))
    id_ = str((request.view_args or {}).get("id_", "")).partition("@")[0]
    is_name = bool(id_) and text.startswith(f"{id_} ")
    is_name |= any(text.startswith((f"{name} is ", f"{name}: ", f"{name}, ")) for name in request.args if name)
    return f"{text if is_name else figures.beginning(text)}{'' if ends else '.'}"


# Filters of templates


@blueprint.app_template_filter("span")
def _span(span: Span, length: str) -> str:
    first, last = span.first, span.last
    if first and first != last:
        return figures.brief_range(first, last, length)
    return f"{'' if first else 'up to '}{figures.brief(last, length)}"


@blueprint.app_template_filter("minute")
def _minute(moment: datetime) -> str:
    return f"{moment.day} {moment:%b, %H:%M} UTC"


@blueprint.app_template_filter("day")
def _day(day: date) -> str:
    return f"{day.day} {day:%b %Y}"


@blueprint.app_template_filter("headline")
def _headline(text: str) -> Markup:
    """Write a first sentence as a headline: without a full stop, and with the interval at its end set apart."""
    says, joint, interval = text.removesuffix(".").rpartition(" (")
    if not joint or not interval.endswith(")"):
        return escape(text.removesuffix("."))
    return Markup("{} <span>({}</span>").format(says, interval)


@blueprint.app_template_filter("code")
def _code(text: str) -> Markup:
    """Set what stands between backquotes as code."""
    parts = [escape(part) for part in text.split("`")]
    return Markup().join(Markup("<code>{}</code>").format(part) if place % 2 else part for place, part in enumerate(parts))


blueprint.add_app_template_filter(figures.count, "thousands")
blueprint.add_app_template_filter(plural, "plural")
blueprint.add_app_template_filter(plural_noun, "plural_noun")
blueprint.add_app_template_filter(figures.segment, "segment")
blueprint.add_app_template_filter(figures.group, "group")
blueprint.add_app_template_filter(figures.brief, "period")
blueprint.add_app_template_filter(figures.hour, "hour")
blueprint.add_app_template_filter(figures.interval, "interval")
blueprint.add_app_template_filter(figures.chance, "chance")
blueprint.add_app_template_filter(figures.beginning, "beginning")


@blueprint.app_template_filter("counted")
def _counted(number: int, noun: str) -> Markup:
    """Write a number in bold, with its noun."""
    count, _, word = plural(number, noun).partition(" ")
    return Markup("<b>{}</b> {}").format(count, word)


# Forms that were filled in wrongly

_FIELDS = {
    "date_range": ("from", "to", "range", "period"),
    "period": ("period",),
    "segment": ("segment",),
    "level": ("level",),
    "by": ("by",),
    "value": ("value", "base", "above", "at_most"),
    "incomparable": ("segment", "value"),
}
"""The fields of a form that a refusal is about, by its code."""


def typed() -> Mapping[str, str]:
    """Return what was typed into the forms of a page; nothing unless it was refused."""
    fields: Mapping[str, str] = g.get("typed", {})
    return fields


def _once_more(problem: Problem) -> Response | None:
    """Show the page that a form was on, with what was typed and what to do; None if the fault is not in a form."""
    faulty = [name for name in _FIELDS.get(problem.code, ()) if request.args.get(name)]
    if problem.status != HTTPStatus.BAD_REQUEST or not faulty or str(request.endpoint).endswith("_file"):
        return None
    g.typed = typed() or request.args.to_dict()
    g.fault = " ".join(dict.fromkeys(filter(None, (g.get("fault"), sentence(problem.detail)))))
    others = [(name, value) for name, value in request.args.items(multi=True) if name not in faulty]
    request.args = ImmutableMultiDict(others)
    try:
        response = make_response(current_app.view_functions[str(request.endpoint)](**(request.view_args or {})))
    except (Problem, Refusal) as other:  # another field is wrong as well
        return _on_problem(other if isinstance(other, Problem) else refused(other))
    response.status_code = problem.status
    return response


# Failures, as pages


@blueprint.errorhandler(Problem)
def _on_problem(problem: Problem) -> Response:
    logs.note(code=problem.code)
    if form := _once_more(problem):
        return form
    detail = sentence(problem.detail)
    if problem.code == "other_app":
        return _failure(problem.status, detail, again_text="Show the app that you are signed in to")
    if problem.code in ("period", "segment") and (request.view_args or {}).get("id_"):
        again = url_for(".metric", id_=(request.view_args or {}).get("id_"), **visitor.remembered())
        return _failure(problem.status, detail, again, "Show everything published")
    return _failure(problem.status, detail)


@blueprint.errorhandler(Refusal)
def _on_refusal(refusal: Refusal) -> Response:
    return _on_problem(refused(refusal))


@blueprint.errorhandler(WithheldCell)
def _on_withheld(refusal: WithheldCell) -> Response:
    logs.note(code=refusal.code)
    id_, period = (request.view_args or {}).get("id_"), request.args.get("period") or None
    again = url_for(".metric", id_=id_, period=period, segment=refusal.instead, **visitor.remembered())
    text = f"Show {figures.group(refusal.instead)}" if refusal.instead else "Show everything published"
    words = f"{sentence(refusal.on_page)} It may have few reports or none."
    return _failure(refused(refusal).status, words, again, text, title="Withheld")


@blueprint.errorhandler(StoreError)
def _on_store(error: StoreError) -> Response:
    service().outage.failed("", error)
    response = _failure(503, f"{sentence(unusable(error))} No report is lost. Reload this page in a moment.")
    response.headers["Retry-After"] = str(RETRY_SECONDS)
    return response


@blueprint.errorhandler(HTTPException)
def _on_http(error: HTTPException) -> Response:
    return _failure(error.code or 500, "The server does not take this request.")


@blueprint.app_errorhandler(404)
def _on_no_address(error: HTTPException) -> Response:
    """Show a browser a page; answer programs, and all requests to the APIs, with a problem."""
    accepted = request.accept_mimetypes
    if request.path.startswith(_OF_PROGRAMS) or accepted.quality("text/html") <= accepted.quality("application/json"):
        return of_http(error, service().settings.serves)
    # No blueprint has this address, so what it does for its pages is done here.
    return _protect(_at_home() or _failure(HTTPStatus.NOT_FOUND, "There is no page at this address."))


@blueprint.errorhandler(Exception)
def _on_error(error: Exception) -> Response:
    log_failure(error)
    return _failure(500, "The server failed to make this page. The cause is in its log.")


def _failure(status: int, text: str, again: str | None = None, again_text: str = "All metrics", *, title: str = "") -> Response:
    return page("failure.html", status, title=title or HTTPStatus(status).phrase, text=text, again=again, again_text=again_text)
