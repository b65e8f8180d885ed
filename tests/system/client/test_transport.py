"""Senders of forked children, of processes of every kind, and of an app that just ends."""

from __future__ import annotations

import json
import multiprocessing
import socket
import subprocess
import sys
import threading
from time import monotonic

import pytest
from senders import STRATUM, Fake, Hanging, payloads, reports

from deniable.transport import SenderSettings
from deniable.wire.batch import Batch
from deniable.wire.report import Report


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_begins_anew(sending, in_child):
    """A child sends none of its parent's reports, and its own from a thread of its own."""
    post = Fake()
    sender = sending(post, count=3)

    def child() -> bytes:
        sender.submit(Report(STRATUM, b"ch"))
        done = sender.flush(60)
        return json.dumps([done, sender.counts, [p.decode() for b, h, _ in post.calls for p in payloads(b, h)]]).encode()

    assert json.loads(in_child(child)) == [True, {"sent": 1}, ["ch"]]
    assert sender.flush(60)
    assert sender.counts == {"sent": 3}


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_fork_under_a_held_lock(sending, spool, in_child):
    """A child made while another thread held the locks does not wait for them for ever."""
    sender = sending(Fake(), count=1, spool=spool)
    entered, release = threading.Event(), threading.Event()

    def hold() -> None:
        with sender._orders.changed, spool._lock:
            entered.set()
            release.wait(120)

    holder = threading.Thread(target=hold)
    holder.start()
    assert entered.wait(60)

    def child() -> bytes:
        import signal

        signal.alarm(60)  # the child dies of it rather than wait for ever
        return repr((sender.submit(reports(1)[0]), spool.put(Batch.of("shop", tuple(reports(1)))))).encode()

    try:
        assert in_child(child) == b"(None, True)"
    finally:
        release.set()
        holder.join(60)


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_stop_outlives_every_pause(sending, spool, in_child):
    """A sender that was stopped for good stays so after the end of a pause, and in a forked child."""
    post = Fake()
    sender = sending(post, spool=spool)
    sender.stop()
    sender.pause(False)  # noqa: FBT003
    for report in reports(5):
        sender.submit(report)
    assert sender.flush(60) is False

    def child() -> bytes:
        sender.submit(*reports(1))
        return json.dumps([sender.flush(60), len(post.calls)]).encode()

    assert json.loads(in_child(child)) == [False, 0]
    assert not post.calls


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_shares_the_spool(sending, spool, in_child):
    """A child made while its parent sends has a sender and a spool that work, and takes nothing from its parent."""
    spool.put(Batch.of("shop", tuple(reports(4))))
    post = Hanging()
    sender = sending(post, SenderSettings(flush_at=2, flush_interval=60), count=3, spool=spool)
    assert post.entered.wait(60)

    def child() -> bytes:
        sender._given_post = Fake()
        sender.submit(reports(1)[0])
        done = sender.close(60)
        return json.dumps([done, sender.counts]).encode()

    assert json.loads(in_child(child)) == [True, {"sent": 5}]
    post.release.set()
    assert sender.flush(60)


EXIT = """
import sys
import deniable.transport
deniable.transport._SPOOL_SHARE = 0.9  # of the second at the end, for a disk that does other things, too
from pathlib import Path
from deniable.transport.dsn import Dsn
from deniable.wire.report import Report, Stratum
from deniable.transport import Sender, SenderSettings, Spool
sender = Sender(Dsn(sys.argv[1], "key", "shop"), SenderSettings(), spool=Spool(Path(sys.argv[2])))
for i in range(30):
    assert sender.submit(Report(Stratum("m", 1, "0" * 16, "2026-01-01", ""), bytes([i]))) is None
"""


def test_an_app_that_just_ends(spool):
    """An app that ends without closing, while the server hangs, ends soon, and its reports are on the disk."""
    with socket.create_server(("127.0.0.1", 0)) as listener:  # accepts and never answers
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        began = monotonic()
        subprocess.run([sys.executable, "-c", EXIT, url, str(spool._directory)], check=True, timeout=120)
    assert monotonic() - began < 60
    assert len(spool.take().reports) == 30
    spool.reset()


SPAWN = """
import multiprocessing, sys
from pathlib import Path
from deniable.transport.dsn import Dsn
from deniable.wire.report import Report, Stratum
from deniable.transport import Sender, SenderSettings, Spool

def post(body, headers, timeout):
    return 202, {}, None

def work(directory, count, results):
    sender = Sender(Dsn("http://t.example", "key", "shop"), SenderSettings(), post, spool=Spool(Path(directory)))
    for i in range(count):
        sender.submit(Report(Stratum("m", 1, "0" * 16, "2026-01-01", ""), bytes([i])))
    done = sender.close(60)
    results.put((done, sender.counts["sent"]))

if __name__ == "__main__":
    mine = Sender(Dsn("http://t.example", "key", "shop"), SenderSettings(), post, spool=Spool(Path(sys.argv[2])))
    mine.submit(Report(Stratum("m", 1, "0" * 16, "2026-01-01", ""), b"x"))
    context = multiprocessing.get_context(sys.argv[1])
    results = context.Queue()
    processes = [context.Process(target=work, args=(sys.argv[2], 3, results)) for _ in range(2)]
    for process in processes:
        process.start()
    answers = [results.get(timeout=120) for _ in processes]
    for process in processes:
        process.join(60)
    assert answers == [(True, 3)] * 2, answers
    assert mine.close(60) and mine.counts == {"sent": 1}, mine.counts
"""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_processes_of_every_kind(tmp_path, method):
    """Processes made in any way send their own reports, and only these."""
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip("this system makes no such processes")
    script = tmp_path / "script.py"
    script.write_text(SPAWN)
    subprocess.run([sys.executable, str(script), method, str(tmp_path / "spool")], check=True, timeout=300)
