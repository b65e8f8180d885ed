"""The subcommand ``worker``: count reports, publish sums, and delete old data."""

from __future__ import annotations

import logging
import os
import signal
import sys
from functools import cached_property, partial
from threading import Event, Timer
from typing import TYPE_CHECKING, Literal

from deniable.errors import ConfigurationError
from deniable.messages.plural import plural
from deniable_aggregator.commands import options
from deniable_aggregator.process import logs, variables

if TYPE_CHECKING:
    import argparse
    from collections.abc import Collection, Iterator, Mapping
    from types import FrameType

    from deniable.commands.parser import Run
    from deniable.registry import Registry
    from deniable_aggregator.alarms.watcher import Watch
    from deniable_aggregator.archive.folder import Folder
    from deniable_aggregator.counting.chores import Chore
    from deniable_aggregator.counting.counter import WorkerSettings
    from deniable_aggregator.counting.events import Events
    from deniable_aggregator.counting.faults import Faults
    from deniable_aggregator.counting.worker import Worker
    from deniable_aggregator.deletion.archived_files import ArchivedFiles
    from deniable_aggregator.deletion.retention import Retention
    from deniable_aggregator.publish.publisher import Publisher
    from deniable_aggregator.store import Store

log = logging.getLogger("deniable.worker")

_FORCED = 1
_STOP_SECONDS = 22.0  # less than the 25 s that are promised and the 30 s that Kubernetes allows


def worker(parser: argparse.ArgumentParser) -> Run:
    """``deniable worker --redis-url URL --app NAME...``."""
    # Exit status: 0 if everything in hand was counted; 1 if a second signal cut it short; 2 for a wrong configuration; 3 if the
    # store could not be used at the end: then entries may be left for another worker.
    parser.add_argument(
        "--redis-url", default=os.environ.get("DENIABLE_REDIS_URL"), metavar="URL", help="the store (default: DENIABLE_REDIS_URL)"
    )
    options.add_apps(parser)
    about = (
        "metrics.toml of the apps, to publish what is counted, look for made-up reports and delete what is due; several are "
        "joined by : (default: DENIABLE_REGISTRY, or none of this)"
    )
    parser.add_argument("--registry", default=os.environ.get("DENIABLE_REGISTRY"), metavar="FILE", help=about)
    parser.add_argument("--burst", action="store_true", help="stop when the stream is empty and all due is done")
    for number in variables.WORKER:
        about = f"{number.about} (default: {number.variable}, else {number.default:g})"
        parser.add_argument(number.flag, metavar=number.unit, help=about)
    parser.add_argument(
        "--metrics-bind",
        default=os.environ.get("DENIABLE_METRICS_BIND"),
        metavar="HOST:PORT",
        help="show this worker's numbers to Prometheus at /metrics (default: DENIABLE_METRICS_BIND, else nowhere)",
    )

    options.add_archive(parser, "keep the reports of bits layouts in files under this path or URL")

    def run(arguments: argparse.Namespace) -> int:
        from deniable.registry import published
        from deniable_aggregator.counting.compilation import Compilation
        from deniable_aggregator.counting.faults import Faults
        from deniable_aggregator.counting.worker import Worker
        from deniable_aggregator.store.outage import Outage
        from deniable_aggregator.store.uploads.registries import OFF, Signs

        if not arguments.redis_url:
            rule = "no store is named: set DENIABLE_REDIS_URL, or give --redis-url"
            raise ConfigurationError(f"{rule}; `deniable serve` starts a store and a worker of its own")
        environment = {**os.environ, "DENIABLE_REDIS_URL": arguments.redis_url, "DENIABLE_REGISTRY": arguments.registry or ""}
        stores = options.stores(environment, arguments.app)
        log_settings = logs.LogSettings.from_environment()
        log_settings.apply()
        variables.warn()
        events, outage = _events(stores, arguments.metrics_bind), Outage(arguments.redis_url)
        archive = options.archive(arguments)
        loaded, off = _loaded(arguments.registry or "")
        chores = list(_chores({store: Faults(store, events, outage) for store in stores}, loaded, archive, off))
        known = {store: published.identity(loaded[store.app]) for store in stores if store.app in loaded}
        signs = Signs("worker", known | {store: OFF for store in stores if store.app in off}, off)
        counter = Worker(stores, _settings(arguments), chores=chores, archive=archive, events=events, outage=outage)
        stop, successor = _stop_on_signals()
        compilation = None if arguments.burst else Compilation()  # a burst counts what waits, and compiles if it is worth it
        if os.isatty(2) and not arguments.burst and _is_in_front():
            names = ", ".join(store.app for store in stores)
            print(f"Counts reports of {names}, and waits for more until Ctrl-C.", file=sys.stderr)
        signs.start()
        try:
            counter.run(stop, burst=arguments.burst, successor=successor)
        finally:
            signs.stop()
            if compilation:
                compilation.stop()
        if arguments.burst or counter.counted or counter.buried:  # after an edit another worker takes its place
            _summarise(counter, log_settings.format)
        return options.STORE_STATUS if counter.cut_off else 0

    return run


def _summarise(counter: Worker, log_format: str) -> None:
    """Say how much was counted."""
    summary = f"counted {plural(counter.counted, 'report')}, put aside {plural(counter.buried, 'batch')}"
    if log_format == "json":  # readers of the log expect nothing else in it
        log.info("%s", summary)
    else:
        print(summary, file=sys.stderr)


def _loaded(joined: str) -> tuple[dict[str, Registry], dict[str, str]]:
    """Read the registries that can be used; log the others, and return by app why. Raise if none of several can be used."""
    from deniable.limits import admission
    from deniable.registry import published

    loaded, faulty = published.tried(joined, admission.load_all)
    if faulty and not loaded:
        raise published.joined(faulty)
    off: dict[str, str] = {}
    for path, app, error in faulty:
        why = published.in_a_line(error)
        off |= {app: why} if app else {}
        left = f"{app or path} is off: its reports are counted, and nothing of it is published or deleted"
        log.error("%s, until this is mended and the worker starts again: %s", left, why, extra=logs.OF_PROCESS)
    return loaded, off


def _settings(arguments: argparse.Namespace) -> WorkerSettings:
    """Return the settings of counting, as the command line or the environment has them."""
    from deniable_aggregator.counting.counter import WorkerSettings

    batch, max_deliveries, claim_after = (each.choose(getattr(arguments, each.name)) for each in variables.WORKER)
    return WorkerSettings(
        batch=int(batch),
        min_idle_ms=round(1000 * claim_after),
        claim_every=min(30.0, claim_after / 2),
        max_deliveries=int(max_deliveries),
    )


def _is_in_front() -> bool:
    """Return whether somebody started this process at a terminal. `deniable serve` starts it in a session of its own."""
    try:
        return os.tcgetpgrp(2) == os.getpgrp()
    except OSError:
        return False


def _chores(
    faults_of: Mapping[Store, Faults],
    loaded: Mapping[str, Registry],
    archive: Folder | None,
    off: Collection[str] = (),  # apps whose registry cannot be used
) -> Iterator[Chore]:
    """Yield the chores of the store, of each app, and of each app whose registry is known."""
    from deniable_aggregator.counting.chores import Chore
    from deniable_aggregator.store.uploads import compaction, deliveries

    first = next(iter(faults_of))
    yield Chore("compaction", compaction.EVERY_SECONDS, compaction.Compaction(first).run, faults_of[first])
    for store, faults in faults_of.items():
        yield Chore("departures", deliveries.FORGET_SECONDS, partial(deliveries.forget_dead, store), faults)
        if store.app in loaded:
            yield from _Published(store, loaded[store.app], faults, archive).chores()
        elif store.app not in off:
            log.warning(
                "this worker only counts reports of %s: no file of DENIABLE_REGISTRY or --registry declares it, so nothing of it "
                "is published%s deleted. Name its metrics.toml there, and start the worker again",
                store.app,
                ", mixed or" if archive else " or",
                extra=logs.OF_PROCESS,
            )


class _Published:
    """What is done for an app with a registry. It is made when first needed, because the store has definitions for it."""

    def __init__(self, store: Store, declared: Registry, faults: Faults, archive: Folder | None) -> None:
        self._store, self._declared, self._faults, self._archive = store, declared, faults, archive

    @cached_property
    def registry(self) -> Registry:
        """The registry, with former versions of its metrics."""
        from deniable_aggregator.deletion.erase import Erased
        from deniable_aggregator.publish import definitions

        if line := definitions.refusal(self._store, self._declared):
            log.error("%s", line, extra=logs.OF_PROCESS)
        return definitions.remember(self._store, self._declared, Erased(self._store.erased.all()).has)

    @cached_property
    def watch(self) -> Watch:
        """Looks for made-up reports."""
        from deniable_aggregator.alarms.watcher import Watch

        return Watch(self._store, self.registry, faults=self._faults)

    @cached_property
    def publisher(self) -> Publisher:
        """Publishes."""
        from deniable_aggregator.publish.publisher import Publisher

        return Publisher(self._store, self.registry, faults=self._faults)

    @cached_property
    def retention(self) -> Retention:
        """Deletes what is due."""
        from deniable_aggregator.deletion.retention import Retention

        return Retention(self._store, self.registry, self.publisher, faults=self._faults)

    @cached_property
    def files(self) -> ArchivedFiles:
        """Mixes and deletes files of the archive."""
        from deniable_aggregator.deletion.archived_files import ArchivedFiles

        assert self._archive  # noqa: S101 - the caller checks it
        return ArchivedFiles(self._store, self.registry, self.publisher, self._archive, faults=self._faults)

    def _run(self, part: Literal["watch", "publisher", "retention", "files"]) -> bool | None:
        more: bool | None = getattr(self, part).run()
        return more

    def chores(self) -> Iterator[Chore]:
        """Yield the chores of the app."""
        from deniable_aggregator.alarms import watcher
        from deniable_aggregator.counting.chores import Chore
        from deniable_aggregator.deletion import retention
        from deniable_aggregator.publish import hourly, publisher, timetable

        # Chores run in this order. Retention comes after the publisher, which knows then which periods wait.
        copies, faults = hourly.Hourly(self._store), self._faults
        often = timetable.TRIAL_SECONDS if self._declared.publication.trial else None
        yield Chore("watch", watcher.EVERY_SECONDS, partial(self._run, "watch"), faults)
        yield Chore("publisher", often or publisher.EVERY_SECONDS, partial(self._run, "publisher"), faults)
        yield Chore("copies", often or hourly.EVERY_SECONDS, lambda: copies.run(self.registry), faults)
        yield Chore("retention", retention.EVERY_SECONDS, partial(self._run, "retention"), faults)
        if self._archive:
            from deniable_aggregator.deletion import archived_files

            yield Chore("mixture", archived_files.EVERY_SECONDS, partial(self._run, "files"), faults)


def _events(stores: list[Store], bind: str | None) -> Events | None:
    """Serve the metrics of this process, if there is an address for them."""
    if not bind:
        return None
    from deniable_aggregator.counting.prometheus import Vitals

    vitals = Vitals([store.app for store in stores])
    vitals.serve(bind)
    return vitals


def _stop_on_signals() -> tuple[Event, Event]:
    """Return an event that the first signal sets, and one that SIGHUP sets as well: another worker starts in its place."""
    # The second signal, or too long a stop, ends the process at once.
    stop, successor = Event(), Event()

    def give_up() -> None:
        print(f"not done after {_STOP_SECONDS:g} s; what is in hand is left to another worker", file=sys.stderr, flush=True)
        os._exit(options.STORE_STATUS)

    def on_signal(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        if stop.is_set():
            os._exit(_FORCED)
        if number not in (signal.SIGTERM, signal.SIGINT):
            successor.set()
        stop.set()
        if number == signal.SIGINT and os.isatty(2):  # `print` is not safe here: the signal may have interrupted one
            os.write(2, b"Stopping ...\n")
        last = Timer(_STOP_SECONDS, give_up)
        last.daemon = True
        last.start()

    signal.signal(signal.SIGTERM, on_signal)
    signal.signal(signal.SIGINT, on_signal)
    if sys.platform != "win32":
        signal.signal(signal.SIGHUP, on_signal)
    return stop, successor
