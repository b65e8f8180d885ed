"""What ``deniable serve`` does: store, server and worker until Ctrl-C, with what an app needs printed."""

from __future__ import annotations

import os
import shlex
import signal
import sys
import time
from collections import Counter
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from deniable.messages.plural import plural
from deniable.registry import published
from deniable_aggregator.process import running, variables
from deniable_aggregator.store import Store, connect
from deniable_aggregator.store.errors import StoreError
from deniable_aggregator.store.server.embedded import redacted
from deniable_aggregator.store.uploads.registries import OFF, Signs
from deniable_aggregator.store.uploads.registries import running as running_in
from deniable_server.access.key_file import KeyFile
from deniable_server.api import script
from deniable_server.doctor.definitions import definitions
from deniable_server.doctor.pipeline import simulated_people
from deniable_server.local.served_registry import ServedRegistry
from deniable_server.local.stack import Stack
from deniable_server.settings import Settings

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from deniable.registry import Registry

_READ_SECONDS = 60.0  # in which processes should have read an edited file


def run(arguments: argparse.Namespace) -> int:
    """Serve until Ctrl-C; return the exit status."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that it ends like Ctrl-C from the start
    settings = Settings.from_environment()
    settings.log_settings.apply()
    variables.warn()
    settings = replace(
        settings,
        registry=arguments.registry or settings.registry or "metrics.toml",
        redis_url=arguments.redis_url or settings.redis_url,
    )
    served = ServedRegistry(settings)
    print("Starting a store, a server and a worker. This takes some seconds ...", file=sys.stderr, flush=True)
    registries = served.registries
    apps = [*registries, *served.files.off]
    # Without keys in the environment nobody could send or read, so keys are drawn once and printed.
    file = KeyFile(arguments.data)
    drawn_keys = {} if settings.ingest_keys or settings.read_keys else file.keys(apps)
    if drawn_keys:
        settings = replace(settings, ingest_keys=_joined(drawn_keys, "ingest"), read_keys=_joined(drawn_keys, "read"))
    with ExitStack() as undo:
        copies = replace(undo.enter_context(served).settings, ingest_keys=settings.ingest_keys, read_keys=settings.read_keys)
        services = Stack(copies, bind=arguments.bind, web_workers=arguments.web_workers, directory=arguments.data)
        stack = undo.enter_context(services)
        undo.enter_context(running.keep(_running(settings, stack), arguments.data))
        print(f"Registry:  {settings.registry} (read again when it is edited)")
        print(f"Store:     {stack.origin}")
        if archive := os.environ.get(variables.ARCHIVE):
            print(f"Archive:   {redacted(archive) if '://' in archive else archive} (randomised reports are kept there)")
        print(f"Dashboard: {stack.url}/")
        for app, keys in drawn_keys.items():
            print(f"Read key:  {keys['read']}")
            print(f"           export DENIABLE_URL={shlex.quote(stack.url)} DENIABLE_READ_KEY={shlex.quote(keys['read'])}")
            dsn = f"http://{keys['ingest']}@{_reached(stack.bind)}/{app}"
            print(f"DSN:       {dsn}")
            print(f"           export DENIABLE_DSN={shlex.quote(dsn)}")
        print(f"Web pages: {script.tag(stack.url)}")
        if _reached(stack.bind) != stack.bind:
            print("Other machines reach it, too: without https everybody on the way reads keys and reports (docs: deploy).")
        if drawn_keys:
            print(f"Keys are kept in {file.path}, readable by you only; without it, new ones are drawn.")
        for line in (*served.files.lines, *_hidden(registries, stack.store_url)):
            print(f"Warning:   {line}")
        data = "" if arguments.data == running.FOLDER else f" --data {shlex.quote(str(arguments.data))}"
        print(f"Look at it: deniable status{data}")
        print(f"            deniable doctor{data}")
        with suppress(KeyboardInterrupt):  # which may come as soon as it is printed
            print("Ctrl-C stops everything.", flush=True)
            with closing(_Files(served, stack)) as files:
                stack.wait(files.look)
        print("Stopping ...", file=sys.stderr, flush=True)
    return 0


class _Files:
    """Has processes read the registries anew when their files were edited, and tells it; says in the store what the files are."""

    def __init__(self, registry: ServedRegistry, stack: Stack) -> None:
        self._registry, self._stack = registry, stack
        self._client = connect(stack.store_url)
        self._signs = Signs("serve", self._digests(), registry.files.off)
        self._signs.start()
        self._until: float | None = None  # when processes should have read the files; None if nobody waits for it

    def look(self) -> None:
        """Look at the files, and at the processes that are reading them."""
        seen = self._registry.look()
        if seen is None:
            self._follow()
            return
        print(seen.line, file=sys.stderr, flush=True)
        self._signs.change(self._digests(), dict.fromkeys(self._registry.sources, seen.fault) | self._registry.files.off)
        if not seen.changed:
            return
        self._stack.reload()
        self._until = time.monotonic() + _READ_SECONDS
        for line in _hidden(self._registry.registries, self._stack.store_url):
            print(f"Warning:   {line}", file=sys.stderr, flush=True)

    def _follow(self) -> None:
        """Tell when all processes have read the files."""
        if self._until is None:
            return
        digests = {app: source.identity for app, source in self._registry.sources.items()}
        try:
            running = {app: [each for each in running_in(Store(self._client, app)) if each.role != "serve"] for app in digests}
        except StoreError:
            return
        behind = sorted({each.process for app, every in running.items() for each in every if each.digest != digests[app]})
        enough = all(self._stack.numbers <= Counter(each.role for each in every) for every in running.values())
        if enough and not behind:
            numbers = ", ".join(plural(n, role) for role, n in self._stack.numbers.items())
            print(f"The edited registry is in use from now on: {numbers} have read it", file=sys.stderr, flush=True)
        elif time.monotonic() > self._until:
            who = f"by {', '.join(behind)}" if behind else "by a process that does not say what it runs"
            line = f"The edited registry was not read {who}: see `deniable doctor`"
            print(line, file=sys.stderr, flush=True)
        else:
            return
        self._until = None

    def _digests(self) -> dict[Store, str]:
        digests = self._registry.on_disk | dict.fromkeys(self._registry.files.off, OFF)
        return {Store(self._client, app): digest for app, digest in digests.items()}

    def close(self) -> None:
        """Take back what was said of the files."""
        self._signs.stop()
        self._client.close()


def _hidden(registries: Mapping[str, Registry], url: str) -> list[str]:
    """Return a warning for each app with releases that are not shown, or with simulated people among the real ones."""
    client = connect(url)
    with closing(client), suppress(StoreError):  # whoever may not ask serves nevertheless
        stores = [(registry, Store(client, app)) for app, registry in registries.items()]
        findings = [check(*each) for each in stores for check in (definitions, simulated_people)]
        return [f"{each.seen}: {each.meaning}; {each.remedy}" for each in findings if each.status != "ok"]
    return []


def _running(settings: Settings, stack: Stack) -> running.Running:
    """Return what other commands need to find this server, with paths that hold in any folder."""
    places = (os.path.abspath(each) for each in published.paths(settings.registry))  # noqa: PTH100 - no link is followed
    settings = replace(settings, redis_url=stack.store_url, registry=os.pathsep.join(places))
    return running.Running(stack.url, os.getpid(), settings.environment())


def _reached(bind: str) -> str:
    """Return an address under which this machine reaches the server, even if it listens on all addresses."""
    host, _, port = bind.rpartition(":")
    return f"127.0.0.1:{port}" if host in {"0.0.0.0", "[::]"} else bind  # noqa: S104 - compared, not listened on


def _joined(keys_by_app: dict[str, dict[str, str]], role: str) -> str:
    return ",".join(f"{app}:{keys[role]}" for app, keys in keys_by_app.items())
