"""The SDK in apps that fork: no child hangs, nothing is sent twice, and one device has one ledger."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from http.client import HTTPConnection
from pathlib import Path
from time import monotonic, sleep

import pytest

from deniable_aggregator.process.ports import free_port

if not hasattr(os, "fork"):
    pytest.skip("this system has no fork", allow_module_level=True)


def check(host, server, recorded: int) -> None:
    """Check that every report recorded arrived, once. What a process had no time to send when it ended, the next start sends."""
    if len(server.reports) < recorded and host.spooled:
        host.run("start(); assert deniable.flush(60)", timeout=100)
    assert server.wait(recorded, 60), f"{len(server.reports)} of {recorded} reports arrived"
    assert len(server.reports) == recorded


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
            signal.alarm(120)
            status = sum(deniable.record("used", False) for _ in range(3))
            if any(lease is each for lease in client._session.ledger._leases.values() for each in parent_leases):
                status = 98
            if not set(deniable.stats()["dropped"]) <= {"state"}:  # too many want the ledger at once, on a slow disk
                status = 97
            began = time.monotonic()
            deniable.close(10)
            os._exit(status if time.monotonic() - began < 60 else 99)

        alive, ends = [], []
        for _ in range(100):
            parent_leases = list(client._session.ledger._leases.values())
            pid = os.fork()
            if not pid:
                child()
            alive.append(pid)
            if len(alive) == 8:
                ends.append(os.waitstatus_to_exitcode(os.waitpid(alive.pop(0), 0)[1]))
        ends += [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in alive]
        stop.set()
        for thread in threads:
            thread.join()
        deniable.flush(300)
        arrival = deniable.close(60)
        assert not (arrival.pending or arrival.refused or arrival.lost)
        stats = deniable.stats()
        assert stats["sent"] == stats["recorded"] == sum(recorded), stats
        print(sum(recorded), sum(ends), max(ends))
        """,
        timeout=600,
    )
    of_parent, of_children, most = map(int, printed.split())
    assert most == 3, "a child died, had to wait too long, or spent its parent's lease"
    assert of_children > 150
    check(host, server, of_parent + of_children)


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing(host, server, method):
    """What the children of `multiprocessing` record arrives when they end, though Python leaves out their atexit functions."""
    printed = host.run(
        f"""
        import multiprocessing

        def work(number):
            if deniable._client is None:
                start()
            assert all(deniable.record("used", True) for _ in range(number))

        if __name__ == "__main__":
            start()
            deniable.record("used", False)
            context = multiprocessing.get_context({method!r})
            children = [context.Process(target=work, args=(number,)) for number in (1, 2, 3)]
            for child in children:
                child.start()
            for child in children:
                child.join()
            print([child.exitcode for child in children])
        """,
        timeout=100,
    )
    assert printed == "[0, 0, 0]\n"
    check(host, server, 7)


def test_a_fork_amid_an_import_of_ours(host, server):
    """A child made while the sending thread imports can import the same: it does not wait for a thread it lacks."""
    printed = host.run(
        """
        import signal
        start(at=1)
        deniable.record("used", True)
        ends = []
        for _ in range(12):
            pid = os.fork()
            if not pid:
                signal.alarm(10)
                import http.client, gzip, sqlite3
                os._exit(0)
            time.sleep(0.02)
            ends.append(pid)
        print({os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in ends})
        """
    )
    assert printed == "{0}\n"
    check(host, server, 1)


def test_a_fork_amid_a_slow_import_of_ours(host, server):
    """A fork waits for an import that takes longer than any lock is held, as on a busy machine: the child sends its reports."""
    printed = host.run(
        """
        amid, parent = threading.Event(), os.getpid()

        class Slow:
            def find_spec(self, name, *_):
                if name == "http.client" and os.getpid() == parent:
                    amid.set()
                    time.sleep(3)

        sys.meta_path.insert(0, Slow())
        start(at=1)
        deniable.record("used", True)
        assert amid.wait(60)
        pid = os.fork()
        if not pid:
            deniable.record("used", False)
            os._exit(0 if deniable.flush(60) else 9)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        """
    )
    assert printed == "0\n"
    check(host, server, 2)


def test_a_fork_in_a_signal_handler(host, server):
    """A handler that forks amid `record`, whose child goes on in `record` as its parent does, makes no report twice."""
    printed = host.run(
        """
        import signal
        start(interval=0.2)
        parent, children, recorded, before = os.getpid(), [], 0, 0

        def fork(*_):
            global before
            pid = os.fork()
            if pid:
                children.append(pid)
                return
            signal.signal(signal.SIGALRM, signal.SIG_IGN)
            before = recorded

        signal.signal(signal.SIGALRM, fork)
        while len(children) < 40 and os.getpid() == parent:
            if not signal.getitimer(signal.ITIMER_REAL)[0]:
                signal.setitimer(signal.ITIMER_REAL, 0.0005 * (1 + len(children) % 7))
            recorded += deniable.record("plugin", "p7")
        if os.getpid() != parent:
            mine = deniable.record("plugin", "p8")  # not if too many want the ledger at once
            began = time.monotonic()
            deniable.close(60)
            closed, sent = time.monotonic() - began < 60, deniable.stats()["sent"]
            os._exit(sent if closed and mine <= sent <= mine + recorded - before else 9)
        signal.setitimer(signal.ITIMER_REAL, 0)
        ends = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
        print(recorded, sum(ends), max(ends))
        """
    )
    of_parent, of_children, most = map(int, printed.split())
    assert 1 <= most <= 2, "a child died, or had to wait too long"
    check(host, server, of_parent + of_children)
    assert len({report.payload for report in server.reports}) == of_parent + of_children


@pytest.mark.parametrize("lock", ["_session.sender._orders.changed", "_session.state.lock", "_session.state._writing"])
def test_a_fork_while_waiting_for_a_lock(host, lock):
    """A signal handler forks while `record` waits for a lock that another thread has: the child gets it as the parent does."""
    host.bound(10)  # so that each report takes a transaction
    printed = host.run(
        f"""
        import signal
        client = start()
        deniable.record("used", True)
        held = threading.Event()

        def hold():
            with client.{lock}:
                held.set()
                time.sleep(0.6)

        def fork(*_):
            global pid
            pid = os.fork()
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            if not pid:
                signal.alarm(10)

        signal.signal(signal.SIGALRM, fork)
        threading.Thread(target=hold).start()
        held.wait()
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        deniable.record("used", True)
        if not pid:
            os._exit(0)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        """
    )
    assert printed == "0\n"


def test_a_fork_amid_a_transaction(host):
    """A child made amid a transaction does not commit it: its parent does, once."""
    host.bound(10)
    printed = host.run(
        """
        import sqlite3
        client = start()
        deniable.record("used", True)
        try:
            with client._session.state.transaction() as db:
                db.execute("UPDATE facts SET value = value + 5 WHERE name = 'lifetime'")
                pid = os.fork()
        except deniable.StateError:
            os._exit(7)
        if not pid:
            os._exit(0)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        with client._session.state.transaction() as db:
            print(*db.execute("SELECT value FROM facts WHERE name = 'lifetime'").fetchone())
            print(*db.execute("PRAGMA integrity_check").fetchone())
        """
    )
    assert printed == "7\n1000005\nok\n"


def test_daemons(host, server):
    """A daemon, forked twice, goes on recording when those who made it have ended."""
    host.run(
        """
        start()
        deniable.record("used", True)
        if os.fork():
            deniable.close(5)
            os._exit(0)
        os.setsid()
        if os.fork():
            os._exit(0)
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nowhere, stream)
        deniable.record("used", False)
        """
    )
    check(host, server, 2)


def test_a_fork_in_an_atexit_function(host, server):
    """Parent and child of a fork at the very end both end, and each sends its own."""
    host.run(
        """
        import atexit
        start()

        @atexit.register
        def fork():
            deniable.record("used", True)
            pid = os.fork()
            deniable.record("used", False)
            if pid:
                os.waitpid(pid, 0)

        deniable.record("used", True)
        """
    )
    check(host, server, 4)


@contextmanager
def gunicorn(host, code: str):
    """Serve a WSGI app by four preloaded workers; give the address."""
    pytest.importorskip("gunicorn")
    port = free_port()
    program = Path(host.program(code))
    command = [sys.executable, "-m", "gunicorn", "--preload", "--workers=4", "--threads=2", f"--bind=127.0.0.1:{port}"]
    command += [
        "--no-control-socket",
        "--graceful-timeout=300",
        "--log-level=error",
        f"--chdir={program.parent}",
        f"{program.stem}:app",
    ]
    master = subprocess.Popen(command, env=host.environment, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        deadline = monotonic() + 60
        while monotonic() < deadline:
            with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            sleep(0.05)
        yield port
        master.terminate()
        _, complaints = master.communicate(timeout=90)
        assert (master.returncode, complaints) == (0, "")
    finally:
        with suppress(OSError):
            os.killpg(master.pid, signal.SIGKILL)


def test_gunicorn(host, server):
    """Preloaded workers share the reports of a period and one permanent response; each report arrives once, before they end."""
    host.bound(38)
    code = """
        deniable._EXIT_SECONDS = 50.0  # at the end of each worker: a busy machine needs longer than a second to send or keep all
        client = start()
        deniable.record("used", True)  # in the master, which has a sending thread by now

        def app(environ, start_response):
            outcomes = [int(deniable.record("used", True)), int(deniable.record("theme", "dark"))]
            time.sleep(0.02)  # one worker alone must not be quick enough for everybody
            start_response("200 OK", [("Content-Type", "text/plain")])
            return [f"{os.getpid()} {outcomes[0]} {outcomes[1]}".encode()]
        """
    with gunicorn(host, code) as port:

        def ask(_) -> list[int]:
            connection = HTTPConnection("127.0.0.1", port, timeout=300)
            connection.request("GET", "/")
            answer = connection.getresponse().read()
            connection.close()
            return [int(word) for word in answer.split()]

        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(ask, range(120)))
    workers, used, theme = (list(column) for column in zip(*answers, strict=True))
    assert len(set(workers)) > 1
    assert sum(theme) == 1
    assert 20 <= sum(used) + 1 <= 38
    check(host, server, 1 + sum(used) + sum(theme))
