"""The package for npm, and the programs that it is built and tested with."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "client" / "typescript"
VECTORS = ROOT / "client" / "deniable" / "conformance" / "vectors"


def run(*command, cwd):
    """Run a command; return what it printed, and fail with all of it."""
    environment = os.environ | {"DENIABLE_VECTORS": str(VECTORS), "NO_COLOR": "1"}
    environment.pop("DO_NOT_TRACK", None)
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, f"{command}: {done.stdout[-6000:]}\n{done.stderr[-2000:]}"
    return done.stdout
