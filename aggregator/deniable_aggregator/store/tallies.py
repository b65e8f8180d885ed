"""Shelves: tallies in the store, by stratum.

A tally is big-endian int64 cells, without zeros at the end; or, where that is shorter, a list of additions: see ``add.lua``.

There are two shelves: counted tallies, to which every commit adds, and published ones, which never change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np

from deniable.wire.report import Stratum
from deniable_aggregator import tally as tallies

if TYPE_CHECKING:
    from collections.abc import Sequence

    import redis
    from numpy.typing import NDArray

    from deniable.declared import Definition
    from deniable.wire.layout import Layout
    from deniable_aggregator.store.schema import Key
    from deniable_aggregator.tally import Tally

_SEPARATOR = "|"
_HEAD = 5  # bytes
_ADDITION = np.dtype([("cell", ">u4"), ("delta", ">i4")])


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

    def each(self, layout: Layout, strata: Sequence[Stratum]) -> list[Tally]:
        """Read the tallies of some strata of one layout, all at one moment; empty if there is none."""
        return self.some([layout] * len(strata), strata)

    def some(self, layouts: Sequence[Layout], strata: Sequence[Stratum]) -> list[Tally]:
        """Read the tallies of some strata, each with its layout, all at one moment."""
        return self.of_keys(layouts, [self.key(name(stratum)) for stratum in strata])

    def of_keys(self, layouts: Sequence[Layout], keys: Sequence[str]) -> list[Tally]:
        """Read tallies by their keys, which may be of several kinds, each with its layout, all at one moment."""
        values = cast("list[bytes | None]", self._client.mget(keys)) if keys else []
        return [tallies.from_cells(layout, cells(value or b"")) for layout, value in zip(layouts, values, strict=True)]

    def read(self, layout: Layout, strata: Sequence[Stratum]) -> Tally:
        """Read and merge the tallies of some strata of one layout."""
        return tallies.merge(tallies.empty(layout), *self.each(layout, strata))


def cells(value: bytes) -> NDArray[np.int64]:
    """Decode the cells of a stored tally: (number of cells,)."""
    if len(value) % 8 != _HEAD:
        return np.frombuffer(value, ">i8").astype(np.int64)
    additions = np.frombuffer(value, _ADDITION, offset=_HEAD)
    found = np.zeros(int.from_bytes(value[1:_HEAD]), np.int64)
    np.add.at(found, additions["cell"], additions["delta"])
    return found


def written(cells: NDArray[np.int64]) -> bytes:
    """Encode cells as the store keeps them, in the shorter form."""
    changed = np.flatnonzero(cells)
    if _HEAD + _ADDITION.itemsize * len(changed) < 8 * len(cells) and (some := additions(changed, cells[changed])) is not None:
        return b"L" + len(cells).to_bytes(_HEAD - 1) + some
    return cells.astype(">i8").tobytes()


def additions(cells: NDArray[np.intp], deltas: NDArray[np.int64]) -> bytes | None:
    """Encode additions, as ``add.lua`` takes them; None if a delta is too large for one."""
    found = np.empty(len(cells), _ADDITION)
    found["cell"], found["delta"] = cells, deltas
    return found.tobytes() if np.array_equal(found["delta"], deltas) else None


def name(of: Stratum | Definition) -> str:
    """Return the name of a stratum, or of a definition, in keys and fields."""
    return _SEPARATOR.join(map(str, of))


def stratum(name: str) -> Stratum:
    """Return the stratum of a name."""
    metric, version, fingerprint, period, segment = name.split(_SEPARATOR)
    return Stratum(metric, int(version), fingerprint, period, segment)
