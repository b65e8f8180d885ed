"""Gauges read from the store on each request: its memory and backup, the backlog, workers, what holds counting up, alarms."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Final

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

import deniable
from deniable_aggregator.store.errors import REASONS, CommandForbidden, StoreError, reason
from deniable_aggregator.store.server import room, snapshot
from deniable_aggregator.store.server.cluster import Cluster
from deniable_aggregator.store.uploads import health
from deniable_server.agreement import Agreement

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deniable_server.service import App, Service

_AWAY: Final = "away"
_SECONDS = 3.0  # after these, no further app is read: Prometheus waits for ten in all


class Gauges(Collector):
    """The state of each app, read anew each time. Without the store only that it is down.

    Every server of one store shows the same, so these are not to be summed over servers.
    """

    def __init__(
        self,
        known: Service,  # an app's metrics change when its registry is read anew
    ) -> None:
        self._known = known
        # A store user for uploads only may not read alarms.
        self._looks = known.settings.serves != "ingest"

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Read the state."""
        build = GaugeMetricFamily("deniable_build_info", "1, labelled with the running version", labels=["version"])
        build.add_metric([deniable.__version__], 1)
        yield build
        limit = "Batches that may wait to be counted before uploads are refused"
        yield GaugeMetricFamily("deniable_backlog_limit_batches", limit, value=self._known.settings.max_backlog)
        refusing, families = set[str](), []
        try:
            refusing = set(self._known.refusals().values())
            if _AWAY not in refusing:  # nobody waits for it again
                families = [*self._memory(), *self._backup(), *self._state()]
        except StoreError as error:
            refusing.add(reason(error))
        up = GaugeMetricFamily("deniable_store_up", "1 if the store can be read, else 0", value=bool(families))
        refuses = GaugeMetricFamily(
            "deniable_store_refuses", "1 if the store refuses writes for this reason, else 0", labels=["reason"]
        )
        for key in REASONS:
            refuses.add_metric([key], key in refusing)
        yield from (up, refuses, *families)

    def _memory(self) -> list[GaugeMetricFamily]:
        fullest = room.fullest(self._known.client)
        if fullest is None:
            return []
        used, most = fullest
        return [
            GaugeMetricFamily(
                "deniable_store_memory_bytes", "Memory that the store uses; of several servers, the fullest", value=used
            ),
            GaugeMetricFamily("deniable_store_memory_limit_bytes", "Its maxmemory; missing if it has none", value=most),
        ]

    def _backup(self) -> list[GaugeMetricFamily]:
        if isinstance(self._known.client, Cluster):  # its copies are its replicas
            return []
        about = "When the last backup of the store was made; 0 if none is known"
        return [
            GaugeMetricFamily("deniable_backup_timestamp_seconds", about, value=snapshot.copies(self._known.client).last or 0)
        ]

    def _state(self) -> list[GaugeMetricFamily]:
        def family(name: str, about: str, *labels: str) -> GaugeMetricFamily:
            return GaugeMetricFamily(f"deniable_{name}", about, labels=["app", *labels])

        backlog = family("backlog_batches", "Batches accepted and not counted yet")
        pending = family("pending_batches", "Those of them that a worker has in hand")
        lag = family("lag_seconds", "Longest that any batch may have waited; missing before the first worker")
        dead = family("dead_letters", "Batches that were put aside because they cannot be counted")
        workers = family("workers", "Workers that live")
        held = family("held_up", "1 if this fault holds counting up, else 0", "fault")
        agrees = family("registry_agrees", "1 if all processes have loaded the registry as its file is, else 0")
        alarms = family("alarms", "Alarms about made-up reports that stand")
        raised = family("alarm_raised_timestamp_seconds", "Hour in which the latest of them was raised; 0 for none")
        deadline = monotonic() + _SECONDS
        for app in self._known.apps.values():
            if monotonic() > deadline:
                raise StoreError("the store is too slow to be asked about all apps")
            state, labels = health.read(app.store), [app.name]
            backlog.add_metric(labels, state.backlog)
            pending.add_metric(labels, state.pending)
            dead.add_metric(labels, state.dead)
            workers.add_metric(labels, state.workers)
            for fault in health.HOLD_UP:
                held.add_metric([*labels, fault], fault in state.held_up)
            if state.lag is not None:
                lag.add_metric(labels, state.lag)
            if (agreeing := _agrees(app)) is not None:
                agrees.add_metric(labels, agreeing)
            if self._looks:
                from deniable_aggregator.alarms import watcher  # noqa: PLC0415 - servers for uploads may lack scipy

                definitions = [question.definition for question in app.versions.values()]
                since = [alarm.since for standing in watcher.alarms(app.store, definitions).values() for alarm in standing]
                alarms.add_metric(labels, len(since))
                raised.add_metric(labels, max(since, default=0))
        return [backlog, pending, lag, dead, workers, held, agrees, *([alarms, raised] if self._looks else [])]


def _agrees(app: App) -> bool | None:
    """Return whether all processes have loaded the registry as its file is; None if the store's user may not ask."""
    try:
        return not Agreement.of(app.store, app.source).differing
    except CommandForbidden:
        return None
