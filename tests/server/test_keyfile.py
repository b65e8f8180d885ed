"""The keys of `deniable serve`: drawn once, the same at each start, in a file for one user alone."""

from __future__ import annotations

import json
import os
import re
import stat

import pytest

from deniable.errors import ConfigurationError
from deniable_server.access.key_file import KeyFile
from deniable_server.settings import Keys


def test_keys_are_the_same_at_each_start(tmp_path):
    """What was drawn is found again; an app that came later gets keys of its own, and those of the others stay."""
    folder = tmp_path / "new" / "data"
    draw = KeyFile(folder).keys(["shop"])
    assert re.fullmatch(r"pk_[\w-]{32}", draw["shop"]["ingest"])
    assert re.fullmatch(r"rk_[\w-]{32}", draw["shop"]["read"])
    assert KeyFile(folder).keys(["shop"]) == draw
    both = KeyFile(folder).keys(["blog", "shop"])
    assert both["shop"] == draw["shop"]
    assert len({key for keys in both.values() for key in keys.values()}) == 4
    assert KeyFile(folder).keys(["shop"]) == draw
    assert Keys(",".join(f"{app}:{keys['read']}" for app, keys in both.items())).app(both["blog"]["read"]) == "blog"


def test_nobody_else_reads_the_file(tmp_path):
    """File and folder are the owner's alone whatever the umask, git takes neither, and nothing is left lying beside."""
    folder = tmp_path / "data"
    before = os.umask(0)
    try:
        KeyFile(folder).keys(["shop"])
    finally:
        os.umask(before)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "keys.json").stat().st_mode) == 0o600
    assert {path.name for path in folder.iterdir()} == {"keys.json", ".gitignore"}
    assert (folder / ".gitignore").read_text() == "*\n"


def test_a_folder_that_was_there_is_not_hidden(tmp_path):
    """Into a folder that somebody made goes the file and nothing else."""
    KeyFile(tmp_path).keys(["shop"])
    assert "keys.json" in {path.name for path in tmp_path.iterdir()}
    assert not (tmp_path / ".gitignore").exists()


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620])
def test_a_file_that_others_may_open_stops_the_start(tmp_path, mode):
    """Keys that somebody else may have read or written are not used, and not replaced unasked."""
    file = KeyFile(tmp_path)
    file.keys(["shop"])
    file.path.chmod(mode)
    written = file.path.read_bytes()
    with pytest.raises(ConfigurationError, match="chmod 600"):
        file.keys(["shop"])
    assert file.path.read_bytes() == written


@pytest.mark.parametrize(
    "written",
    [
        "",
        "[]",
        '{"shop": null}',
        '{"shop": {}}',
        '{"shop": {"ingest": "pk_aaaaaaaaaaaaaaaaaaaaaaaa"}}',
        '{"shop": {"ingest": "pk_aaaaaaaaaaaaaaaaaaaaaaaa", "read": "rk_bbbbbbbbbbbbbbbbbbbbbbbb,blog:rk_c"}}',
        '{"shop": {"ingest": "pk_aaaaaaaaaaaaaaaaaaaaaaaa", "read": 7}}',
    ],
)
def test_a_file_that_was_tampered_with_stops_the_start(tmp_path, written):
    """What is not as it was written is refused with the way out; the message repeats nothing of it."""
    file = KeyFile(tmp_path)
    file.path.touch(0o600)
    file.path.write_text(written)
    with pytest.raises(ConfigurationError, match="remove it") as caught:
        file.keys(["shop"])
    assert "aaaa" not in str(caught.value)
    assert "bbbb" not in str(caught.value)


def test_a_folder_that_cannot_be_used_is_said(tmp_path):
    """Where the file cannot be written the start fails with the reason."""
    (tmp_path / "data").write_text("a file")
    with pytest.raises(ConfigurationError, match="cannot be kept"):
        KeyFile(tmp_path / "data").keys(["shop"])


def test_a_write_that_fails_leaves_what_was_there(tmp_path, monkeypatch):
    """If a new app's keys cannot be written, the file is as before and nothing is left lying beside."""
    file = KeyFile(tmp_path)
    draw = file.keys(["shop"])
    before = set(tmp_path.iterdir())

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(json, "dump", full)
    with pytest.raises(ConfigurationError, match="No space left"):
        file.keys(["shop", "blog"])
    assert set(tmp_path.iterdir()) == before
    assert file.keys(["shop"]) == draw
