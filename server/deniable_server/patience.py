"""The gunicorn worker: threads answer, and none of them ever waits for a client.

gunicorn's own threaded worker hands a connection to a thread with its first byte, and that thread then waits for the rest as long
as the client likes: a handful of clients that send slowly stop the service. Here a connection costs a thread only once the whole
request has arrived; until then it waits in the selector, for `REQUEST_SECONDS` in all. What is kept of it meanwhile is
bounded by the limits on headers and bodies.
"""

from __future__ import annotations

import json
import re
import socket
import struct
import time
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

from gunicorn.http import errors
from gunicorn.workers import gthread

from deniable.report import MAX_BODY_BYTES
from deniable_server.trace import HEADER

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["REQUEST_SECONDS", "PatientWorker"]

REQUEST_SECONDS = 10.0
"""From the first byte of a request to its last."""

_SEND_SECONDS = 10  # for which a client may not read what it is answered
_LINGER_SECONDS = 2.0  # for which a client may go on sending what is not read, so that it sees the answer
_MOST_LINGERING = 1 << 20
_PIECE = 1 << 16
_MOST_HEADERS = 1 << 14
_HEADER_END = b"\r\n\r\n"
_LENGTH = re.compile(rb"\r\ncontent-length[ \t]*:[ \t]*([0-9]+)[ \t]*(?=\r\n)", re.IGNORECASE)
_UNKNOWN_LENGTH = re.compile(rb"\r\ntransfer-encoding[ \t]*:", re.IGNORECASE)
_EXPECTS = re.compile(rb"\r\nexpect[ \t]*:[ \t]*100-continue[ \t]*(?=\r\n)", re.IGNORECASE)


class _Refusal(NamedTuple):
    """How a request is answered that is no HTTP we take."""

    status: HTTPStatus
    code: str
    detail: str


_MALFORMED = _Refusal(HTTPStatus.BAD_REQUEST, "malformed_request", "this is no HTTP request that the server takes")
_FAILED = _Refusal(HTTPStatus.INTERNAL_SERVER_ERROR, "internal", "the server failed; an upload was not counted unless accepted")
_REFUSALS: Mapping[type[Exception], _Refusal] = {
    errors.LimitRequestLine: _Refusal(HTTPStatus.REQUEST_URI_TOO_LONG, "address_too_long", "the address is longer than any here"),
    errors.LimitRequestHeaders: _Refusal(
        HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "headers_too_large", "a request has few and short headers"
    ),
    errors.UnsupportedTransferCoding: _Refusal(
        HTTPStatus.NOT_IMPLEMENTED, "transfer_coding", "a request is sent without a transfer coding"
    ),
    errors.ExpectationFailed: _Refusal(HTTPStatus.EXPECTATION_FAILED, "expectation", "nothing but 100-continue can be expected"),
}


@dataclass(eq=False, slots=True)
class _Arrival:
    """A request that arrives.

    Parameters
    ----------
    deadline
        Monotonic time by which it must have.
    held
        What has arrived.
    whole
        Whether all of it has, so that nothing is left on the connection.
    encouraged
        Whether the client was told to go on.
    lingering
        Bytes that arrived after the answer and were thrown away; None before the answer.
    """

    deadline: float
    held: bytearray = field(default_factory=bytearray)
    whole: bool = False
    encouraged: bool = False
    lingering: int | None = None


class PatientWorker(gthread.ThreadWorker):  # type: ignore[misc] # gunicorn has no types
    """gunicorn's threaded worker, with requests read before a thread is spent on them."""

    def handle(self, conn: Any) -> Any:
        """Read what has arrived; answer if it is a whole request, else wait for more.

        This is called in a thread whenever a connection has something to read. Returning gunicorn's ``_DEFER`` sends the
        connection back to the selector, which forgets it if nothing comes for ``keepalive`` seconds.
        """
        if self.cfg.is_ssl:  # what is ready on the socket is not what is ready to be read; put a proxy before this server
            return super().handle(conn)
        arrival: _Arrival | None = getattr(conn, "arrival", None)
        if arrival is None:
            arrival = conn.arrival = self._begin(conn)
        if arrival.lingering is not None:
            return _linger(conn, arrival)
        try:
            ready = self._receive(conn, arrival)
        except errors.LimitRequestHeaders as error:
            conn.sock.settimeout(None)
            self.handle_error(None, conn.sock, conn.client, error)
            return _part(conn, arrival)
        if ready:
            return self._answer(conn, arrival)
        return _close(conn) if ready is None else gthread._DEFER  # noqa: SLF001

    def _answer(self, conn: Any, arrival: _Arrival) -> Any:
        """Have gunicorn answer what has arrived; tell whether the connection is kept."""
        conn.data_ready = True
        conn.sock.settimeout(None)
        conn.init()
        conn.parser.unreader.unread(bytes(arrival.held))
        arrival.held.clear()
        if super().handle(conn):
            conn.arrival = None
            return True
        return _close(conn) if arrival.whole else _part(conn, arrival)

    def _begin(self, conn: Any) -> _Arrival:
        arrival = _Arrival(time.monotonic() + REQUEST_SECONDS)
        if conn.parser is None:
            conn.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", _SEND_SECONDS, 0))
        else:  # what came with the previous request
            arrival.held += conn.parser.unreader.take_buffered()
        return arrival

    def _receive(self, conn: Any, arrival: _Arrival) -> bool | None:
        """Read without waiting; tell whether the request can be answered, or None if nobody waits for it, or for too long."""
        conn.sock.settimeout(0)
        while not self._arrived(arrival):
            try:
                piece = conn.sock.recv(_PIECE)
            except (BlockingIOError, InterruptedError):
                if time.monotonic() > arrival.deadline:
                    return None
                self._encourage(conn, arrival)
                return False
            except OSError:
                return None
            if not piece:
                return None
            arrival.held += piece
        return True

    def _arrived(self, arrival: _Arrival) -> bool:
        """Tell whether there is nothing to wait for: the request is whole, or it will be refused for its headers."""
        end = arrival.held.find(_HEADER_END)
        if end < 0:
            if len(arrival.held) > _MOST_HEADERS:
                raise errors.LimitRequestHeaders("limit request headers fields size")
            return False
        end += len(_HEADER_END)
        headers = bytes(arrival.held[:end])
        lengths = _LENGTH.findall(headers)
        if _UNKNOWN_LENGTH.search(headers) or len(lengths) > 1:
            return True
        length = int(lengths[0]) if lengths else 0
        if length > self._most():
            return True
        arrival.whole = len(arrival.held) >= end + length
        return arrival.whole

    def _most(self) -> int:
        """Bytes of the largest body that the app takes."""
        service = getattr(self.wsgi, "extensions", {}).get("deniable")
        return service.settings.max_body_bytes if service else MAX_BODY_BYTES

    def _encourage(self, conn: Any, arrival: _Arrival) -> None:
        """Let a client go on that asked whether it may send its body."""
        if not arrival.encouraged and _EXPECTS.search(arrival.held):
            arrival.encouraged = True
            with suppress(OSError):
                conn.sock.send(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _keepalive_after(self, conn: Any, keepalive: Any) -> bool:
        # A body that was not read is not waited for: the connection ends instead.
        return bool(keepalive) and (self.cfg.is_ssl or conn.arrival.whole) and super()._keepalive_after(conn, keepalive)

    def handle_error(self, req: Any, client: Any, addr: Any, exc: Exception) -> None:
        """Refuse what is no HTTP. gunicorn would log the address and the very bytes that it does not understand."""
        del req, addr
        refusal = _REFUSALS.get(type(exc), _MALFORMED if isinstance(exc, errors.ParseException) else _FAILED)
        number = uuid4()
        told = {"request": str(number), "status": refusal.status.value, "code": refusal.code}
        if refusal is _FAILED:
            self.log.error("%s before the request was understood", type(exc).__name__, extra=told)
        else:
            self.log.debug("a request was refused", extra=told)
        body = json.dumps(
            {
                "type": f"urn:deniable:problem:{refusal.code}",
                "title": refusal.status.phrase,
                "status": refusal.status,
                "code": refusal.code,
                "detail": refusal.detail,
                "instance": number.urn,
            }
        )
        head = (
            f"HTTP/1.1 {refusal.status.value} {refusal.status.phrase}\r\n"
            f"Connection: close\r\n{HEADER}: {number}\r\n"
            f"Content-Type: application/problem+json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        with suppress(OSError):
            client.sendall((head + body).encode())


def _part(conn: Any, arrival: _Arrival) -> Any:
    """Say that nothing more will come, and wait for the client to see it: closing at once would take back the answer."""
    arrival.lingering = 0
    arrival.deadline = time.monotonic() + _LINGER_SECONDS
    with suppress(OSError):
        conn.sock.shutdown(socket.SHUT_WR)
    return _linger(conn, arrival)


def _linger(conn: Any, arrival: _Arrival) -> Any:
    """Throw away what still comes, until the client is done, or takes too long."""
    conn.sock.settimeout(0)
    try:
        while piece := conn.sock.recv(_PIECE):
            arrival.lingering = (arrival.lingering or 0) + len(piece)
            if arrival.lingering > _MOST_LINGERING or time.monotonic() > arrival.deadline:
                break
    except (BlockingIOError, InterruptedError):
        if time.monotonic() <= arrival.deadline:
            return gthread._DEFER  # noqa: SLF001
    except OSError:
        pass
    return _close(conn)


def _close(conn: Any) -> bool:
    """Let gunicorn close a connection; with both directions shut its main thread need not wait for the client."""
    with suppress(OSError):
        conn.sock.shutdown(socket.SHUT_RDWR)
    return False
