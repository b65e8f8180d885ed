"""What is looked up in the store when somebody asks for the metrics: how much waits, who works on it, which alarms stand."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

import deniable
from deniable_aggregator.store import health
from deniable_aggregator.store.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from deniable_server.service import App
    from deniable_server.settings import Settings

__all__ = ["Gauges"]

_SECONDS = 3.0  # after which no further app is looked up: whoever asks for metrics waits for ten in all


class Gauges(Collector):
    """The state of each app, read anew each time; without the store, that it is away.

    Every server of one store says the same, so these are not to be added up over servers.

    Parameters
    ----------
    settings
        With the cap of the backlog, and what the server serves.
    apps
        Which apps.
    """

    def __init__(self, settings: Settings, apps: Iterable[App]) -> None:
        self._limit = settings.max_backlog
        # A user of the store that only takes uploads may not read alarms.
        self._looks = settings.serves != "ingest"
        self._apps = [(app, [question.definition for question in app.versions.values()]) for app in apps]

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Read the state."""
        build = GaugeMetricFamily("deniable_build_info", "1, of the version that runs", labels=["version"])
        build.add_metric([deniable.__version__], 1)
        yield build
        limit = "Batches that may wait to be counted before uploads are refused"
        yield GaugeMetricFamily("deniable_backlog_limit_batches", limit, value=self._limit)
        up, families = 1, []
        try:
            families = self._state()
        except StoreError:
            up = 0
        yield GaugeMetricFamily("deniable_store_up", "1 if the store answers, else 0", value=up)
        yield from families

    def _state(self) -> list[GaugeMetricFamily]:
        def family(name: str, about: str) -> GaugeMetricFamily:
            return GaugeMetricFamily(f"deniable_{name}", about, labels=["app"])

        backlog = family("backlog_batches", "Batches taken and not counted yet")
        pending = family("pending_batches", "Those of them that a worker has in hand")
        lag = family("lag_seconds", "Longest that any batch may have waited; not there before any worker came")
        dead = family("dead_letters", "Batches that were put aside because they cannot be counted")
        workers = family("workers", "Workers that live")
        alarms = family("alarms", "Alarms about made-up reports that stand")
        raised = family("alarm_raised_timestamp_seconds", "Hour in which the latest of them was raised; 0 for none")
        deadline = monotonic() + _SECONDS
        for app, definitions in self._apps:
            if monotonic() > deadline:
                raise StoreError("the store is too slow to be asked about all apps")
            felt, labels = health.feel(app.store), [app.name]
            backlog.add_metric(labels, felt.backlog)
            pending.add_metric(labels, felt.pending)
            dead.add_metric(labels, felt.dead)
            workers.add_metric(labels, felt.workers)
            if felt.lag is not None:
                lag.add_metric(labels, felt.lag)
            if self._looks:
                from deniable_aggregator.alarms import watcher  # noqa: PLC0415 - who takes uploads only may have no scipy

                since = [each.since for found in watcher.alarms(app.store, definitions).values() for each in found]
                alarms.add_metric(labels, len(since))
                raised.add_metric(labels, max(since, default=0))
        return [backlog, pending, lag, dead, workers, *([alarms, raised] if self._looks else [])]
