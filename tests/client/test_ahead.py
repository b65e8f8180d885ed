"""Noise drawn ahead: for one answer each, for the process that drew it, and for a second."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import count
from pathlib import Path
from threading import Thread

import pytest

import deniable
from deniable import mechanisms, source
from deniable.mechanisms import base
from deniable.mechanisms.direct import Grr

HOMES = ["a page that the kernel clears", "the number of the process"]

# The child of a raw fork is made as C code makes it, so that none of Python's hooks are called.
RAW = """
import ctypes, os, sys
sys.path.insert(0, {package!r})
from deniable import mechanisms
from deniable.mechanisms import base
if {numbered}:
    base.process_mark = base.mark_process = os.getpid
mechanism = mechanisms.make("oue", domain_size=128, epsilon=1)  # no two of its reports are alike, but of the same noise
for _ in range(200):
    mechanism.randomize(0)
while len(mechanism._hand[2]) < 8:
    mechanism.randomize(0)
fork = ctypes.CDLL(None).fork
name, children = "parent", []
for child in ("child", "grandchild"):
    pid = fork()
    if pid:
        children.append(pid)
        break
    name = child
    while len(mechanism._hand[2]) < 8:  # so that its own child finds some, too
        mechanism.randomize(0)
with open(os.path.join({folder!r}, name), "w") as file:
    file.writelines(mechanism.randomize(0).hex() + "\\n" for _ in range(100))
for pid in children:
    os.waitpid(pid, 0)
os._exit(0)
"""


class Numbered(Grr):
    """Its noise is a number that is never drawn again, and so is its report."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._set(numbers=count(), asked=[])

    def noise(self, source, count):
        source.below(2)
        self.asked.append(count)
        return [next(self.numbers) for _ in range(count)]

    def respond(self, value, noise):  # noqa: ARG002
        return noise


@pytest.fixture
def clock(monkeypatch):
    """Replace the clock by one that stands still until it is set."""
    now = [1000.0]
    monkeypatch.setattr(base, "monotonic", lambda: now[0])
    return now


@pytest.fixture
def mechanism():
    """Make one that shows which noise it used."""
    return Numbered(domain_size=4, epsilon=1)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.parametrize("home", HOMES)
def test_a_fork_that_runs_no_hook_shares_no_noise(tmp_path, home):
    """A child that C code makes, and its own child, use none of the noise that was drawn before."""
    numbered = home is HOMES[1]
    if not numbered and source._page is None:
        pytest.skip("this kernel clears no page")
    package = str(Path(deniable.__file__).parents[1])
    program = RAW.format(package=package, numbered=numbered, folder=str(tmp_path))
    subprocess.run([sys.executable, "-c", program], timeout=60, check=True)
    reports = [path.read_text().split() for path in tmp_path.iterdir()]
    assert [len(each) for each in reports] == [100, 100, 100]
    assert len(set().union(*reports)) == 300


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
@pytest.mark.parametrize("name", mechanisms.names())
def test_a_forked_child_is_another_process(in_child, name):
    """The noise in hand at a fork is its parent's, whatever the mechanism, and is not used."""
    mechanism = mechanisms.make(name, domain_size=2, epsilon="1.5")
    while not mechanism._hand[2]:
        mechanism.randomize(0)

    def child() -> bytes:
        mine = mechanism._hand[0]
        mechanism.randomize(0)
        return bytes([mechanism._hand[0] != mine, mechanism._hand[3]])

    assert in_child(child) == bytes([True, 1])
    assert mechanism._hand[0] == source.process_mark()


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_every_process_has_a_mark_of_its_own(in_child):
    """Parent, child and grandchild are told apart, also those that have drawn nothing before."""
    if source._page is None:
        pytest.skip("this kernel clears no page")
    mine = source.mark_process()
    assert source.mark_process() == source.process_mark() == mine

    def child() -> bytes:
        cleared = source.process_mark()
        of_the_grandchild = in_child(source.mark_process)
        return cleared + source.mark_process() + of_the_grandchild

    answer = in_child(child)
    cleared, *others = answer[:16], answer[16:32], answer[32:]
    assert cleared == bytes(16)
    assert len({mine, cleared, *others}) == 4
    assert source.process_mark() == mine


@pytest.mark.parametrize("moved", [1.0, 1.001, 3600.0])
def test_noise_is_not_kept_for_more_than_a_second(mechanism, clock, moved):
    """What was drawn a second ago is drawn again, and less of it."""
    for _ in range(10):
        mechanism.randomize(0)
    old = set(mechanism._hand[2])
    assert old
    clock[0] += 0.999
    assert mechanism.randomize(0) in old
    clock[0] += moved - 0.999
    assert not {mechanism.randomize(0) for _ in range(20)} & old
    assert mechanism.asked == [1, 4, 16, 1, 4, 16]


def test_an_app_that_asks_rarely_has_no_noise_in_hand(mechanism, clock):
    """Who asks once a second draws once a second."""
    for _ in range(20):
        mechanism.randomize(0)
        assert not mechanism._hand[2]
        clock[0] += 1
    assert mechanism.asked == [1] * 20


@pytest.mark.usefixtures("clock")
def test_an_app_that_asks_often_draws_more_at_once(mechanism):
    """The amount drawn grows while all of it is used within its second, up to 256, and each is used once."""
    taken = [mechanism.randomize(0) for _ in range(1 + 4 + 16 + 64 + 256 + 256)]
    assert mechanism.asked == [1, 4, 16, 64, 256, 256]
    assert len(set(taken)) == len(taken)


@pytest.mark.usefixtures("clock")
def test_large_reports_are_drawn_few_at_once():
    """No more than 4,096 bits or so are drawn at once, so that no call takes long."""
    mechanism = mechanisms.make("oue", domain_size=1000, epsilon=1)
    for _ in range(200):
        mechanism.randomize(0)
    assert mechanism._hand[3] == 4096 // 1000


def test_a_fork_amid_a_draw(mechanism, monkeypatch):
    """A child that was forked amid a draw keeps none of it: of one that shares a part of it, both reports can tell the answer."""
    homes = iter(["parent", "child", "child", "child", "child"])
    monkeypatch.setattr(base, "process_mark", lambda: next(homes))
    monkeypatch.setattr(base, "mark_process", lambda: next(homes))
    assert mechanism.randomize(0) == 1
    assert mechanism._hand[0] == "child"


def test_a_fork_between_taking_and_looking(mechanism, monkeypatch):
    """Noise that was taken before a fork is not used by the child, nor by any thread of the parent for another answer."""
    while not mechanism._hand[2]:
        mechanism.randomize(0)
    ahead = list(mechanism._hand[2])
    held = []

    def fork():
        held.append(list(mechanism._hand[2]))
        return "child"

    monkeypatch.setattr(base, "process_mark", fork)
    monkeypatch.setattr(base, "mark_process", fork)
    assert mechanism.randomize(0) not in ahead
    assert held[0] == ahead[:-1], "it was taken before anything was compared"


def test_threads_share_noise_without_a_lock(mechanism):
    """Of eight threads that draw at once, no two use the same noise."""
    taken = [[] for _ in range(8)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [Thread(target=lambda mine=mine: mine.extend(mechanism.randomize(0) for _ in range(5000))) for mine in taken]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert len(set().union(*taken)) == sum(map(len, taken)) == 40_000
