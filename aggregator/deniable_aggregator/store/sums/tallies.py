"""Shelves: tallies in the store, by stratum.

A tally is big-endian int64 cells, without zeros at the end; or, where that is shorter, a list of additions: see ``add.lua``.

There are two shelves: counted tallies, to which every commit adds, and published ones, which never change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np

from deniable.wire.report import Stratum
from deniable_aggregator import tally as tallies

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import redis
    from numpy.typing import NDArray

    from deniable.declared import Definition
    from deniable.wire.layout import Layout
    from deniable_aggregator.store.schema import Key
    from deniable_aggregator.tally import Tally

_SEPARATOR = "|"
_HEAD = 5  # bytes
_ADDITION = np.dtype([("cell", ">u4"), ("delta", ">i4")])


class Stored(NamedTuple):
    """A sum of tallies as they are stored: few bytes if few cells are not 0."""

    # One small upload can begin sums of thousands of segments, each of millions of cells. Whoever reads many of them turns only
    # one at a time into an array of all its cells.
    layout: Layout
    parts: tuple[bytes, ...]  # the tallies to add; none if the sum is 0

    @property
    def n(self) -> int:
        """Number of reports."""
        first = self.layout.rows * self.layout.width if self.layout.kind == "bits" else 0  # behind it are the reports of rows
        return sum(int(deltas[places >= first].sum()) for places, deltas in map(_changes, self.parts))

    def tally(self) -> Tally:
        """Return the sum as an array of all cells."""
        return total(self.layout, [self])

    def plus(self, other: Stored) -> Stored:
        """Add another sum."""
        return Stored(self.layout, self.parts + other.parts)


class Shelf:
    """Tallies of one app."""

    def __init__(
        self,
        client: redis.Redis,
        app: str,  # the app's name
        kind: Key,
    ) -> None:
        self._client, self._app, self._kind = client, app, kind

    def key(self, name: str) -> str:
        """Return the key of a stratum's tally."""
        return self._kind.of(self._app, name)

    def sums(self, layout: Layout, strata: Sequence[Stratum]) -> list[Stored]:
        """Read the tallies of some strata of one layout, all at one moment, empty where there is none."""
        return self.of_strata([layout] * len(strata), strata)

    def of_strata(self, layouts: Sequence[Layout], strata: Sequence[Stratum]) -> list[Stored]:
        """Read the tallies of some strata, each with its layout, all at one moment."""
        return self.of_keys(layouts, [self.key(name(stratum)) for stratum in strata])

    def of_keys(self, layouts: Sequence[Layout], keys: Sequence[str]) -> list[Stored]:
        """Read tallies by their keys, which may be of several kinds, each with its layout, all at one moment."""
        values = cast("list[bytes | None]", self._client.mget(keys)) if keys else []
        return [Stored(layout, (value,) if value else ()) for layout, value in zip(layouts, values, strict=True)]

    def read(self, layout: Layout, strata: Sequence[Stratum]) -> Tally:
        """Read and merge the tallies of some strata of one layout."""
        return total(layout, self.sums(layout, strata))


def total(layout: Layout, sums: Iterable[Stored]) -> Tally:
    """Add sums of one layout; raise ParameterError if one has more cells than the layout."""
    added = np.zeros(tallies.most_cells(layout), np.int64)
    for value in (part for stored in sums for part in stored.parts):
        tallies.check_cells(layout, _length(value))
        if _is_list(value):
            np.add.at(added, *_changes(value))
        else:
            added[: _length(value)] += np.frombuffer(value, ">i8")
    return tallies.from_cells(layout, added)


def cells(value: bytes) -> NDArray[np.int64]:
    """Decode the cells of a stored tally: (number of cells,)."""
    if not _is_list(value):
        return np.frombuffer(value, ">i8").astype(np.int64)
    total = np.zeros(_length(value), np.int64)
    np.add.at(total, *_changes(value))
    return total


def _is_list(value: bytes) -> bool:
    return len(value) % 8 == _HEAD


def _length(value: bytes) -> int:
    """Return how many cells a stored tally has."""
    return int.from_bytes(value[1:_HEAD]) if _is_list(value) else len(value) // 8


def _changes(value: bytes) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the numbers of cells of a stored tally, some perhaps several times, and what is added to each."""
    if _is_list(value):
        changes = np.frombuffer(value, _ADDITION, offset=_HEAD)
        return changes["cell"].astype(np.int64), changes["delta"].astype(np.int64)
    dense = np.frombuffer(value, ">i8").astype(np.int64)
    return np.arange(len(dense)), dense


def written(cells: NDArray[np.int64]) -> bytes:
    """Encode a tally for the store, in the shorter of the two forms."""
    changed = np.flatnonzero(cells)
    if _HEAD + _ADDITION.itemsize * len(changed) < 8 * len(cells) and (changes := additions(changed, cells[changed])) is not None:
        return b"L" + len(cells).to_bytes(_HEAD - 1) + changes
    return cells.astype(">i8").tobytes()


def additions(cells: NDArray[np.intp], deltas: NDArray[np.int64]) -> bytes | None:
    """Encode additions for ``add.lua``; None if one is too large for its 32 bits."""
    encoded = np.empty(len(cells), _ADDITION)
    encoded["cell"], encoded["delta"] = cells, deltas
    return encoded.tobytes() if np.array_equal(encoded["delta"], deltas) else None


def name(of: Stratum | Definition) -> str:
    """Return the name of a stratum, or of a definition, in keys and fields."""
    return _SEPARATOR.join(map(str, of))


def stratum(name: str) -> Stratum:
    """Return the stratum of a name."""
    metric, version, fingerprint, period, segment = name.split(_SEPARATOR)
    return Stratum(metric, int(version), fingerprint, period, segment)
