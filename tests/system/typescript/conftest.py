"""The package for npm, built once from its lock file in a folder of the test run's own."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from npm import SOURCE, run

OLDEST = 20
MADE = ("node_modules", "build", "dist")


@pytest.fixture(scope="session")
def node():
    """Return Node. CI fails without one: tests that skip themselves would pass unseen."""
    program = shutil.which("node")
    if program is None or shutil.which("npm") is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("node and npm are not on PATH; .ci/tools brings them")
    version = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=60, check=True).stdout
    assert int(version[1:].partition(".")[0]) >= OLDEST, f"{program} is {version}"
    return program


@pytest.fixture(scope="session")
def package(node, tmp_path_factory):  # noqa: ARG001
    """Return the folder of the package, with its tools and built; tests that run beside each other share it."""
    import fcntl

    folder = tmp_path_factory.getbasetemp().parent / "typescript"
    with Path(f"{folder}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "done").exists():
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(SOURCE, folder, ignore=shutil.ignore_patterns(*MADE))
            run("npm", "ci", "--ignore-scripts", cwd=folder)
            run("npm", "run", "build", cwd=folder)
            run("npx", "tsc", "-p", "tsconfig.json", cwd=folder)  # of the tests, and so of the types
            (folder / "done").touch()
    return folder
