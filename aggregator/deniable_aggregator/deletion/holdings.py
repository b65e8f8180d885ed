"""Holdings: what the store has of one metric, as its indexes tell.

Three hashes of each metric have fields that name a stratum: ``tallies`` and ``releases`` by its name alone, ``answers`` behind
what was asked. From the names follow the keys of all that is kept of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from deniable_aggregator.publish import release
from deniable_aggregator.store import tallies

if TYPE_CHECKING:
    from collections.abc import Callable

    from deniable.wire.report import Stratum
    from deniable_aggregator.store import Store

__all__ = ["COUNTED", "INDEXES", "PUBLISHED", "Holdings"]

COUNTED = ("tallies",)
"""Indexes of what is exact."""
PUBLISHED = ("releases", "answers")
"""Indexes of what was told."""
INDEXES = (*COUNTED, *PUBLISHED)


class Holdings:
    """What the store has of a metric at one moment, or nearly so.

    Parameters
    ----------
    store
        The app's.
    metric
        Its id; the registry need not know it.

    Raises
    ------
    redis.RedisError
        If the store cannot be used.
    """

    def __init__(self, store: Store, metric: str) -> None:
        self._store, self._metric = store, metric
        self._fields = {
            word: {field: _stratum(word, field) for field in cast("list[bytes]", store.redis.hkeys(self.index(word)))}
            for word in INDEXES
        }

    def index(self, word: str) -> str:
        """Name the key of an index."""
        return f"{{{self._store.app}}}:{word}:{self._metric}"

    def strata(self, *words: str) -> set[Stratum]:
        """List what indexes name."""
        return {stratum for word in words for stratum in self._fields[word].values()}

    def fields(self, word: str, wanted: Callable[[Stratum], bool]) -> list[bytes]:
        """List the fields of an index that name something wanted."""
        return [field for field, stratum in self._fields[word].items() if wanted(stratum)]

    def counted(self, wanted: Callable[[Stratum], bool]) -> list[str]:
        """Name the keys of the exact sums of what is wanted; some may not exist."""
        strata = list(filter(wanted, self.strata(*INDEXES)))
        names = sorted(map(tallies.name, strata))
        snapshots = {self._store.snapshots.key(tallies.name(stratum._replace(segment=""))) for stratum in strata}
        return [*map(self._store.tallies.key, names), *map(self._store.weights, names), *sorted(snapshots)]

    def published(self, wanted: Callable[[Stratum], bool]) -> list[str]:
        """Name the keys of the releases of what is wanted; some may not exist."""
        return [release.shelf(self._store).key(tallies.name(stratum)) for stratum in filter(wanted, self.strata(*INDEXES))]


def _stratum(word: str, field: bytes) -> Stratum:
    name = field.decode()
    return tallies.stratum(name.split("|", 2)[2] if word == "answers" else name)
