"""How the SDK lets its host end: at once, without a word, and with what was not sent kept for the next start."""

from __future__ import annotations

import signal
import socket
import sys
from contextlib import contextmanager
from textwrap import dedent

import pytest

import deniable
from deniable_aggregator.process.ports import free_port

RECORD = """
start(timeout=600)  # whoever waited for the server would wait longer than `Host.run` does
for _ in range(5):
    assert deniable.record("used", True)
"""


@contextmanager
def black_hole():
    """Listen, and never accept, read or answer."""
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(1)
        yield f"http://key@127.0.0.1:{deaf.getsockname()[1]}/shop"


@pytest.mark.parametrize("trouble", ["down", "hangs", "refuses"])
def test_the_end_while_the_server_is_away(host, server, trouble):
    """A host ends a second later at most, quietly; its reports are on disk, and sent once by the next start."""
    assert deniable._EXIT_SECONDS <= 1
    server.hang() if trouble == "hangs" else server.fail(503, times=None)
    if trouble == "down":
        there, host.dsn = host.dsn, f"http://key@127.0.0.1:{free_port()}/shop"
    host.run(RECORD)
    (key,) = host.spooled
    assert not server.reports
    server.recover()
    if trouble == "down":
        host.dsn = there
    host.run("start(); deniable.record('used', False); deniable.close(60)")
    assert server.wait(6, 60)
    assert host.spooled == []
    assert {received.key: len(received.reports) for received in server.batches}.get(key) == 5
    assert len(server.reports) == 6


def test_a_black_hole(host):
    """A server that takes the connection and never answers holds nobody up."""
    with black_hole() as host.dsn:
        host.run(RECORD)
    assert len(host.spooled) == 1


ENDS = {
    "a thread that exits": "t = threading.Thread(target=sys.exit, args=(3,)); t.start(); t.join()",
    "a thread that still records": """
        def work():
            while True:
                deniable.record("used", True)
                time.sleep(0.0005)
        threading.Thread(target=work, daemon=True).start()
        time.sleep(0.05)
    """,
    "a function of atexit that records and flushes": """
        import atexit
        atexit.register(lambda: (deniable.record("used", True), deniable.flush(0.2), deniable.stats()))
    """,
    "one that runs after us": """
        import atexit
        deniable.close(0.5)
        atexit.register(lambda: [deniable.record("used", True), deniable.flush(1), deniable.close(1), deniable.journal(),
            deniable.set_consent(False), deniable.set_consent(True), deniable.explain("used"), deniable.metric("used").record(1)])
    """,
    "objects that record when they die": """
        import builtins
        class Last:
            def __init__(self):
                self.me = self
                self.handle = deniable.metric("used")
            def __del__(self):
                deniable.record("used", True)
                self.handle.record(False)
                deniable.record("theme", "dark")
                deniable.record("nosuch", 1)
                deniable.flush(0.1), deniable.stats(), deniable.journal(), deniable.explain("used"), deniable.close(0.1)
        kept, builtins.last, sys.last, deniable.last, sys.modules["last"] = Last(), Last(), Last(), Last(), Last()
        os.environ.last = deniable._client.last = Last()
    """,
    "nothing recorded": "",
    "a client of its own": """
        client = deniable.Client(dsn=os.environ["HOST_DSN"], registry=os.environ["HOST_REGISTRY"], consent=True, caps=FREE)
        assert client.record("used", True)
    """,
    "init again and again": "[start() and deniable.record('used', True) for _ in range(20)]",
}


@pytest.mark.parametrize("end", ENDS)
def test_quiet_ends(host, server, end):
    """However the host ends, nothing is printed, and its exit status is its own, though the server hangs."""
    server.hang()
    assert host.run(f"start(timeout=600)\ndeniable.record('used', True)\n{dedent(ENDS[end])}") == ""


@pytest.mark.parametrize(
    ("end", "status"),
    [
        ("os._exit(7)", 7),
        ("sys.exit(7)", 7),
        ("os.kill(os.getpid(), signal.SIGTERM); time.sleep(600)", -signal.SIGTERM),
        ("signal.signal(signal.SIGTERM, lambda *_: sys.exit(5)); os.kill(os.getpid(), signal.SIGTERM); time.sleep(600)", 5),
    ],
)
def test_statuses(host, server, end, status):
    """The exit status stays what the host says, and nothing is printed, though the server hangs."""
    server.hang()
    process = host.begin(f"import signal\n{RECORD}\n{end}")
    assert process.communicate(timeout=120) == ("", "")
    assert process.returncode == status


# Python forgets that Ctrl-C ended it when a dataclass is made later, in any thread; what `http.client` imports has such classes.
WAITS = f"""
import http.client
from deniable.transport import Sender

def close(sender, timeout, close=Sender.close):
    print("waiting", flush=True)
    return close(sender, timeout)

Sender.close = close
deniable._EXIT_SECONDS = {{seconds}}
{RECORD}
deniable._client._session.sender._exit = "wait"
deniable.flush(0.5)
print("ready", flush=True)
time.sleep(600)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no such signal")
@pytest.mark.parametrize("presses", [1, 2])
def test_an_interrupt(host, server, presses):
    """Ctrl-C shows the host's own traceback and nothing of ours; pressed again while we wait for the server, it ends that."""
    server.hang()
    process = host.begin(WAITS.format(seconds=600 if presses == 2 else 1))
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == "waiting\n"
    if presses == 2:
        process.send_signal(signal.SIGINT)
    _, text = process.communicate(timeout=120)
    assert text.count("Traceback") == 1
    assert "client/deniable" not in text
    assert process.returncode == -signal.SIGINT
