"""The test suite itself: whoever leaves tests out is told how many, and it may run in the background."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from shutil import copy, copytree

import pytest

TESTS = Path(__file__).parents[2]
EXAMPLE = """
import signal

import pytest

def test_short():
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler

@pytest.mark.campaign
@pytest.mark.first_cases(2)
@pytest.mark.parametrize("seed", [*range(2), *(pytest.param(seed, marks=pytest.mark.nightly) for seed in (2, 3))])
def test_long(seed):
    pass
"""


@pytest.fixture
def run(tmp_path):
    """Run one short test, which can be interrupted, and two long ones."""
    copy(TESTS / "conftest.py", tmp_path)
    copytree(TESTS / "support", tmp_path / "support")
    (tmp_path / "test_example.py").write_text(EXAMPLE, "utf-8")

    def run(*arguments, prefix=()):
        command = [*prefix, sys.executable, "-m", "pytest", "-q", "-p", "xdist", "-p", "no:cacheprovider", *arguments]
        command += ["-c", TESTS.parent / "pyproject.toml", "--rootdir", tmp_path, tmp_path]
        quick = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        return subprocess.run(command, env=quick, capture_output=True, text=True, check=True, timeout=300).stdout

    return run


LINE = "2 campaign tests, which simulate at length, were left out. To run them: just campaigns"


@pytest.mark.parametrize("processes", [0, 2])
def test_what_is_left_out_is_told(run, processes):
    """One line tells how many tests were left out, also where other processes left them out.

    A shell has what it starts with `&` ignore SIGINT; tests can be interrupted all the same.
    """
    background = ["sh", "-c", 'trap "" INT; exec "$@"', "sh"]
    output = run("-n", str(processes), "-m", "not campaign", prefix=background)
    assert "1 passed" in output
    assert f"{LINE}; to run tests/system, and the rest on every store: just test-system\n" in output


def test_stores_that_run_are_not_named(run):
    """Whoever has every store is not told how to have them."""
    assert f"{LINE}\n" in run("-m", "not campaign", "--every-store")


def test_what_runs_is_not_left_out(run):
    """Without that choice all of them run; the longest are left out as well, and whoever runs the others is told."""
    output = run()
    assert "3 passed" in output
    assert "left out" not in output
    output = run("-m", "campaign", "--every-store")
    assert "2 passed" in output
    assert "2 campaign tests, which simulate at length, were left out. To run them: just nightly\n" in output
    assert "4 passed" in run("-m", "campaign", "--nightly")
    assert "2 passed" in run("--nightly", "--first-cases")


def test_pages_that_no_browser_saw_are_told(run, tmp_path):
    """One line tells how many tests had no browser, and why."""
    (tmp_path / "tests" / "system" / "browser").mkdir(parents=True)
    (tmp_path / "tests" / "system" / "browser" / "test_blind.py").write_text(
        "import pytest\n\ndef test_blind():\n    pytest.skip('no eyes')\n"
    )
    assert "1 tests of the pages in a browser were skipped: no eyes" in run()


DRAWS = """
from deniable import mechanisms

def test_draws():
    mechanism = mechanisms.make("oue", domain_size=64, epsilon=1)
    print(b"".join(mechanism.randomize(1) for _ in range(9)).hex())
"""


def test_a_test_draws_the_same_again(run, tmp_path):
    """Devices' draws depend on the test and the seed only, so a failure can be seen again."""
    (tmp_path / "test_example.py").write_text(DRAWS, "utf-8")
    first, again, other = (re.search("[0-9a-f]{144}", run("-s", *seed)) for seed in ([], [], ["--seed", "1"]))
    assert first[0] == again[0] != other[0]
