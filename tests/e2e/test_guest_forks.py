"""The SDK in apps that fork: no child hangs, nothing is sent twice, and one device has one ledger."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPConnection
from time import monotonic, sleep

import pytest

if not hasattr(os, "fork"):
    pytest.skip("this system has no fork", allow_module_level=True)


def check(server, recorded: int) -> None:
    """Check that every report recorded arrived, once."""
    assert server.wait(recorded, 20), f"{len(server.reports)} of {recorded} reports arrived"
    assert len(server.reports) == recorded
    taken = [attempt.key for attempt in server.attempts if attempt.status == 202]
    assert len(taken) == len(set(taken))


def test_forks_amid_records(host, server):
    """A hundred children of a parent whose threads record all the time: all record and end, and nothing is sent twice."""
    printed = host.run(
        """
        client = start(interval=0.1, at=20)
        stop = threading.Event()
        recorded = [0] * 8

        def work(number):
            while not stop.wait(0.001):
                recorded[number] += deniable.record("used", True)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()

        def child():
            import signal
            signal.alarm(20)
            made = sum(deniable.record("used", False) for _ in range(3))
            if client._ledger._lease == parent_lease:
                made = 98
            os._exit(made if deniable.close(10) else 99)

        alive, ends = [], []
        for _ in range(100):
            parent_lease = client._ledger._lease
            pid = os.fork()
            if not pid:
                child()
            alive.append(pid)
            if len(alive) == 4:
                ends.append(os.waitstatus_to_exitcode(os.waitpid(alive.pop(0), 0)[1]))
        ends += [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in alive]
        stop.set()
        for thread in threads:
            thread.join()
        assert deniable.close(10)
        stats = deniable.stats()
        assert stats["sent"] == stats["recorded"] == sum(recorded), stats
        print(sum(recorded), sum(ends), min(ends), max(ends), stats["dropped"], ends)
        """
    )
    print(printed)
    of_parent, of_children, least, most = map(int, printed.split()[:4])
    assert 0 < least <= most <= 3, "a child died, or had to wait too long"
    check(server, of_parent + of_children)
