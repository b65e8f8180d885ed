"""Checks of every request before it is handled, and headers of every answer.

Browsers on a page of another origin may send reports, and read the registry and the script (CORS, `Settings.cors_origins`).
Nothing else is allowed for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flask import Flask, Response, request
from werkzeug.wsgi import get_content_length

from deniable.wire.headers import NO_PAGE, SHARED, cross_origin
from deniable_server.http.problem import Problem
from deniable_server.http.trace import HEADER

if TYPE_CHECKING:
    from deniable_server.settings import Settings


def headers(settings: Settings) -> list[tuple[str, str]]:
    """Return what `register` adds to an answer to a plain upload, which comes from no web page."""
    return [*NO_PAGE.items(), *([] if "*" in settings.origins else [("Vary", "Origin")])]


def register(
    app: Flask,  # the server
    settings: Settings,  # the allowed origins, and the largest body
) -> None:
    """Register the checks and headers."""
    app.url_map.merge_slashes = False  # an address is written in one way; other ways are not found
    origins = settings.origins
    any_origin = "*" in origins

    @app.before_request
    def measure() -> None:
        # No view may wait for a body of unknown or unlimited length, because a slow client would hold a thread.
        environ = request.environ  # looking up a missing header is faster here
        if "HTTP_TRANSFER_ENCODING" in environ:
            raise Problem(411, "length_required", "a request with a body says its length in Content-Length")
        if (get_content_length(environ) or 0) > settings.max_body_bytes:
            detail = f"an upload has at most {settings.max_body_bytes} bytes; send smaller batches"
            raise Problem(413, "body_too_large", detail)
        if environ.get("QUERY_STRING"):
            _refuse_repeated()

    @app.after_request
    def protect(answer: Response) -> Response:
        _fill(answer)
        shared = SHARED.get(request.path)
        if shared is None:
            return answer
        origin = request.environ.get("HTTP_ORIGIN")
        if not any_origin:
            answer.vary.add("Origin")
        if origin is None or not (any_origin or origin in origins):
            return answer
        answer.headers.extend(cross_origin(shared, request.method, "*" if any_origin else origin, HEADER))
        return answer


def _refuse_repeated() -> None:
    """Refuse a parameter with two values, because one would be ignored."""
    repeated = sorted(name for name, values in request.args.lists() if len(values) > 1)
    if repeated:
        raise Problem(400, "repeated_parameter", f"a parameter is given once; more than once came {', '.join(repeated)}")


def _fill(answer: Response) -> None:
    """Add the missing headers."""
    present = {name.lower() for name, _ in answer.headers}
    for name, value in NO_PAGE.items():
        if name.lower() not in present:
            answer.headers.add(name, value)
