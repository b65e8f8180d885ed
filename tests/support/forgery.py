"""Poisoning: reports made up to raise the estimates of some values as far as reports can.

Whoever has the public key can send reports that no mechanism made. The *maximal gain* attack sends those that support as many of
its target values at once as one report may.

References
----------
X. Cao, J. Jia, N. Z. Gong: Data poisoning attacks to local differential privacy protocols. USENIX Security 2021, section 4.
"""

from __future__ import annotations

from functools import singledispatch
from typing import TYPE_CHECKING

import numpy as np

from deniable.errors import ParameterError
from deniable.mechanisms.listed.subset import Subset
from deniable.mechanisms.listed.unary import members
from deniable.mechanisms.permanent.dbitflip import DBitFlip
from deniable.mechanisms.texts.rappor import Bloom
from deniable.mechanisms.texts.sketch import Cms
from deniable_aggregator.alarms import tail_bounds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from deniable.mechanisms import Mechanism

_MOST_CELLS = 1 << 16  # each of which is looked at
_CHUNK = 10_000  # reports made at a time


def maximal_gain(
    mechanism: Mechanism, targets: Sequence[int], count: int, rng: np.random.Generator, *, disguised: bool = False
) -> bytes:
    """Make up reports.

    Parameters
    ----------
    mechanism
        What honest devices run.
    targets
        The values to be raised.
    count
        Reports.
    rng
        Where chance comes from.
    disguised
        Whether to give the reports the weights and the rows of honest ones, at the price of some of the gain. Otherwise bits have
        the mean weight of honest reports, and the best rows alone are used.

    Returns
    -------
    bytes
        Whole payloads, one after another.

    Raises
    ------
    ParameterError
        If the mechanism has too many cells to look at each.
    """
    if mechanism.layout.kind == "bits":
        return _bits(mechanism, targets, count, rng, disguised=disguised)
    rows, width = mechanism.layout.rows, mechanism.layout.width
    if rows * width > _MOST_CELLS:
        raise ParameterError(f"an attack looks at {_MOST_CELLS} cells at most", rows * width)
    score = np.empty((rows, width), np.int64)
    for row in range(rows):
        for cell in range(width):
            payload = mechanism.layout.pack(row, cell)
            score[row, cell] = len(mechanism.supported(payload) & set(targets)) - len(mechanism.opposed(payload) & set(targets))
    best = score == (score.max(axis=1, keepdims=True) if disguised else score.max())
    if disguised:  # an honest row each, and one of its best cells
        chosen = rng.integers(0, rows, count)
        cells = chosen * width + np.array([rng.choice(np.flatnonzero(best[row])) for row in chosen])
    else:
        cells = rng.choice(np.flatnonzero(best), count)
    return _little_endian(cells, mechanism.layout.payload_size).tobytes()


def _bits(mechanism: Mechanism, targets: Sequence[int], count: int, rng: np.random.Generator, *, disguised: bool) -> bytes:
    """Set the bits of all targets, and others at random up to a weight that an honest report may have."""
    layout, kind = mechanism.layout, tail_bounds.ones(mechanism.bounds())[-1]
    targeted = np.zeros((layout.rows, layout.width), np.bool_)
    for row in range(layout.rows):
        for target in targets:
            targeted[row, list(members(_target(mechanism, row, target)))] = True
    strict = disguised or isinstance(mechanism, Subset)  # no more bits than the weight, though targets go without
    payloads = []
    for begin in range(0, count, _CHUNK):
        rows = rng.integers(0, layout.rows, min(_CHUNK, count - begin))
        mean = round(float(kind @ np.arange(len(kind))))
        weight = rng.choice(len(kind), len(rows), p=kind / kind.sum()) if disguised else np.full(len(rows), mean)
        own = targeted[rows]
        order = np.argsort(rng.random(own.shape) - own, axis=1)  # the wanted ones first, in random order, and then the others
        chosen = np.arange(layout.width) < np.maximum(weight, 0 if strict else own.sum(axis=1))[:, None]
        bits = np.empty_like(own)
        np.put_along_axis(bits, order, chosen, axis=1)
        packed = np.packbits(bits, axis=1, bitorder="little")
        payloads.append(np.concatenate([_little_endian(rows, layout.row_size), packed], axis=1).tobytes())
    return b"".join(payloads)


def _little_endian(numbers: NDArray[np.int64], size: int) -> NDArray[np.uint8]:
    """Write numbers as `size` bytes each; (numbers, size)."""
    return np.ascontiguousarray(numbers, "<u8").view(np.uint8).reshape(-1, 8)[:, :size]


@singledispatch
def _target(mechanism: Mechanism, row: int, value: int) -> int:  # noqa: ARG001
    """Return the bits of a row that support a value."""
    return 1 << value


@_target.register(Bloom)
def _(mechanism: Bloom, row: int, value: int) -> int:
    return mechanism.filter(row, value)


@_target.register(Cms)
def _(mechanism: Cms, row: int, value: int) -> int:
    return 1 << mechanism.place(row, value)


@_target.register(DBitFlip)
def _(mechanism: DBitFlip, row: int, value: int) -> int:
    place = mechanism.response_key(row, value)
    return 1 << place if place < mechanism.buckets else 0
