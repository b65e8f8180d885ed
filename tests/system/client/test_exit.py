"""How a process ends that has something left to send."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time

import pytest

from deniable.testing import StubServer

PROGRAM = """
import sys, deniable
deniable.init(sys.argv[1], registry=sys.argv[2], consent=True, segments={{"platform": "linux"}}, strict=True)
assert deniable.record("ui.theme", "dark")
{more}
print("end", flush=True)
"""
DEADLINE = 1.0
MARGIN = 60.0  # for a machine that does other things, too; the server hangs longer


@pytest.fixture
def leave(tmp_path, registry_text, state_directory):
    """Run a program that records and ends; return the seconds from its end to that of its process."""
    path = tmp_path / "metrics.toml"
    path.write_text(registry_text, "utf-8")

    def run(dsn, more=""):
        command = [sys.executable, "-c", PROGRAM.format(more=more), dsn, path]
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
    """A process that just ends sends what it recorded."""
    with StubServer(registry) as server:
        for _ in range(5):  # a busy machine may need more than the second that a process has at its end
            leave(server.dsn)
            if server.reports:
                break
        assert server.reports


def test_a_server_that_hangs(leave, registry):
    """A server that never answers does not hold a process up; the next one sends what was left, under the same key."""
    with StubServer(registry) as server:
        server.hang()
        starts = 0
        while not server.attempts and starts < 5:  # as above
            assert leave(server.dsn) < DEADLINE + MARGIN
            starts += 1
        tried = server.attempts[0].key
        server.recover()
        leave(server.dsn, more="assert deniable.flush(60)")
        assert server.wait(starts + 1, timeout=60)
        assert tried in {received.key for received in server.batches}


def test_a_server_that_is_down(leave):
    """Neither does one that refuses connections."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        assert leave(f"http://key@127.0.0.1:{closed.getsockname()[1]}/shop") < DEADLINE + MARGIN


def test_exit_after_close(leave, registry):
    """A client that was closed has nothing left to do at the end."""
    with StubServer(registry) as server:
        leave(server.dsn, more="assert deniable.close(60)")
        assert len(server.attempts) == 1
