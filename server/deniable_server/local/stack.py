"""Store, server and worker as real processes on this machine, for ``deniable serve`` and ``deniable demo``."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Self
from urllib.request import ProxyHandler, build_opener

from deniable.errors import ConfigurationError
from deniable_aggregator.process import children, variables
from deniable_aggregator.store.server import embedded
from deniable_server import sources
from deniable_server.local import address
from deniable_server.local.restarts import Restarts

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable
    from pathlib import Path
    from types import TracebackType

    from deniable_server.settings import Settings

log = logging.getLogger("deniable.stack")

_START_SECONDS = 120.0  # also on a machine that is busy with other things; a process that has died is noticed at once
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
        self._listener: socket.socket | None = None
        self._commands: dict[str, list[str]] = {}
        self._environment: dict[str, str] = {}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._restarts: dict[str, Restarts] = {}
        self._leaving = False  # whether the worker ends to be started anew

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
        files = sources.read(self.settings)
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
        # Only the settings count, not this process's environment; except for variables of the worker.
        inherited = {variables.ARCHIVE, *(each.variable for each in variables.WORKER)}
        self._environment = settings.environment() | {
            key: value for key, value in os.environ.items() if key in inherited or not key.startswith(variables.PREFIX)
        }
        worker = [sys.executable, "-m", "deniable", "worker"]
        for app in (*files.apps, *files.off):  # reports of an app that is off may wait
            worker += ["--app", app]
        self._listener = taken
        options = ["-c", "python:deniable_server.gunicorn_conf", "-b", f"fd://{taken.fileno()}", "-w", str(self._web_workers)]
        server = [sys.executable, "-m", "gunicorn", *options, "deniable_server:create_app()"]
        self._commands = {"worker": worker, "server": server}
        for name in self._commands:
            self._launch(name)
            self._restarts[name] = Restarts(name)
            self._undo.callback(self._end, name)
        self._undo.callback(taken.close)  # first of all, otherwise clients would wait while the rest ends
        self._await_ready()

    def _launch(self, name: str) -> None:
        assert self._listener  # noqa: S101 - it is there before any process
        with ExitStack() as files:
            log_ = files.enter_context(self._log_file.open("ab")) if self._log_file else None
            self._processes[name] = subprocess.Popen(
                self._commands[name],
                env=self._environment,
                stdout=log_,
                stderr=log_,
                start_new_session=True,  # this process handles Ctrl-C, and stops them in order
                pass_fds=(self._listener.fileno(),) if name == "server" else (),
                preexec_fn=children.tied(),  # noqa: PLW1509 - one system call, which no other thread's lock can block
            )

    def _end(self, name: str) -> None:
        _terminate(self._processes[name])

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

    @property
    def numbers(self) -> Counter[str]:
        """How many processes use the registries, by what they do."""
        return Counter(server=self._web_workers, worker=1)

    def reload(self) -> None:
        """Have all processes read the registries anew. Uploads go on: servers read them beside their requests."""
        self._processes["server"].send_signal(signal.SIGHUP)
        if not self._restarts["worker"].waits:
            # It ends when it has counted what it has in hand, and counts as alive until the next one is there.
            self._processes["worker"].send_signal(signal.SIGHUP)
            self._leaving = True

    def _revive(self) -> None:
        """Start a process again that has ended by itself, or to read the registries; raise if the store has ended."""
        if self._store:
            self._store.check()
        for name, restarts in self._restarts.items():
            status = self._processes[name].poll()
            leaving = name == "worker" and self._leaving
            if status is not None and not restarts.waits and not leaving:
                print(restarts.died(status), file=sys.stderr, flush=True)
            elif restarts.due or (leaving and status is not None):
                self._launch(name)
                restarts.started()
                self._leaving = False

    def wait(
        self,
        look: Callable[[], None] = lambda: None,  # called twice a second
    ) -> None:
        """Return on SIGTERM or Ctrl-C. Meanwhile start processes again that end by themselves; raise if the store ends."""
        stopped = False

        def stop(*_: object) -> None:
            nonlocal stopped
            stopped = True

        signal.signal(signal.SIGTERM, stop)
        signal.signal(signal.SIGINT, stop)
        while not stopped:  # a signal only sets the flag, so that nothing is stopped halfway through a check
            self._revive()
            look()
            time.sleep(0.5)


def _terminate(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
