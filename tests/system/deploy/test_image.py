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
from service import clean, read_only
from shipped import DEPLOY, ROOT, stages
from waiting import eventually

import deniable
from deniable_aggregator.process.ports import free_port

IMAGES = ("ingest", "full", "relay")
ENTRY = re.compile(r"^([A-Za-z0-9_.-]+)==(\S+)[^\n]*\\\n(?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+", re.MULTILINE)


def requirements(extras):
    """List what the project needs with some extras."""
    return [each for each in requires("deniable") or () if "extra" not in each or re.search(extras, each)]


def test_hadolint_finds_nothing():
    """The Dockerfile keeps hadolint's rules, and the shell lines ShellCheck's."""
    command = [Path(sys.executable).parent / "hadolint", "--no-color", DEPLOY / "Dockerfile"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("name", IMAGES)
def test_an_image_is_not_root_and_runs_no_shell(name):
    """The user is a number above those of the system; what runs gets signals itself; only their packages differ."""
    stage = stages()[name]
    user, _, group = stage.last("USER").partition(":")
    assert int(user) >= 10_000
    assert int(group) >= 10_000
    assert stage.last("STOPSIGNAL") == "SIGTERM"
    assert all(step.startswith("[") for kind, step in stage.steps if kind in ("CMD", "ENTRYPOINT"))
    assert isinstance(stage.health, list)
    assert stage.base == "server"


def test_what_others_make_is_pinned_to_the_byte():
    """Our images begin from one base, and each image of somebody else has a version for people and a digest for machines."""
    text = (DEPLOY / "Dockerfile").read_text("utf-8")
    assert {each.base for each in stages().values()} - set(stages()) == {"${PYTHON}"}
    assert re.search(r"^ARG PYTHON=python:\d+\.\d+\.\d+-slim-\w+@sha256:[0-9a-f]{64}$", text, re.MULTILINE)
    files = [each for each in DEPLOY.rglob("*.yaml") if "private" not in each.parts]
    named = {image for each in files for image in re.findall(r"^ *(?:- )?image: (\S+)$", each.read_text("utf-8"), re.MULTILINE)}
    foreign = {each for each in named if not each.startswith("deniable-")}
    assert {each.partition(":")[0] for each in foreign} == {"valkey/valkey", "caddy"}
    assert all(re.fullmatch(r"[a-z/]+:\d+\.\d+\.\d+@sha256:[0-9a-f]{64}", each) for each in foreign)
    assert len(foreign) == 2


def test_what_faces_the_internet_has_its_packages_alone():
    """The lock files of ingest and of a relay are part of the third, and have nothing that counts or decodes."""
    everything, ingest, relay = (
        {entry[0] for entry in ENTRY.finditer((DEPLOY / f"requirements{each}.txt").read_text("utf-8"))}
        for each in ("", "-ingest", "-relay")
    )
    assert ingest | relay < everything
    decoders = {"llvmlite", "markdown-it-py", "numba", "opendp", "pyarrow", "scipy"}
    assert not {each.partition("==")[0] for each in ingest | relay} & decoders
    # A relay has no store, and nothing that could open a report.
    assert not {each.partition("==")[0] for each in relay} & {"cryptography", "numpy", "redis"}
    steps = {name: " ".join(text for _, text in stages()[f"{name}-packages"].steps) for name in IMAGES}
    assert {name: re.findall(r"-r deploy/(requirements(?:-ingest|-relay)?\.txt)", text) for name, text in steps.items()} == {
        "ingest": ["requirements-ingest.txt"],
        "full": ["requirements.txt"],
        "relay": ["requirements-relay.txt"],
    }
    for name in IMAGES:
        assert ("COPY", f"--from={name}-packages /opt/deniable /opt/deniable") in stages()[name].steps


def test_the_folder_of_a_relay_is_its_users():
    """What waits lies where the command says, in a folder that no other user may look into: a new volume takes that over."""
    stage = stages()["relay"]
    user, folder = stage.last("USER"), stage.environment["DENIABLE_RELAY_DATA"]
    assert ("COPY", f"--from=relay-packages --chown={user} /data/relay {folder}") in stage.steps
    owner, _, group = user.partition(":")
    step = f"install --directory --mode 700 --owner {owner} --group {group} /data/relay"
    assert step in " ".join(text for _, text in stages()["relay-packages"].steps)


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
    names = {name for stage in stages().values() for name in stage.environment}
    assert not [name for name in names if re.search("KEY|SECRET|PASSWORD|TOKEN|URL", name)]


@pytest.mark.parametrize(
    ("lock", "needed"),
    [
        ("requirements-ingest.txt", requirements(r"extra == '(ingest|common|relay)'")),
        ("requirements-relay.txt", requirements(r"extra == 'relayserver'")),
        ("requirements.txt", requirements(r"extra == '(server|aggregator|ingest|common|questions|export|signed)'")),
        ("requirements-build.txt", tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["build-system"]["requires"]),
    ],
)
def test_what_is_installed_is_pinned(lock, needed):
    """Each dependency stands in the lock file in a version that the project takes, and everything in it has its hashes."""
    text = (DEPLOY / lock).read_text("utf-8")
    pinned = dict(ENTRY.findall(text))
    assert len(pinned) == sum(line[0].isalnum() for line in text.splitlines())
    assert needed
    for requirement in map(Requirement, needed):
        if requirement.name == "deniable":
            continue
        assert requirement.specifier.contains(pinned[requirement.name]), requirement


def test_a_worker_needs_one_place_to_write(composed):
    """A worker keeps its kernels where NUMBA_CACHE_DIR says, and starts from there, with its packages read-only and no home."""
    assert stages()["full"].environment["NUMBA_CACHE_DIR"].startswith("/tmp/")
    assert eventually(lambda: composed.workers() == 1), composed.log("worker")
    cache = Path(composed.environment_of("worker")["NUMBA_CACHE_DIR"])
    assert eventually(lambda: [*cache.rglob("complete-*")], 300), composed.log("worker")  # compiled beside the worker
    kernels = sorted(cache.rglob("*.nbc"))
    assert kernels
    env = composed.environment_of("worker") | {"HOME": "/nonexistent", "XDG_CACHE_HOME": "/nonexistent"}
    command = read_only(["deniable", "worker", "--burst"])
    if command is None:
        pytest.skip("no mounts of one's own here")
    done = subprocess.run(command, env=clean() | env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert sorted(cache.rglob("*.nbc")) == kernels


def test_a_server_that_cannot_start_says_why_and_ends(composed):
    """With a setting that is no good the server's command ends at once with status 2, which systemd does not try again."""
    env = composed.environment_of("ingest") | {
        "DENIABLE_DURABILITY": "sometimes",
        "GUNICORN_CMD_ARGS": f"--bind 127.0.0.1:{free_port()}",
    }
    command = composed.translated(stages()["ingest"].command)
    done = subprocess.run(command, env=clean() | env, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 2
    assert "DENIABLE_DURABILITY" in done.stderr
    assert "Traceback" not in done.stderr
