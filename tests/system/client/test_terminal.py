"""Commands as processes: nothing that others wrote steers a terminal, and a closed pipe ends them quietly."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import entry_points

import pytest

from deniable.commands import terminal

COMMANDS = sorted(point.name for point in entry_points(group="deniable.commands"))


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


def test_as_a_module():
    """``python -m deniable`` is the command."""
    done = subprocess.run(
        [sys.executable, "-m", "deniable", "prove", "coin", "--epsilon", "2", "--domain-size", "2"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.endswith(": proved\n")
