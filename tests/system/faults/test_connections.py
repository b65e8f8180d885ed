"""Clients that send slowly, too much, or no HTTP at all: the others are answered, memory stays bounded, nothing is explained."""

from __future__ import annotations

import gzip
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from deniable_aggregator.process.ports import free_port
from deniable_server.local.stack import Stack
from deniable_server.serving.worker import MOST_OF_ADDRESS, PAGE_THREADS
from deniable_server.settings import Settings

REGISTRY = Path(__file__).parents[3] / "deploy" / "metrics.toml"
INGEST, READ = "pk_test_12345678", "rk_test_12345678"
MANY = 60  # several times the threads of all processes
LONG = 600  # seconds: a server that waits for somebody waits so long, and an honest client behind it gives up
PATIENCE = 60.0  # seconds after which it does
SECONDS = """
import sys

if "gunicorn" in sys.orig_argv:
    from deniable_server.serving import worker

    worker.REQUEST_SECONDS, worker._LINGER_SECONDS = {request}, {linger}
"""

UPLOAD = f"POST /v1/reports HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {INGEST}\r\nContent-Type: application/json\r\n"


AWAY = {"DENIABLE_REDIS_URL": "redis://127.0.0.1:1"}  # a server starts without its store


def started_with(folder, request, linger):
    """Return the environment of a server that gives a request, and a client that goes on sending, so many seconds."""
    (folder / "sitecustomize.py").write_text(SECONDS.format(request=request, linger=linger), "utf-8")
    path = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    return {"PYTHONPATH": path, "GUNICORN_CMD_ARGS": f"--keep-alive {LONG}"}


@contextmanager
def serving(folder, request, linger):
    """Serve with two processes of four threads, as `deniable serve` does."""
    settings = Settings(registry=str(REGISTRY), ingest_keys=f"shop:{INGEST}", read_keys=f"shop:{READ}")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in started_with(folder, request, linger).items():
            patch.setenv(name, value)
        with Stack(settings, bind=f"127.0.0.1:{free_port()}", log_file=folder / "log") as stack:
            stack.log = folder / "log"
            yield stack


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """Serve, and wait for nobody to be done: what is closed here is not closed because its time was up."""
    with serving(tmp_path_factory.mktemp("served"), LONG, LONG) as stack:
        yield stack


def connect(served):
    host, _, port = served.bind.partition(":")
    return socket.create_connection((host, int(port)), timeout=PATIENCE)


def read_all(connection):
    """Read until the server is done; a connection that it takes back counts as done."""
    received = b""
    try:
        while piece := connection.recv(1 << 16):
            received += piece
    except ConnectionResetError:
        pass
    return received


def ask(served, request):
    with connect(served) as connection:
        connection.sendall(request)
        return read_all(connection)


def status(answer):
    """Return status and code; whatever is refused is told so in the one shape, with nothing of the server's insides."""
    line = re.match(rb"HTTP/1\.[01] (\d{3})", answer)
    assert line, answer
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"Traceback" not in answer
    if int(line[1]) < 400:
        return int(line[1]), None
    assert b"application/problem+json" in head
    return int(line[1]), json.loads(body)["code"]


def honest_clients_are_answered(served):
    """Let one client after another ask something: none of them waits longer than it has patience."""
    for _ in range(20):
        assert status(ask(served, b"GET /v1/registry HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")) == (401, "missing_key")


BEGINNINGS = {
    "nothing": b"",
    "part of the first line": b"POST /v1/rep",
    "part of the headers": UPLOAD.encode(),
    "part of a body": (UPLOAD + "Idempotency-Key: k\r\nContent-Length: 1000\r\n\r\n{").encode(),
    "part of a form": b"POST /login HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-www-form-urlencoded\r\n"
    b"Content-Length: 1000\r\n\r\nkey=",
    "a chunked body": b"POST /login HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nke",
    "too long a body": (UPLOAD + "Idempotency-Key: k\r\nContent-Length: 9000000\r\n\r\n{").encode(),
}


@pytest.mark.parametrize("beginning", BEGINNINGS)
def test_many_that_never_finish_stop_nobody(served, beginning):
    """Whatever part of a request they have sent, clients that go silent leave the threads to the others."""
    with ExitStack() as open_:
        for _ in range(MANY):
            open_.enter_context(connect(served)).sendall(BEGINNINGS[beginning])
        honest_clients_are_answered(served)


def test_many_that_do_not_hang_up_stop_nobody(served):
    """A client that keeps its connection when the server closes it is not waited for."""
    with ExitStack() as open_:
        for _ in range(MANY):
            connection = open_.enter_context(connect(served))
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            assert status(read_all(connection)) == (200, None)
        honest_clients_are_answered(served)


def test_who_drips_is_shown_out(tmp_path):
    """A request has a time in which to arrive, however regularly a byte of it comes."""
    seconds = 2.0
    with serving(tmp_path, seconds, seconds) as hasty, connect(hasty) as connection:
        begun = time.monotonic()
        connection.sendall(b"GET /healthz HTTP/1.1\r\n")
        connection.settimeout(0.1)
        while True:
            assert time.monotonic() - begun < 60
            try:
                connection.sendall(b"X: y\r\n" if time.monotonic() - begun > seconds / 4 else b"A")
                if not connection.recv(1):
                    break
            except TimeoutError:
                continue
            except OSError:
                break
    assert time.monotonic() - begun > 0.9 * seconds


def test_a_slow_upload_is_taken(served):
    """A body that comes in pieces, after the server said that it may, is a body like any other."""
    body = b'{"format": 1, "app": "shop", "groups": []}'
    with connect(served) as connection:
        head = (
            f"{UPLOAD}Idempotency-Key: slow\r\nExpect: 100-continue\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        connection.sendall(head.encode()[:70])
        time.sleep(0.05)
        connection.sendall(head.encode()[70:])
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 100 ")
        connection.sendall(body[:9])
        time.sleep(0.05)
        connection.sendall(body[9:])
        answer = read_all(connection)
    assert status(answer[answer.rindex(b"HTTP/1.1") :]) == (422, "all_rejected")


def test_requests_in_one_breath_are_answered_in_turn(served):
    """Requests that come together on one connection, cut anywhere, get an answer each."""
    one = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
    last = b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    for cut in (1, len(one) - 1, len(one), len(one) + 7):
        with connect(served) as connection:
            connection.sendall((one * 3 + last)[:cut])
            time.sleep(0.05)
            connection.sendall((one * 3 + last)[cut:])
            assert read_all(connection).count(b"HTTP/1.1 200 OK") == 4


CROWD = 600
MOST = 2 * MOST_OF_ADDRESS  # by two processes
BEGUN = b"GET /healthz HTTP/1.1\r\nHost: x\r\n"


def still_open(connections):
    """Return the connections that the server has not closed; what it has sent is read and dropped."""
    open_ = []
    for connection in connections:
        connection.settimeout(0)
        try:
            while connection.recv(1 << 16):
                pass
        except BlockingIOError:
            open_.append(connection)
        except ConnectionResetError:
            continue
    return open_


def left_of(connections, most):
    """Wait until the server has closed all but so many connections, and return those that are left."""
    deadline = time.monotonic() + PATIENCE
    while len(left := still_open(connections)) > most:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return left


def begin(served, undo, number, sent=BEGUN):
    """Begin so many requests from one address, one after the other."""
    begun = []
    for _ in range(number):
        connection = undo.enter_context(socket.socket())
        connection.bind(("127.0.0.2", 0))
        host, _, port = served.bind.partition(":")
        connection.connect((host, int(port)))
        connection.sendall(sent)
        begun.append(connection)
    return begun


def test_an_address_holds_so_many_connections(served):
    """Of more requests than an address may begin the oldest go at once, and the youngest can be ended as well as anybody's."""
    with ExitStack() as undo:
        crowd = begin(served, undo, CROWD - 150)
        other = undo.enter_context(connect(served))
        other.sendall(BEGUN)
        crowd += begin(served, undo, 150)
        assert status(ask(served, BEGUN + b"Connection: close\r\n\r\n")) == (200, None)
        left = left_of(crowd, MOST)
        assert left
        assert crowd[0] not in left
        assert still_open([other])
        for connection in (crowd[-1], other):
            connection.settimeout(PATIENCE)
            connection.sendall(b"Connection: close\r\n\r\n")
            assert status(read_all(connection)) == (200, None)


def test_an_address_holds_so_many_connections_that_do_nothing(served):
    """Those that are kept for another request count, and go, too; what was answered was answered."""
    with ExitStack() as undo:
        crowd = []
        for _ in range(CROWD):  # each is answered before the next: of many that wait for an answer the oldest would go
            crowd += begin(served, undo, 1, BEGUN + b"\r\n")
            crowd[-1].settimeout(PATIENCE)
            assert crowd[-1].recv(1 << 16).startswith(b"HTTP/1.1 200 OK")
        assert still_open(crowd[-10:])
        assert left_of(crowd, MOST)


APP = """
import time

def app(environ, start_response):
    if environ["PATH_INFO"].startswith("/m/"):
        time.sleep(600)
    start_response("200 OK", [("Content-Length", "0")])
    return []

def create_app():
    from types import SimpleNamespace
    settings = SimpleNamespace(trusted_proxies=1, max_body_bytes=100_000, serves="all")
    app.extensions = {"deniable": SimpleNamespace(settings=settings, apps={}, off={}, heard=lambda _: None)}
    return app
"""


class Alone(NamedTuple):
    """A server that runs without a store."""

    bind: str


@pytest.fixture
def alone(tmp_path):
    """Serve an app of slow pages, behind a proxy that is trusted, in two processes."""
    (tmp_path / "slow.py").write_text(APP, "utf-8")
    server = Alone(f"127.0.0.1:{free_port()}")
    command = [sys.executable, "-m", "gunicorn", "-c", "python:deniable_server.gunicorn_conf", "-w", "2", "-b", server.bind]
    process = subprocess.Popen(
        [*command, "slow:create_app()"],
        env=os.environ | AWAY | started_with(tmp_path, LONG, LONG),
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            with suppress(OSError):
                ask(server, b"GET /healthz HTTP/1.1\r\nConnection: close\r\n\r\n")
                break
            time.sleep(0.05)
        yield server
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # its workers, too, which would wait for their pages
        process.wait()


def test_pages_take_no_thread_of_uploads_and_probes(alone):
    """While more pages are asked for than there are threads in all, uploads and probes are answered, and pages wait in line."""
    with ExitStack() as undo:
        readers = [undo.enter_context(connect(alone)) for _ in range(16)]
        for reader in readers:
            reader.sendall(b"GET /m/ui.theme?period=2026-11 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        time.sleep(0.5)  # to take the threads
        for request in (
            b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
            b"GET /readyz?why HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
            b"GET /v1/registry HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
            UPLOAD.encode() + b"Connection: close\r\nContent-Length: 2\r\n\r\n{}",
        ):
            for _ in range(8):
                assert status(ask(alone, request)) == (200, None)
        assert len(still_open(readers)) == len(readers)  # none of which has been answered yet
    assert len(readers) > 2 * PAGE_THREADS


def test_a_proxy_may_hold_as_many_connections_as_there_are(alone):
    """Behind a trusted proxy one address is everybody's; where all connections are taken, the oldest of all goes."""
    with ExitStack() as undo:
        crowd = begin(alone, undo, 1100)
        assert len(left_of(crowd, 1000)) > MOST
        assert status(ask(alone, BEGUN + b"Connection: close\r\n\r\n")) == (200, None)
        crowd[-1].settimeout(PATIENCE)
        crowd[-1].sendall(b"Connection: close\r\n\r\n")
        assert status(read_all(crowd[-1])) == (200, None)


STRANGE = {
    "no HTTP": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03canary\r\n\r\n", (400, "malformed_request")),
    "TLS, which waits for an answer": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03canary", (400, "malformed_request")),
    "a method nobody knows": (b"CANARY / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", (405, "method_not_allowed")),
    "another version": (b"GET / HTTP/7.1\r\nHost: x\r\n\r\n", (400, "malformed_request")),
    "a long address": (b"GET /" + b"canary" * 600 + b" HTTP/1.1\r\nHost: x\r\n\r\n", (414, "address_too_long")),
    "a long header": (b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"canary" * 900 + b"\r\n\r\n", (431, "headers_too_large")),
    "many headers": (b"GET / HTTP/1.1\r\nHost: x\r\n" + b"X: canary\r\n" * 50 + b"\r\n", (431, "headers_too_large")),
    "headers without end": (b"GET / HTTP/1.1\r\nHost: x\r\n" + b"X: canary\r\n" * 9000, (431, "headers_too_large")),
    "an impossible header": (b"GET / HTTP/1.1\r\nHost: x\r\nX canary: 1\r\n\r\n", (400, "malformed_request")),
    "a folded header": (b"GET / HTTP/1.1\r\nHost: x\r\nX: a\r\n canary\r\n\r\n", (400, "malformed_request")),
    "two lengths": (UPLOAD.encode() + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n123456", (400, "malformed_request")),
    "two equal lengths": (UPLOAD.encode() + b"Content-Length: 5\r\nContent-Length: 5\r\n\r\n12345", (400, "malformed_request")),
    "a list of lengths": (UPLOAD.encode() + b"Content-Length: 5, 5\r\n\r\n12345", (400, "malformed_request")),
    "a signed length": (UPLOAD.encode() + b"Content-Length: +5\r\n\r\n12345", (400, "malformed_request")),
    "length and chunks": (
        UPLOAD.encode() + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        (400, "malformed_request"),
    ),
    "an unknown coding": (UPLOAD.encode() + b"Transfer-Encoding: canary\r\n\r\n", (501, "transfer_coding")),
    "chunks": (UPLOAD.encode() + b"Transfer-Encoding: chunked\r\n\r\n5\r\n12345\r\n0\r\n\r\n", (411, "length_required")),
    "an odd expectation": (UPLOAD.encode() + b"Expect: canary\r\nContent-Length: 0\r\n\r\n", (417, "expectation")),
    "a huge length": (UPLOAD.encode() + b"Content-Length: " + b"9" * 40 + b"\r\n\r\n", (413, "body_too_large")),
    "an endless length": (UPLOAD.encode() + b"Content-Length: " + b"9" * 4300 + b"\r\n\r\n", (413, "body_too_large")),
    "a length of zeros": (UPLOAD.encode() + b"Content-Length: " + b"0" * 4300 + b"5\r\n\r\n12345", (413, "body_too_large")),
    "heavy headers": (
        b"GET / HTTP/1.1\r\nHost: x\r\n" + b"".join(b"X-%d: " % i + b"canary" * 650 + b"\r\n" for i in range(15)) + b"\r\n",
        (431, "headers_too_large"),
    ),
    "a huge body": (UPLOAD.encode() + b"Content-Length: 8000000\r\n\r\n" + bytes(8_000_000), (413, "body_too_large")),
}


@pytest.mark.parametrize("name", STRANGE)
def test_strange_requests_are_refused_in_one_shape(served, name):
    """What is no request that we take gets a problem with a code, and leaves nothing of itself in the log."""
    request, expected = STRANGE[name]
    with connect(served) as connection:
        try:
            connection.sendall(request)
        except OSError:
            assert name == "a huge body"  # the server does not listen for ever; what it said can be read all the same
        assert status(read_all(connection)) == expected
    log = served.log.read_bytes()
    assert b"canary" not in log
    assert b"127.0.0.1" not in log
    assert b"Traceback" not in log


def peak_bytes(served):
    """Return the most memory that each of gunicorn's processes has ever had."""
    master = served._processes["server"].pid
    peaks = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            lines = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines())
        except OSError:  # has ended meanwhile
            continue
        if int(lines["PPid"]) == master:
            peaks[int(folder.name)] = int(lines["VmHWM"].split()[0]) * 1024
    return peaks


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
def test_a_bomb_costs_little_memory(served):
    """256 KiB that would inflate a thousandfold are refused with a few megabytes spent, however many come."""
    bomb = gzip.compress(bytes(240 << 20))
    assert len(bomb) < 256 * 1024
    head = f"{UPLOAD}Idempotency-Key: k\r\nContent-Encoding: gzip\r\nConnection: close\r\nContent-Length: {len(bomb)}\r\n\r\n"
    for _ in range(4):
        assert status(ask(served, head.encode() + bomb)) == (413, "inflated_too_large")
    before = peak_bytes(served)
    assert len(before) == 2
    with ExitStack() as open_:
        connections = [open_.enter_context(connect(served)) for _ in range(24)]
        for connection in connections:
            connection.sendall(head.encode() + bomb)
        for connection in connections:
            assert status(read_all(connection)) == (413, "inflated_too_large")
    after = peak_bytes(served)
    assert after.keys() == before.keys()
    assert all(after[pid] - before[pid] < 48 << 20 for pid in before), (before, after)


@pytest.mark.parametrize("options", [("certfile",), ("keyfile",), ("certfile", "keyfile")])
def test_tls_is_left_to_a_proxy(tmp_path, options):
    """A server that would have to speak TLS, and could not count who waits, does not start and says what to do."""
    file = tmp_path / "file.pem"
    file.touch()
    command = [sys.executable, "-m", "gunicorn", "-c", "python:deniable_server.gunicorn_conf", "-b", f"127.0.0.1:{free_port()}"]
    command += [each for name in options for each in (f"--{name}", str(file))]
    command.append("deniable_server:create_app()")
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=os.environ | AWAY)
    assert ended.returncode == 2
    assert ": this server speaks no TLS; start it without certfile and keyfile, behind a proxy that does" in ended.stderr
    assert str(file) in ended.stderr
