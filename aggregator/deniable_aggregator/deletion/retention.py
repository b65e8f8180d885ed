"""Retention: the worker deletes sums, releases and alarms when their time is over.

``[retention]`` in the registry sets the times, which begin when a period closes. Exact sums are deleted only after they were
published. Those of a period that waits for more reports stay as long as releases. The store keeps the last period whose sums were
deleted, so that a late report is not counted as if it were the first. Metrics that no registry declares are never published; the
same times apply to them.

Deleted data leave the store's append-only file when it is rewritten, which workers ask for (`store.compaction`).
"""

from __future__ import annotations

import logging
from collections import defaultdict
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from deniable.declared import Declared
from deniable.registry import period
from deniable.registry.tables import GRACE, duration
from deniable_aggregator.alarms import watcher
from deniable_aggregator.counting.faults import Faults
from deniable_aggregator.deletion.erase import Erased, Removal
from deniable_aggregator.publish import release
from deniable_aggregator.publish.release import Release
from deniable_aggregator.store import schema
from deniable_aggregator.store.errors import StoreFull
from deniable_aggregator.store.sums import tallies
from deniable_aggregator.store.sums.holdings import COUNTED, PUBLISHED, Holdings
from deniable_aggregator.store.uploads.dead_letters import DeadLetters

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from deniable.registry import Registry
    from deniable.wire.report import Stratum
    from deniable_aggregator.publish.publisher import Publisher
    from deniable_aggregator.store import Store

log = logging.getLogger("deniable.retention")

EVERY_SECONDS = 3600.0
"""Seconds between searches."""

_DAY = 86_400


class Retention:
    """Deletes the data of one app whose time is over."""

    def __init__(
        self,
        store: Store,  # where it is counted
        registry: Registry,  # its retention times
        publisher: Publisher,  # knows which periods wait for more reports; it must have run before
        *,
        faults: Faults | None = None,  # records a metric that fails, while the others continue
    ) -> None:
        self._store, self._publisher, self._faults = store, publisher, faults or Faults(store)
        self._days = registry.retention
        self._graces = longest_graces(registry)
        self._left: Iterator[int] | None = None  # the remaining metrics of the present search
        self._declared = {Declared.of(metric).definition for metric in registry.definitions}
        self._expire, self._withdrawing = store.script("discard", "expire"), store.script("discard", "withdraw")

    def run(self) -> bool:
        """Delete the due data of the next metric; return whether metrics are left. Other chores wait for one metric only."""
        left, self._left = self._left, None  # a search in which something fails is over
        left = left or self._due(self._store.now())
        if next(left, None) is not None:
            self._left = left
        return self._left is not None

    def delete(
        self,
        now: float,  # Unix time in seconds
    ) -> int:
        """Delete all due data; return the number of deleted keys. If two workers do so at once, only one deletes them."""
        return sum(self._due(now))

    def _due(self, now: float) -> Iterator[int]:
        """Delete the due data, metric by metric; yield the number of deleted keys of each."""
        known = self._sweep()
        # Batches that were accepted and not counted yet may be of any period that was open then.
        drained = self._publisher.drained(now)
        deleted = 0
        for metric in sorted(known):
            closed = drained - self._graces[metric].total_seconds()
            keys = 0
            with self._faults.alone("retention", metric):
                held = Holdings(self._store, metric)
                keys += self._counted(held, closed)
                held = Holdings(self._store, metric) if keys else held
                keys += self._published(held, closed - self._days.releases * _DAY)
                watcher.forget(self._store, metric, closed - self._days.alarms * _DAY)
            deleted += keys
            yield keys
        DeadLetters(self._store).forget(int(now) - self._days.tallies * _DAY)
        if deleted:
            log.info("deleted %d keys of %s whose time was over", deleted, self._store.app)

    def _sweep(self) -> set[str]:
        """Delete late data of erased metrics; return the names of all other metrics."""
        erased = Erased(self._store.erased.all())
        gone = {(metric, version) for metric, version, _ in self._declared if erased.has(metric, version)}
        for metric, version in sorted(gone):
            Removal(self._store, metric, version).sweep()
        known = self._store.metrics.all()
        living = {metric for metric, version, _ in self._declared if (metric, version) not in gone}
        if living - known:
            with suppress(StoreFull):  # what makes room comes first, and the next look notes them
                self._store.metrics.add(sorted(living - known))
        return known | living | {metric for metric, _ in gone}

    def _counted(self, held: Holdings, closed: float) -> int:
        """Delete the exact data of periods that closed long enough ago."""
        waited = _ended(self._publisher.waiting, closed - self._days.releases * _DAY)
        deleted = 0
        for total in _ended(held.strata(*COUNTED), closed - self._days.tallies * _DAY):
            # Sums that were never published stay as long as releases do, because they may still join one.
            published = total.period <= release.summary(self._store, total[:3]).closed
            if total[:3] not in self._declared or published or total in waited:
                deleted += self._delete_sums(held, total)
        return deleted

    def _delete_sums(self, held: Holdings, total: Stratum) -> int:
        """Delete the exact data of a period, partition by partition. Late reports of it are not counted from then on."""
        in_period = _within(total)
        fields = sorted({field for kind in COUNTED for field in held.fields(kind, in_period)})
        args = [tallies.name(total[:3]), total.period, len(COUNTED), *fields]
        # The snapshot goes first. If this ends half-way, the fields of indexes are still there, by which it is found.
        deleted = self._store.delete(held.snapshots(in_period))
        for partition in self._store.partitions:
            indexes = [partition.table(kind, total.metric).key for kind in COUNTED]
            deleted += int(self._expire([partition.expired.key, *indexes, *held.counted(partition, in_period)], args))
        return deleted

    def _published(self, held: Holdings, before: float) -> int:
        """Delete releases of periods that ended before a time and have no exact data left."""
        exact = {_total(stratum) for stratum in held.strata(*COUNTED)}
        due = [total for total in _ended(held.strata(*PUBLISHED), before) if total not in exact]
        return sum(self._delete_sums(held, total) + self._withdraw(held, total) for total in due)

    def _withdraw(self, held: Holdings, total: Stratum) -> int:
        """Delete the releases of a period."""
        indexes = [self._store.table(kind, total.metric) for kind in PUBLISHED]
        releases, in_period = self._store.table(schema.RELEASES, total.metric), _within(total)
        note = releases.get(tallies.name(total)) or b""
        fields = sorted({field for kind in PUBLISHED for field in held.fields(kind, in_period)})
        gone = Release.read(note).n if note else 0
        args: list[Any] = [tallies.name(total), note, tallies.name(total[:3]), gone, len(PUBLISHED), *fields]
        tables = [releases, self._store.published, *indexes]
        return int(self._withdrawing([*(table.key for table in tables), *held.published(in_period)], args))


def _within(total: Stratum) -> Callable[[Stratum], bool]:
    """Return a function that says whether a stratum is of a period."""
    return lambda stratum: _total(stratum) == total


def longest_graces(registry: Registry) -> Mapping[str, timedelta]:
    """Return the longest grace of any version of a metric, by its id; the default for a metric of no registry."""
    graces: defaultdict[str, timedelta] = defaultdict(lambda: duration("grace", GRACE))
    for metric in registry.definitions:
        graces[metric.id] = max(duration("grace", metric.grace), graces.get(metric.id, timedelta()))
    return graces


def _total(stratum: Stratum) -> Stratum:
    """Return the stratum of all segments together."""
    return stratum._replace(segment="")


def _ended(strata: Iterable[Stratum], before: float) -> list[Stratum]:
    """Return the periods of strata that ended before a time."""
    ends = {total: period.end(total.period) for total in set(map(_total, strata))}
    return sorted(total for total, end in ends.items() if end and end.timestamp() < before)
