"""A server that is down, slow, lying, overwhelmed, and then back: the host notices nothing, and everything is counted once."""

from __future__ import annotations

import json
import socket
from contextlib import contextmanager
from threading import Event, Thread

import pytest

HOST = """
import json, statistics
start(interval=0.05, at=20, timeout=0.5, tries=2)
records, recorded, flushes = [], 0, []
deniable.record("used", True), deniable.flush(0.1)  # whatever is done once only
print("ready", flush=True)

def listen():
    sys.stdin.readline()
    back.set()

back = threading.Event()
threading.Thread(target=listen, daemon=True).start()
until = time.monotonic() + 0.8
while time.monotonic() < until or not back.is_set():
    began = time.monotonic()
    recorded += deniable.record("used", True)
    records.append(time.monotonic() - began)
    if recorded % 100 == 0:
        began = time.monotonic()
        deniable.flush(0.1)
        flushes.append(time.monotonic() - began)
    time.sleep(0.001)
print(json.dumps([statistics.median(records), statistics.median(flushes or [0.0]), recorded + 1]))
"""
AGAIN = """
import glob
start(interval=0.05, at=20)
recorded = deniable.record("used", False)
deadline = time.monotonic() + 60
while glob.glob(os.environ["DENIABLE_STATE_DIR"] + "/shop/spool/*.json.gz") and time.monotonic() < deadline:
    deniable.flush(1)
    time.sleep(0.02)
deniable.close(5)
print(int(recorded))
"""


@contextmanager
def liar(answer: bytes):
    """Answer every connection with the same bytes and close it."""
    stopped = Event()
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listening:
        listening.settimeout(0.1)

        def serve() -> None:
            while not stopped.is_set():
                try:
                    connection, _ = listening.accept()
                except TimeoutError:
                    continue
                with connection:
                    connection.settimeout(1)
                    try:
                        connection.recv(1 << 20)
                        connection.sendall(answer)
                    except OSError:
                        pass

        thread = Thread(target=serve)
        thread.start()
        try:
            yield f"http://key@127.0.0.1:{listening.getsockname()[1]}/shop"
        finally:
            stopped.set()
            thread.join()


def suffer(host, back) -> int:
    """Run a host through an outage that `back` ends; return how many reports it made."""
    process = host.begin(HOST)
    try:
        assert process.stdout.readline() == "ready\n", process.stderr.read()
        Event().wait(0.5)  # the outage is to last
        back()
        printed, complaints = process.communicate("back\n", timeout=120)
    finally:
        process.kill()
    assert (process.returncode, complaints) == (0, "")
    record, flush, recorded = json.loads(printed)  # medians: a busy machine holds up single calls
    assert record < 0.25, "record waits for nobody, and a request for half a second"
    assert flush < 1.1, "a flush of 0.1 seconds"
    return recorded


@pytest.mark.parametrize("trouble", ["hangs", "429", "503"])
def test_outages(host, server, trouble):
    """Everything recorded during an outage is accepted once, at the latest by the next start."""
    if trouble == "hangs":
        server.hang()
    else:
        server.fail(int(trouble), times=None, headers={"Retry-After": "0"})
    recorded = suffer(host, server.recover)
    recorded += int(host.run(AGAIN))
    assert host.spooled == []
    assert len(server.reports) == recorded


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 202 Accepted\r\nContent-Length: 100\r\n\r\n{",
        b"HTTP/1.1 503 \r\nRetry-After: 1e999\r\nContent-Length: 0\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.2\r\n",
    ],
)
def test_lies(host, server, answer):
    """What is no answer, or none to stay with, costs no report: it is kept, and accepted once by a server that is one."""
    truth = host.dsn
    with liar(answer) as host.dsn:
        recorded = suffer(host, lambda: None)
    host.dsn = truth
    recorded += int(host.run(AGAIN))
    assert host.spooled == []
    assert len(server.reports) == recorded


@pytest.mark.parametrize(
    "answer",
    [
        b'HTTP/1.1 202 Accepted\r\nContent-Length: 18\r\n\r\n{"accepted":-1e99}',
        b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\n\r\n[]",
    ],
)
def test_lies_that_are_answers(host, answer):
    """A server that says it took, or will never take, a batch is believed, and the host notices nothing."""
    with liar(answer) as host.dsn:
        suffer(host, lambda: None)
