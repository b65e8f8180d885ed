"""The processes of a service under test: a store that may be killed, workers that kill themselves."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import requests
from redis import RedisError

from deniable_aggregator.process.ports import free_port
from deniable_aggregator.store import connect

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

APP = "shop"
CLAIM_AFTER = 0.6
HERE = Path(__file__).parent


def preloaded(folder: Path, name: str) -> dict[str, str]:
    """Build a library of C beside this file, for a server to go by, or skip; return what its environment needs."""
    if not shutil.which("cc") or "redis-server" not in servers():
        pytest.skip("no C compiler, or no redis-server that is linked to the system's library")
    library = folder / f"{name}.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, HERE / f"{name}.c"], check=True)
    return {"LD_PRELOAD": str(library)}


def servers() -> dict[str, Path]:
    """Find the servers to run on: the packaged one, and the wheel's."""
    from deniable_aggregator.store.server.embedded import find

    programs = {}
    if packaged := shutil.which("redis-server"):
        programs["redis-server"] = Path(packaged)
    programs["wheel"] = find(None)[0]
    return programs


def _outlive_full_disks() -> None:
    """Make a file that cannot grow an error, and not the end."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)


class Redis:
    """A server that may be killed, and started again with what it has on disk."""

    def __init__(
        self, binary: Path, folder: Path, fsync: str, environment: dict[str, str] | None = None, options: Sequence[str] = ()
    ) -> None:
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}"
        self._environment = {"LC_ALL": "C"} | (environment or {})
        self._command = [
            str(binary), "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(folder), "--save", "", "--daemonize", "no",
            "--appendonly", "yes", "--appendfsync", fsync, "--maxmemory-policy", "noeviction", "--logfile", "redis.log",
            *options,
        ]  # fmt: skip
        self._process: subprocess.Popen | None = None

    def start(self) -> None:
        self._process = subprocess.Popen(
            self._command,
            env=os.environ | self._environment,
            start_new_session=True,
            preexec_fn=_outlive_full_disks,  # noqa: PLW1509 - one system call
        )
        client = connect(self.url)
        deadline = time.monotonic() + 120
        while True:
            try:
                client.ping()
                break
            except RedisError:
                assert time.monotonic() < deadline, "redis does not start"
                time.sleep(0.02)
        client.close()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def die(self, chance: random.Random) -> None:
        """Kill it, and start it again after a moment."""
        self.kill()
        time.sleep(chance.uniform(0, 0.3))
        self.start()

    def empty(self) -> None:
        """Forget everything."""
        with connect(self.url) as client:
            client.flushall()

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self._process.send_signal(number)

    def fill_disk(self, *, full: bool) -> None:
        """Let its files grow no longer, or let them again."""
        resource.prlimit(
            self._process.pid, resource.RLIMIT_FSIZE, (1 if full else resource.RLIM_INFINITY, resource.RLIM_INFINITY)
        )


class Workers:
    """Workers that are started anew as they die."""

    def __init__(self, url: str, folder: Path, archive: Path | None = None) -> None:
        self._url, self._folder = url, folder
        self._more = ["--archive", str(archive)] if archive else []
        self.record = folder / "victims"
        self._running: list[subprocess.Popen] = []
        self._stopped: dict[int, float] = {}
        self._numbers = count()

    def start(self, seed: int, rate: float, number: int) -> None:
        options = ["--redis-url", self._url, "--app", APP, "--batch", "5"]
        options += ["--claim-after", str(CLAIM_AFTER), "--max-deliveries", "50", *self._more]
        victim = [str(HERE / "victim.py"), f"{seed}:{next(self._numbers)}", str(rate), str(self.record)]
        for _ in range(number - len(self._running)):
            log = (self._folder / "workers.log").open("ab")
            with log:
                self._running.append(
                    subprocess.Popen(
                        [sys.executable, *victim, "worker", *options], stdout=log, stderr=log, start_new_session=True
                    )
                )

    def tend(self) -> None:
        """Bury the dead; wake those that have slept for twice the time after which their entries are claimed."""
        self._running = [process for process in self._running if process.poll() is None]
        for process in self._running:
            if _state(process.pid) == "T":
                since = self._stopped.setdefault(process.pid, time.monotonic())
                if time.monotonic() > since + 2 * CLAIM_AFTER:
                    del self._stopped[process.pid]
                    process.send_signal(signal.SIGCONT)

    def alive(self) -> int:
        """Count those that run."""
        return sum(process.poll() is None for process in self._running)

    def hit(self, number: signal.Signals, chance: random.Random) -> bool:
        """Send a signal to one of them."""
        if not self._running:
            return False
        chance.choice(self._running).send_signal(number)
        return True

    def stop(self) -> None:
        """Let all end as they should, also those that sleep, or put themselves to sleep while they end."""
        for process in self._running:
            process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + 60
        while self.alive() and time.monotonic() < deadline:
            for process in self._running:
                process.send_signal(signal.SIGCONT)
            time.sleep(0.05)
        for process in self._running:
            process.wait(1)
        self._running = []


def _state(pid: int) -> str:
    with suppress(OSError, IndexError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return ""


def children(pid: int) -> list[int]:
    with suppress(OSError):
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def in_time(ask):
    """Ask until an answer comes before a device, or Prometheus, gives up, after ten seconds: a busy machine needs some tries."""
    for _ in range(10):
        began = time.monotonic()
        with suppress(requests.Timeout):
            answer = ask()
            if time.monotonic() - began < 9:
                return answer
    pytest.fail("no answer within nine seconds")


def end(process: subprocess.Popen) -> None:
    process.terminate()
    try:
        process.wait(60)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
