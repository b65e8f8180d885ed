"""Processes of a service, started as deploy/ says."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

from shipped import DEPLOY, ROOT, command, compose, environment, health, stages
from waiting import eventually

from deniable_aggregator.process.ports import free_port
from deniable_aggregator.store.server import embedded

BIN = str(Path(sys.executable).parent)


def clean() -> dict[str, str]:
    """Return the environment of whoever runs the tests, without what it says of the service."""
    inherited = {
        name: text for name, text in os.environ.items() if not name.startswith(("DENIABLE_", "GUNICORN_", "PROMETHEUS_"))
    }
    return inherited | {"PATH": f"{BIN}:{inherited['PATH']}", "OPENBLAS_NUM_THREADS": "1"}


def spawn(undo: ExitStack, log: Path, command, env, **options) -> subprocess.Popen:
    """Start a process, which is ended gently at last."""
    output = undo.enter_context(log.open("wb"))
    process = subprocess.Popen(command, env=clean() | env, stdout=output, stderr=output, **options)
    undo.callback(end, process)
    return process


def end(process: subprocess.Popen, seconds: float = 40) -> int:
    """Have a process end as supervisors do; return its exit status."""
    process.terminate()
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise


def children(pid: int) -> list[int]:
    """List the processes that a process has started."""
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


# Needs a name space of its own for mounts; where tests run in a container that may not be allowed.
_READ_ONLY = """
mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" || exit 99
touch "$1/x" 2>/dev/null && exit 98
shift
exec "$@"
"""


def read_only(command: list[str]) -> list[str] | None:
    """Return what runs a command with this project's packages read-only; None where that cannot be done."""
    prefix = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", _READ_ONLY, "sh", str(ROOT)]
    try:
        tried = subprocess.run([*prefix, "true"], capture_output=True, timeout=30, check=False).returncode
    except FileNotFoundError:
        return None
    assert tried != 98
    return [*prefix, *command] if tried == 0 else None


class Service:
    """The services of compose.yaml.

    Parameters
    ----------
    private
        With the passwords.
    folder
        For logs and data.
    kernels
        Where workers keep machine code. Services of one run share it, as it takes seconds to compile.
    """

    def __init__(self, private, folder: Path, kernels: Path) -> None:
        self.private = private
        self.folder, self.kernels = folder, kernels
        self.ports = {"ingest": free_port(), "query": free_port(), "worker": free_port()}
        self.processes: dict[str, subprocess.Popen] = {}
        # The registry that is shipped, published as in a trial: a single report shows.
        self.registry = folder / "metrics.toml"
        self.registry.write_text((DEPLOY / "metrics.toml").read_text("utf-8") + "\n[publication]\ntrial = true\n", "utf-8")
        shutil.copy(DEPLOY / "search-engines.txt", folder)
        self._undo = ExitStack()

    def __enter__(self):
        with ExitStack() as undo:
            self._store(undo)
            for name in ("ingest", "query", "worker"):
                self.processes[name] = spawn(
                    undo, self.folder / f"{name}.log", self.translated(command(name)), self.environment_of(name)
                )
            self._undo = undo.pop_all()
        return self

    def __exit__(self, *_):
        self._undo.close()

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.ports[name]}"

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()

    def translated(self, words: list[str]) -> list[str]:
        """Have paths of the image, and those at which compose.yaml puts files, lead to the files; ports to free ones."""
        declared = {name: each["file"] for name, each in compose()["configs"].items()}
        places = {"/opt/deniable/gunicorn.conf.py": str(DEPLOY / "gunicorn.conf.py"), "/data": str(self.folder / "data")}
        for service in compose()["services"].values():
            for config in service.get("configs", ()):
                places[config["target"]] = str(self.private.path(declared[config["source"]]))
                if config["target"].endswith("/metrics.toml"):
                    places[config["target"]] = str(self.registry)
        places["0.0.0.0:9464"] = f"127.0.0.1:{self.ports['worker']}"
        # A word may join several paths.
        return [places.get(word) or ":".join(places.get(part, part) for part in word.split(":")) for word in words]

    def environment_of(self, name: str) -> dict[str, str]:
        """Return the environment of a service: the image's, and its files."""
        service = compose()["services"][name]
        variables = dict(stages()[service["build"]["target"]].environment)
        for file in service["env_file"]:
            variables |= environment(self.private.path(file))
        variables.pop("PATH")
        variables = dict(zip(variables, self.translated(list(variables.values())), strict=True))
        if "NUMBA_CACHE_DIR" in variables:
            variables["NUMBA_CACHE_DIR"] = str(self.kernels)
        if name in self.ports:
            variables["PORT"] = str(self.ports[name])
            variables["GUNICORN_CMD_ARGS"] = f"--bind 127.0.0.1:{self.ports[name]}"  # and not on every address of this machine
        return variables

    def healthy(self, name: str) -> bool:
        """Tell what the health check of a service says."""
        *interpreter, code = health(name)
        port = "9464" if name == "worker" else "8080"
        assert f"127.0.0.1:{port}/" in code
        words = [*interpreter, code.replace(port, str(self.ports[name]))]
        return subprocess.run(words, env=clean(), capture_output=True, timeout=30, check=False).returncode == 0

    def operate(self, *arguments: str) -> str:
        """Run a command as the service ``operator``; return what it printed."""
        command = [*compose()["services"]["operator"]["entrypoint"], *arguments]
        env = clean() | self.environment_of("operator")
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def workers(self) -> int:
        """Count the workers that are ready, as they tell by a sign of life."""
        if not eventually(lambda: self.healthy("ingest")):
            return 0
        return int(json.loads(self.operate("status", "--json"))["workers"])

    def _store(self, undo: ExitStack) -> None:
        """Start the store, found by the name that its image has for it."""
        tools = self.folder / "tools"
        tools.mkdir()
        (self.folder / "data").mkdir()
        server = shutil.which("redis-server") or embedded.find(None)[0]
        self._tool(tools, "valkey-server", f'"{server}" "$@" --port {self.private.port}')
        if cli := shutil.which("redis-cli"):
            self._tool(tools, "valkey-cli", f'"{cli}" -p {self.private.port} "$@"')
        self.tools = {"PATH": f"{tools}:{os.environ['PATH']}"}
        command = self.translated(compose()["services"]["store"]["command"])
        everywhere = command.index("--bind") + 1
        command[everywhere : everywhere + 2] = ["127.0.0.1"]
        self.processes["store"] = spawn(undo, self.folder / "store.log", [tools / command[0], *command[1:]], self.tools)

    @staticmethod
    def _tool(folder: Path, name: str, command: str) -> None:
        path = folder / name
        path.write_text(f"#!/bin/sh\nexec {command}\n", "utf-8")
        path.chmod(0o755)
