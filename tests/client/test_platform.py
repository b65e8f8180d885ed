"""What one module makes alike on all systems: open files are renamed and removed, and locks hold."""

from __future__ import annotations

import os
from threading import Timer

import pytest

from deniable.platform import files


@pytest.fixture
def held(tmp_path):
    """Open a file to be read, and lock it."""
    path = tmp_path / "file"
    files.write_new(path, b"what was written")
    descriptor = files.open_to_read(path)
    assert files.lock(descriptor)
    yield path, descriptor
    files.let_go(descriptor)


def test_a_lock_is_held_once_and_keeps_nobody_from_reading(held):
    path, descriptor = held
    other = files.open_to_read(path)
    assert files.lock(other) is False
    assert os.read(other, 99) == os.read(descriptor, 99) == b"what was written"
    files.let_go(descriptor)
    assert files.lock(other) is True
    files.let_go(other)


def test_a_file_that_is_open_is_renamed_and_removed(held):
    path, descriptor = held
    files.rename(path, path.with_name("renamed"))
    assert not path.exists()
    files.remove(path.with_name("renamed"))
    assert os.read(descriptor, 99) == b"what was written"
    assert list(path.parent.iterdir()) == []


def test_nothing_that_is_there_is_renamed_away(tmp_path):
    """Of two processes that make the same folder, the second finds that of the first."""
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
    with pytest.raises(OSError, match=r"not empty|exists"):
        files.rename(tmp_path / "second", tmp_path / "first")
    files.rename_onto(tmp_path / "second" / "file", tmp_path / "first" / "file")
    assert (tmp_path / "first" / "file").read_text() == "second"


def test_a_scanner_that_has_a_file_for_a_moment_is_waited_for(tmp_path, monkeypatch):
    """A virus scanner opens what is new, and Windows then refuses to rename it."""
    path, target, refused = tmp_path / "new", tmp_path / "name", []
    path.write_text("new")

    def refuse(source, target):
        refused.append(source)
        if len(refused) < 3:
            raise PermissionError
        rename(source, target)

    rename = os.replace
    monkeypatch.setattr("deniable.platform.files._PAUSES", (0.0, 0.0))
    monkeypatch.setattr("os.replace", refuse)
    files.rename_onto(path, target)
    assert (len(refused), target.read_text()) == (3, "new")
    path.write_text("newer")
    refused.clear()
    monkeypatch.setattr("deniable.platform.files._PAUSES", (0.0,))
    with pytest.raises(PermissionError):
        files.rename_onto(path, target)


@pytest.mark.skipif(hasattr(os, "geteuid"), reason="other systems rename what is open")
def test_what_others_have_open_is_waited_for(tmp_path):
    """A process that opens a file as Python does keeps it from being renamed and removed until it closes it."""
    path = tmp_path / "file"
    path.write_text("read by somebody")
    for act in (lambda: files.rename(path, tmp_path / "renamed"), lambda: files.remove(tmp_path / "renamed")):
        somebody = next(each for each in (path, tmp_path / "renamed") if each.exists()).open()
        with pytest.raises(PermissionError):
            act()
        closing = Timer(0.05, somebody.close)
        closing.start()
        act()
        closing.join()
    assert list(tmp_path.iterdir()) == []
