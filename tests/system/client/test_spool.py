"""Processes share a spool."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from subprocess import PIPE

import pytest

from deniable.transport.spool import Spool
from deniable.wire.batch import Batch
from deniable.wire.report import Report, Stratum

TAKE_ALL = """
import sys
from pathlib import Path
from deniable.transport.spool import Spool
spool = Spool(Path(sys.argv[1]))
print("ready", flush=True)
sys.stdin.readline()
while (taken := spool.take()) is not None:
    print(taken.key)
    spool.done(taken)
"""


def batch() -> Batch:
    stratum = Stratum("m", 1, "0" * 16, "2026-01-01", "")
    return Batch.of("shop", (Report(stratum, b"one"), Report(stratum, b"two")))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_release_reaches_everybody(spool):
    """A batch that is released is there for others though a child that was forked meanwhile has its file open."""
    one = batch()
    spool.put(one)
    taken = spool.take()
    ended, end = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(end)
        os.read(ended, 1)
        os._exit(0)
    spool.release(taken)
    other = Spool(spool._directory)
    assert other.take().key == one.key
    other.reset()
    os.close(end)
    os.close(ended)
    os.waitpid(child, 0)


def test_processes_share_a_directory(spool):
    """Of many batches, several processes at once take each exactly once and lose none."""
    batches = [batch() for _ in range(60)]
    for one in batches:
        spool.put(one)
    command = [sys.executable, "-c", TAKE_ALL, str(spool._directory)]
    processes = [subprocess.Popen(command, stdin=PIPE, stdout=PIPE, text=True) for _ in range(3)]
    assert [process.stdout.readline() for process in processes] == ["ready\n"] * 3
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    taken = [process.communicate(timeout=300)[0].split() for process in processes]
    assert sorted(key for keys in taken for key in keys) == sorted(one.key for one in batches)
    assert len(spool) == 0


def test_a_process_that_dies_lets_go(spool, in_child):
    """What a process had taken when it died is there for the others."""
    one = batch()
    spool.put(one)

    def child() -> bytes:
        return Spool(spool._directory).take().key.encode()

    assert in_child(child) == one.key.encode()
    assert spool.take().key == one.key


def test_a_forked_child_takes_nothing_along(spool, in_child):
    """A child neither ends its parent's hold of a batch nor keeps it beyond the parent's."""
    spool.put(batch())
    taken = spool.take()

    def child() -> bytes:
        spool.reset()
        return json.dumps([spool.take() is None, len(spool)]).encode()

    assert json.loads(in_child(child)) == [True, 1]
    spool.release(taken)
    assert spool.take().key == taken.key


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_fork_under_a_held_lock(spool, in_child):
    """A child made while another thread writes the spool can use it at once."""
    entered, release = threading.Event(), threading.Event()

    def hold() -> None:
        with spool._lock:
            entered.set()
            release.wait(120)

    holder = threading.Thread(target=hold)
    holder.start()
    assert entered.wait(60)

    def child() -> bytes:
        import signal

        signal.alarm(60)  # the child dies of it rather than wait for ever
        spool.reset()
        return str(spool.put(batch())).encode()

    try:
        assert in_child(child) == b"True"
    finally:
        release.set()
        holder.join(60)
