"""A stub server on this machine: it takes uploads as the real one does, and fails on request."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter, deque
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Condition, Thread
from typing import TYPE_CHECKING, Any, Self

from deniable.errors import ConfigurationError, ParameterError
from deniable.messages.plural import few, named, plural
from deniable.messages.reasons import ANSWERS, LATER, of_answer, of_refusal
from deniable.registry import Registry, load
from deniable.testing.intake import check, identify, inflate
from deniable.testing.seen import SentReport
from deniable.transport import Sender
from deniable.upload_rules import MEDIA_TYPE, REFUSAL_TYPE, Refused
from deniable.wire import addresses

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path
    from types import TracebackType

_LOOK = 0.05  # seconds after which what was queued meanwhile is sent, too
_SILENCE = 30.0  # seconds after which an idle connection is closed


@dataclass(frozen=True, slots=True)
class Attempt:
    """One request.

    Parameters
    ----------
    key
        Its Idempotency-Key; empty if it had none.
    status
        The status of the answer; 0 if there was no answer.
    code
        The problem's code; empty if the upload was taken.
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
        Its reports.
    answer
        The answer to the device.
    """

    key: str
    reports: tuple[SentReport, ...]
    answer: Mapping[str, Any]


@dataclass(frozen=True, slots=True, repr=False)
class Wait:
    """What came while a test waited for reports. It is true if all of them came in time.

    Parameters
    ----------
    in_time
        Whether they came in time.
    reports
        Reports that came since the start of the server.
    says
        What came, and what did not and why, in words.
    """

    in_time: bool
    reports: int
    says: str

    def __bool__(self) -> bool:
        return self.in_time

    def __repr__(self) -> str:
        return f"<{self.says}>"


_STATUSES = frozenset(status for status in HTTPStatus if status >= HTTPStatus.OK)  # before it, an answer has not ended


@dataclass(frozen=True, slots=True)
class _Failure:
    """How to fail instead of taking an upload. Without a status there is no answer."""

    status: int | None
    headers: Mapping[str, str]


class StubServer:
    """Takes uploads over HTTP on a free port of 127.0.0.1, checks them as the real ingest does, and keeps them in memory.

    It is a context manager and serves inside its block.

    Parameters
    ----------
    registry
        A path or a loaded registry. Without one (see `use`), only the shape of batches is checked.
    key
        The public ingest key of uploads.

    Attributes
    ----------
    envelope : bytes or None
        The signed registry that ``GET /v1/registry`` serves; None for an answer of 404.
    in_vain : list of str
        What each `wait` said that did not get its reports in time. With the fixture, pytest shows it below a test that fails.
    """

    def __init__(self, registry: str | Path | Registry | None = None, *, key: str = "pk_stub") -> None:
        self.envelope: bytes | None = None
        self.in_vain: list[str] = []
        self._key = key
        self._registry: Registry | None = None
        if registry is not None:
            self.use(registry)
        self._attempts: list[Attempt] = []
        self._received: dict[str, tuple[str, Received]] = {}
        self._changed = Condition()
        self._failures: deque[_Failure] = deque()
        self._lasting: _Failure | None = None
        self._silences = 0  # raising it releases requests that hang
        self._http: ThreadingHTTPServer | None = None

    def use(self, registry: str | Path | Registry) -> None:
        """Use another registry, and its app, from now on.

        Raises
        ------
        RegistryError
            If the file has faults. The error has all of them.
        """
        self._registry = registry if isinstance(registry, Registry) else load(registry)

    @property
    def dsn(self) -> str:
        """The DSN for `deniable.init`.

        Raises
        ------
        ConfigurationError
            If the server is not running. Then it has no address.
        """
        if self._http is None:
            raise ConfigurationError("a stub server has an address while it serves; write: with StubServer() as server")
        app = self._registry.app if self._registry else "app"
        return f"http://{self._key}@127.0.0.1:{self._http.server_address[1]}/{app}"

    @property
    def attempts(self) -> list[Attempt]:
        """All requests, in order."""
        with self._changed:
            return list(self._attempts)

    @property
    def batches(self) -> list[Received]:
        """All uploads that were taken, in order. A repeated upload is there once."""
        with self._changed:
            return [received for _, received in self._received.values()]

    @property
    def reports(self) -> list[SentReport]:
        """All reports that were taken, once each."""
        return [report for received in self.batches for report in received.reports]

    def wait(self, reports: int = 1, timeout: float = 5.0) -> Wait:
        """Wait for reports. What the clients of this process have queued is sent meanwhile, as by ``flush``.

        Parameters
        ----------
        reports
            The number of reports, counted from the start of the server.
        timeout
            Seconds to wait at most.

        Returns
        -------
        Wait
            True if they came in time. Its text says what came, and what did not and why.
        """
        deadline = time.monotonic() + timeout
        in_time = False
        while not in_time:
            left = max(0.0, deadline - time.monotonic())
            for sender in Sender.all():
                with suppress(Exception):  # a fault of another client is none of this server's
                    sender.flush(0.0)
            with self._changed:
                in_time = self._changed.wait_for(lambda: len(self.reports) >= reports, min(left, _LOOK))
            if not left:
                break
        metrics = [report.metric for report in self.reports]
        says = f"{plural(len(metrics), 'report')} of {reports} came{named(dict(sorted(Counter(metrics).items())))}"
        if not in_time:
            says = "; ".join([says, *self._lack()])
            self.in_vain.append(says)
        return Wait(in_time, len(metrics), says)

    def _lack(self) -> Iterator[str]:
        """Say what did not come and why, as far as this server and the client of this process know."""
        import deniable  # noqa: PLC0415 - it imports the client

        for (status, code), number in Counter(
            (attempt.status, attempt.code) for attempt in self.attempts if attempt.code
        ).items():
            why = f"refused, {status} {code}: {of_answer(status, code).words()}" if status else "left without an answer"
            yield f"{plural(number, 'request')} {why}"
        for error in (error for received in self.batches for error in received.answer["errors"]):
            yield f"{plural(error['count'], 'report')} refused as {error['code']}: {of_refusal(error['code']).words()}"
        counts = deniable.stats()
        if counts["disabled"]:
            yield f"the client is off: {counts['disabled']}"
        for reason, number in counts["dropped"].items():
            if number and reason in ANSWERS:
                yield f"{plural(number, 'answer')} dropped as {reason}: {ANSWERS[reason].words()}"
        for why in dict.fromkeys(counts["off"].values()):
            yield f"{', '.join(metric for metric, each in counts['off'].items() if each == why)}: {why}"
        if counts["pending"]:
            tried = any(attempt.code for attempt in self.attempts)
            unsent = "not sent yet: call deniable.flush(timeout=30) or wait() of the stub server before"
            yield f"{plural(counts['pending'], 'report')} {'kept for another try' if tried else unsent}"
        if counts["waiting"]:
            sender = deniable._client and deniable._client._session and deniable._client._session.sender  # noqa: SLF001 - our own
            metrics = [metric for what, metric in sorted(sender.unsent) if what == "waiting"] if sender else []
            named = f" ({few(metrics)})" if metrics else ""
            yield f"{plural(counts['waiting'], 'report')} may not travel yet{named}: {LATER.words()}"
        if not (counts["recorded"] or counts["disabled"] or self.attempts):
            yield "the client of this process has recorded nothing"

    def fail(self, status: int, *, times: int | None = 1, headers: Mapping[str, str] | None = None) -> None:
        """Answer the next requests with an error instead of taking them.

        Parameters
        ----------
        status
            HTTP status.
        times
            Number of requests; None for all, until `recover`.
        headers
            Other headers of the answer, such as ``Retry-After``.

        Raises
        ------
        ParameterError
            If that is no HTTP status.
        """
        if type(status) not in (int, HTTPStatus) or status not in _STATUSES:
            raise ParameterError("status: write the number of an HTTP status, such as 503", status)
        self._plan(_Failure(status, dict(headers or {})), times)

    def hang(self, *, times: int | None = None) -> None:
        """Read the next requests but do not answer them, until `recover` or the end.

        Parameters
        ----------
        times
            Number of requests; None for all.
        """
        self._plan(_Failure(None, {}), times)

    def recover(self) -> None:
        """Take uploads again. Planned failures are cancelled, and connections that hang are closed."""
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
        """Return the status, headers and body for one upload; None for no answer. Called by the connection's thread."""
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
            except Refused as refusal:
                self._attempts.append(Attempt(key, int(refusal.status), refusal.code))
                headers = failure.headers if failure else {}
                return refusal.status, headers, refusal.document()
            self._attempts.append(Attempt(key, int(HTTPStatus.ACCEPTED), ""))
            self._changed.notify_all()
            return HTTPStatus.ACCEPTED, {}, answer

    def _take(self, headers: Mapping[str, str], wire: bytes, failure: _Failure | None) -> dict[str, Any]:
        if failure is not None and failure.status is not None:
            raise Refused(failure.status, "planned")
        key = identify(headers, self._key)
        body = inflate(headers, wire)
        digest = sha256(body).hexdigest()
        if key in self._received:
            first_digest, first = self._received[key]
            if first_digest != digest:
                raise Refused(422, "idempotency_mismatch")
            return {**first.answer, "duplicate": True}
        answer, reports = check(body, self._registry)
        self._received[key] = digest, Received(key, tuple(map(SentReport.of, reports)), answer)
        return answer | {"duplicate": False}


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128  # all children of an app that forks may connect at once

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print nothing. The app may cut a connection at its end; see `_Handler.log_message`."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = _SILENCE
    stub: StubServer

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal():
            self._send(411, {}, Refused(411, "length_required").document(), last=True)
        elif self.path != addresses.REPORTS:
            self._send(404, {}, Refused(404, "not_found").document(), last=True)
        else:
            answer = self.stub.answer(self.headers, self.rfile.read(int(length)))  # type: ignore[arg-type] # it is read alone
            if answer is None:
                self.close_connection = True
            else:
                self._send(*answer)

    def do_GET(self) -> None:
        envelope = self.stub.envelope if self.path == addresses.REGISTRY else None
        if envelope is None:
            self._send(404, {}, Refused(404, "not_found").document())
        else:
            self._send(200, {}, envelope)

    def _send(self, status: int, headers: Mapping[str, str], document: dict[str, Any] | bytes, *, last: bool = False) -> None:
        body = document if isinstance(document, bytes) else json.dumps(document).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if last:  # the request's body was not read
            self.send_header("Connection", "close")
        self.send_header("Content-Type", MEDIA_TYPE if status < HTTPStatus.MULTIPLE_CHOICES else REFUSAL_TYPE)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name in the base class
        """Print nothing: it would be in the output of the app's tests."""
