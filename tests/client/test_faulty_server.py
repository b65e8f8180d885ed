"""A sender and its spool against a real server that is down, slow, lying, busy, and comes back."""

from __future__ import annotations

import gzip
import json
import socket
import threading
from base64 import b64decode
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from time import monotonic

import pytest
from waiting import eventually

from deniable.transport import Sender, SenderSettings, Spool
from deniable.transport.dsn import Dsn
from deniable.wire.report import Report, Stratum

STRATUM = Stratum("m", 1, "0" * 16, "2026-01-01", "")
SETTINGS = SenderSettings(flush_at=50, flush_interval=60, timeout=60, max_tries=2)
PATIENT = SenderSettings(flush_at=50, flush_interval=60, timeout=60, max_tries=4)


class Server:
    """An ingest server that counts each key once, as the real one does, and before that does what it is told to do wrong."""

    def __init__(self) -> None:
        self.faults: list = []  # of the next requests, one each
        self.always = None  # of every request
        self.counted: dict[str, tuple[bytes, list[bytes]]] = {}
        self.requests: list[tuple[float, str, bytes]] = []
        self.over = threading.Event()
        self.port = 0
        self._httpd: ThreadingHTTPServer | None = None

    def start(self) -> None:
        """Begin, or begin again, at the same address."""
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                key = self.headers["Idempotency-Key"]
                outer.requests.append((monotonic(), key, body))
                fault = outer.always or (outer.faults.pop(0) if outer.faults else None)
                try:
                    if fault is None or fault(self, outer, key, body) is None:
                        self.answer(202, json.dumps({"accepted": outer.count(key, body), "rejected": 0}).encode())
                except OSError:
                    self.close_connection = True  # the sender had enough

            def answer(
                self, status: int, content: bytes, headers: dict[str, str] | None = None, length: int | None = None
            ) -> bool:
                self.send_response(status)
                for name, value in (headers or {}).items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(content) if length is None else length))
                self.end_headers()
                self.wfile.write(content)
                self.close_connection = True
                return True

            def log_message(self, *_args) -> None:
                pass

        ThreadingHTTPServer.allow_reuse_address = True
        self._httpd = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self._httpd.daemon_threads = True
        self.port = self._httpd.server_port
        self._thread = threading.Thread(target=self._httpd.serve_forever, args=(0.01,))
        self._thread.start()

    def stop(self) -> None:
        """Be down."""
        if self._httpd is not None:
            self._httpd.shutdown()
            self._thread.join(60)
            self._httpd.server_close()
            self._httpd = None

    def count(self, key: str, body: bytes) -> int:
        """Count a batch once, however often it comes; the same key never has other bytes."""
        payloads = [b64decode(group["payloads"]) for group in json.loads(body)["groups"]]
        reports = [data[i : i + 2] for data in payloads for i in range(0, len(data), 2)]
        assert self.counted.setdefault(key, (body, reports)) == (body, reports)
        return len(reports)

    @property
    def reports(self) -> list[bytes]:
        return sorted(report for _, reports in self.counted.values() for report in reports)


def answering(status: int, content: bytes = b"", **options):
    return lambda handler, _server, _key, _body: handler.answer(status, content, **options)


def counted_but(fault):
    """Count the batch, and then do as told: what a retry must not count again."""

    def behave(handler, server, key, body):
        server.count(key, body)
        return fault(handler, server, key, body)

    return behave


def hanging(_handler, server, _key, _body):
    server.over.wait(300)
    return True


def cutting(handler, _server, _key, _body):
    handler.connection.shutdown(socket.SHUT_RDWR)
    return True


def dripping(handler, server, _key, _body):
    for byte in b"HTTP/1.1 202 Accepted\r\nX-Slow: " + b"y" * 10_000:
        handler.wfile.write(bytes([byte]))
        if server.over.wait(0.1):
            break
    return True


@pytest.fixture
def server():
    started = Server()
    started.start()
    yield started
    started.over.set()
    started.stop()


@pytest.fixture
def sending(server, tmp_path, sending_threads):
    """Make senders to the server that share a spool, and close them."""
    senders: list[Sender] = []

    def make(settings: SenderSettings = SETTINGS) -> Sender:
        dsn = Dsn(f"http://127.0.0.1:{server.port}", "key", "shop")
        senders.append(Sender(dsn, settings, spool=Spool(tmp_path / "spool")))
        return senders[-1]

    yield make
    server.over.set()
    for sender in senders:
        sender.close(2)
    for thread in sending_threads():
        thread.join(60)
        assert not thread.is_alive()


def record(sender: Sender, first: int, last: int) -> None:
    for i in range(first, last):
        assert sender.submit(Report(STRATUM, i.to_bytes(2, "big"))) is None


def numbers(first: int, last: int) -> list[bytes]:
    return [i.to_bytes(2, "big") for i in range(first, last)]


@pytest.mark.parametrize(
    "fault",
    [
        cutting,
        answering(429, headers={"Retry-After": "0"}),
        answering(502, b"<html>Bad Gateway"),
        answering(503, headers={"Retry-After": "1"}),
        answering(202, b'{"acc', length=400),
        counted_but(cutting),
        counted_but(answering(504)),
        counted_but(answering(202, b"", length=400)),
    ],
    ids=["cut", "429", "502", "503", "truncated", "counted, cut", "counted, 504", "counted, truncated"],
)
def test_counted_once(server, sending, monkeypatch, fault):
    """Whatever went wrong with an attempt, also after it was counted, every report is counted once in the end."""
    monkeypatch.setattr("deniable.transport.delivery.jitter", lambda _longest: 0.0)
    server.faults = [fault, fault]
    sender = sending(PATIENT)
    record(sender, 0, 20)
    assert sender.flush(60)
    assert server.reports == numbers(0, 20)
    assert sender.counts == {"sent": 20}
    assert len({(key, body) for _, key, body in server.requests}) == 1
    assert len(server.requests) == 3


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"<html>Welcome to the hotel",
        b"[]",
        b'{"accepted": -5}',
        b'{"accepted": 1e99}',
        b'{"accepted": "all"}',
        b"\xff" * 1000,
    ],
)
def test_a_server_that_lies(server, sending, content):
    """A 202 with nonsense in it ends the batch, and the sender goes on."""
    server.faults = [answering(202, content)]
    sender = sending()
    record(sender, 0, 3)
    assert sender.flush(60)
    record(sender, 3, 5)
    assert sender.flush(60)
    assert server.reports == numbers(3, 5)
    assert sender.counts["sent"] + sender.counts["rejected"] == 5


def test_a_server_that_takes_little(server, sending):
    """A server that says 413 gets halves until it takes them, each report once."""

    def small(handler, _server, _key, body):
        return handler.answer(413, b"") if json.loads(body)["groups"][0]["count"] > 6 else None

    server.always = small
    sender = sending()
    record(sender, 0, 50)
    assert sender.flush(60)
    assert server.reports == numbers(0, 50)
    assert sender.counts == {"sent": 50}


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_server_that_sends_elsewhere(server, sending, status):
    """A redirect is not followed: the reports go nowhere else."""
    server.faults = [answering(status, headers={"Location": f"http://127.0.0.1:{server.port}/elsewhere"})]
    sender = sending()
    record(sender, 0, 3)
    assert sender.flush(60)
    assert sender.counts == {"sent": 3}
    assert len(server.requests) == 2


@pytest.mark.usefixtures("time_for_the_disk")
@pytest.mark.parametrize(
    "fault", [hanging, dripping, answering(429, headers={"Retry-After": "300"})], ids=["hang", "drip", "429"]
)
def test_deadlines_hold(server, sending, fault):
    """However a server wastes the time, flush and close keep theirs, and the reports are on the disk."""
    server.always = fault
    sender = sending(PATIENT)
    record(sender, 0, 70)
    began = monotonic()
    assert sender.flush(0.5) is False
    assert monotonic() - began < 60
    began = monotonic()
    assert sender.close(60)
    assert monotonic() - began < 60
    assert sender.counts == {"spooled": 70}


@pytest.mark.parametrize("fault", [hanging, dripping], ids=["hang", "drip"])
def test_a_slow_server_comes_back(server, sending, fault):
    """A request that takes too long is cut, and the same batch arrives when the server is itself again."""
    server.faults = [fault]
    sender = sending(SenderSettings(flush_at=50, flush_interval=60, timeout=1, max_tries=3))
    record(sender, 0, 20)
    assert sender.flush(60)
    assert server.reports == numbers(0, 20)
    assert len(server.requests) == 2


@pytest.mark.usefixtures("time_for_the_disk")
def test_the_same_bytes_after_a_restart(server, sending):
    """A batch that was counted but not acknowledged when the app ended comes again under its key, and counts once."""
    server.always = counted_but(hanging)
    first = sending()
    record(first, 0, 20)
    assert first.flush(0.1) is False
    assert eventually(lambda: server.reports)
    assert first.close(60)
    assert server.reports == numbers(0, 20), "it was counted"
    server.always = None
    second = sending()
    record(second, 20, 22)
    assert second.flush(60)
    assert eventually(lambda: second.counts["sent"] == 22)
    assert server.reports == numbers(0, 22)


def test_a_server_that_was_down(server, sending):
    """What was recorded while the server was down, in two runs of the app, arrives when it is up again: all of it, once."""
    server.stop()
    first = sending()
    record(first, 0, 120)
    assert first.flush(60)
    assert first.counts["spooled"] == 120
    assert first.close(60)
    second = sending()
    record(second, 120, 150)
    assert second.flush(60)
    server.start()
    record(second, 150, 160)
    assert second.flush(60)
    assert eventually(lambda: len(server.reports) == 160)
    assert server.reports == numbers(0, 160)
    bodies = [json.loads(body)["groups"][0]["payloads"] for _, _, body in server.requests[1:]]
    assert [b64decode(body)[:2] for body in bodies] == numbers(0, 1) + numbers(50, 51) + numbers(100, 101) + numbers(120, 121)


def test_retries_keep_their_distance(server, sending):
    """A server that asks for a second gets one, before every attempt and from every batch."""
    server.faults = [answering(429, headers={"Retry-After": "1"})] * 2
    sender = sending(SenderSettings(flush_at=10, flush_interval=60, timeout=60, max_tries=1))
    record(sender, 0, 20)
    assert sender.flush(60)
    record(sender, 20, 21)
    assert sender.flush(60)
    times = [when for when, _, _ in server.requests[:3]]
    assert all(later - earlier >= 0.99 for earlier, later in pairwise(times))
