"""Slots: no two living processes share one, those of the dead are taken again, and no directory outlives its server for long."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import contextmanager

import pytest

from deniable_server.prometheus.process_slots import Slot, directory

HOLDER = """
import sys, time
from pathlib import Path
from deniable_server.prometheus import process_slots
print({}, flush=True)
sys.stdin.read()
"""


@contextmanager
def process(expression):
    """Run another process that says something and then waits."""
    command = [sys.executable, "-c", HOLDER.format(expression)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
        try:
            yield running.stdout.readline().strip(), running
        finally:
            running.kill()


def slot_of(folder):
    return process(f"process_slots.Slot(Path({str(folder)!r}))()")


def test_each_living_process_has_its_own(tmp_path):
    """Slots are counted from 0; one is free again as soon as its process is dead, and for nobody before."""
    slot = Slot(tmp_path)
    assert (slot(), slot()) == (0, 0)
    with slot_of(tmp_path) as (second, _):
        assert second == "1"
        with slot_of(tmp_path) as (third, running):
            assert third == "2"
            running.kill()
            running.wait()
            with slot_of(tmp_path) as (again, _):
                assert again == "2"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks here")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_fork_gets_its_own(tmp_path):
    """A process forked from one with a slot takes another, and leaves its parent's alone when it ends."""
    slot = Slot(tmp_path)
    assert slot() == 0
    child = os.fork()
    if not child:
        os._exit(slot())
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
    assert slot() == 0
    with slot_of(tmp_path) as (other, _):
        assert other == "1"


def test_directories_of_killed_servers_are_removed(tmp_path):
    """A start removes what servers have left that were killed, and neither what is in use nor what is somebody else's."""
    foreign = tmp_path / "deniable-counts-foreign"
    foreign.mkdir()  # without the file that servers lock
    (tmp_path / "deniable-counts-link").symlink_to(foreign)
    make = f"process_slots.directory(Path({str(tmp_path)!r}))"
    with process(make) as (living, _):
        with process(make) as (killed, running):
            running.send_signal(signal.SIGKILL)
            running.wait()
        own = directory(tmp_path)
        assert own.stat().st_mode & 0o777 == 0o700
        left = {str(path) for path in tmp_path.iterdir()}
        assert left == {str(foreign), str(tmp_path / "deniable-counts-link"), living, str(own)}
        assert killed not in left
