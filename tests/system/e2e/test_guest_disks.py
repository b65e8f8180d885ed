"""The SDK on disks that are full, locked, closed to it or gone: nothing is recorded that cannot be paid for, and nobody waits."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from contextlib import closing
from threading import Event, Thread
from time import monotonic

import pytest

import deniable
from deniable.errors import StateError

TRY = """
import json
def attempt(*metrics):
    began = time.monotonic()
    recorded = [deniable.record(metric, value) for metric, value in metrics]
    return recorded, time.monotonic() - began, deniable.stats()["dropped"]
BOTH = ("used", True), ("theme", "dark")
"""


def test_a_locked_state(host):
    """While another process keeps the file locked, the first answers wait for a moment, and later ones not at all."""
    host.run("start(); deniable.record('used', True)")
    with closing(sqlite3.connect(host.state / "state.db", isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        printed = host.run(TRY + "start()\nfirst = attempt(*BOTH)\nprint(json.dumps([first, attempt(*BOTH * 50)]))")
        other.execute("ROLLBACK")
    (first, waited, dropped), (later, then_waited, then_dropped) = json.loads(printed)
    assert first == [False, False]
    assert dropped == {"state": 2}
    assert waited < 9, "a quarter of a second each, and not the five that SQLite waits"
    assert later == [False] * 100
    assert then_dropped["state"] == 102
    assert then_waited < 12, "and not a quarter of a second each"
    assert host.run(TRY + "start()\nprint(attempt(*BOTH)[0])") == "[True, True]\n"


def test_a_locked_state_stops_no_other_thread(host):
    """A lease that was taken before goes on paying while the file is locked."""
    printed = host.run(
        """
        import sqlite3
        start()
        deniable.record("used", True)
        path = os.path.join(os.environ["DENIABLE_STATE_DIR"], "shop", "state.db")
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN EXCLUSIVE")
        print(all(deniable.record("used", True) for _ in range(500)))
        """
    )
    assert printed == "True\n"


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="no such users")
def test_a_state_that_is_closed_to_us(host):
    """A directory that may not be read or written any more is trouble to be told, not an error."""
    host.run("start(); deniable.record('used', True)")
    printed = host.run(
        TRY
        + """
import encodings.idna, gzip, requests, sqlite3, uuid  # another user may not be allowed to read them
start()
os.chmod(os.environ["DENIABLE_STATE_DIR"], 0)
if os.geteuid() == 0:
    os.seteuid(65534)
recorded, _, dropped = attempt(*BOTH)
stats = deniable.stats()
deniable.journal(), deniable.flush(1), deniable.close(1)
if os.getuid() == 0:
    os.seteuid(0)
os.chmod(os.environ["DENIABLE_STATE_DIR"], 0o700)
print(json.dumps([recorded, dropped, stats["trouble"], stats["spent"]["lifetime"]]))
"""
    )
    recorded, dropped, trouble, spent = json.loads(printed)
    assert (recorded, dropped, spent) == ([False, False], {"state": 2}, None)
    assert "cannot be used" in trouble


@pytest.mark.parametrize("place", ["metrics.toml", "nul\0", "/proc/nowhere", "x" * 5000])
def test_a_state_that_cannot_be_made(host, place):
    """Where no directory can be made, nothing is recorded, and nothing raises."""
    printed = host.run(TRY + f"start(state={str(host.folder / place)!r})\nprint(attempt(*BOTH)[0])")
    assert printed == "[False, False]\n"


def test_a_full_disk(host):
    """What cannot be written down is not recorded; what was, and cannot be kept, is counted as lost."""
    pytest.importorskip("resource")
    printed = host.run(
        TRY
        + """
import resource
full = lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
start(tries=1)
full(100)
recorded, _, dropped = attempt(*BOTH)
deniable.close(1)
full(resource.RLIM_INFINITY)
start(tries=1)
recorded += attempt(("used", True))[0]
full(100)
recorded += [bool(deniable.flush(5))] + attempt(("theme", "dark"), ("used", True))[0]
print(json.dumps([recorded, dropped, deniable.stats()["dropped"]]))
deniable.close(1)
"""
    )
    recorded, dropped, later = json.loads(printed)
    assert recorded == [False, False, True, False, False, True]
    assert dropped == {"state": 2}
    assert later == {"state": 1, "spool_failed": 1}
    assert host.run(TRY + "start()\nprint(attempt(*BOTH)[0])") == "[True, True]\n"


def test_a_directory_removed_while_running(host):
    """Who removes the directory begins anew, whatever the running app does next."""
    printed = host.run(
        TRY
        + """
import shutil
start(tries=1)
recorded = attempt(*BOTH)[0]
shutil.rmtree(os.path.join(os.environ["DENIABLE_STATE_DIR"], "shop"))
deniable.flush(5)  # the server is away: to keep the reports would make the directory again, without a ledger in it
dropped = deniable.stats()["dropped"]
start(tries=1)
print(json.dumps([recorded, dropped, attempt(*BOTH)[0]]))
"""
    )
    assert json.loads(printed) == [[True, True], {"spool_failed": 2}, [True, True]]
    shutil.rmtree(host.state)
    assert host.run(TRY + "start()\nprint(attempt(*BOTH)[0])") == "[True, True]\n"


def test_a_slow_disk_holds_up_the_sending_thread_only(host):
    """While the journal is being written, for as long as that takes, a lease goes on paying."""
    written, begun = Event(), Event()
    free = deniable.Caps(budget=deniable.Budget(per_window=None, lifetime=None))
    client = deniable.Client(dsn=host.dsn, registry=host.registry, consent=True, state=host.state.parent, caps=free)
    assert client.record("used", value=True)

    def write() -> None:
        with client._session.state.transaction():
            begun.set()
            written.wait(300)

    writing = Thread(target=write)
    writing.start()
    assert begun.wait(60)
    try:
        began = monotonic()
        assert all(client.record("used", value=True) for _ in range(100))
        assert monotonic() - began < 60
    finally:
        written.set()
        writing.join()
        client.close(1)


def test_a_transaction_within_another(host):
    """A signal handler that looks at the state amid a transaction is told so at once, and the transaction goes on."""
    host.bound(1)
    with deniable.Client(dsn=host.dsn, registry=host.registry, consent=True, state=host.state.parent) as client:
        assert client.record("used", value=True)
        with client._session.state.transaction() as db:
            with pytest.raises(StateError, match="before another begins"), client._session.state.transaction():
                pass
            assert client.stats()["spent"]["lifetime"] is None
            db.execute("UPDATE facts SET value = value + 5 WHERE name = 'lifetime'")
        assert client.stats()["spent"]["lifetime"] == pytest.approx(1.000005, abs=1e-9)
