"""Reports that wait in the state: each is taken once, in time, whatever the clock does."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from deniable.device.state import State
from deniable.device.waiting import Waiting
from deniable.registry.tables import TAKEN_FOR
from deniable.wire.report import Report, Stratum

if TYPE_CHECKING:
    from pathlib import Path

HOUR = 3600.0


def report(number: int = 0) -> Report:
    return Report(Stratum("m", 1, "0" * 16, "2027-01-15", "platform=linux"), bytes([number]))


class Clock:
    """A clock that is set by hand, and the monotonic one, which nobody sets."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0
        self.run = 1000.0

    def __call__(self) -> float:
        return self.now

    def pass_(self, seconds: float) -> None:
        self.now += seconds
        self.run += seconds


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr("deniable.device.waiting.time.monotonic", lambda: clock.run)
    return clock


@pytest.fixture
def start(tmp_path, clock):
    """Start a process of the device."""
    return lambda: Waiting(State(tmp_path / "shop"), clock)


def rows(folder: Path) -> list[tuple]:
    with closing(sqlite3.connect(folder / "shop" / "state.db")) as db:
        return db.execute("SELECT * FROM waiting").fetchall()


def test_each_is_taken_once_when_it_is_due(start, clock):
    """By whichever process comes first, with all that it was."""
    one = start()
    assert one.put([(report(1), 2 * HOUR), (report(2), 5 * HOUR)])
    two = start()
    assert (one.take(), two.take(), len(two)) == ([], [], 2)
    clock.pass_(2 * HOUR - 2)
    assert one.take() == []
    clock.pass_(3)
    assert two.take() == [report(1)]
    clock.pass_(HOUR)
    assert (one.take(), two.take()) == ([], [])
    clock.pass_(2 * HOUR)
    assert one.take() == [report(2)]
    assert (two.take(), len(two)) == ([], 0)


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("back", [HOUR, 100 * HOUR, 24 * 365 * HOUR])
def test_a_clock_that_is_set_back(start, clock, back, restarted):
    """They are not due later for it: not by more than the time is noted, and not earlier than by the old clock."""
    one = start()
    one.put([(report(), 6 * HOUR)])
    clock.pass_(2 * HOUR)
    assert one.take() == []  # and notes the time
    clock.now -= back
    if restarted:
        one = start()
    clock.pass_(1)
    assert one.take() == []
    for _ in range(int((4 * HOUR - 700) / 60)):
        clock.pass_(60)
        assert one.take() == []
    taken = []
    for _ in range(int((700 + 1260) / 60)):
        clock.pass_(60)
        taken += one.take()
    assert taken == [report()]


def test_several_processes_note_that_the_clock_was_set_back_once(start, clock):
    """Otherwise each of them would make reports due earlier."""
    processes = [start() for _ in range(4)]
    processes[0].put([(report(), 8 * HOUR)])
    clock.now -= HOUR
    for process in processes:
        process._look_at = 0.0
        assert process.take() == []
    clock.pass_(7 * HOUR - 700)
    for process in processes:
        process._look_at = 0.0
        assert process.take() == []
    clock.pass_(HOUR + 1400)
    assert sum(len(process.take()) for process in processes) == 1


def test_a_clock_that_was_ahead(start, clock):
    """What was put while the clock was years ahead waits no longer when that is mended."""
    clock.now += 50 * 24 * 365 * HOUR
    one = start()
    one.put([(report(), 6 * HOUR)])
    clock.now -= 50 * 24 * 365 * HOUR
    assert start().take() == []
    clock.pass_(6 * HOUR + 700)
    assert start().take() == [report()]


def test_what_nobody_fetches_expires(start, clock):
    """When no server takes it any more it is deleted and counted, as batches are that nobody has seen."""
    start().put([(report(), HOUR), (report(), 48 * HOUR)])
    clock.pass_(HOUR + TAKEN_FOR + 1)
    one = start()
    assert one.take() == [report()]
    assert +one.counts == {"spool_expired": 1}


def test_there_is_a_largest_number(start, monkeypatch):
    """More are dropped and counted."""
    monkeypatch.setattr("deniable.device.waiting._MOST", 3)
    one = start()
    assert one.put([(report(number), HOUR) for number in range(5)])
    assert (len(one), one.counts) == (3, {"spool_full": 2})


def test_the_file_tells_no_more_than_it_must(start, clock, tmp_path):
    """No moment of an answer, no order; the time that is noted is rounded, and goes with the last report."""
    one = start()
    one.put([(report(number), 6 * HOUR) for number in range(40)])
    contents = rows(tmp_path)
    assert [row[-2][0] for row in contents] != list(range(40))
    assert {len(row[0]) for row in contents} == {8}
    assert {row[1] for row in contents} == {int(clock.now + 6 * HOUR)}
    with closing(sqlite3.connect(tmp_path / "shop" / "state.db")) as db:
        assert db.execute("SELECT value % 600 FROM facts WHERE name = 'clock'").fetchall() == [(0,)]
    clock.pass_(7 * HOUR)
    assert len(one.take()) == 40
    with closing(sqlite3.connect(tmp_path / "shop" / "state.db")) as db:
        assert db.execute("SELECT value FROM facts WHERE name = 'clock'").fetchall() == []


def test_a_purge(start, clock, tmp_path):
    """All is deleted. If the state is busy, nothing is taken until it is."""
    one = start()
    one.put([(report(), HOUR)])
    with closing(sqlite3.connect(tmp_path / "shop" / "state.db", isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        one.purge()
        assert one.purging
        other.execute("ROLLBACK")
    clock.pass_(2 * HOUR)
    assert one.take() == []
    assert (one.purging, len(one), +one.counts) == (False, 0, {"purged": 1})
    one.put([(report(), 0.5)])
    clock.pass_(2)
    assert one.take() == [report()]


def test_a_state_that_cannot_be_used(start, clock, tmp_path):
    """Nothing is kept, which is told; nothing is taken, and there is no error."""
    one = start()
    one.put([(report(), HOUR)])
    (tmp_path / "shop" / "state.db").write_bytes(b"no database")
    clock.pass_(2 * HOUR)
    assert not one.put([(report(), HOUR)])
    assert (one.take(), len(one)) == ([], 0)


def test_nothing_is_made_by_looking(start, tmp_path):
    """A device that never reported has no state."""
    one = start()
    assert (one.take(), len(one)) == ([], 0)
    one.purge()
    one.make_due()
    assert not (tmp_path / "shop").exists()
