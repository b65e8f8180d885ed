"""What the store notes of the archive: which files have the reports that were counted, and how the last recount went.

No other files count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, cast
from uuid import uuid4

from deniable_aggregator.store import schema
from deniable_aggregator.store.script import Script
from deniable_aggregator.store.sums import tallies

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy as np
    import redis
    from numpy.typing import NDArray

    from deniable.wire.report import Stratum
    from deniable_aggregator.store import Store


class LastRecount(NamedTuple):
    """How the last recount of all that an app has in the archive went. It names no metric, so none needs to be erased from it."""

    at: int  # Unix time in seconds
    strata: int  # how many were counted again
    differing: int  # how many of them differ from the tally
    failing: int  # how many of them have files that could not be counted

    def note(self, store: Store) -> None:
        """Note it in place of the one before."""
        store.table(schema.RECOUNTED).put(self._asdict())

    @classmethod
    def of(cls, store: Store) -> LastRecount | None:
        """Read it; None if there was none."""
        told = store.table(schema.RECOUNTED).all()
        return cls(*(int(told[field.encode()]) for field in cls._fields)) if told else None


class Archived:
    """The files of the archive that one partition has."""

    def __init__(
        self,
        client: redis.Redis,
        name: str,  # the partition's name
    ) -> None:
        self._client, self._name = client, name
        self._read = Script(client, "archived")
        self._exchange = Script(client, "exchange")

    def number(self) -> str | None:
        """Return the number of the partition's folder; None if there never was an archive."""
        told = cast("bytes | None", self._client.get(schema.ARCHIVE.of(self._name)))
        return told.decode() if told else None

    def begin(self) -> str:
        """Return the number of the partition's folder, which is drawn the first time."""
        number = self.number()
        while number is None:
            self._client.set(schema.ARCHIVE.of(self._name), uuid4().hex, nx=True)
            number = self.number()
        return number

    def read(self, stratum: Stratum) -> tuple[list[str], NDArray[np.int64]]:
        """Return the names of a stratum's files, and the cells of its tally, at one moment."""
        of = tallies.name(stratum)
        names, held = self._read([schema.ARCHIVED.of(self._name, of), schema.TALLY.of(self._name, of)], [])
        return sorted(each.decode() for each in names), tallies.cells(held)

    def names(self, strata: Sequence[Stratum]) -> dict[Stratum, set[str]]:
        """Return the names of the files of some strata, without those that have none."""
        pipeline = self._client.pipeline(transaction=False)
        for stratum in strata:
            pipeline.smembers(schema.ARCHIVED.of(self._name, tallies.name(stratum)))
        found = zip(strata, pipeline.execute() if strata else (), strict=True)
        return {stratum: {each.decode() for each in names} for stratum, names in found if names}

    def exchange(self, stratum: Stratum, former: Sequence[str], others: Iterable[str]) -> bool:
        """Note other files with the same reports; return False if some of the former ones are not noted any more."""
        key = schema.ARCHIVED.of(self._name, tallies.name(stratum))
        return bool(self._exchange([key], [len(former), *former, *others]))
