"""A server on this machine that takes uploads as the real one does, and fails when it is told to."""

from __future__ import annotations

import json
import sys
from collections import deque
from dataclasses import dataclass
from hashlib import sha256
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Condition, Thread
from typing import TYPE_CHECKING, Any, Self

from deniable.errors import ConfigurationError
from deniable.registry import Registry, load
from deniable.testing.intake import Refusal, check, identify, inflate

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from types import TracebackType

    from deniable.wire.report import Report

__all__ = ["Attempt", "Received", "StubServer"]

_PATH = "/v1/reports"
_REGISTRY_PATH = "/v1/registry"
_SILENCE = 30.0  # seconds after which a connection that says nothing is dropped


@dataclass(frozen=True, slots=True)
class Attempt:
    """One request, however it was answered.

    Parameters
    ----------
    key
        Its Idempotency-Key; empty where it had none.
    status
        The status it got; 0 where it got no answer.
    code
        The problem's code; empty where it was taken.
    """

    key: str
    status: int
    code: str


@dataclass(frozen=True, slots=True)
class Received:
    """An upload that was taken.

    Parameters
    ----------
    key
        Its Idempotency-Key.
    reports
        Its reports: what they are counted with, and their payloads.
    answer
        What the device was told.
    """

    key: str
    reports: tuple[Report, ...]
    answer: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Failure:
    """What to do instead of taking an upload; without a status: not to answer."""

    status: int | None
    headers: Mapping[str, str]


class StubServer:
    """Takes uploads over HTTP on a free port of 127.0.0.1, checks them as the real ingest does, and keeps them in memory.

    It is a context manager: it serves from entering to leaving.

    Parameters
    ----------
    registry
        What is collected: a path or a loaded registry. Without one (see `use`), only the shape of batches is checked.
    key
        The public ingest key that uploads carry.

    Attributes
    ----------
    envelope : bytes or None
        The signed registry that ``GET /v1/registry`` serves; with None it is not found.
    """

    def __init__(self, registry: str | Path | Registry | None = None, *, key: str = "pk_stub") -> None:
        self.envelope: bytes | None = None
        self._key = key
        self._registry: Registry | None = None
        if registry is not None:
            self.use(registry)
        self._attempts: list[Attempt] = []
        self._received: dict[str, tuple[str, Received]] = {}
        self._changed = Condition()
        self._failures: deque[_Failure] = deque()
        self._lasting: _Failure | None = None
        self._silences = 0  # a raise of it releases those who wait
        self._http: ThreadingHTTPServer | None = None

    def use(self, registry: str | Path | Registry) -> None:
        """Collect what another registry declares, for its app, from now on.

        Raises
        ------
        RegistryError
            With every fault of the file.
        """
        self._registry = registry if isinstance(registry, Registry) else load(registry)

    @property
    def dsn(self) -> str:
        """What to give to `deniable.init`.

        Raises
        ------
        ConfigurationError
            While the server does not serve: it has no address then.
        """
        if self._http is None:
            raise ConfigurationError("a stub server has an address while it serves; write: with StubServer() as server")
        app = self._registry.app if self._registry else "app"
        return f"http://{self._key}@127.0.0.1:{self._http.server_address[1]}/{app}"

    @property
    def attempts(self) -> list[Attempt]:
        """Every request, in order."""
        with self._changed:
            return list(self._attempts)

    @property
    def batches(self) -> list[Received]:
        """Every upload taken, in order; one that was repeated is there once."""
        with self._changed:
            return [received for _, received in self._received.values()]

    @property
    def reports(self) -> list[Report]:
        """Every report taken, once."""
        return [report for received in self.batches for report in received.reports]

    def wait(self, reports: int = 1, timeout: float = 5.0) -> bool:
        """Wait for reports.

        Parameters
        ----------
        reports
            How many are to be there in all.
        timeout
            Seconds.

        Returns
        -------
        bool
            Whether they came in time.
        """
        with self._changed:
            return self._changed.wait_for(
                lambda: sum(len(received.reports) for _, received in self._received.values()) >= reports, timeout
            )

    def fail(self, status: int, *, times: int | None = 1, headers: Mapping[str, str] | None = None) -> None:
        """Answer the next requests with an error instead of taking them.

        Parameters
        ----------
        status
            HTTP status.
        times
            How many requests; None for all, until `recover`.
        headers
            Further headers of the answer, such as ``Retry-After``.
        """
        self._plan(_Failure(status, dict(headers or {})), times)

    def hang(self, *, times: int | None = None) -> None:
        """Read the next requests and do not answer them, until `recover` or the end.

        Parameters
        ----------
        times
            How many requests; None for all.
        """
        self._plan(_Failure(None, {}), times)

    def recover(self) -> None:
        """Take uploads again, whatever failures were still planned; who was left hanging is hung up on."""
        with self._changed:
            self._failures.clear()
            self._lasting = None
            self._silences += 1
            self._changed.notify_all()

    def __enter__(self) -> Self:
        self._http = _Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"stub": self}))
        Thread(target=self._http.serve_forever, args=(0.05,), name="deniable-stub-server", daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.recover()
        if self._http is not None:
            self._http.shutdown()
            self._http.server_close()
            self._http = None

    def _plan(self, failure: _Failure, times: int | None) -> None:
        with self._changed:
            if times is None:
                self._lasting = failure
            else:
                self._failures.extend([failure] * times)

    def answer(self, headers: Mapping[str, str], body: bytes) -> tuple[int, Mapping[str, str], dict[str, Any]] | None:
        """Answer one upload: status, headers and body; None for no answer at all. Run by the connection's thread."""
        with self._changed:
            failure = self._failures.popleft() if self._failures else self._lasting
            key = headers.get("Idempotency-Key", "")
            if failure is not None and failure.status is None:
                self._attempts.append(Attempt(key, 0, "hung"))
                self._changed.notify_all()
                silences = self._silences
                self._changed.wait_for(lambda: self._silences != silences)
                return None
            try:
                answer = self._take(headers, body, failure)
            except Refusal as refusal:
                self._attempts.append(Attempt(key, refusal.status, refusal.code))
                problem = {"type": f"urn:deniable:problem:{refusal.code}", "status": refusal.status, "code": refusal.code}
                return refusal.status, failure.headers if failure else {}, problem | refusal.extra
            self._attempts.append(Attempt(key, HTTPStatus.ACCEPTED, ""))
            self._changed.notify_all()
            return HTTPStatus.ACCEPTED, {}, answer

    def _take(self, headers: Mapping[str, str], wire: bytes, failure: _Failure | None) -> dict[str, Any]:
        if failure is not None and failure.status is not None:
            raise Refusal(failure.status, "planned")
        key = identify(headers, self._key)
        body = inflate(headers, wire)
        digest = sha256(body).hexdigest()
        if key in self._received:
            first_digest, first = self._received[key]
            if first_digest != digest:
                raise Refusal(422, "idempotency_mismatch")
            return {**first.answer, "duplicate": True}
        answer, reports = check(body, self._registry)
        self._received[key] = digest, Received(key, tuple(reports), answer)
        return answer | {"duplicate": False}


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128  # of an app that forks, all children may call at once

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a connection that the app has cut, as it may when it ends; see `_Handler.log_message`."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = _SILENCE
    stub: StubServer

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal():
            self._send(411, {}, {"status": 411, "code": "length_required"}, last=True)
        elif self.path != _PATH:
            self._send(404, {}, {"status": 404, "code": "not_found"}, last=True)
        else:
            answer = self.stub.answer(self.headers, self.rfile.read(int(length)))  # type: ignore[arg-type] # it is read alone
            if answer is None:
                self.close_connection = True
            else:
                self._send(*answer)

    def do_GET(self) -> None:
        envelope = self.stub.envelope if self.path == _REGISTRY_PATH else None
        if envelope is None:
            self._send(404, {}, {"status": 404, "code": "not_found"})
        else:
            self._send(200, {}, envelope)

    def _send(self, status: int, headers: Mapping[str, str], document: dict[str, Any] | bytes, *, last: bool = False) -> None:
        body = document if isinstance(document, bytes) else json.dumps(document).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if last:  # its body was not read
            self.send_header("Connection", "close")
        self.send_header(
            "Content-Type", "application/json" if status < HTTPStatus.MULTIPLE_CHOICES else "application/problem+json"
        )
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class names it so
        """Say nothing: what is printed would stand in the output of the app's tests."""
