"""How a process ends that has something left to send."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time

import pytest
from waiting import eventually

from deniable.device.journal import Journal
from deniable.device.state import State
from deniable.testing import StubServer

PROGRAM = """
import sys, deniable
{before}
deniable.init(sys.argv[1], registry=sys.argv[2], consent=True, segments={{"platform": "linux"}}, strict=True, exit="{exit}")
assert deniable.record("ui.theme", "dark")
{more}
print("end", flush=True)
"""
DEADLINE = 1.0
MARGIN = 60.0  # for a machine that does other things, too; the server hangs longer


@pytest.fixture
def spooled(state_directory):
    """Return the names of what waits on disk."""
    return lambda: [path.name for path in state_directory.glob("*/spool/*") if path.suffix == ".gz"]


@pytest.fixture
def leave(tmp_path, registry_text, state_directory):
    """Run a program that records and ends; return the seconds from its end to that of its process."""
    path = tmp_path / "metrics.toml"
    path.write_text(registry_text, "utf-8")

    def run(dsn, more="", exit="auto", before=""):  # noqa: A002
        command = [sys.executable, "-c", PROGRAM.format(more=more, exit=exit, before=before), dsn, path]
        environment = os.environ | {"DENIABLE_STATE_DIR": str(state_directory)}
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as process:
            assert process.stdout.readline() == "end\n"
            began = time.monotonic()
            printed, errors = process.communicate(timeout=120)
            took = time.monotonic() - began
        assert (process.returncode, printed) == (0, "")
        assert "Traceback" not in errors
        return took

    return run


def test_what_is_left_is_sent(leave, registry):
    """A process that just ends sends what it recorded, if it may wait for the server: here as long as a busy machine needs."""
    with StubServer(registry) as server:
        leave(server.dsn, exit="wait", before="deniable._EXIT_SECONDS = 60")
        assert server.reports


@pytest.mark.parametrize("exit_", ["auto", "spool", "helper"])
def test_a_young_process_waits_for_nobody(leave, registry, spooled, exit_):
    """A program that records and ends asks no server, alive or not: its reports are on disk, and a later run sends them."""
    with StubServer(registry) as server:
        leave(server.dsn, exit=exit_)
        assert not server.attempts
        (name,) = spooled()
        leave(server.dsn, "import time\nwhile deniable.stats()['sent'] < 1: time.sleep(0.01)", exit=exit_)  # nobody flushes
        assert name.partition(".")[0] in {received.key for received in server.batches}
        assert len(spooled()) == 1


def test_a_quiet_record_hastens_nothing(leave, registry, spooled, tmp_path):
    """Where reports wait so that the moment of `record` does not show, what an earlier run left does not show it either."""
    text = (tmp_path / "metrics.toml").read_text("utf-8")
    with StubServer(registry) as server:
        leave(server.dsn)
        delayed = text.replace('[metrics."ui.theme"]', '[metrics."ui.theme"]\ndelay = "1h"')
        (tmp_path / "metrics.toml").write_text(delayed, "utf-8")
        leave(server.dsn, "import time; time.sleep(2)")  # more than the others have to wait
        assert not server.attempts
        assert len(spooled()) == 1


SPAWNING = """
from deniable.client import helper
helper._CONTAINERS, helper._TESTS, helper.in_ci, helper._DRAWN = (), (), lambda _: False, 0.1
"""


@pytest.mark.skipif(not hasattr(os, "posix_spawn"), reason="nothing is left behind there")
def test_the_helper_sends_once_a_day(leave, registry, spooled, state_directory):
    """What a program left is sent by a process of its own, which is noted in the journal; the next one that day starts none."""
    with StubServer(registry) as server:
        leave(server.dsn, SPAWNING, exit="helper")
        assert server.wait(1, timeout=300)
        end = time.monotonic() + 60
        while (spooled() or not sent(state_directory)) and time.monotonic() < end:
            time.sleep(0.01)
        assert not spooled()
        assert len(sent(state_directory)) == 1
        leave(
            server.dsn,
            SPAWNING + "deniable.record('ui.theme', 'dark')\nhelper._spawn = lambda *_: print('started')",
            exit="helper",
        )
        assert len(spooled()) == 1


def sent(state_directory):
    return Journal(State(state_directory / "shop")).entries()


def test_a_server_that_hangs(leave, registry, tmp_path, monkeypatch):
    """A server that never answers does not hold a process up; the next one sends what was left, under the same key."""
    monkeypatch.setenv("DENIABLE_FLUSH_AT", "1")
    mark = tmp_path / "attempted"
    with StubServer(registry) as server:
        server.hang()
        watch = threading.Thread(target=lambda: eventually(lambda: server.attempts) and mark.touch())
        watch.start()
        more = f"import os, time\nwhile not os.path.exists({str(mark)!r}): time.sleep(0.01)"
        assert leave(server.dsn, more, exit="wait") < DEADLINE + MARGIN
        watch.join(60)
        tried = server.attempts[0].key
        server.recover()
        leave(server.dsn, more="assert deniable.flush(60)", exit="wait")
        assert server.wait(2, timeout=300)
        assert tried in {received.key for received in server.batches}


@pytest.mark.parametrize("exit_", ["wait", "auto"])
def test_a_server_that_is_down(leave, exit_):
    """Neither does one that refuses connections."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        assert leave(f"http://key@127.0.0.1:{closed.getsockname()[1]}/shop", exit=exit_) < DEADLINE + MARGIN


def test_exit_after_close(leave, registry):
    """A client that was closed has nothing left to do at the end."""
    with StubServer(registry) as server:
        leave(server.dsn, more="assert deniable.close(60)")
        assert len(server.attempts) == 1
