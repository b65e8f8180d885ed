"""Noise drawn ahead is for the process that drew it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import deniable
from deniable import mechanisms, source

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


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.parametrize("home", HOMES)
def test_a_fork_that_runs_no_hook_shares_no_noise(tmp_path, home):
    """A child that C code makes, and its own child, use none of the noise that was drawn before."""
    numbered = home is HOMES[1]
    if not numbered and source._page is None:
        pytest.skip("this kernel clears no page")
    package = str(Path(deniable.__file__).parents[1])
    program = RAW.format(package=package, numbered=numbered, folder=str(tmp_path))
    subprocess.run([sys.executable, "-c", program], timeout=300, check=True)
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
