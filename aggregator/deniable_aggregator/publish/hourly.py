"""Hourly copies of the exact sums: all that administrators see of reports that are in no release.

Sums change with each report. Two looks at them, a report apart, would show that report. So administrators see copies. All copies
of an app are made in one pass after each full hour, by one worker. Sums that can no longer change need no copy: those of sealed
periods.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from deniable_aggregator import tally
from deniable_aggregator.publish import release
from deniable_aggregator.store import refused_reports, schema, tallies

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from deniable.registry import Registry
    from deniable.wire.layout import Layout
    from deniable.wire.report import Stratum
    from deniable_aggregator.store import Partition, Store
    from deniable_aggregator.tally import Tally

__all__ = ["EVERY_SECONDS", "Hourly"]

EVERY_SECONDS = 60.0
"""Seconds between looks whether an hour has passed."""

_HOUR, _LEAST = 3600, 3300  # seconds between two passes, at least; after it the next one comes at a full hour
_SEALED = ""


class Hourly:
    """The exact sums of an app as they were when they were last copied.

    Parameters
    ----------
    store
        The app's.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    # Reading

    def strata(self, metric: str) -> dict[Stratum, int]:
        """Return every stratum of a metric that has a copy or is sealed, each with 0."""
        return {tallies.stratum(name): 0 for partition in self._store.partitions for name in _noted(partition, metric)}

    def each(self, layout: Layout, strata: Sequence[Stratum]) -> list[Tally]:
        """Read the copies of some strata of one layout, or the sums of sealed ones; empty if there is none."""
        parts = [self._of_partition(partition, layout, strata) for partition in self._store.partitions]
        return [tally.merge(*some) for some in zip(*parts, strict=True)]

    def read(self, layout: Layout, strata: Sequence[Stratum]) -> Tally:
        """Read and merge the copies of some strata of one layout."""
        return tally.merge(tally.empty(layout), *self.each(layout, strata))

    def refused(self) -> dict[tuple[str, int], dict[str, int]]:
        """Return the numbers of refused reports, as of `refused_reports.read`."""
        return refused_reports.read(self._store, [self._store.table(schema.REFUSALS)])

    @staticmethod
    def _of_partition(partition: Partition, layout: Layout, strata: Sequence[Stratum]) -> list[Tally]:
        noted = {name: hour for metric in {each.metric for each in strata} for name, hour in _noted(partition, metric).items()}
        names = [tallies.name(stratum) for stratum in strata]
        keys = [(schema.TALLY if noted.get(name) == _SEALED else schema.COPY).of(partition.name, name) for name in names]
        return partition.tallies.of_keys([layout] * len(strata), keys)

    # Copying

    def run(self, registry: Registry) -> None:
        """Copy what has changed, unless it was done within this hour."""
        now = int(self._store.now())
        if not self._store.claim(schema.COPIED, -(-(now + _LEAST) // _HOUR) * _HOUR):
            return
        hour = now - now % _HOUR
        for metric in sorted(registry.metrics):
            for partition in self._store.partitions:
                self._copy(partition, metric, hour)
        refused_reports.copy(self._store, self._store.table(schema.REFUSALS))

    def _copy(self, partition: Partition, metric: str, hour: int) -> None:
        noted = {tallies.stratum(name): copied for name, copied in _noted(partition, metric).items()}
        strata = partition.strata(metric)
        sealed = self._sealed(strata)
        closing = [stratum for stratum in strata if stratum in sealed and noted.get(stratum) != _SEALED]
        due = [stratum for stratum, at in strata.items() if stratum not in sealed and at >= int(noted.get(stratum) or 0)]
        partition.copy([tallies.name(stratum) for stratum in due], metric, hour)
        partition.copies(metric).put(dict.fromkeys(map(tallies.name, closing), _SEALED))
        partition.drop_copies([tallies.name(stratum) for stratum in closing])

    def _sealed(self, strata: Iterable[Stratum]) -> set[Stratum]:
        """Return the strata to which nothing can be added any more."""
        first_open = {definition: release.summary(self._store, definition).open for definition in {each[:3] for each in strata}}
        return {stratum for stratum in strata if stratum.period < first_open[stratum[:3]]}


def _noted(partition: Partition, metric: str) -> dict[str, str]:
    """Return the hour in which each stratum of a metric was copied; empty if it is sealed."""
    return {name.decode(): hour.decode() for name, hour in partition.copies(metric).all().items()}
