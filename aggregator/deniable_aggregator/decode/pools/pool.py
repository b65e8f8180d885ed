"""Estimates from a pool of hash functions: the plainly present is cleared, and what is left has a known distribution.

Two values collide in some rows of a pool. The functions are public, so it is known in which. What a common value adds to the
support of others can be subtracted: the shares of plainly present values are solved for jointly, and the cells are cleared of
them.

The cells then contain the noise of the devices, and people whose value is rare or is not a candidate. A value that nobody holds
hashes to a random cell of each row. So its support is the sum of one random cell of each row, whatever the cells contain. The
tally tells the distribution of this sum. Its tail is long if an unlisted value is common.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse import csc_array
from scipy.sparse.linalg import LinearOperator, cg
from scipy.special import ndtri

from deniable.exact.hashing import PoolFamily
from deniable_aggregator.decode.pools import hash_lookup
from deniable_aggregator.decode.pools.absent_support import Absent
from deniable_aggregator.decode.pools.clusters import stderr_of_mean
from deniable_aggregator.decode.pools.pool_estimate import Pooled

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from numpy.typing import NDArray

    from deniable.mechanisms.texts.sketch import Sketch

_PLAIN = 0.05  # a value is plainly present if noise alone would show any in this share of tallies
_TRIED = 1024  # candidates with the most support, among which the plainly present are looked for
_MOST = 128  # values cleared at most: those after them confuse little
_CELLS = 64  # for each value cleared, so that clearing takes little of the others away
_ROUNDS = 4  # of clearing, each of which may show more of what is plainly present
_WORTH = 0.01  # confusion below this share of the variance is not worth another look-up of all candidates
_GLANCE = 8  # one of this many rows is enough to show the most common values
_FEW = 128  # rows that are always looked at
_PRECISE = 1e-6  # relative error of the shares that are cleared


@dataclass(frozen=True, eq=False)
class PoolCells:
    """The cells of a tally."""

    mechanism: Sketch  # what the devices ran, with a pool
    counts: NDArray[Any]  # (rows, width): reports that support each place, perhaps cleared of what some values add
    reports: NDArray[np.int64]  # (rows,), not all 0

    @cached_property
    def absent(self) -> Absent:
        """The distribution of the support of a value that nobody holds."""
        used = self.reports > 0
        return Absent(self.counts if used.all() else self.counts[used])

    @property
    def n(self) -> int:
        """Number of reports."""
        return int(self.reports.sum())

    @property
    def scale(self) -> float:
        """Support that a value has more if everybody holds it."""
        return self.n * float(self.mechanism.p - self.mechanism.q)

    @property
    def confused(self) -> bool:
        """Whether there is more confusion than is worth a look-up."""
        q = float(self.mechanism.q)
        return self.absent.variance > (1 + _WORTH) * self.n * q * (1 - q)

    def lookup(self, keys: NDArray[np.uint64]) -> NDArray[np.float64]:
        """Sum the cells that each key hashes to."""
        return hash_lookup.lookup(self.family, self.counts, keys)

    def plain(self, support: NDArray[np.float64], candidates: int) -> NDArray[np.intp]:
        """Return the places of supports that noise alone would hardly show among all candidates, in ascending order."""
        least = self.absent.least(-ndtri(_PLAIN / max(candidates, 1)))
        most = min(_MOST, min(self.n, self.absent.cells.size) // _CELLS)
        first = np.argsort(-support, kind="stable")[:most]
        return np.sort(first[support[first] > least])

    def sample(self, share: int) -> PoolCells:
        """Take one in `share` rows, unless these are few."""
        rows = max(len(self.reports) // share, _FEW)
        return PoolCells(self.mechanism, self.counts[:rows], self.reports[:rows])

    def clear(self, keys: NDArray[np.uint64]) -> tuple[NDArray[np.float64], PoolCells]:
        """Estimate the shares of values jointly, by least squares, and subtract from the cells what they add."""
        rows, width = self.counts.shape
        numbers = np.arange(rows)[:, None]
        places = (numbers * width + hash_lookup.hashes(self.family, numbers, keys)).T.ravel()
        held = csc_array((np.ones(len(places)), places, np.arange(0, len(places) + 1, rows)), (rows * width, len(keys)))
        # A share adds to its value's places, and takes as much away evenly from all places of a row.
        odds = float(self.mechanism.p - self.mechanism.other) * self.reports
        adding = csc_array((np.tile(odds, len(keys)), held.indices, held.indptr), held.shape)
        asking, even = held.T, odds.sum() / width
        together = LinearOperator((len(keys), len(keys)), matvec=lambda shares: asking @ (adding @ shares) - even * shares.sum())
        shares, _ = cg(together, asking @ self.counts.ravel() - self.n * float(self.mechanism.q), rtol=_PRECISE)
        added = (adding @ shares).reshape(rows, width) - odds[:, None] * (shares.sum() / width)
        return shares, PoolCells(self.mechanism, self.counts - added, self.reports)

    @property
    def family(self) -> PoolFamily:
        """The hash functions."""
        assert isinstance(self.mechanism.family, PoolFamily)  # noqa: S101 - complete families confuse nothing
        return self.mechanism.family


def estimate(cells: PoolCells, values: Sequence[int]) -> Pooled:
    """Estimate the frequencies of candidates."""
    keys = hash_lookup.keys(values, cells.mechanism.domain_size)
    plain, shares, left = _clear(cells, keys)
    # How the rows differ says how far the sum is off, unless some of it was taken from all of them.
    support, by_row = hash_lookup.lookup_by_row(cells.family, left.counts, cells.counts, keys)
    noise = len(keys) * cells.n * float(cells.mechanism.q)
    unallocated = 1 - float(by_row.sum() - noise) / cells.scale, stderr_of_mean(by_row, cells.reports) * cells.n / cells.scale
    cleared = np.full(len(keys), np.square(shares).sum())
    support[plain] += cells.scale * shares
    cleared[plain] -= np.square(shares)
    return Pooled(cells.mechanism, cells.n, support, np.clip(cleared, 0, 1), left.absent, unallocated)


def _clear(cells: PoolCells, keys: NDArray[np.uint64]) -> tuple[NDArray[np.intp], NDArray[np.float64], PoolCells]:
    """Clear the cells of what is plainly present; return its places, its shares, and the cells without it."""
    plain, shares, left = np.arange(0), np.zeros(0), cells
    if not cells.confused:
        return plain, shares, left
    likely = np.arange(len(keys))
    if len(keys) > _TRIED:
        likely = np.argsort(-cells.sample(_GLANCE).lookup(keys), kind="stable")[:_TRIED]
    support = cells.lookup(keys[likely])
    for _ in range(_ROUNDS):  # once the most common values confuse nothing more, further ones stand out
        more = left.plain(support, len(keys))
        if not len(more) or np.array_equal(plain, more):
            break
        plain = more
        shares, left = cells.clear(keys[likely[plain]])
        if not left.confused:
            break
        support = left.lookup(keys[likely])
        support[plain] += cells.scale * shares
    return likely[plain], shares, left
