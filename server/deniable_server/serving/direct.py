"""Plain uploads of a process: they are answered below gunicorn's and Flask's objects for a request, all that are ready together.

One thread prepares them, appends them in one round trip to the store, and sends each answer in one write. While it is at work the
next ones collect. So groups grow with the load, and nobody waits for a timer. It never waits for a client.
"""

from __future__ import annotations

import os
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Lock
from typing import TYPE_CHECKING, Any

from gunicorn.http.wsgi import SERVER
from gunicorn.util import http_date

from deniable_server.serving import plain_request
from deniable_server.serving.plain_request import Limits

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deniable_server.api.uploads.door import Door
    from deniable_server.serving.plain_request import PlainRequest
    from deniable_server.serving.worker import PatientWorker

_MOST = 32  # uploads that are answered together: each may be large


class Direct:
    """Answers connections of a worker that have a complete upload."""

    def __init__(
        self,
        worker: PatientWorker,
        door: Door,  # takes uploads
    ) -> None:
        self._worker, self._door = worker, door
        self._thread = ThreadPoolExecutor(1)
        self._lock = Lock()
        self._ready: list[Any] = []
        self._busy = False
        self._date = (0, "")  # a second, and how it is written
        self._limits = Limits(worker.most(), worker.cfg.limit_request_fields, worker.cfg.limit_request_field_size)

    def add(self, conn: Any) -> None:
        """Answer the request of a connection soon. The worker continues with the connection afterwards."""
        if not self._door.together:
            self._worker.tpool.submit(self._answer, [conn])
            return
        with self._lock:
            self._ready.append(conn)
            if self._busy:
                return
            self._busy = True
        self._thread.submit(self._answer_all)

    def _answer_all(self) -> None:
        while True:
            with self._lock:
                conns, self._ready = self._ready[:_MOST], self._ready[_MOST:]
                self._busy = bool(conns)
            if not conns:
                return
            self._answer(conns)

    def _answer(self, conns: Sequence[Any]) -> None:
        """Answer what is plain and good. Give the rest to threads that may wait. No connection is forgotten, whatever fails."""
        rest = list(conns)
        try:
            self._answer_some(rest)
        except Exception as error:  # noqa: BLE001 - the next uploads need this thread
            self._worker.log.error("uploads were not answered: %s", type(error).__name__)  # noqa: TRY400 - it may quote a client
        if rest:
            self._worker.method_queue.defer(self._worker.settle_all, [(conn, close(conn)) for conn in rest])

    def _answer_some(self, rest: list[Any]) -> None:
        """Answer connections, and take from the list each that somebody else continues with."""
        worker = self._worker
        plain: list[tuple[Any, PlainRequest]] = []
        for conn in list(rest):
            request = plain_request.read(bytes(conn.arrival.held), conn.client, conn.server, self._limits)
            if request:
                plain.append((conn, request))
            else:
                worker.submit(worker.tpool, worker.answer, conn)
                rest.remove(conn)
        try:
            answers = self._door.answer([request.environ for _, request in plain])
        except Exception as error:  # noqa: BLE001 - every client gets an answer
            # Flask repeats what was done, as the store knows the uploads; or it fails, too, and logs why.
            worker.log.error("uploads are answered one by one after %s", type(error).__name__)  # noqa: TRY400 - it may quote a client
            for conn, _ in plain:
                worker.submit(worker.tpool, worker.answer, conn)
                rest.remove(conn)
            return
        done: list[tuple[Any, bool]] = []
        for (conn, request), answer in zip(plain, answers, strict=True):
            if answer is None:
                worker.submit(worker.tpool, self._by_flask, conn, request)
            else:
                keep = self._keep(request)
                message = self._written(answer.status, answer.headers, keep=keep) + answer.body
                sent = _send(conn, message)
                if sent == len(message):
                    done.append((conn, self._ended(conn, keep=keep)))
                else:
                    worker.submit(worker.tpool, self._finish, conn, message[sent:], keep)
            rest.remove(conn)
        if done:
            worker.method_queue.defer(worker.settle_all, done)

    def _by_flask(self, conn: Any, request: PlainRequest) -> bool:
        """Let Flask answer a request; return whether the connection is kept."""
        begun: list[Any] = []

        def start(status: str, headers: list[tuple[str, str]], _error: Any = None) -> Any:
            begun[:] = [status, headers]

        answer = self._worker.wsgi(request.environ, start)
        try:
            body = b"".join(answer)
        finally:
            answer.close()
        keep = self._keep(request)
        return self._finish(conn, self._written(*begun, keep=keep) + body, keep)

    def _finish(self, conn: Any, message: bytes, keep: bool) -> bool:  # noqa: FBT001 - called by position
        conn.sock.settimeout(None)
        try:
            conn.sock.sendall(message)
        except OSError:  # the client left, or does not read
            keep = False
        return self._ended(conn, keep=keep)

    def _ended(self, conn: Any, *, keep: bool) -> bool:
        """Make a connection ready for its next request, or for its end; return whether it is kept."""
        if not keep:
            return close(conn)
        conn.init()  # gunicorn asks its parser for bytes of the next request; there are none
        conn.arrival = None
        return True

    def _keep(self, request: PlainRequest) -> bool:
        """Count a request, and return whether its connection may be used again."""
        worker = self._worker
        worker.nr += 1
        if worker.nr >= worker.max_requests:
            worker.alive = False
        return bool(
            request.keep and worker.alive and worker.cfg.keepalive and len(worker.keepalived_conns) < worker.max_keepalived
        )

    def _written(self, status: str, headers: Sequence[tuple[str, str]], *, keep: bool) -> bytes:
        """Write the head of an answer as gunicorn does."""
        second, date = self._date
        if second != int(time.time()):
            self._date = second, date = int(time.time()), http_date()
        lines = [
            f"HTTP/1.1 {status}",
            f"Server: {SERVER}",
            f"Date: {date}",
            f"Connection: {'keep-alive' if keep else 'close'}",
            *(f"{name}: {value}" for name, value in headers),
        ]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def usable(cfg: Any) -> bool:
    """Return whether gunicorn's settings leave requests to us: nothing is asked for that only gunicorn does with each of them."""
    logs = (cfg.accesslog, cfg.logconfig, cfg.logconfig_dict, cfg.logconfig_json, cfg.syslog, cfg.statsd_host)
    hooks = (
        cfg.pre_request.__module__ in ("gunicorn.config", "deniable_server.gunicorn_conf")
        and cfg.post_request is cfg.settings["post_request"].default
    )
    protocols = {cfg.proxy_protocol, cfg.http2_cleartext} <= {False, "off"}
    return hooks and protocols and not any(logs) and "SCRIPT_NAME" not in os.environ


def _send(conn: Any, message: bytes) -> int:
    """Send without waiting; return how much was sent."""
    try:
        sent: int = conn.sock.send(message)
    except OSError:  # it has no room now, or the client left: who waits will see
        return 0
    return sent


def close(conn: Any) -> bool:
    """Let gunicorn close a connection. Both directions are shut down, so its main thread need not wait for the client."""
    with suppress(OSError):
        conn.sock.shutdown(socket.SHUT_RDWR)
    return False
