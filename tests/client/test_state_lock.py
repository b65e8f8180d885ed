"""The lock of the device's file: it is taken before anything is read, so that nobody spends what another one spends, too."""

from __future__ import annotations

import pytest

from deniable.device import state
from deniable.device.state import State
from deniable.errors import StateError


def test_who_reads_in_a_transaction_keeps_others_out(tmp_path, monkeypatch):
    monkeypatch.setattr(state, "_PATIENCE", 0.0)
    one, other = State(tmp_path / "shop"), State(tmp_path / "shop")
    with one.transaction():  # begins
        pass
    with one.transaction() as db:
        db.execute("SELECT value FROM facts").fetchall()
        with pytest.raises(StateError, match="locked"), other.transaction():
            pass
    with other.transaction() as db:
        assert db.execute("SELECT value FROM facts WHERE name = 'lifetime'").fetchone() == (0,)
