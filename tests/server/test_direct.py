"""Connections with a plain upload: each is answered, given to another thread, or closed, whatever fails."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from types import SimpleNamespace

import pytest
from gunicorn.config import Config

from deniable_server.api.uploads.door import Answer
from deniable_server.serving import direct
from deniable_server.serving.direct import Direct, usable

UPLOAD = b"POST /v1/reports HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"


class Door:
    """A door that is told what to answer."""

    together = True

    def __init__(self, answer):
        self._answer = answer

    def answer(self, environs):
        return [self._answer(environ) for environ in environs]


class Worker:
    """What is used of gunicorn's worker."""

    def __init__(self, wsgi=None):
        self.cfg, self.wsgi, self.alive, self.nr, self.max_requests = Config(), wsgi, True, 0, 1000
        self.keepalived_conns, self.max_keepalived = [], 10
        self.tpool, self.settled, self.by_gunicorn, self.done = ThreadPoolExecutor(1), [], [], Event()
        self.log = SimpleNamespace(error=lambda *_: None)
        self.method_queue = SimpleNamespace(defer=lambda task, *details: task(*details))

    def most(self):
        return 1000

    def submit(self, pool, task, *details):
        pool.submit(task, *details).add_done_callback(lambda done: self.settle_all([(details[0], done.result())]))

    def answer(self, conn):
        self.by_gunicorn.append(conn)
        return False

    def settle_all(self, results):
        self.settled += results
        self.done.set()


@pytest.fixture
def connect():
    """Return what makes a connection that has sent something: the server's side, and the client's."""
    opened = []

    def make(held=UPLOAD):
        ours, theirs = socket.socketpair()
        opened.extend([ours, theirs])
        ours.settimeout(0)
        theirs.settimeout(600)
        arrival = SimpleNamespace(held=bytearray(held))
        return SimpleNamespace(
            sock=ours, client=("127.0.0.1", 1), server=("127.0.0.1", 2), arrival=arrival, init=lambda: None
        ), theirs

    yield make
    for item in opened:
        item.close()


def good(_environ):
    return Answer([("Content-Length", "2")], b"{}")


def test_an_upload_is_answered_in_one_write(connect):
    """With gunicorn's headers, and the connection is kept."""
    worker = Worker()
    conn, client = connect()
    Direct(worker, Door(good)).add(conn)
    received = client.recv(1 << 16)
    assert worker.done.wait(600)
    assert received.startswith(b"HTTP/1.1 202 ACCEPTED\r\nServer: gunicorn\r\nDate: ")
    assert received.endswith(b"\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\n{}")
    assert worker.settled == [(conn, True)]
    assert conn.arrival is None


def test_the_last_request_of_a_worker_ends_the_connection(connect):
    """As gunicorn does, so that it can be started anew."""
    worker = Worker()
    worker.max_requests = 1
    conn, client = connect()
    Direct(worker, Door(good)).add(conn)
    assert b"\r\nConnection: close\r\n" in client.recv(1 << 16)
    assert client.recv(1) == b""
    assert not worker.alive


def test_what_is_odd_is_gunicorns(connect):
    """It gets the bytes as they came."""
    worker = Worker()
    conn, _ = connect(UPLOAD.replace(b"Host", b"Expect: 100-continue\r\nHost"))
    Direct(worker, Door(good)).add(conn)
    assert worker.done.wait(600)
    assert worker.by_gunicorn == [conn]


def test_what_the_door_leaves_is_flasks(connect):
    """In another thread, with what was read."""

    def app(environ, start):
        start("418 TEAPOT", [("X", environ["CONTENT_LENGTH"])])
        return Chunks([b"short", b" and stout"])

    worker = Worker(app)
    conn, client = connect()
    Direct(worker, Door(lambda _: None)).add(conn)
    assert worker.done.wait(600)
    received = client.recv(1 << 16)
    assert received.startswith(b"HTTP/1.1 418 TEAPOT\r\n")
    assert received.endswith(b"\r\nX: 2\r\n\r\nshort and stout")


class Chunks(list):
    def close(self):
        """As an answer of WSGI."""


@pytest.mark.parametrize("where", ["the door", "reading", "the pool"])
def test_after_a_bug_the_next_upload_is_answered(connect, where, monkeypatch):
    """None is forgotten: its connection is answered in another way, or closed."""
    worker = Worker()
    answers = iter([1 / 1])

    def fail_once(environ):
        for _ in answers:
            raise ZeroDivisionError
        return good(environ)

    result = Direct(worker, Door(fail_once if where == "the door" else good))
    if where == "reading":
        monkeypatch.setattr(direct.plain_request, "read", lambda *_: 1 / 0)
    if where == "the pool":
        worker.tpool.shutdown()
    conn, client = connect(UPLOAD if where != "the pool" else b"POST odd")
    result.add(conn)
    assert worker.done.wait(600)
    assert worker.by_gunicorn == [conn] or client.recv(1) == b""
    assert [each for each, _ in worker.settled] == [conn]
    monkeypatch.undo()
    worker.done.clear()
    conn, client = connect()
    result.add(conn)
    assert client.recv(1 << 16).startswith(b"HTTP/1.1 202")


def test_uploads_that_arrive_meanwhile_are_answered_together(connect):
    """While a group is answered the next one collects."""
    worker, groups, first = Worker(), [], Event()

    class Slow(Door):
        def answer(self, environs):
            groups.append(len(environs))
            if len(groups) == 1:
                first.wait(600)
            return super().answer(environs)

    result = Direct(worker, Slow(good))
    conns = [connect() for _ in range(40)]
    for conn, _ in conns:
        result.add(conn)
    first.set()
    for _, client in conns:
        assert client.recv(1 << 16).startswith(b"HTTP/1.1 202")
    assert sum(groups) == 40
    assert len(groups) <= 4
    assert max(groups) == 32


def test_a_client_that_does_not_read_holds_nobody_up(connect):
    """Its answer is left to a thread that may wait."""
    worker = Worker()
    slow, reads_late = connect()
    slow.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
    large = Answer([], b"x" * (1 << 22))
    answers = iter([large])
    number = Direct(worker, Door(lambda environ: next(answers, None) or good(environ)))
    number.add(slow)
    conn, client = connect()
    number.add(conn)
    assert client.recv(1 << 16).startswith(b"HTTP/1.1 202")
    received = 0
    while received < len(large.body):
        received += len(reads_late.recv(1 << 20))


@pytest.mark.parametrize(
    "change",
    [
        {"accesslog": "-"},
        {"statsd_host": "localhost:8125"},
        {"logconfig": "x"},
        {"syslog": True},
        {"proxy_protocol": "v1"},
        {"http2_cleartext": "both"},
        {"pre_request": lambda worker, req: None},  # noqa: ARG005
        {"post_request": lambda worker, req: None},  # noqa: ARG005
    ],
    ids=lambda change: next(iter(change)),
)
def test_where_gunicorn_has_to_do_something_with_each_request(change):
    """It reads each of them."""
    config = Config()
    assert usable(config)
    for name, value in change.items():
        config.set(name, value)
    assert not usable(config)
