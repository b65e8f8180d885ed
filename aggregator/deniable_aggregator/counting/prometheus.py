"""The metrics of a worker for Prometheus, on an address of its own."""

from __future__ import annotations

import time
from errno import EADDRINUSE
from math import inf
from threading import get_ident
from typing import TYPE_CHECKING, cast

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, start_http_server

import deniable
from deniable.errors import ConfigurationError
from deniable_aggregator.counting.events import Events
from deniable_aggregator.process import ports

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from wsgiref.simple_server import WSGIServer
    from wsgiref.types import StartResponse, WSGIEnvironment

STILL_SECONDS = 180.0
"""A worker is not well if a counting thread has not turned for so long."""

_CHORES = ("compaction", "copies", "departures", "mixture", "publisher", "retention", "watch")
_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call] # else each counter has a second series, of its start


class Vitals(Events):
    """The metrics of a worker. Labels are the names of apps and chores only."""

    def __init__(
        self,
        apps: Sequence[str],  # names of its apps; all series exist from the start
    ) -> None:
        self.registry = CollectorRegistry()

        def counter(name: str, about: str, *labels: str) -> Counter:
            return Counter(f"deniable_worker_{name}", about, labels, registry=self.registry)

        self._reports = counter("reports_counted", "Reports counted", "app")
        self._batches = counter("batches_counted", "Batches counted", "app")
        self._dead = counter("dead_letters", "Batches put aside because they cannot be counted", "app")
        self._claimed = counter("takeovers", "Batches taken over from another worker", "app")
        self._faults = counter("faults", "Failures of chores", "chore")
        self._failures = counter("store_errors", "Times that the store could not be used")
        self._commits = Histogram(
            "deniable_worker_commit_duration_seconds",
            "How long the store took for a commit",
            ["app"],
            buckets=_BUCKETS,
            registry=self.registry,
        )
        for app in apps:
            for series in (self._reports, self._batches, self._dead, self._claimed, self._commits):
                series.labels(app)
        for chore in _CHORES:
            self._faults.labels(chore)
        build = Gauge("deniable_build_info", "1, labelled with the running version", ["version"], registry=self.registry)
        build.labels(deniable.__version__).set(1)
        ProcessCollector(registry=self.registry)
        self._turns: dict[int, float] = {}  # when each counting thread turned last

    def serve(
        self,
        bind: str,  # `HOST:PORT`, an IPv6 address in brackets
    ) -> WSGIServer:
        """Serve the metrics and ``/healthz`` at an address, from a thread that ends with the process."""
        host, port = ports.of_numbers(bind)
        try:
            server, _ = start_http_server(port, host, self.registry)
        except OSError as error:
            why = "it is taken" if error.errno == EADDRINUSE else f"this machine cannot listen there ({error})"
            raise ConfigurationError(f"--metrics-bind {bind}: {why}; give another address") from None
        # By default it prints the address of a connection that ended early.
        server.handle_error = lambda *_: None  # type: ignore[method-assign]
        metrics = server.get_app()

        def serve(environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
            if environ.get("PATH_INFO") != "/healthz":
                return cast("Iterable[bytes]", metrics(environ, start))  # type: ignore[misc]
            still = self.still()
            start("503 Service Unavailable" if still else "200 OK", [("Content-Type", "text/plain; charset=utf-8")])
            return [f"counting has stood still for {still:.0f} s\n".encode() if still else b"ok\n"]

        server.set_app(serve)
        return server

    def still(self) -> float:
        """Return for how many seconds a counting thread has stood still; 0 if it is not more than `STILL_SECONDS`."""
        # A thread that waits for the store or the archive turns, too: to restart it would not help.
        longest = time.monotonic() - min(list(self._turns.values()), default=inf)
        return longest if longest > STILL_SECONDS else 0.0

    def turned(self) -> None:
        """Note the time."""
        self._turns[get_ident()] = time.monotonic()

    def ended(self) -> None:
        """Forget the thread."""
        self._turns.pop(get_ident(), None)

    def committed(self, app: str, seconds: float) -> None:
        """Record how long a commit took."""
        self._commits.labels(app).observe(seconds)

    def counted(self, app: str, batches: int, reports: int) -> None:
        """Count batches and reports."""
        self._batches.labels(app).inc(batches)
        self._reports.labels(app).inc(reports)

    def buried(self, app: str) -> None:
        """Count a batch that was put aside."""
        self._dead.labels(app).inc()

    def claimed(self, app: str, batches: int) -> None:
        """Count batches that were taken over."""
        self._claimed.labels(app).inc(batches)

    def faulted(self, chore: str) -> None:
        """Count a failure of a chore."""
        self._faults.labels(chore).inc()

    def failed(self) -> None:
        """Count a failure of the store."""
        self._failures.inc()
