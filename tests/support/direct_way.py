"""An app as devices meet it: good uploads are answered at the door, all else by Flask."""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from flask import Flask


def directly(flask: Flask) -> Callable[[dict[str, Any], Any], Iterable[bytes]]:
    """Return an app by WSGI that answers uploads as our worker of gunicorn does."""

    def app(environ: dict[str, Any], start: Any) -> Iterable[bytes]:
        if (environ["REQUEST_METHOD"], environ["PATH_INFO"]) == ("POST", "/v1/reports"):
            environ["wsgi.input"] = BytesIO(environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0)))
            (answer,) = flask.extensions["deniable.door"].answer([environ])
            if answer:
                start(answer.status, answer.headers)
                return [answer.body]
        return flask(environ, start)

    return app
