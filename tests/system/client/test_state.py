"""Processes share a state, and it is on the disk in time."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading

import pytest

from deniable.device.state import State


def strace_works() -> bool:
    try:
        return subprocess.run(["strace", "-o", os.devnull, "true"], capture_output=True, timeout=30, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


needs_strace = pytest.mark.skipif(not strace_works(), reason="strace cannot be used here to see what is synced")
WRITE = """
import sys
from contextlib import closing
from pathlib import Path
from deniable.errors import StateError
from deniable.device.state import State
state = State(Path(sys.argv[1]))
done = 0
while done < int(sys.argv[2]):
    try:
        state.begin(lambda db: db.execute("UPDATE facts SET value = value + 1 WHERE name = 'lifetime'"))
        done += 1
    except StateError as error:
        if "locked" not in str(error):  # by another one, for longer than an app would wait
            raise
"""


def lifetime(state: State) -> int:
    with state.transaction() as db:
        (value,) = db.execute("SELECT value FROM facts WHERE name = 'lifetime'").fetchone()
        return value


@pytest.fixture
def state(tmp_path):
    """Give a state that has begun."""
    begun = State(tmp_path / "shop")
    with begun.transaction() as db:
        db.execute("UPDATE facts SET value = 7 WHERE name = 'lifetime'")
    return begun


@needs_strace
def test_directory_and_file_are_on_disk_before_anything_is_recorded(tmp_path):
    """The file and its folder are synced before they get their name, and the folder above it after that."""
    log, home = tmp_path / "log", tmp_path / "new" / "home"
    command = ["strace", "-f", "-y", "-qq", "-e", "trace=fsync,fdatasync,rename,renameat,renameat2", "-o", str(log)]
    subprocess.run([*command, sys.executable, "-c", WRITE, str(home / "shop"), "2"], check=True, timeout=120)
    calls = [line.split(None, 1)[1] for line in log.read_text("utf-8").splitlines() if str(home.parent) in line]
    (renamed,) = [number for number, call in enumerate(calls) if call.startswith("rename")]
    (fresh,) = re.findall(r'"([^"]*)", ', calls[renamed].split(",", 1)[0] + ", ")
    before, after = calls[:renamed], calls[renamed:]

    def synced(path: object, among: list[str]) -> bool:
        return any(f"<{path}>" in call for call in among)

    assert synced(f"{fresh}/state.db", before)
    assert before[-1].startswith("fsync")
    assert f"<{fresh}>" in before[-1]
    assert synced(home.parent, before)
    assert synced(home, after[:2])
    assert synced(home / "shop" / "state.db", after)


def test_many_begin_at_once(tmp_path):
    """Processes that make the same state at the same time have one, and none of their writing is lost."""
    script = [sys.executable, "-c", WRITE, str(tmp_path / "deep" / "shop"), "5"]
    running = [subprocess.Popen(script, stderr=subprocess.PIPE) for _ in range(6)]
    assert [process.communicate()[1] for process in running] == [b""] * 6
    assert lifetime(State(tmp_path / "deep" / "shop")) == 30
    assert [entry.name for entry in (tmp_path / "deep").iterdir()] == ["shop"]


def test_fork_amid_a_transaction(state, in_child):
    """A child forked while another thread writes has a lock that nobody holds, and sees what was committed."""
    inside, leave = threading.Event(), threading.Event()

    def write() -> None:
        with state.transaction() as db:
            db.execute("UPDATE facts SET value = 8 WHERE name = 'lifetime'")
            inside.set()
            leave.wait(60)

    thread = threading.Thread(target=write)
    thread.start()
    inside.wait(60)
    threading.Timer(0.2, leave.set).start()  # the fork waits for the transaction to end
    assert in_child(lambda: b"%d" % lifetime(state)) == b"8"
    thread.join(60)
    assert lifetime(state) == 8


def test_fork_within_a_transaction_that_does_not_end(state, in_child, monkeypatch):
    """A fork does not wait for ever."""
    monkeypatch.setattr("deniable.process.forks._PATIENCE", 0.1)
    inside, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with state.lock:
            inside.set()
            leave.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    inside.wait(60)
    try:
        assert in_child(lambda: b"%d" % lifetime(state)) == b"7"
    finally:
        leave.set()
        thread.join(60)
