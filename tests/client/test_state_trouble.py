"""What a state says of its trouble: it stays until something was written, and that of a damaged file for good."""

from __future__ import annotations

import sqlite3
from contextlib import contextmanager

import pytest

from deniable.device.journal import Journal
from deniable.device.state import State
from deniable.errors import StateError
from deniable.wire.report import Report, Stratum


@pytest.fixture
def state(tmp_path):
    return State(tmp_path / "shop")


def fail(state, error):
    with pytest.raises(StateError), state.transaction():
        raise error


def write(state):
    with state.transaction() as db:
        db.execute("UPDATE facts SET value = value + 1 WHERE name = 'lifetime'")


def test_reading_does_not_end_it(state):
    fail(state, sqlite3.OperationalError("database or disk is full"))
    with state.transaction() as db:
        db.execute("SELECT value FROM facts").fetchall()
    assert "disk is full" in state.trouble
    write(state)
    assert state.trouble is None


def test_damage_stays_whatever_comes_after(state):
    fail(state, ValueError("no number"))
    fail(state, sqlite3.OperationalError("database is locked"))
    write(state)
    assert state.trouble is not None


def test_a_journal_that_must_be_cleared_shows_nothing(state, monkeypatch):
    """Also if the state cannot be written just now, and can be read a moment later."""
    journal = Journal(state)
    journal.add([Report(Stratum("m", 1, "0" * 16, "2027-01-15", ""), b"\0")])
    assert len(journal.entries()) == 1
    begin, failures = state.transaction, iter([StateError("busy")] * 2)

    @contextmanager
    def fail_twice():
        if error := next(failures, None):
            raise error
        with begin() as db:
            yield db

    monkeypatch.setattr(state, "transaction", fail_twice)
    journal.clear()
    assert journal.clearing
    assert journal.entries() == []
    assert journal.entries() == []
    assert not journal.clearing
