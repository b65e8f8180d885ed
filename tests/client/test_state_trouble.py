"""What a state says of its trouble: it stays until something was written, and that of a damaged file for good."""

from __future__ import annotations

import sqlite3
from contextlib import contextmanager

import pytest

from deniable.device.journal import Journal
from deniable.device.state import State
from deniable.errors import StateError
from deniable.messages.reasons import ANSWERS
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


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (sqlite3.OperationalError("database or disk is full"), "make room on the disk"),
        (OSError(28, "No space left on device"), "make room on the disk"),
        (sqlite3.OperationalError("database is locked"), "another process has it: if this lasts, end that process"),
        (
            sqlite3.OperationalError("attempt to write a readonly database"),
            "see that this user can write there, or name another ",
        ),
        (PermissionError(13, "Permission denied"), "see that this user can write there, or name another "),
        (sqlite3.DatabaseError("database disk image is malformed"), "it is damaged; to start again with a new budget, remove "),
        (ValueError("no number"), "it is damaged; to start again with a new budget, remove "),
    ],
)
def test_each_trouble_has_its_own_remedy(state, error, remedy):
    """A file that is damaged is not mended by another place, and a full disk not by removing the file."""
    fail(state, error)
    assert f"; {remedy}" in state.trouble
    words = ANSWERS["state"].words(state.trouble)
    assert words == f"{ANSWERS['state'].happened}: {state.trouble}"


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
