"""Programs that are forked from one that has imported everything are as those that are started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere programs are started as usual")
DENIABLE = [sys.executable, "-m", "deniable"]
FORKED, STARTED = "programs.py", "-m\0deniable\0worker"  # what is in the command line that the system shows of a process


@contextmanager
def worker(**options):
    """Run a worker, which waits for a store that is not there; give it with the command line that the system shows of it."""
    command = [*DENIABLE, "worker", "--app", "shop", "--redis-url", "redis://127.0.0.1:1"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, **options) as process:
        try:
            line = process.stderr.readline()
            yield process, line, Path(f"/proc/{process.pid}/cmdline").read_text("utf-8")
        finally:
            process.kill()


def test_a_forked_program_is_a_process_of_ours(tmp_path):
    """It has its own session, folder, variables and streams, and ends by a signal as any other."""
    environment = os.environ | {"DENIABLE_MISTYPED": "x"}
    with worker(start_new_session=True, cwd=tmp_path, env=environment) as (process, line, command):
        assert FORKED in command
        assert os.getsid(process.pid) == process.pid
        assert Path(f"/proc/{process.pid}/cwd").resolve() == tmp_path
        assert "DENIABLE_MISTYPED" in line
    assert process.returncode == -signal.SIGKILL


@pytest.mark.parametrize(("words", "status"), [(["--version"], 0), (["keys"], 2), (["nonsense"], 2)])
def test_what_it_says_is_what_a_started_one_says(words, status):
    """Both streams and the status are the same."""
    import programs

    forked = subprocess.run([*DENIABLE, *words], capture_output=True, text=True, timeout=100, check=False)
    with programs.started():
        started = subprocess.run([*DENIABLE, *words], capture_output=True, text=True, timeout=100, check=False)
    assert (forked.returncode, forked.stdout, forked.stderr) == (started.returncode, started.stdout, started.stderr)
    assert forked.returncode == status


@pytest.mark.parametrize("variables", [{"PYTHONHASHSEED": "7"}, {"TZ": "UTC"}])
def test_what_may_be_read_at_import_is(variables):
    """A program with a variable for the interpreter or a library is started."""
    with worker(env=os.environ | variables) as (_, _, command):
        assert STARTED in command


@pytest.mark.starts_anew
def test_a_test_of_the_start_starts():
    """Where the start is what is tested nothing is forked."""
    with worker() as (_, _, command):
        assert STARTED in command
