"""The gunicorn worker: threads answer, and no thread waits for a client.

gunicorn's own threaded worker gives a connection to a thread at its first byte. The thread then waits for the rest, as long as
the client likes, so a few slow clients stop the service. Here the main thread reads. A request gets a thread when it has arrived
completely. Until then it waits in the selector, for at most `REQUEST_SECONDS`. Meanwhile limits on headers and bodies bound its
memory.

An address has at most `MOST_OF_ADDRESS` waiting connections. If it has more, the oldest are closed, those with half a request
first. The oldest of all is closed if the process has too many connections. Behind a trusted proxy all connections have the
proxy's address, so the proxy must limit them.

Uploads and probes have threads of their own, so that pages cannot delay them. Plain uploads are answered together, without Flask:
see `deniable_server.serving.direct`.
"""

from __future__ import annotations

import json
import re
import signal
import socket
import struct
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

from gunicorn.http import errors
from gunicorn.workers import gthread

from deniable.upload_rules import REFUSAL_TYPE, Refused
from deniable.wire.headers import SHARED
from deniable.wire.ip import network
from deniable.wire.report import MAX_BODY_BYTES
from deniable_server.http.trace import HEADER
from deniable_server.serving import plain_request, renewal
from deniable_server.serving.direct import Direct, close, usable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from deniable_server.service import Service
    from deniable_server.settings import Settings

REQUEST_SECONDS = 10.0
"""From the first byte of a request to its last."""

MOST_OF_ADDRESS = 100
"""Waiting connections of an IPv4 address, or of an IPv6 network of 64 bits, in one process."""

PAGE_THREADS = 2
"""Requests of all other kinds that a process answers at a time. Uploads and probes have gunicorn's ``threads``."""

_QUICK = frozenset(path.encode() for path in (*SHARED, "/healthz", "/readyz"))
_SEND_SECONDS = 10  # within which a client must read its answer
_TRIM_SECONDS = 0.1  # between two checks of the addresses of all connections
_LINGER_SECONDS = 2.0  # in which a client may go on sending what is not read, so that it sees the answer
_MOST_LINGERING = 1 << 20
_PIECE = 1 << 16
_MOST_HEADERS = 1 << 14
_MOST_DIGITS = 15  # of a length
_HEADER_END = b"\r\n\r\n"
_TLS = b"\x16\x03"  # how a client begins that speaks TLS
_LENGTH = re.compile(rb"\r\ncontent-length[ \t]*:[ \t]*([0-9]+)[ \t]*(?=\r\n)", re.IGNORECASE)
_UNKNOWN_LENGTH = re.compile(rb"\r\ntransfer-encoding[ \t]*:", re.IGNORECASE)
_EXPECTS = re.compile(rb"\r\nexpect[ \t]*:[ \t]*100-continue[ \t]*(?=\r\n)", re.IGNORECASE)


class _TooLong(Exception):  # noqa: N818 - it is an answer to the client
    """A body is longer than any that the server accepts."""


class _Refusal(NamedTuple):
    """The answer to a malformed request."""

    status: HTTPStatus
    code: str
    detail: str


_MALFORMED = _Refusal(HTTPStatus.BAD_REQUEST, "malformed_request", "the server does not understand this as an HTTP request")
_FAILED = _Refusal(HTTPStatus.INTERNAL_SERVER_ERROR, "internal", "the server failed; an upload was not counted unless accepted")
_REFUSALS: Mapping[type[Exception], _Refusal] = {
    errors.LimitRequestLine: _Refusal(HTTPStatus.REQUEST_URI_TOO_LONG, "address_too_long", "the address is longer than any here"),
    errors.LimitRequestHeaders: _Refusal(
        HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "headers_too_large", "a request has few and short headers"
    ),
    errors.UnsupportedTransferCoding: _Refusal(
        HTTPStatus.NOT_IMPLEMENTED, "transfer_coding", "a request is sent without a transfer coding"
    ),
    _TooLong: _Refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "body_too_large", "the upload is larger than this server takes"),
    errors.ExpectationFailed: _Refusal(HTTPStatus.EXPECTATION_FAILED, "expectation", "nothing but 100-continue can be expected"),
}


@dataclass(eq=False, slots=True)
class _Arrival:
    """A request that is arriving."""

    deadline: float  # monotonic time by which it must be complete; the earlier, the older
    held: bytearray = field(default_factory=bytearray)  # the bytes so far
    complete: bool = False  # so that nothing is left on the connection
    encouraged: bool = False  # whether 100 Continue was sent
    lingering: int | None = None  # bytes that arrived after the answer and were discarded; None before the answer


class _Done(NamedTuple):
    """What gunicorn asks a future for."""

    value: Any

    def result(self) -> Any:
        return self.value

    def cancelled(self) -> bool:
        return False


class PatientWorker(gthread.ThreadWorker):  # type: ignore[misc] # gunicorn has no types
    """gunicorn's threaded worker, which reads a request before it gets a thread."""

    @classmethod
    def check_config(cls, cfg: Any, log: Any) -> None:
        """Refuse TLS: with it, a socket that is ready may have nothing to read, and the reverse."""
        super().check_config(cfg, log)
        if cfg.is_ssl:
            rule = "this server speaks no TLS; start it without certfile and keyfile, behind a proxy that does"
            sys.stderr.write(f"certfile = {cfg.certfile!r}, keyfile = {cfg.keyfile!r}: {rule}\n")
            sys.exit(2)

    def init_process(self) -> None:
        """Set up a process before it accepts connections."""
        self.pages = ThreadPoolExecutor(PAGE_THREADS)
        self.due = 0.0  # time of the next check of addresses
        self.edits: SimpleQueue[None] = SimpleQueue()  # a signal handler may put into it at any moment
        self.direct: Direct | None = None
        super().init_process()

    def load_wsgi(self) -> None:
        """Load the app, and its door for plain uploads."""
        super().load_wsgi()
        door = getattr(self.wsgi, "extensions", {}).get("deniable.door")
        if door and door.app == self.wsgi.wsgi_app and usable(self.cfg):  # nobody else stands before the app
            self.direct = Direct(self, door)

    def init_signals(self) -> None:
        """Read the registries anew at SIGHUP, which would end the process."""
        super().init_signals()
        signal.signal(signal.SIGHUP, lambda *_: self.edits.put(None))
        signal.siginterrupt(signal.SIGHUP, False)  # noqa: FBT003 - it takes no names

    def run(self) -> None:
        """Serve until stopped. Meanwhile others can see which registries this process has loaded."""
        known: Service | None = getattr(self.wsgi, "extensions", {}).get("deniable")
        with renewal.renewing(self.wsgi, self.edits) if known else nullcontext():
            super().run()

    def enqueue_req(self, conn: Any) -> None:
        """Read what has arrived; give a complete request to a thread, and wait for the rest of another."""
        # This is called in the main thread, for a new connection and whenever one has something to read.
        arrival: _Arrival | None = getattr(conn, "arrival", None)
        if arrival is None:
            arrival = conn.arrival = self._begin(conn)
        if arrival.lingering is not None:
            self._settle(conn, _discard(conn, arrival))
            return
        try:
            ready = self._receive(conn, arrival)
        except Exception as error:  # noqa: BLE001 - every client gets an answer
            self.submit(self.tpool, self._refuse, conn, error)
            return
        if ready and self.direct and arrival.complete and arrival.held.startswith(plain_request.BEGINNING):
            self.direct.add(conn)
        elif ready:
            self.submit(self.tpool if _target(arrival) in _QUICK else self.pages, self.answer, conn)
        else:
            self._settle(conn, close(conn) if ready is None else gthread._DEFER)  # noqa: SLF001

    def submit(self, pool: ThreadPoolExecutor, task: Callable[..., Any], conn: Any, *details: Any) -> None:
        """Run a task for a connection in a thread, and continue in the main thread."""
        pool.submit(task, conn, *details).add_done_callback(lambda done: self.method_queue.defer(self.finish_request, conn, done))

    def _settle(self, conn: Any, result: Any) -> None:
        """Let gunicorn continue with a connection as if a thread had returned the result."""
        self.finish_request(conn, _Done(result))

    def settle_all(self, results: Iterable[tuple[Any, Any]]) -> None:
        """Continue with connections. This is called in the main thread."""
        for conn, result in results:
            self._settle(conn, result)

    def wait_for_and_dispatch_events(self, timeout: float) -> None:
        """Let gunicorn handle its events, and close surplus connections afterwards, when gunicorn uses none of them."""
        crowded = len(self.pending_conns) + len(self.keepalived_conns) > MOST_OF_ADDRESS
        super().wait_for_and_dispatch_events(min(timeout, _TRIM_SECONDS) if crowded else timeout)
        if self.nr_conns >= self.worker_connections:
            self._drop(self._waiting()[:1])
        if crowded and time.monotonic() > self.due:
            self.due = time.monotonic() + _TRIM_SECONDS
            self._trim()

    def _trim(self) -> None:
        """Close the oldest connections of each source that has too many."""
        crowds: dict[bytes, list[Any]] = {}
        for conn in self._waiting():
            if conn.source is not None:
                crowds.setdefault(conn.source, []).append(conn)
        for crowd in crowds.values():
            self._drop(crowd[: max(0, len(crowd) - MOST_OF_ADDRESS)])

    def _waiting(self) -> list[Any]:
        """Return the waiting connections: first idle ones, which nobody misses, then begun requests; the oldest first."""
        return [*self.keepalived_conns, *sorted(self.pending_conns, key=lambda conn: conn.arrival.deadline)]

    def _drop(self, conns: list[Any]) -> None:
        for conn in conns:
            (self.pending_conns if conn.arrival else self.keepalived_conns).remove(conn)
            self.poller.unregister(conn.sock)
            self.nr_conns -= 1
            conn.close()

    def answer(self, conn: Any) -> Any:
        """Let gunicorn answer the request; return whether the connection is kept."""
        arrival: _Arrival = conn.arrival
        conn.data_ready = True
        conn.sock.settimeout(None)
        conn.init()
        conn.parser.unreader.unread(bytes(arrival.held))
        arrival.held.clear()
        if self.handle(conn):
            conn.arrival = None
            return True
        return close(conn) if arrival.complete else _part(conn, arrival)

    def _refuse(self, conn: Any, error: Exception) -> Any:
        """Answer a request that cannot be read."""
        conn.sock.settimeout(None)
        self.handle_error(None, conn.sock, conn.client, error)
        return _part(conn, conn.arrival)

    def _begin(self, conn: Any) -> _Arrival:
        arrival = _Arrival(time.monotonic() + REQUEST_SECONDS)
        if not hasattr(conn, "source"):
            with suppress(OSError):  # the client has left, which the next read will show
                conn.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", _SEND_SECONDS, 0))
            # On a Unix socket, and behind a trusted proxy, everybody has the same address.
            conn.source = network(conn.client[0]) if isinstance(conn.client, tuple) and not self._behind_proxy() else None
        elif conn.parser is not None:  # bytes that came with the previous request
            arrival.held += conn.parser.unreader.take_buffered()
        return arrival

    def _receive(self, conn: Any, arrival: _Arrival) -> bool | None:
        """Read without waiting; return whether the request can be answered, or None if the client left or took too long."""
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
        """Return whether the request is complete, or will be refused for its headers."""
        if arrival.held.startswith(_TLS):
            raise errors.InvalidRequestLine("TLS")  # at once: a client that speaks TLS waits for an answer, and learns by this
        end = arrival.held.find(_HEADER_END)
        if (len(arrival.held) if end < 0 else end) > _MOST_HEADERS:
            raise errors.LimitRequestHeaders("limit request headers fields size")
        if end < 0:
            return False
        end += len(_HEADER_END)
        headers = bytes(arrival.held[:end])
        lengths = _LENGTH.findall(headers)
        if _UNKNOWN_LENGTH.search(headers) or len(lengths) > 1:
            return True  # whichever length is believed, another program may believe the other: it is refused, body unread
        digits = lengths[0] if lengths else b"0"
        if len(digits) > _MOST_DIGITS:
            raise _TooLong
        length = int(digits)
        if length > self.most():
            return True
        arrival.complete = len(arrival.held) >= end + length
        return arrival.complete

    def most(self) -> int:
        """Size of the largest body that the app accepts, in bytes."""
        settings = self._settings()
        return settings.max_body_bytes if settings else MAX_BODY_BYTES

    def _behind_proxy(self) -> bool:
        settings = self._settings()
        return bool(settings and settings.trusted_proxies)

    def _settings(self) -> Settings | None:
        service = getattr(self.wsgi, "extensions", {}).get("deniable")
        return service.settings if service else None

    def _encourage(self, conn: Any, arrival: _Arrival) -> None:
        """Answer 100 Continue, once, to a client that waits for it before it sends the body."""
        if not arrival.encouraged and _EXPECTS.search(arrival.held):
            arrival.encouraged = True
            with suppress(OSError):
                conn.sock.send(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _keepalive_after(self, conn: Any, keepalive: Any) -> bool:
        # What is left of a body that was not read would be taken for the next request.
        return bool(keepalive) and conn.arrival.complete and super()._keepalive_after(conn, keepalive)

    def handle_error(self, req: Any, client: Any, addr: Any, exc: Exception) -> None:
        """Refuse malformed HTTP. gunicorn would log the address and the bytes that it does not understand."""
        del req, addr
        refusal = _REFUSALS.get(type(exc), _MALFORMED if isinstance(exc, errors.ParseException) else _FAILED)
        number = uuid4()
        fields = {"request": str(number), "status": refusal.status.value, "code": refusal.code}
        if refusal is _FAILED:
            self.log.error("%s before the request was understood", type(exc).__name__, extra=fields)
        else:
            self.log.debug("a request was refused", extra=fields)
        body = json.dumps(Refused(*refusal).document(number.urn))
        head = (
            f"HTTP/1.1 {refusal.status.value} {refusal.status.phrase}\r\n"
            f"Connection: close\r\n{HEADER}: {number}\r\n"
            f"Content-Type: {REFUSAL_TYPE}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        with suppress(OSError):
            client.sendall((head + body).encode())


def _target(arrival: _Arrival) -> bytes:
    """Return the path of a complete request, without the part after a question mark."""
    line = bytes(arrival.held[:_MOST_HEADERS]).split(b" ", 2)
    return line[1].partition(b"?")[0] if len(line) > 1 else b""


def _part(conn: Any, arrival: _Arrival) -> Any:
    """Shut down sending, and wait for the client to see it: closing at once would discard the answer."""
    arrival.lingering = 0
    arrival.deadline = time.monotonic() + _LINGER_SECONDS
    with suppress(OSError):
        conn.sock.shutdown(socket.SHUT_WR)
    return _discard(conn, arrival)


def _discard(conn: Any, arrival: _Arrival) -> Any:
    """Discard what still arrives, until the client is done or takes too long."""
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
    return close(conn)
