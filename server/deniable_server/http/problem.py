"""Errors as RFC 9457 problem details, with stable codes and without texts of exceptions."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from flask import Flask, Response, current_app, json, request
from werkzeug.exceptions import HTTPException

from deniable.upload_rules import REFUSAL_TYPE, Refused
from deniable.wire import addresses
from deniable_aggregator.answer.refusal import Refusal, WithheldCell
from deniable_aggregator.process import logs
from deniable_aggregator.store.errors import StoreError, unusable
from deniable_server.http import trace
from deniable_server.http.visit import visit

if TYPE_CHECKING:
    from deniable_aggregator.store.outage import Outage

RETRY_SECONDS = 5
ROUTE_SECONDS = 60
"""Seconds after which devices try again, where somebody has to correct a proxy or to start the server again."""


class Problem(Refused):
    """An answer about an error."""

    def __init__(
        self,
        status: int,  # HTTP status
        code: str,  # stable code for programs, e.g. "unknown_key"
        detail: str,  # the rule, what broke it, and what to do, in words
        *,
        retry_after: int | None = None,  # seconds after which to try again
        **extra: Any,  # further members of the answer
    ) -> None:
        super().__init__(status, code, detail, **extra)
        self.retry_after = retry_after


def refused(refusal: Refusal) -> Problem:
    """Return the HTTP error for a question that is refused."""
    if isinstance(refusal, WithheldCell):
        return Problem(403, refusal.code, refusal.detail, instead=refusal.instead)
    return Problem(400, refusal.code, refusal.detail)


def written(problem: Refused) -> Response:
    """Write a refusal as application/problem+json."""
    visit().problem = problem.code
    logs.note(code=problem.code)
    answer = Response(json.dumps(problem.document(trace.instance())), problem.status, mimetype=REFUSAL_TYPE)
    if isinstance(problem, Problem) and problem.retry_after is not None:
        answer.headers["Retry-After"] = str(problem.retry_after)
    return answer


_CODES = {
    404: ("not_found", "there is nothing at this address"),
    405: ("method_not_allowed", "this address does not take this method"),
    411: ("length_required", "an upload says its length in Content-Length"),
    413: ("body_too_large", "the upload is larger than this server takes"),
}


def log_failure(error: Exception) -> None:
    """Log a bug: its type, the route and the places in the code. Its message is left out, because it may quote a client."""
    route = request.url_rule or "an unknown route"
    current_app.logger.error("%s in %s: %s", type(error).__name__, route, logs.places(error.__traceback__))


def of_http(error: HTTPException, serves: str) -> Response:
    """Write an error of HTTP as a problem."""
    status = error.code or 500
    if status == HTTPStatus.NOT_FOUND and serves == "query" and request.path in (addresses.REPORTS, addresses.REGISTRY):
        detail = "this server answers queries only; send uploads to the one with DENIABLE_SERVES=ingest"
        return written(Problem(503, "serves_query", detail, retry_after=ROUTE_SECONDS))  # devices keep their reports
    code, detail = _CODES.get(status, (f"http_{status}", HTTPStatus(status).phrase))
    if status == HTTPStatus.NOT_FOUND and serves == "ingest":
        code = "serves_ingest"
        detail = f"{detail}; this server takes uploads only: ask the one with DENIABLE_SERVES=query"
    answer = written(Problem(status, code, detail))
    for name, value in error.get_headers():
        if name == "Allow":  # with 405; its other headers describe werkzeug's page, which is not sent
            answer.headers[name] = value
    return answer


def register(
    app: Flask,  # the server
    outage: Outage,  # says why the store cannot be used
    serves: str,  # the setting
) -> None:
    """Turn every error of the app into a problem."""
    app.register_error_handler(Refused, written)

    @app.errorhandler(Refusal)
    def on_refusal(refusal: Refusal) -> Response:
        return written(refused(refusal))

    @app.errorhandler(HTTPException)
    def on_http(error: HTTPException) -> Response:
        return of_http(error, serves)

    @app.errorhandler(StoreError)
    def on_store(error: StoreError) -> Response:
        outage.failed("", error)
        detail = f"{unusable(error)}; try again later"
        return written(Problem(503, "store_unavailable", detail, retry_after=RETRY_SECONDS))

    @app.errorhandler(Exception)
    def on_error(error: Exception) -> Response:
        log_failure(error)
        sends = request.path == addresses.REPORTS
        remedy = "the upload was not counted unless it was accepted" if sends else "its log has the error; ask again later"
        return written(Problem(500, "internal", f"the server failed; {remedy}"))
