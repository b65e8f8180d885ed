"""Processes share a ledger: what one takes ahead is its own."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from deniable.device.ledger import Ledger
from deniable.device.prepared import Occasion
from deniable.device.state import State
from deniable.limits.allowance import MICRO, Allowance
from deniable.registry.tables import Budget
from deniable.wire.report import Stratum

SPEND = """
import sys
from pathlib import Path
from deniable.device import state
from deniable.limits.allowance import MICRO, Allowance
from deniable.registry.tables import Budget
from deniable.device.ledger import Ledger
from deniable.device.prepared import Occasion
from deniable.wire.report import Stratum
from deniable.device.state import State
state._PATIENCE = 60.0  # what is asked is what they spend, not how long they wait
ledger = Ledger(State(Path(sys.argv[1])), Budget(per_month=40, lifetime=None))
allowance = Allowance("m", "m", MICRO // 10, 400, 0, 40 * MICRO, None)
now = Occasion(Stratum("m", 1, "m", "2027-01-15", ""), "2027-01")
done = sum(ledger.spend(allowance, now) is None for _ in range(int(sys.argv[2])))
ledger.return_leases()
print(done)
"""
FREE = Budget(per_month=None, lifetime=None)
ALLOWANCE = Allowance("m", "m", MICRO, 1000, 0, 31_000 * MICRO, None)
NOW = Occasion(Stratum("m", 1, "m", "2027-01-15", ""), "2027-01")


@pytest.fixture
def ledger(tmp_path):
    """Open a device's ledger that has spent once, and so has taken more ahead."""
    opened = Ledger(State(tmp_path / "shop"), FREE)
    assert opened.spend(ALLOWANCE, NOW) is None
    return opened


def test_processes_share_it(tmp_path):
    """Eight processes that each want half of the reports get them once, to the unit."""
    script = [sys.executable, "-c", SPEND, str(tmp_path / "shop"), "200"]
    running = [subprocess.Popen(script, stdout=subprocess.PIPE) for _ in range(8)]
    done = sum(int(process.communicate()[0]) for process in running)
    spent = Ledger(State(tmp_path / "shop"), FREE).spent("2027-01")
    assert 300 < done <= 400  # what one gives back too late for another is lost time, not budget
    assert done * 0.1 == pytest.approx(spent.lifetime, abs=1e-6)


def test_a_forked_child_has_no_lease(ledger, in_child):
    """What the parent has taken ahead is the parent's."""
    before = ledger.spent("2027-01").lifetime
    in_child(lambda: str(ledger.spend(ALLOWANCE, NOW)).encode())
    assert ledger.spent("2027-01").lifetime > before
    ledger.return_leases()  # gives back the parent's own, and nothing of the child's
    assert ledger.spent("2027-01").lifetime > 1


def test_a_child_of_the_same_number_has_no_lease(ledger, in_child, monkeypatch):
    """A child whose number is its parent's, as in another namespace, has not what the parent has taken ahead either."""
    before = ledger.spent("2027-01").lifetime
    number = os.getpid()
    monkeypatch.setattr("os.getpid", lambda: number)
    in_child(lambda: str(ledger.spend(ALLOWANCE, NOW)).encode())
    assert ledger.spent("2027-01").lifetime > before


def test_a_fork_by_c_code_has_no_lease(tmp_path):
    """Nor has a child that calls none of Python's hooks: what it spends it takes from the file."""
    if not hasattr(os, "fork"):
        pytest.skip("this system has no fork")
    script = SPEND.replace("done = ", "import ctypes, os\nledger.spend(allowance, now)\nctypes.CDLL(None).fork()\ndone = ")
    script = script.replace("print(done)", "os.write(1, b'%d\\n' % done)\nos._exit(0)")
    command = [sys.executable, "-c", script, str(tmp_path / "shop"), "3"]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=300).stdout.split()
    assert sorted(done) == [b"3", b"3"]
    spent = Ledger(State(tmp_path / "shop"), FREE).spent("2027-01")
    assert spent.lifetime == pytest.approx(0.7, abs=1e-6)
