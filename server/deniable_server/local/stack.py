"""Store, server and worker as real processes on this machine, for ``deniable serve`` and ``deniable demo``."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Self
from urllib.request import ProxyHandler, build_opener

from deniable.errors import ConfigurationError
from deniable_aggregator.process import children, variables
from deniable_aggregator.store.server import embedded
from deniable_server.local import address

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from deniable_server.settings import Settings

log = logging.getLogger("deniable.stack")

_START_SECONDS = 30.0
_STOP_SECONDS = 25.0
_direct = build_opener(ProxyHandler({}))  # this machine's own server is not reached through a proxy


class Stack:
    """A store (given, or one of our own), gunicorn, and a worker. They are stopped in reverse order."""

    def __init__(
        self,
        settings: Settings,  # the server's settings; with an empty `redis_url` a store is started
        *,
        bind: str,  # Address of the server, `host:port`. It is taken first; port 0 becomes a free port.
        web_workers: int = 2,  # number of gunicorn's processes
        directory: Path | None = None,  # where a store of our own keeps its data; None for a temporary folder
        log_file: Path | None = None,  # where the processes write; None for the terminal
    ) -> None:
        self.settings = settings
        self.bind = bind
        self.url = f"http://{bind}"
        self.origin = ""
        self.store_url = ""
        self._web_workers = web_workers
        self._directory = directory
        self._log_file = log_file
        self._undo = ExitStack()
        self._store: embedded.StoreServer | None = None
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._undo.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._undo.close()

    def _start(self) -> None:
        apps = self.settings.registries()
        taken = self._undo.enter_context(address.listen(self.bind))
        self.bind = address.written(self.bind, taken)
        self.url = f"http://{self.bind}"
        store = self._undo.enter_context(
            embedded.open_store(self.settings.redis_url or None, directory=self._directory, durability=self.settings.durability)
        )
        self.origin, self.store_url, self._store = store.origin, store.url, store
        store.ping()
        # Open pages are shown under the name that is printed for them, whatever else there is.
        settings = replace(self.settings, redis_url=store.url, hosts=f"{self.settings.hosts},{self.bind.rpartition(':')[0]}")
        worker = [sys.executable, "-m", "deniable", "worker"]
        for app in apps:
            worker += ["--app", app]
        self._launch("worker", worker, settings)
        options = ["-c", "python:deniable_server.gunicorn_conf", "-b", f"fd://{taken.fileno()}", "-w", str(self._web_workers)]
        command = [sys.executable, "-m", "gunicorn", *options, "deniable_server:create_app()"]
        self._launch("server", command, settings, descriptor=taken.fileno())
        taken.close()  # otherwise clients would wait when the server ends
        self._await_ready()

    def _launch(self, name: str, command: list[str], settings: Settings, descriptor: int | None = None) -> None:
        # Only the settings count, not this process's environment; except for variables of the worker.
        inherited = {variables.ARCHIVE, *(each.variable for each in variables.WORKER)}
        environment = {
            key: value for key, value in os.environ.items() if key in inherited or not key.startswith(variables.PREFIX)
        }
        with ExitStack() as files:
            log_ = files.enter_context(self._log_file.open("ab")) if self._log_file else None
            process = subprocess.Popen(
                command,
                env=environment | settings.environment(),
                stdout=log_,
                stderr=log_,
                start_new_session=True,  # this process handles Ctrl-C, and stops them in order
                pass_fds=() if descriptor is None else (descriptor,),
                preexec_fn=children.tied(),  # noqa: PLW1509 - one system call, which no other thread's lock can block
            )
        self._processes[name] = process
        self._undo.callback(_terminate, process)

    def _await_ready(self) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline:
            self.check()
            try:
                with _direct.open(f"{self.url}/readyz", timeout=2):
                    return
            except OSError:
                time.sleep(0.05)
        raise ConfigurationError(f"the server did not answer on {self.bind} within {_START_SECONDS:g} s")

    def check(self) -> None:
        """Raise ConfigurationError, with the last lines of its log, if a process has ended by itself."""
        if self._store:
            self._store.check()  # without it the others would only wait
        for name, process in self._processes.items():
            if process.poll() is not None:
                lines = self._log_file.read_text(errors="replace").splitlines()[-8:] if self._log_file else []
                raise ConfigurationError("\n".join([f"the {name} ended with status {process.returncode}", *lines]))

    def wait(self) -> None:
        """Return on SIGTERM or Ctrl-C; raise if a process ends by itself."""
        stopped = False

        def stop(*_: object) -> None:
            nonlocal stopped
            stopped = True

        signal.signal(signal.SIGTERM, stop)
        signal.signal(signal.SIGINT, stop)
        while not stopped:  # a signal only sets the flag, so that nothing is stopped halfway through a check
            self.check()
            time.sleep(0.5)


def _terminate(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
