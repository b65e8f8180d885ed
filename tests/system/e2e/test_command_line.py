"""The guide for command line tools: its programs run with the real libraries, and a person at a terminal is asked once."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from deniable.process.surroundings import _CI

ROOT = Path(__file__).parents[3]
GUIDE = (ROOT / "docs" / "how-to" / "command-line.md").read_text("utf-8")
HEAD = """
from pathlib import Path
from deniable.cli import Telemetry
here = Path(__file__).with_name("metrics.toml")
telemetry = Telemetry("http://key@127.0.0.1:9/shop", registry=here, version="1.0.3", command="shop")
"""
AROUND = {
    "typer": ("", ""),
    "click": (f"import click\n{HEAD}", "\n@app.command()\ndef build(): print('built')\napp()\n"),
    "argparse": (f"import argparse\n{HEAD}\nparser = argparse.ArgumentParser()\n", ""),
}
BUILD = "subparsers.add_parser('build').set_defaults(func=lambda _: print('built'))\n"


def block(library):
    match = re.search(rf"<!-- cli {library} -->\n```python\n(.*?)```", GUIDE, re.DOTALL)
    assert match
    text = match[1].replace("https://PUBLIC_KEY@telemetry.example.org/shop", "http://key@127.0.0.1:9/shop")
    before, after = AROUND[library]
    return before + text.replace("arguments = parser", BUILD + "arguments = parser") + after


@pytest.fixture(params=AROUND)
def tool(request, tmp_path, state_directory):
    """Write the guide's tool; return what runs it."""
    pytest.importorskip(request.param)
    subprocess.run([sys.executable, "-m", "deniable", "init", "--cli", "--app", "shop"], cwd=tmp_path, check=True, timeout=120)
    (tmp_path / "shop.py").write_text(block(request.param), "utf-8")
    environment = {name: text for name, text in os.environ.items() if name not in _CI} | {
        "DENIABLE_STATE_DIR": str(state_directory)
    }

    def run(*words, **options):
        command = [sys.executable, tmp_path / "shop.py", *words]
        return subprocess.run(
            command, env=environment, timeout=120, check=True, **{"text": True, "capture_output": True} | options
        )

    return run


def waiting(state_directory):
    return list(state_directory.glob("shop/spool/*.gz"))


def test_the_guides_tool(tool, state_directory):
    """Nothing is asked or recorded without a terminal; after `telemetry on` a run records, until `telemetry off`."""
    assert tool("build").stdout == "built\n"
    assert not state_directory.exists()
    assert "is on: you agreed" in tool("telemetry", "on").stdout
    done = tool("build")
    assert done.stdout == "built\n"
    assert len(waiting(state_directory)) == 1
    assert "Which operating system shop runs on" in tool("telemetry", "show").stdout
    assert "is off: you said no" in tool("telemetry", "off").stdout
    assert not waiting(state_directory)


@pytest.mark.skipif(os.name != "posix", reason="there is no such terminal")
def test_a_person_at_a_terminal(tool, state_directory):
    """The question comes once; a yes is recorded in the same run."""
    import pty

    ours, theirs = pty.openpty()
    os.write(ours, b"y\n")
    try:
        streams = {"stdin": theirs, "stderr": theirs, "stdout": subprocess.PIPE, "capture_output": False}
        assert tool("build", **streams).stdout == "built\n"
        question = os.read(ours, 65536).decode()
        assert "[y/N]" in question
        assert "shop telemetry off" in question
        assert len(waiting(state_directory)) == 1
        tool("build", **streams)
        os.write(theirs, b"end")
        assert "[y/N]" not in os.read(ours, 65536).decode()
    finally:
        os.close(ours)
        os.close(theirs)
