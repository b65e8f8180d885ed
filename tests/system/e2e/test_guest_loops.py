"""The SDK in event loops: neither asyncio nor gevent stands still for it."""

from __future__ import annotations

import pytest

TICKS = """
def longest(ticks):
    return max(later - earlier for earlier, later in zip(ticks, ticks[1:]))
"""


def test_aflush_lets_the_loop_run(host, server):
    """While `aflush` waits for a server that hangs, the loop runs on; its deadline holds though the loop's threads are busy."""
    server.hang()
    printed = host.run(
        TICKS
        + """
import asyncio

async def tick(ticks):
    while True:
        ticks.append(time.monotonic())
        await asyncio.sleep(0.01)

async def main():
    start()
    loop = asyncio.get_running_loop()
    free = threading.Event()
    for _ in range(64):
        loop.run_in_executor(None, free.wait)
    assert all(deniable.record("used", True) for _ in range(100))
    await asyncio.sleep(0.5)  # the import of `http.client`, which takes the processor for itself
    ticks = []
    ticking = asyncio.create_task(tick(ticks))
    began = time.monotonic()
    assert not await deniable.aflush(3.0)
    took = time.monotonic() - began
    cancelled = asyncio.create_task(deniable.aflush(5.0))
    await asyncio.sleep(0.1)
    cancelled.cancel()
    ticking.cancel()
    free.set()
    print(took, longest(ticks), len(ticks))

asyncio.run(main())
assert not asyncio.run(deniable.aflush(0.1))
deniable.close(0.1)
"""
    )
    took, gap, ticks = map(float, printed.split())
    assert 2.9 < took < 60
    assert gap < 1.5
    assert ticks > 10


def test_aflush_sends(host, server):
    """`aflush` is true when everything was sent."""
    printed = host.run("import asyncio\nstart()\ndeniable.record('used', True)\nprint(bool(asyncio.run(deniable.aflush(10))))")
    assert printed == "True\n"
    assert len(server.reports) == 1


GEVENT = (
    """
import gevent
from gevent import monkey
monkey.patch_all()
"""
    + TICKS
)


def test_gevent(host, server):
    """Under gevent a hundred greenlets record, and others run on while a flush waits for a server that hangs, then sends."""
    pytest.importorskip("gevent")
    server.hang()
    # Patched before anything else is imported, as gevent wants it.
    path = host.folder / "patched.py"
    path.write_text(
        GEVENT
        + f"""
import runpy
runpy.run_path({host.program(PATCHED)!r}, run_name="__main__")
""",
        "utf-8",
    )
    began = host.spawn(str(path))
    assert began.stdout.readline() == "hung\n"
    server.recover()
    printed, complaints = began.communicate(timeout=150)
    assert (began.returncode, complaints) == (0, ""), complaints
    gap, ticks = map(float, printed.split())
    assert gap < 2, "`http.client` is imported by a greenlet, which takes the processor for itself"
    assert ticks > 10
    assert len(server.reports) == 300


PATCHED = (
    TICKS
    + """
import gevent
start()
ticks = []

def tick():
    while True:
        ticks.append(time.monotonic())
        time.sleep(0.01)

ticking = gevent.spawn(tick)
gevent.joinall([gevent.spawn(lambda: [deniable.record("used", True) for _ in range(3)]) for _ in range(100)], raise_error=True)
assert deniable.stats()["recorded"] == 300
assert not deniable.flush(3.0)
print("hung", flush=True)
deadline = time.monotonic() + 100
while deniable.stats()["sent"] < 300 and time.monotonic() < deadline:
    deniable.flush(1.0)
arrival = deniable.close(5)
assert not (arrival.pending or arrival.refused or arrival.lost), deniable.stats()
ticking.kill()
print(longest(ticks), len(ticks))
"""
)


def test_gevent_without_its_patches(host, server):
    """With gevent loaded and nothing patched, the threads are real ones, and send."""
    pytest.importorskip("gevent")
    host.run(
        """
        import gevent
        start()
        gevent.joinall([gevent.spawn(deniable.record, "used", True) for _ in range(100)])
        assert gevent.spawn(deniable.flush, 10).get()
        """
    )
    assert len(server.reports) == 100


def test_gevent_and_a_fork(host, server):
    """A patched parent may fork: its child sends its own reports."""
    pytest.importorskip("gevent")
    path = host.folder / "forking.py"
    program = host.program(
        """
        import signal
        start()
        deniable.record("used", True)
        pid = os.fork()
        if not pid:
            signal.alarm(20)
            os._exit(0 if deniable.record("used", False) and deniable.close(10) else 1)
        assert deniable.close(10)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        """
    )
    path.write_text(GEVENT + f"import runpy\nrunpy.run_path({program!r}, run_name='__main__')\n", "utf-8")
    process = host.spawn(str(path))
    assert process.communicate(timeout=120) == ("", "")
    assert process.returncode == 0
    assert len(server.reports) == 2
