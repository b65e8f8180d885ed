"""A number for each request: in its answer, in its problem details, and in every log record about it.

A number from the client is ignored: it could link this log to what is known about the client elsewhere.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from flask import Flask, Response, g, request

from deniable_aggregator.process import logs
from deniable_server.http.visit import Visit, visit

if TYPE_CHECKING:
    from werkzeug.routing import Rule

log = logging.getLogger("deniable.request")

HEADER = "X-Request-ID"
METHODS = frozenset({"GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"})
"""Methods that are logged by name; any other is arbitrary text from a client."""


def instance() -> str | None:
    """Return the URI of the current request for problem details, or None outside of a request."""
    number = logs.current().get("request")
    return f"urn:uuid:{number}" if number else None


def log_answer(method: str, status: int) -> None:
    """Log that the current request is answered."""
    if log.isEnabledFor(logging.INFO):
        log.info("answered", extra={"method": method if method in METHODS else None, "status": status})


def register(app: Flask) -> None:
    """Begin a visit for each request, before anything else is done with it."""

    @app.before_request
    def begin() -> None:
        rule: Rule | None = request.url_rule
        g.visit = Visit.of(request.environ)
        logs.begin(request=visit().number, route=rule.rule if rule else None)

    @app.after_request
    def tell(answer: Response) -> Response:
        answer.headers[HEADER] = visit().number
        log_answer(request.method, answer.status_code)
        return answer

    @app.teardown_request
    def end(_error: BaseException | None) -> None:
        logs.end()
