"""Holdings: everything about one metric in the store, found by its indexes.

Each metric has tables whose fields name strata. Tallies, their copies and releases are listed by stratum; answers are listed by
question and stratum. The keys of all data follow from these names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from deniable_aggregator.store import schema
from deniable_aggregator.store.sums import tallies

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from deniable.wire.report import Stratum
    from deniable_aggregator.store import Partition, Store
    from deniable_aggregator.store.schema import Key
    from deniable_aggregator.store.values.collections import Table

COUNTED = (schema.TALLIES, schema.COPIES)
"""Indexes of exact data."""
PUBLISHED = (schema.RELEASES, schema.ANSWERS)
"""Indexes of published data."""
INDEXES = (*COUNTED, *PUBLISHED)


class Holdings:
    """Everything about a metric in the store, read at about one moment.

    Raises
    ------
    StoreError
        If the store cannot be used.
    """

    def __init__(
        self,
        store: Store,  # the app's
        metric: str,  # its id; it need not be in the registry
    ) -> None:
        self._store, self._metric = store, metric
        self._fields = {
            kind: {field: _stratum(kind, field) for index in self.indexes(kind) for field in index.names()} for kind in INDEXES
        }

    def indexes(self, kind: Key) -> list[Table]:
        """Return the tables of an index: one in each partition for exact data, one for published data."""
        if kind in COUNTED:
            return [partition.table(kind, self._metric) for partition in self._store.partitions]
        return [self._store.table(kind, self._metric)]

    def strata(self, *kinds: Key) -> set[Stratum]:
        """Return the strata that indexes name."""
        return {stratum for kind in kinds for stratum in self._fields[kind].values()}

    def fields(self, kind: Key, wanted: Callable[[Stratum], bool]) -> list[bytes]:
        """Return the fields of an index whose stratum is wanted."""
        return [field for field, stratum in self._fields[kind].items() if wanted(stratum)]

    def counted(self, partition: Partition, wanted: Callable[[Stratum], bool]) -> list[str]:
        """Return the keys of the exact sums of wanted strata in a partition; some may not exist."""
        strata = self._wanted(wanted)
        kinds = (schema.TALLY, schema.COPY, schema.WEIGHTS, schema.ARCHIVED)
        return [key for kind in kinds for key in _keys(kind, partition.name, strata)]

    def snapshots(self, wanted: Callable[[Stratum], bool]) -> list[str]:
        """Return the keys of the snapshots of wanted strata; some may not exist."""
        return _keys(schema.SNAPSHOT, self._store.app, {stratum._replace(segment="") for stratum in self._wanted(wanted)})

    def published(self, wanted: Callable[[Stratum], bool]) -> list[str]:
        """Return the keys of the releases of wanted strata; some may not exist."""
        return _keys(schema.RELEASE, self._store.app, self._wanted(wanted))

    def number(self, wanted: Callable[[Stratum], bool]) -> int:
        """Count the sums and releases of what is wanted."""
        keys = self._all(wanted)
        return self._store._client.exists(*keys) if keys else 0

    def delete(self, wanted: Callable[[Stratum], bool]) -> None:
        """Delete the sums and releases of what is wanted; the indexes still name them."""
        pipeline = self._store._client.pipeline(transaction=False)
        for key in self._all(wanted):
            pipeline.delete(key)
        pipeline.execute()

    def _all(self, wanted: Callable[[Stratum], bool]) -> list[str]:
        counted = [key for partition in self._store.partitions for key in self.counted(partition, wanted)]
        return [*counted, *self.snapshots(wanted), *self.published(wanted)]

    def _wanted(self, wanted: Callable[[Stratum], bool]) -> list[Stratum]:
        return list(filter(wanted, self.strata(*INDEXES)))


def _keys(kind: Key, name: str, strata: Iterable[Stratum]) -> list[str]:
    """Return the keys of strata, of an app or a partition."""
    return sorted(kind.of(name, tallies.name(stratum)) for stratum in strata)


def _stratum(kind: Key, field: bytes) -> Stratum:
    name = field.decode()
    return tallies.stratum(name.split("|", 2)[2] if kind is schema.ANSWERS else name)
