"""Retention: the worker deletes sums, releases and alarms when their time is over.

``[retention]`` in the registry sets the times, which begin when a period closes. Exact sums are deleted only after they were
published; a period that should be published but is not is kept. A period that waits for more reports is kept as long as releases
are. The store keeps the last period whose sums were deleted, so that a late report is not counted as if it were the first.
Metrics that no registry declares are never published; the same times apply to them.

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
    """Deletes what is due of one app."""

    def __init__(
        self,
        store: Store,  # where it is counted
        registry: Registry,  # its retention times
        publisher: Publisher,  # publishes it, and knows which periods wait; it must have run before
        *,
        faults: Faults | None = None,  # records a metric that fails, while the others continue
    ) -> None:
        self._store, self._publisher, self._faults = store, publisher, faults or Faults(store)
        self._days = registry.retention
        self._graces = longest_graces(registry)
        self._left: Iterator[int] | None = None  # the rest of the present search
        self._declared = {Declared.of(metric).definition for metric in registry.definitions}
        self._expire, self._withdrawing = store.script("discard", "expire"), store.script("discard", "withdraw")

    def run(self) -> bool:
        """Delete what is due of the next metric. Counting waits for one metric at a time only.

        Returns
        -------
        bool
            Whether metrics are left.
        """
        left, self._left = self._left, None  # a search in which something fails is over
        left = left or self._due(self._store.now())
        if next(left, None) is not None:
            self._left = left
        return self._left is not None

    def delete(
        self,
        now: float,  # Unix time in seconds
    ) -> int:
        """Delete what is due. If two workers do so at once, one of them finds nothing.

        Returns
        -------
        int
            Number of deleted tallies, releases and similar keys.
        """
        return sum(self._due(now))

    def _due(self, now: float) -> Iterator[int]:
        """Delete what is due, metric by metric; yield the number of deleted keys of each."""
        known = self._sweep()
        # Batches that were accepted and not counted yet may be of any period that was open then.
        drained = self._publisher.drained(now)
        deleted = 0
        for metric in sorted(known):
            closed = drained - self._graces[metric].total_seconds()
            of_it = 0
            with self._faults.alone("retention", metric):
                held = Holdings(self._store, metric)
                of_it += self._counted(held, closed)
                held = Holdings(self._store, metric) if of_it else held
                of_it += self._published(held, closed - self._days.releases * _DAY)
                watcher.forget(self._store, metric, closed - self._days.alarms * _DAY)
            deleted += of_it
            yield of_it
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
        """Delete the exact sums, and all other exact data, of periods that closed long enough ago."""
        waited = _ended(self._publisher.waiting, closed - self._days.releases * _DAY)
        deleted = 0
        for whole in _ended(held.strata(*COUNTED), closed - self._days.tallies * _DAY):
            published = whole.period <= release.summary(self._store, whole[:3]).closed
            if whole[:3] not in self._declared or published or whole in waited:
                deleted += self._delete_sums(held, whole)
        return deleted

    def _delete_sums(self, held: Holdings, whole: Stratum) -> int:
        """Delete the exact sums of a period, partition by partition; what comes late for it is not counted again.

        The snapshot goes first: by the fields of indexes it is found, if this ends half-way.
        """
        of_it = _in(whole)
        fields = sorted({field for kind in COUNTED for field in held.fields(kind, of_it)})
        args = [tallies.name(whole[:3]), whole.period, len(COUNTED), *fields]
        deleted = self._store.delete(held.snapshots(of_it))
        for partition in self._store.partitions:
            indexes = [partition.table(kind, whole.metric).key for kind in COUNTED]
            deleted += int(self._expire([partition.expired.key, *indexes, *held.counted(partition, of_it)], args))
        return deleted

    def _published(self, held: Holdings, before: float) -> int:
        """Delete releases of periods that ended before a time and have no exact data left."""
        exact = {_whole(stratum) for stratum in held.strata(*COUNTED)}
        due = [whole for whole in _ended(held.strata(*PUBLISHED), before) if whole not in exact]
        return sum(self._delete_sums(held, whole) + self._withdraw(held, whole) for whole in due)

    def _withdraw(self, held: Holdings, whole: Stratum) -> int:
        """Delete the releases of a period."""
        indexes = [self._store.table(kind, whole.metric) for kind in PUBLISHED]
        releases, of_it = self._store.table(schema.RELEASES, whole.metric), _in(whole)
        note = releases.get(tallies.name(whole)) or b""
        fields = sorted({field for kind in PUBLISHED for field in held.fields(kind, of_it)})
        gone = Release.read(note).n if note else 0
        args: list[Any] = [tallies.name(whole), note, tallies.name(whole[:3]), gone, len(PUBLISHED), *fields]
        tables = [releases, self._store.published, *indexes]
        return int(self._withdrawing([*(table.key for table in tables), *held.published(of_it)], args))


def _in(whole: Stratum) -> Callable[[Stratum], bool]:
    """Return a function that tells whether a stratum is of a period."""
    return lambda stratum: _whole(stratum) == whole


def longest_graces(registry: Registry) -> Mapping[str, timedelta]:
    """Return the longest grace of any version of a metric, by its id; the default for a metric of no registry."""
    found: defaultdict[str, timedelta] = defaultdict(lambda: duration("grace", GRACE))
    for metric in registry.definitions:
        found[metric.id] = max(duration("grace", metric.grace), found.get(metric.id, timedelta()))
    return found


def _whole(stratum: Stratum) -> Stratum:
    return stratum._replace(segment="")


def _ended(strata: Iterable[Stratum], before: float) -> list[Stratum]:
    """Return the periods of strata that ended before a time."""
    ends = {whole: period.end(whole.period) for whole in set(map(_whole, strata))}
    return sorted(whole for whole, end in ends.items() if end and end.timestamp() < before)
