"""The journal: what was sent, randomised as it was, the last thousand of it."""

from __future__ import annotations

import pytest
from registries import metric_toml, registry_toml

from deniable.commands.entry import main
from deniable.device.journal import Journal
from deniable.device.state import State
from deniable.errors import StateError
from deniable.wire.report import Report, Stratum


def report(number: int, segment: str = "") -> Report:
    return Report(Stratum("ui.theme", 2, "0" * 16, "2026-11-21", segment), number.to_bytes(2, "big"))


def test_what_was_sent_is_told(tmp_path):
    """Each report has what it is counted with and its payload; the newest comes first, also after a restart."""
    Journal(State(tmp_path / "shop")).add([report(1), report(2, "platform=linux")])
    Journal(State(tmp_path / "shop")).add([report(3)])
    entries = Journal(State(tmp_path / "shop")).entries()
    assert [entry.payload for entry in entries] == ["0003", "0002", "0001"]
    assert (entries[1].metric, entries[1].version, entries[1].period) == ("ui.theme", 2, "2026-11-21")
    assert str(entries[1]) == "ui.theme (version 2) for 2026-11-21, platform=linux: sent as bytes 0002"
    assert str(entries[2]).endswith("for 2026-11-21: sent as bytes 0001")


def test_the_last_thousand():
    """Older ones are forgotten, however they came."""
    journal = Journal(State(None))
    for start in range(0, 2500, 500):
        journal.add(report(number) for number in range(start, start + 500))
    entries = journal.entries()
    assert [entry.payload for entry in entries] == [number.to_bytes(2, "big").hex() for number in range(2499, 1499, -1)]


def test_it_is_forgotten(tmp_path):
    """The whole journal can be emptied; where nothing was ever kept, nothing is begun for that."""
    journal = Journal(State(tmp_path / "shop"))
    journal.clear()
    assert journal.entries() == []
    assert not (tmp_path / "shop").exists()
    journal.add([report(1), report(2)])
    journal.clear()
    assert journal.entries() == []


def test_where_nothing_can_be_kept(tmp_path):
    """A state that cannot be used is an error that says so."""
    (tmp_path / "shop").mkdir()
    with pytest.raises(StateError, match="was deleted"):
        Journal(State(tmp_path / "shop")).add([report(1)])


def test_the_command_shows_the_app_of_the_registry_and_no_other(tmp_path, monkeypatch, capsys):
    """Whoever stands in the folder of one app is not shown what another one sent, or told to delete its state."""
    monkeypatch.setattr("deniable.commands.sent.state_root", lambda: tmp_path / "states")
    monkeypatch.chdir(tmp_path)
    Journal(State(tmp_path / "states" / "shop")).add([report(1)])
    assert main(["sent"]) == 0  # the only one
    assert "0001" in capsys.readouterr().out
    text = registry_toml(metric_toml("ui.theme"), app="photos")
    (tmp_path / "metrics.toml").write_text(text, "utf-8")
    for words in (["sent"], ["sent", "--registry", "metrics.toml"]):
        assert main(words) == 2
        assert "photos keeps no state in" in capsys.readouterr().err
    Journal(State(tmp_path / "states" / "photos")).add([report(2)])
    assert main(["sent"]) == 0
    words = capsys.readouterr().out
    assert "0002" in words
    assert "0001" not in words
