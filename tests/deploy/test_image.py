"""deploy/Dockerfile: what hadolint says of it, and its steps as far as they can be taken without a container engine."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from service import clean, eventually, read_only
from shipped import DEPLOY, ROOT, stages

import deniable
from deniable_server.local.stack import free_port

IMAGES = ("server", "worker")
EXTRAS = "extra == '(server|aggregator|ingest|common|questions|export|signed)'"
ENTRY = re.compile(r"^([A-Za-z0-9_.-]+)==(\S+)[^\n]*\\\n(?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+", re.MULTILINE)


def test_hadolint_finds_nothing():
    """The Dockerfile keeps hadolint's rules, and the shell lines ShellCheck's."""
    command = [Path(sys.executable).parent / "hadolint", "--no-color", DEPLOY / "Dockerfile"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("name", IMAGES)
def test_an_image_is_not_root_and_runs_no_shell(name):
    """The user is a number above those of the system; what runs gets signals itself; both images begin from one pinned base."""
    stage = stages()[name]
    user, _, group = stage.last("USER").partition(":")
    assert int(user) >= 10_000
    assert int(group) >= 10_000
    assert stage.last("STOPSIGNAL") == "SIGTERM"
    assert all(step.startswith("[") for kind, step in stage.steps if kind in ("CMD", "ENTRYPOINT"))
    assert isinstance(stage.health, list)
    assert stages()["build"].base == stages()["runtime"].base == "${PYTHON}"
    assert re.search(r"^ARG PYTHON=python:\d+\.\d+\.\d+-slim-\w+$", (DEPLOY / "Dockerfile").read_text("utf-8"), re.MULTILINE)
    assert stage.base == "runtime"


@pytest.mark.parametrize("name", IMAGES)
def test_an_image_says_what_it_is(name):
    """Its labels have the version that is in it."""
    labels = dict(re.findall(r'org\.opencontainers\.image\.(\w+)="([^"]+)"', stages()[name].last("LABEL")))
    assert labels["version"] == deniable.__version__
    assert labels["licenses"] == "Apache-2.0"
    assert {"title", "description"} <= set(labels)


def test_no_secret_gets_into_an_image():
    """Only what is listed is sent to the builder: sources, and the files that the steps copy; nothing is told by variables."""
    let_in = {line[1:] for line in (ROOT / ".dockerignore").read_text("utf-8").splitlines() if line.startswith("!")}
    copied = {
        each
        for stage in stages().values()
        for kind, text in stage.steps
        if kind == "COPY" and not text.startswith("--from")
        for each in text.split()[:-1]
    }
    assert copied == let_in
    assert all((ROOT / each).exists() for each in copied)
    assert "*" in (ROOT / ".dockerignore").read_text("utf-8").splitlines()
    told = {name for stage in stages().values() for name in stage.environment}
    assert not [name for name in told if re.search("KEY|SECRET|PASSWORD|TOKEN|URL", name)]


@pytest.mark.parametrize(
    ("lock", "wanted"),
    [
        ("requirements.txt", [each for each in requires("deniable") or () if "extra" not in each or re.search(EXTRAS, each)]),
        ("requirements-build.txt", tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["build-system"]["requires"]),
    ],
)
def test_what_is_installed_is_pinned(lock, wanted):
    """Each dependency stands in the lock file in a version that the project takes, and everything in it has its hashes."""
    text = (DEPLOY / lock).read_text("utf-8")
    pinned = dict(ENTRY.findall(text))
    assert len(pinned) == sum(line[0].isalnum() for line in text.splitlines())
    assert wanted
    for each in map(Requirement, wanted):
        if each.name == "deniable":
            continue
        assert each.specifier.contains(pinned[each.name]), each


def test_a_worker_needs_one_place_to_write(composed):
    """A worker keeps its kernels where NUMBA_CACHE_DIR says, and starts from there, with its packages read-only and no home."""
    assert stages()["worker"].environment["NUMBA_CACHE_DIR"].startswith("/tmp/")
    assert eventually(lambda: composed.workers() == 1), composed.log("worker")
    cache = Path(composed.told("worker")["NUMBA_CACHE_DIR"])
    kept = sorted(cache.rglob("*.nbc"))
    assert kept
    told = composed.told("worker") | {"HOME": "/nonexistent", "XDG_CACHE_HOME": "/nonexistent"}
    del told["DENIABLE_METRICS_BIND"]
    command = read_only(["deniable", "worker", "--burst"])
    if command is None:
        pytest.skip("no mounts of one's own here")
    done = subprocess.run(command, env=clean() | told, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert sorted(cache.rglob("*.nbc")) == kept


def test_a_server_that_cannot_start_says_why_and_ends(composed):
    """With a setting that is no good the server's command ends at once with status 2, which systemd does not try again."""
    told = composed.told("ingest") | {"DENIABLE_DURABILITY": "sometimes", "GUNICORN_CMD_ARGS": f"--bind 127.0.0.1:{free_port()}"}
    command = composed.translated(stages()["server"].command)
    done = subprocess.run(command, env=clean() | told, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "DENIABLE_DURABILITY" in done.stderr
    assert "Traceback" not in done.stderr
