"""gunicorn's processes are forked from one that has imported the app: each would take a second, and memory of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest
import requests

from deniable_aggregator.process.ports import free_port

WATCHED = """
import os, sys

before = {"deniable_server.app", "deniable_server.pages.dashboard"}.intersection(sys.modules)
print("process", os.getpid(), "begins with", *sorted(before), file=sys.stderr, flush=True)

from deniable_server import create_app
"""


@pytest.mark.starts_anew
@pytest.mark.parametrize(
    ("serves", "expected"), [("all", "deniable_server.app deniable_server.pages.dashboard"), ("ingest", "deniable_server.app")]
)
def test_the_app_is_imported_before_processes_are_forked(settings, tmp_path, serves, expected):
    """All of it that the server answers with, and no more."""
    (tmp_path / "watched.py").write_text(WATCHED, "utf-8")
    variables = {name: value for name, value in os.environ.items() if not name.startswith("DENIABLE_")} | settings.environment()
    variables |= {"DENIABLE_SERVES": serves, "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}
    address = f"127.0.0.1:{free_port()}"
    command = [sys.executable, "-m", "gunicorn", "-c", "python:deniable_server.gunicorn_conf", "-b", address, "-w", "2"]
    with subprocess.Popen([*command, "watched:create_app()"], env=variables, stderr=subprocess.PIPE, text=True) as process:
        try:
            begun = {}
            while len(begun) < 2:
                line = process.stderr.readline()
                assert line, process.wait(60)
                if match := re.match(r"process (\d+) begins with ?(.*)", line):
                    begun[match[1]] = match[2]
            assert requests.get(f"http://{address}/healthz", timeout=300).ok
        finally:
            process.terminate()
            process.communicate(timeout=600)
    assert str(process.pid) not in begun
    assert set(begun.values()) == {expected}
