"""A plain upload, read from the bytes of its request: the form that practically all devices send.

Whatever else is valid HTTP is read by gunicorn. So there is one parser for all that is odd, and nothing is guessed at here.
"""

from __future__ import annotations

import re
import sys
from io import BytesIO
from typing import Any, NamedTuple

from deniable.wire import addresses

BEGINNING = f"POST {addresses.REPORTS} HTTP/1.1\r\n".encode()

_END = b"\r\n\r\n"
_LINES = re.compile(rb"(?:[A-Za-z][A-Za-z0-9-]*:[\t\x20-\x7e]*\r\n)+")
_LABEL = "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
_HOST = re.compile(rf"{_LABEL}(\.{_LABEL})*(:[0-9]{{1,5}})?", re.IGNORECASE)
# These headers change how a request is read or answered.
_ODD = frozenset(
    (
        "expect",
        "http2-settings",
        "origin",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "x-forwarded-protocol",
        "x-forwarded-ssl",
    )
)
_SHARED = {
    "REQUEST_METHOD": "POST",
    "SCRIPT_NAME": "",
    "PATH_INFO": addresses.REPORTS,
    "RAW_URI": addresses.REPORTS,
    "QUERY_STRING": "",
    "SERVER_PROTOCOL": "HTTP/1.1",
    "wsgi.version": (1, 0),
    "wsgi.url_scheme": "http",
    "wsgi.errors": sys.stderr,
    "wsgi.multithread": True,
    "wsgi.multiprocess": True,
    "wsgi.run_once": False,
    "wsgi.input_terminated": True,
}


class Limits(NamedTuple):
    """How large a request may be; a larger one is refused by gunicorn or by Flask."""

    body: int  # bytes
    headers: int
    header: int  # bytes of one, with its end of line


class PlainRequest(NamedTuple):
    """A complete upload."""

    # Whether it came by https is not in it: uploads do not ask.
    environ: dict[str, Any]  # as of WSGI
    keep: bool  # whether the client wants to use the connection again


def read(
    held: bytes,  # all that arrived: exactly one request
    peer: tuple[str, int] | str | bytes,  # the client's address; a text or bytes if it is a Unix socket
    server: tuple[str, int] | str,  # the server's, likewise
    limits: Limits,
) -> PlainRequest | None:
    """Read an upload. None if gunicorn must read it."""
    end = held.find(_END)
    if end < 0 or not held.startswith(BEGINNING) or not _LINES.fullmatch(held, len(BEGINNING), end + 2):
        return None
    lines = held[len(BEGINNING) : end].decode("ascii").split("\r\n")
    headers = {name.lower(): value.strip(" \t") for name, _, value in (line.partition(":") for line in lines)}
    if not len(headers) == len(lines) <= limits.headers or max(map(len, lines)) + 2 > limits.header or isinstance(peer, bytes):
        return None
    body, length, host = held[end + len(_END) :], headers.pop("content-length", ""), headers.get("host", "")
    connection = headers.get("connection", "keep-alive").lower()
    whole = length == str(len(body)) and len(body) <= limits.body
    if not whole or not _ODD.isdisjoint(headers) or connection not in ("keep-alive", "close") or not _HOST.fullmatch(host):
        return None
    # A Unix socket has no name, so the request's is used, as gunicorn does.
    name, port = (host.partition(":")[0], host.partition(":")[2] or 80) if isinstance(server, str) else server[:2]
    environ: dict[str, Any] = _SHARED | {
        "CONTENT_LENGTH": length,
        "REMOTE_ADDR": peer if isinstance(peer, str) else peer[0],
        "SERVER_NAME": name,
        "SERVER_PORT": str(port),
        "wsgi.input": BytesIO(body),
    }
    if "content-type" in headers:
        environ["CONTENT_TYPE"] = headers.pop("content-type")
    for header, value in headers.items():
        environ[f"HTTP_{header.upper().replace('-', '_')}"] = value
    return PlainRequest(environ, connection == "keep-alive")
