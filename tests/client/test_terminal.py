"""What commands print: nothing that others wrote steers a terminal, and a closed pipe ends them quietly."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from importlib.metadata import entry_points

import pytest

from deniable.commands import terminal

COMMANDS = sorted(point.name for point in entry_points(group="deniable.commands"))


def test_what_others_wrote_is_escaped(monkeypatch):
    """Control and direction characters are escaped in what is printed, to both streams; line ends and tabs stay."""
    out, err = io.StringIO(), io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    with terminal.guarded():
        print("a\tb\x1b[2J\u202egnp.exe\r")  # noqa: T201
        print("c\x9b\u2028", file=sys.stderr)  # noqa: T201
    print("\x1b")  # noqa: T201
    assert out.getvalue() == "a\tb\\u001b[2J\\u202egnp.exe\\u000d\n\x1b\n"
    assert err.getvalue() == "c\\u009b\\u2028\n"


def test_json_is_of_the_same_values(monkeypatch):
    """Escaping happens as JSON does it, so programs read what was there."""
    out = io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    value = "\x7f\u202e\U000e0001\\u0041 größer"
    with terminal.guarded():
        print(json.dumps(value, ensure_ascii=False))  # noqa: T201
    assert out.getvalue().strip().isprintable()
    assert json.loads(out.getvalue()) == value


def test_our_own_colours_reach_the_terminal(monkeypatch):
    """What is written to the stream itself is left alone."""
    out = io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    with terminal.guarded():
        print("\033[31mred\033[0m", end="", file=terminal.raw(sys.stdout))
        print(" \033[31m")  # noqa: T201
    assert out.getvalue() == "\033[31mred\033[0m \\u001b[31m\n"
    assert terminal.raw(sys.stdout) is out


def test_a_command_escapes_names(tmp_path):
    """A file that somebody sent cannot clear the screen of who checks it."""
    path = tmp_path / "\x1b[2J\u202e.toml"
    path.write_text('format = 1\napp = "shop"\n', "utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "deniable", "registry", "lint", path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert r"\u001b[2J\u202e.toml" in done.stdout
    assert not {"\x1b", "\u202e"} & {*done.stdout, *done.stderr}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_closed_pipe_ends_a_command_quietly(command):
    """Whoever stops reading is not told of a broken pipe, by no command."""
    pytest.importorskip("rich")
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer) as out:
        done = subprocess.run(
            [sys.executable, "-m", "deniable", command, "--help"], stdout=out, stderr=subprocess.PIPE, text=True, check=False
        )
    assert (done.returncode, done.stderr) == (terminal.CLOSED_STATUS, "")


def test_a_command_goes_on_without_its_log():
    """Where only messages are not read any more, the command does what it was told to, and its status says how that went."""
    reader, writer = os.pipe()
    os.close(reader)
    code = (
        "import sys; from deniable.commands.terminal import guarded\n"
        "with guarded():\n print(1, file=sys.stderr, flush=True)\n print(2)"
    )
    with os.fdopen(writer) as log:
        done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=log, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "2\n")
