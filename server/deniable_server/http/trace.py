"""A number for each request: in its answer, in its problem details, and in every log record about it.

A number from the client is ignored: it could link this log to what is known about the client elsewhere.
"""

from __future__ import annotations

import logging
from time import perf_counter
from typing import TYPE_CHECKING
from uuid import uuid4

from flask import Flask, Response, g, request

from deniable_aggregator.process import logs

if TYPE_CHECKING:
    from werkzeug.routing import Rule

__all__ = ["HEADER", "METHODS", "instance", "register"]

log = logging.getLogger("deniable.request")

HEADER = "X-Request-ID"
METHODS = frozenset({"GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"})
"""Methods that are logged by name; any other is arbitrary text from a client."""


def instance() -> str | None:
    """Return the URI of the current request for problem details, or None outside of a request."""
    number = logs.current().get("request")
    return f"urn:uuid:{number}" if number else None


def register(app: Flask) -> None:
    """Give each request its number and note when it began, before anything else is done with it.

    The moment is for the histogram of all requests. No line of a log has it.
    """

    @app.before_request
    def begin() -> None:
        rule: Rule | None = request.url_rule
        logs.begin(request=str(uuid4()), route=rule.rule if rule else None)
        g.began = perf_counter()

    @app.after_request
    def tell(answer: Response) -> Response:
        answer.headers[HEADER] = logs.current()["request"]
        if log.isEnabledFor(logging.INFO):
            method = request.method if request.method in METHODS else None
            log.info("answered", extra={"method": method, "status": answer.status_code})
        return answer

    @app.teardown_request
    def end(_error: BaseException | None) -> None:
        logs.end()
