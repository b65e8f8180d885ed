"""The weight tally: how many reports of a ``bits`` layout set how many bits.

The sums of a tally forget how the ones were spread over the reports. How many a report has is distributed alike whatever the
answer, so a second, tiny tally of that alone shows reports that no device would have made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from deniable_aggregator.tally import kernels

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from deniable.wire.layout import Layout

__all__ = ["count"]

_CHUNK = 1 << 20
"""Bytes that numpy takes at a time."""


def count(layout: Layout, payloads: bytes) -> NDArray[np.int64]:
    """Count reports by their ones.

    Parameters
    ----------
    layout
        Shape of the reports, of kind ``bits``.
    payloads
        Whole payloads that a device could have sent, one after another.

    Returns
    -------
    ndarray of int64
        (width + 1,): how many reports set none, one, ... all of the bits.
    """
    data = np.frombuffer(payloads, np.uint8)
    cells = np.zeros(layout.width + 1, np.int64)
    (_count_numpy if kernels.backend() == "numpy" else _count_numba)(data, layout.row_size, layout.payload_size, cells)
    return cells


def _count_numba(data: NDArray[np.uint8], row_size: int, size: int, cells: NDArray[np.int64]) -> None:
    from deniable_aggregator.tally import compiled_weights  # noqa: PLC0415 - numba is loaded when something is counted

    view = data.view()
    view.flags.writeable = False  # as most arrive: numba compiles once more for an array that may be written
    compiled_weights.count(view, row_size, size, cells)


def _count_numpy(data: NDArray[np.uint8], row_size: int, size: int, cells: NDArray[np.int64]) -> None:
    content = data.reshape(-1, size)[:, row_size:]
    step = max(1, _CHUNK // size)
    for begin in range(0, len(content), step):
        weights = np.bitwise_count(content[begin : begin + step]).sum(axis=1, dtype=np.int64)
        cells += np.bincount(weights, minlength=len(cells))
