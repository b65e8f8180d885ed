"""What lies in deploy/, as tests read it."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path

import yaml

from deniable_aggregator.process.ports import free_port

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"
OTHERS = {"NUMBA_CACHE_DIR", "OMP_NUM_THREADS", "PATH", "PORT", "PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED"}
"""Variables that are not ours."""
OLDEST = "1.29"
"""Oldest version of Kubernetes that resources are for."""


def documents(path: Path) -> list[dict]:
    """Read the resources in a file."""
    return [each for each in yaml.safe_load_all(path.read_text("utf-8")) if each]


@cache
def compose():
    return yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))


def command(name: str) -> list[str]:
    """Return what a service of compose.yaml runs: what is written there, or its image's."""
    service = compose()["services"][name]
    return service.get("command") or stages()[service["build"]["target"]].command


def health(name: str) -> list[str]:
    """Return what tells whether a service of compose.yaml is well: what is written there, or its image's."""
    service = compose()["services"][name]
    if "healthcheck" not in service:
        return stages()[service["build"]["target"]].health
    kind, *words = service["healthcheck"]["test"]
    assert kind == "CMD"
    return words


def variables() -> set[str]:
    """Name all variables that something reads."""
    return OTHERS.union(*(point.load() for point in entry_points(group="deniable.variables")))


def environment(path: Path) -> dict[str, str]:
    """Read an environment file."""
    lines = path.read_text("utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


class Private:
    """What an operator draws with deploy/passwords.py.

    Parameters
    ----------
    folder
        Where it is written.
    store
        Where the store is; by default at a free port of this machine.
    """

    def __init__(self, folder: Path, store: str = "") -> None:
        self.folder = folder
        self.port = free_port()
        store = store or f"127.0.0.1:{self.port}"
        command = [sys.executable, DEPLOY / "passwords.py", DEPLOY / "users.acl", "--folder", folder, "--store", store]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
        self.output = done.stdout + done.stderr

    def path(self, name: str) -> Path:
        """Find a file that a deployment names, relative to deploy/."""
        return self.folder / name.removeprefix("private/") if name.startswith("private/") else DEPLOY / name


@dataclass
class Stage:
    """A stage of the Dockerfile.

    Parameters
    ----------
    base
        The stage that it begins from, or the variable that names an image.
    steps
        Instructions, each with what follows it; those of the base first, if that is a stage.
    """

    base: str
    steps: list[tuple[str, str]] = field(default_factory=list)

    def last(self, instruction: str) -> str:
        """Return what follows the last of its kind."""
        return [text for name, text in self.steps if name == instruction][-1]

    @property
    def command(self) -> list[str]:
        """What it runs."""
        return json.loads(self.last("CMD"))

    @property
    def health(self) -> list[str]:
        """What tells whether it is well."""
        return json.loads(self.last("HEALTHCHECK").partition("CMD ")[2])

    @property
    def environment(self) -> dict[str, str]:
        """What its processes find in their environment."""
        pairs = [pair for name, text in self.steps if name == "ENV" for pair in text.split()]
        return dict(pair.split("=", 1) for pair in pairs)


@cache
def stages() -> dict[str, Stage]:
    """Read the Dockerfile."""
    lines = (DEPLOY / "Dockerfile").read_text("utf-8").splitlines()
    text = "\n".join(line for line in lines if not line.lstrip().startswith("#")).replace("\\\n", " ")
    targets: dict[str, Stage] = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        instruction, _, arguments = line.partition(" ")
        if instruction == "FROM":
            base, _, name = arguments.partition(" AS ")
            targets[name] = stage = Stage(base, list(targets[base].steps) if base in targets else [])
        elif targets:
            stage.steps.append((instruction, arguments.strip()))
    return targets
