"""Processes that die, stop and race over one state: what was reported was paid for, and a kept response stays what it is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import contextmanager
from random import Random
from shutil import rmtree, which
from typing import TYPE_CHECKING

import pytest
from registries import metric_toml, registry_toml

from deniable.declared import Declared
from deniable.device.ledger import Ledger
from deniable.device.permanent_responses import PermanentResponses
from deniable.device.prepared import Occasion, Prepared
from deniable.device.state import State
from deniable.limits.allowance import MICRO, Allowance
from deniable.registry import Metric
from deniable.registry.tables import Budget
from deniable.wire.report import Stratum

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LIFETIME = 5000
LAST = 150  # system call of a kind that is tried
BUDGET = Budget(per_month=LIFETIME, lifetime=LIFETIME)
PLAIN = Allowance("plain", "plain", MICRO // 100, 10**9, 0, LIFETIME * MICRO // 2, LIFETIME * MICRO // 2)
# Without noise of its own, a report is the permanent response: what is kept can be seen.
METRIC = Metric(
    "kept",
    "categorical",
    tuple("abcdefghijklmnop"),
    "2",
    epsilon_permanent="2",
    mechanism="rappor",
    answers_per_month=16,
)
KEPT = Prepared(Declared.of(METRIC), Allowance.of(Declared.of(METRIC), BUDGET), "")
MONTH = "2026-11"


def at(period: str) -> Occasion:
    return Occasion(Stratum("kept", 1, KEPT.allowance.tag, period, ""), MONTH)


DEVICE = f"""
import os, sys, time
from pathlib import Path
from deniable.declared import Declared
from deniable.device import ledger
from deniable.device import permanent_responses
from deniable.device import state
from deniable.limits.allowance import Allowance
from deniable.registry.tables import Budget
from deniable.device.prepared import Occasion, Prepared
from deniable.registry import Metric
from deniable.wire.report import Stratum
ledger._REPORTS = 9  # so that a lease is renewed all the time, mostly ahead
ledger.TROUBLE_PAUSE = permanent_responses.TROUBLE_PAUSE = 0.01
state._PATIENCE = 0.05
mine = state.State(Path(sys.argv[1]))
budget = {BUDGET!r}
spends = ledger.Ledger(mine, budget)
metric = {METRIC!r}
prepared = Prepared(Declared.of(metric), Allowance.of(Declared.of(metric), budget), "")
responses = permanent_responses.PermanentResponses(mine, spends)
out = os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND)
def plain():
    if spends.spend({PLAIN!r}, Occasion(Stratum("plain", 1, "plain", "for ever", ""), {MONTH!r})) is None:
        os.write(out, b"plain\\n")
    spends.renew_ahead()  # as the sending thread does
def kept(value, period):
    made = responses.respond(prepared, Occasion(Stratum("kept", 1, "", period, ""), {MONTH!r}), value)
    if isinstance(made, bytes):
        os.write(out, f"kept {{value}} {{period}} {{made.hex()}}\\n".encode())
"""
# Periods of five milliseconds, with the same names in all processes.
FOR_EVER = f"""{DEVICE}
os.write(1, b"r")
while True:
    plain()
    now = time.time_ns() // 5_000_000
    kept(now % 7, f"{{now:020}}")
"""
# One process for each line of input, which is the name of its period; the nth dies at its nth system call of a kind.
STEP_BY_STEP = f"""{DEVICE}
from contextlib import suppress
nothing = os.open(os.devnull, os.O_RDWR)
idle = {{
    "mkdir": lambda: os.mkdir("/"),
    "rename": lambda: os.rename("/no such file", "/no such file"),
    "fsync": lambda: os.fsync(nothing),
    "fdatasync": lambda: os.fdatasync(nothing),
    "ftruncate": lambda: os.ftruncate(nothing, 0),
    "pwrite64": lambda: os.pwrite(nothing, b"-", 0),
}}[sys.argv[3]]
def once(number, period):
    for _ in range({LAST} - number):
        with suppress(OSError):
            idle()
    kept(5, period)
    for _ in range(9):
        plain()
    kept(6, period + "+")
    spends.return_leases()
for number, line in enumerate(sys.stdin, 1):
    if os.fork() == 0:
        try:
            once(number, line.strip())
        except BaseException:
            os._exit(1)
        os._exit(0)
    os.write(1, b"%d\\n" % os.waitstatus_to_exitcode(os.wait()[1]))
"""


class Device:
    """A device whose processes write down each report before they do anything else."""

    def __init__(self, folder) -> None:
        self.directory = folder / "device" / "shop"
        self.reports = folder / "reports"
        self.reports.touch()

    @property
    def arguments(self) -> tuple[str, str]:
        return str(self.directory), str(self.reports)

    def start(self) -> subprocess.Popen[bytes]:
        """Start a process and wait until it is about to record."""
        process = subprocess.Popen([sys.executable, "-c", FOR_EVER, *self.arguments], stdout=subprocess.PIPE)
        assert process.stdout is not None
        assert process.stdout.read(1) == b"r"
        return process

    def check(self) -> Counter[str]:
        """Hold every promise to what was reported; return how many reports of each kind there were."""
        lines = self.reports.read_text().splitlines()
        reports = [line.split()[1:] for line in lines if line.startswith("kept")]
        periods = Counter(period for _, period, _ in reports)
        assert not [period for period, times in periods.items() if times > 1]
        responses = {(value, content) for value, _, content in reports}
        assert len(responses) == len({value for value, _ in responses})
        counts = Counter(line.split()[0] for line in lines)
        with State(self.directory).transaction() as db:
            assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            (spent,) = db.execute("SELECT value FROM facts WHERE name = 'lifetime'").fetchone()
            assert db.execute("SELECT coalesce(sum(cost), 0) FROM spends").fetchone() == (spent,)
            accounts = dict(db.execute("SELECT tag, spent FROM accounts"))
            assert sum(accounts.values()) == spent <= LIFETIME * MICRO
            assert counts["plain"] * PLAIN.cost <= accounts.get("plain", 0)
            stored = db.execute("SELECT count(*) FROM responses").fetchone()[0]
            assert accounts.get(KEPT.allowance.tag, 0) == (KEPT.allowance.lifetime if stored else 0)
            assert len(responses) <= stored == sum(number for (number,) in db.execute("SELECT drawn FROM kept"))
        return counts


@pytest.fixture
def device(tmp_path):
    """Give a device that never did anything."""
    return Device(tmp_path)


def kill(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait(120)
    assert process.stdout is not None
    process.stdout.close()


@pytest.mark.campaign
@pytest.mark.parametrize("least", [12, pytest.param(40, marks=pytest.mark.nightly)])
def test_killed_at_any_moment(device, least):
    """However often the only process is killed, and wherever, all reports were paid for and all responses stay."""
    chance, kills, counts = Random(20261121), 0, device.check()
    while kills < least or not (counts["plain"] > 4 and counts["kept"] > 2):  # a busy machine lets them do little
        assert kills < 400
        process = device.start()
        time.sleep(chance.random() * 0.04)
        kill(process)
        kills += 1
        counts = device.check()
    # Beside it may be what was never finished, which the next beginning after an hour removes.
    assert [each.name for each in device.directory.parent.iterdir() if not each.name.startswith(".")] == ["shop"]


@pytest.mark.campaign
@pytest.mark.parametrize("most", [12, pytest.param(24, marks=pytest.mark.nightly)])
def test_killed_and_stopped_while_others_go_on(device, most):
    """Processes that stop amid a transaction, go on later, or die, cost others reports, but no promise."""
    chance = Random(20261122)
    running = [device.start() for _ in range(2)]
    kills = 0
    try:
        while kills < most:
            time.sleep(chance.random() * 0.03)
            if len(running) < 6:
                running.append(device.start())
            process = chance.choice(running)
            process.send_signal(chance.choice((signal.SIGSTOP, signal.SIGCONT, signal.SIGCONT)))
            if chance.random() < 0.5:
                running.remove(process)
                kill(process)
                kills += 1
    finally:
        for process in running:
            kill(process)
    counts = device.check()
    assert counts["plain"] > 4  # a busy machine lets them do little
    assert counts["kept"] > 2


def test_a_stopped_process_holds_nobody_up(device):
    """While a process is stopped amid a transaction, another is refused at once, and reports again when that one goes on."""
    script = f"""{DEVICE}
with mine.transaction() as db:
    db.execute("UPDATE facts SET value = value WHERE name = 'lifetime'")
    os.write(1, b"r")
    sys.stdin.read(1)
"""
    device.check()  # begins
    command = [sys.executable, "-c", script, *device.arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        assert holder.stdout.read(1) == b"r"
        holder.send_signal(signal.SIGSTOP)
        state = State(device.directory)
        spends = Ledger(state, BUDGET)
        responses = PermanentResponses(state, spends)
        begun = time.monotonic()
        assert {spends.spend(PLAIN, at("2026-11")) for _ in range(100)} == {"state"}
        assert {responses.respond(KEPT, at("2026-11"), 1) for _ in range(100)} == {"state"}
        assert time.monotonic() - begun < 25  # a quarter of a second each, and not a hundred times that
        holder.send_signal(signal.SIGCONT)
        holder.stdin.close()
        holder.wait(120)
    assert Ledger(state, BUDGET).spend(PLAIN, at("2026-11")) is None


@pytest.fixture(scope="module")
def _tracing():
    """Skip where no process can be ended at its nth system call."""
    probe = ["strace", "-qq", "-o", os.devnull, "-e", "inject=write:signal=KILL:when=1", sys.executable, "-c", "print(1)"]
    if which("strace") is None:
        pytest.skip("strace is not installed: it is what ends a process at its nth system call")
    if subprocess.run(probe, check=False, timeout=300, capture_output=True).returncode not in (
        -signal.SIGKILL,
        128 + signal.SIGKILL,
    ):
        pytest.skip("this system lets no process trace another")


FIRST = """
import os, sys, deniable
deniable.init("http://key@127.0.0.1:9/shop", registry=sys.argv[1], consent=True, state=sys.argv[2], strict=True)
os.write(2, b"begun")
assert deniable.record("kept", "a")
os.write(2, b"ended")
os._exit(0)
"""


@pytest.mark.usefixtures("_tracing")
def test_a_beginning_waits_for_the_disk_four_times(tmp_path):
    """The layout and the first spend are one file, synced once, and then its folder and those above it."""
    registry = tmp_path / "metrics.toml"
    registry.write_text(registry_toml(metric_toml("kept", values=["a", "b"], epsilon_permanent=2)), "utf-8")
    (tmp_path / "new").mkdir()
    program = [sys.executable, "-c", FIRST, registry, tmp_path / "new" / "state"]
    trace = ["strace", "-f", "-qq", "-e", "trace=fsync,fdatasync,write", *program]
    done = subprocess.run(trace, capture_output=True, text=True, check=True, timeout=120)
    first = done.stderr.partition("begun")[2].partition("ended")[0]
    assert first.count("sync(") == 4, first


@contextmanager
def dying(call: str, device: Device) -> Iterator[Callable[[str], int]]:
    """Give a function that runs a process in a given period, the nth of which dies at its nth call, and returns its status."""
    trace = ["strace", "-f", "-qq", "-o", os.devnull, "-e", f"trace={call}", "-e", f"inject={call}:signal=KILL:when={LAST}"]
    command = [*trace, sys.executable, "-c", STEP_BY_STEP, *device.arguments, call]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, bufsize=1) as driver:
        assert driver.stdin is not None
        assert driver.stdout is not None

        def run(period: str) -> int:
            driver.stdin.write(f"{period}\n")
            return int(driver.stdout.readline())

        yield run
        driver.stdin.close()


@pytest.mark.parametrize("call", ["mkdir", "rename", "fsync", "fdatasync", "ftruncate", "pwrite64"])
@pytest.mark.parametrize("fresh", [True, False], ids=["while it begins", "later"])
@pytest.mark.usefixtures("_tracing")
def test_killed_at_every_step(device, call, fresh):
    """Wherever a process dies between two writes to the disk, the next one finds a state it can go on with."""
    deaths = 0
    if not fresh:
        device.check()  # begins
    with dying(call, device) as run:
        while (status := run(f"{deaths:09}")) == -signal.SIGKILL:
            deaths += 1
            device.check()
            if fresh:
                rmtree(device.directory.parent)
                device.reports.write_text("")
    assert status == 0
    assert deaths < LAST
    assert device.check()["kept"] >= 2
    assert deaths or call in ("mkdir", "rename", "fsync")  # which only a beginning needs
