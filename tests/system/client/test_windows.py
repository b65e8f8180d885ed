"""The SDK's own tests pass on a stand-in for Windows, which `tests/support/windows.py` describes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[2]
FILES = {
    "files": ("platform", "spool", "spool_keys", "state", "state_lock", "state_trouble"),
    "the device": ("ledger", "ledger_limits", "months", "permanent_responses", "waiting", "waiting_limits"),
    "the client": ("client", "over_time", "sent", "silence", "telemetry"),
    "sending": ("delivery", "forks", "served", "transport"),
    "testing": ("published", "testing"),
}


@pytest.mark.skipif(sys.platform != "linux", reason="the stand-in looks at /proc")
@pytest.mark.parametrize("part", FILES)
def test_as_on_windows(part, tmp_path):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "windows", "-m", "not campaign", "--basetemp", tmp_path / "tests"]
    if part != "files":  # all cases ran as on this system
        command.append("--first-cases")
    files = [TESTS / "client" / f"test_{name}.py" for name in FILES[part]]
    environment = os.environ | {"PYTHONPATH": str(TESTS / "support")}
    done = subprocess.run([*command, *files], env=environment, cwd=TESTS.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
