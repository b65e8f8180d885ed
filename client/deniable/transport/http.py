"""One HTTP request, with limits on its time and on the size of the answer.

It has no cookies, no redirects, and no proxies or credentials of the host app. Each request has its own connection. A connection
that stays open would show the server which batches come from one device, even if many devices share an address.
"""

from __future__ import annotations

import json
import os
from contextlib import closing, suppress
from pathlib import Path
from threading import Lock, Timer
from typing import TYPE_CHECKING, Any, Protocol, cast
from urllib.parse import quote, urlsplit

from deniable.process.imports import undisturbed

if TYPE_CHECKING:
    import socket
    from collections.abc import Mapping
    from http.client import HTTPConnection
    from ssl import SSLContext

_LARGEST_ANSWER = 64 * 1024
_USER_AGENT = "deniable"  # without a version, which would help to tell devices apart


class UnreachedError(OSError):
    """No connection came about, so nobody has seen a byte of the request. Its cause says why."""


class Post(Protocol):
    """Sends one request; raises OSError if there was no answer, ``UnreachedError`` if the server cannot have seen it."""

    def __call__(self, body: bytes, headers: Mapping[str, str], timeout: float) -> tuple[int, Mapping[str, str], Any]:
        """Return the status, the headers and the JSON of the answer; None if it has no JSON."""


class Http:
    """Sends requests by Python's own `http.client`, which is imported only here, in a sending thread.

    The timeout of a request bounds each wait for the server, not their sum. To bound the sum, give `total`, or have another
    thread call `cut`.

    ``REQUESTS_CA_BUNDLE`` or ``SSL_CERT_FILE`` names the certificates to trust, as for the rest of the host app. Else they are
    those of the package `certifi`.
    """

    def __init__(self) -> None:
        with undisturbed():  # imported now, so that the first request is not slower
            import encodings.idna  # noqa: F401, PLC0415 - for the server's name
            import http.client  # noqa: F401, PLC0415
        self._wire: _Wire | None = None

    def prepare(self) -> None:
        """Begin the next request, so that `cut` ends it before it is sent."""
        self._wire = _Wire()

    def __call__(
        self,
        # method, url, headers, body: what to send
        method: str,
        url: str,
        headers: Mapping[str, str],
        timeout: float,  # seconds of each wait for the server
        body: bytes | None = None,
        *,
        largest: int = _LARGEST_ANSWER,  # most bytes of the answer
        total: float | None = None,  # seconds after which a new thread cuts the request; None for no such thread
    ) -> tuple[int, Mapping[str, str], bytes | None]:
        """Send one request; return the status, the headers and the answer, None instead of a larger one."""
        # Without a connection, with TLS where the address has it, it raises UnreachedError: nothing was sent. Without a whole
        # answer it raises OSError: the request may have arrived.
        # The headers returned find a name in upper and lower case alike.
        from http.client import HTTPException  # noqa: PLC0415 - see __init__

        wire = self._wire
        if wire is None or wire.used:
            wire = self._wire = _Wire()
        wire.used = True
        watch = Timer(total, wire.cut) if total is not None else None
        if watch is not None:
            watch.daemon = True
            with suppress(RuntimeError):  # the interpreter is ending, and this thread with it
                watch.start()
        try:
            with closing(_connection(wire, url, timeout)) as connection:
                # Not decompressed: `http.client` asks for no compressed answer, and a small one could grow without bound.
                connection.request(method, _target(url), body, {"User-Agent": _USER_AGENT, **headers})
                with connection.getresponse() as answer:
                    content = answer.read(largest + 1)
                    if wire.ended or (len(content) <= largest and answer.length):  # for `http.client` both are the end
                        raise OSError("the answer was cut short")  # noqa: TRY301 - as if the connection had ended
                    fields = cast("Mapping[str, str]", answer.headers)
                    return answer.status, fields, content if len(content) <= largest else None
        except (OSError, HTTPException, ImportError, UnicodeError) as error:
            if not wire.begun:
                raise UnreachedError(str(error)) from error
            if isinstance(error, OSError):
                raise
            raise OSError(f"the answer is none: {type(error).__name__}") from error
        finally:
            if watch is not None:
                watch.cancel()
            wire.close()

    def cut(self) -> bool:
        """End the present request of another thread, if there is one; return whether a part of it may have been sent."""
        # The thread that waits for the answer soon gets an OSError.
        wire = self._wire
        return wire is not None and wire.cut()

    def forget(self) -> None:
        """In a forked child, close its copy of the parent's connection. The parent's own copy stays open."""
        wire = self._wire
        if wire is not None:
            wire.forget()


class HttpPost:
    """`Post` over HTTP."""

    def __init__(
        self,
        url: str,  # where to send
    ) -> None:
        self._url = url
        self.http = Http()

    def __call__(self, body: bytes, headers: Mapping[str, str], timeout: float) -> tuple[int, Mapping[str, str], Any]:
        """Send one request."""
        status, answered, content = self.http("POST", self._url, headers, timeout, body)
        try:
            document = json.loads(content or b"")
        except (ValueError, RecursionError):
            document = None
        return status, answered, document


class _Wire:
    """The connection of one request. Another thread may cut it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self.ended = self.used = False
        self.begun = False  # whether a connection was made, over which a request may have been sent
        self._socket: socket.socket | None = None  # a duplicate, because TLS takes over the original
        self._connection: Any = None

    def opened(self, opened: socket.socket, connection: Any) -> None:
        with self._lock:
            if self.ended:  # during the lookup of the name, which cannot be interrupted
                opened.close()
                raise TimeoutError
            self._connection = connection
            self._socket = opened.dup()

    def begin(self) -> None:
        """Note that the request is sent from now on, unless it was cut."""
        with self._lock:
            if self.ended:
                raise TimeoutError
            self.begun = True

    def cut(self) -> bool:
        from socket import SHUT_RDWR  # noqa: PLC0415 - the app's thread never needs it

        with self._lock:
            self.ended = True
            if self._socket is not None:
                with suppress(OSError):
                    self._socket.shutdown(SHUT_RDWR)  # unlike closing, this wakes a thread that reads
            return self.begun

    def close(self) -> None:
        with self._lock:
            self.ended = True
            if self._socket is not None:
                self._socket.close()
            self._connection = None

    def forget(self) -> None:
        # Without the lock, which a thread of the parent may hold, and without sending anything to the server.
        for channel in (self._socket, getattr(self._connection, "sock", None)):
            if channel is not None:
                with suppress(OSError):
                    os.close(channel.detach())  # `close` would wait for a thread that reads


def _connection(wire: _Wire, url: str, timeout: float) -> HTTPConnection:
    """Return a connection that is not made yet. It has no proxy, and does nothing but what is asked."""
    import socket  # noqa: PLC0415 - see Http
    from http.client import HTTPConnection  # noqa: PLC0415

    parts = urlsplit(url)
    host = parts.hostname or ""
    tls = _tls() if parts.scheme == "https" else None

    class Connection(HTTPConnection):
        default_port = 443 if tls else 80

        def connect(self) -> None:
            self.sock = socket.create_connection((host, self.port), self.timeout)
            wire.opened(self.sock, self)
            self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if tls is not None:
                self.sock = tls.wrap_socket(self.sock, server_hostname=host)
            wire.begin()

    return Connection(host, parts.port, timeout=timeout)


def _target(url: str) -> str:
    """Return what a request names of an address: its path."""
    return quote(urlsplit(url).path or "/", safe="/%:@!$&'()*+,;=~")


def _tls() -> SSLContext:
    """Return what checks the certificate of a server. It is a new one for each connection, so no two are linked by a ticket."""
    with undisturbed():
        import ssl  # noqa: PLC0415 - see Http

        import certifi  # noqa: PLC0415
    trusted = Path(os.environ.get("REQUESTS_CA_BUNDLE") or os.environ.get("SSL_CERT_FILE") or certifi.where())
    if not trusted.exists():
        raise FileNotFoundError(f"there are no certificates at {trusted}")
    folder = trusted.is_dir()
    context = ssl.create_default_context(cafile=None if folder else trusted, capath=trusted if folder else None)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_TICKET
    context.set_alpn_protocols(["http/1.1"])
    return context
