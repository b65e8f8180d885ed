"""``GET /sdk/deniable.js``: the SDK for web pages, as one script that needs no other file.

It is built from client/typescript by `just scripts`. A test compares it with what is built anew.
"""

from __future__ import annotations

from base64 import b64encode
from functools import cache
from hashlib import sha384
from importlib.resources import files

from flask import Blueprint, Response, request

from deniable.wire import addresses

blueprint = Blueprint("script", __name__)

_CACHED = "public, max-age=3600"  # seconds


@cache
def content() -> bytes:
    """Read the script, as UTF-8."""
    return files("deniable_server").joinpath("web", "deniable.js").read_bytes()


@cache
def integrity() -> str:
    """Return the digest that a page names, so that its browser runs this script and no other.

    References
    ----------
    W3C, Subresource Integrity.
    """
    return f"sha384-{b64encode(sha384(content()).digest()).decode('ascii')}"


def tag(
    server: str,  # such as https://telemetry.example.org
) -> str:
    """Write the line that loads the script into a page."""
    return f'<script src="{server}{addresses.SCRIPT}" integrity="{integrity()}" crossorigin="anonymous"></script>'


@blueprint.get(addresses.SCRIPT)
def script() -> Response:
    """Send the script; pages of any origin that may send reports can load it."""
    answer = Response(content(), mimetype="text/javascript")
    answer.headers["Cache-Control"] = _CACHED
    answer.headers["Cross-Origin-Resource-Policy"] = "cross-origin"  # also for pages that are isolated
    answer.set_etag(integrity())
    answer.make_conditional(request)
    return answer
