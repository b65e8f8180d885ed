"""The weight tally: how many reports of a ``bits`` layout set how many bits.

The sums of a tally do not show how the ones were spread over the reports. The number of ones in a report has the same
distribution for every answer. So a second, small tally of this number shows made-up reports.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from deniable_aggregator.tally import kernels

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from deniable.wire.layout import Layout

_CHUNK = 1 << 20
"""Bytes that numpy takes at a time."""


def count(
    layout: Layout,  # shape of the reports, of kind `bits`
    payloads: bytes,  # whole payloads that a device could have sent, one after another
) -> NDArray[np.int64]:
    """Count reports by their number of ones, (width + 1,): how many set none, one, ... all of the bits."""
    data = np.frombuffer(payloads, np.uint8)
    cells = np.zeros(layout.width + 1, np.int64)
    (_count_numpy if kernels.backend() == "numpy" else _count_numba)(data, layout.row_size, layout.payload_size, cells)
    return cells


def _count_numba(data: NDArray[np.uint8], row_size: int, size: int, cells: NDArray[np.int64]) -> None:
    from deniable_aggregator.tally import compiled_weights  # noqa: PLC0415 - numba is loaded at the first count

    view = data.view()
    view.flags.writeable = False  # as most arrive: numba would compile again for a writable array
    compiled_weights.count(view, row_size, size, cells)


def _count_numpy(data: NDArray[np.uint8], row_size: int, size: int, cells: NDArray[np.int64]) -> None:
    content = data.reshape(-1, size)[:, row_size:]
    step = max(1, _CHUNK // size)
    for begin in range(0, len(content), step):
        weights = np.bitwise_count(content[begin : begin + step]).sum(axis=1, dtype=np.int64)
        cells += np.bincount(weights, minlength=len(cells))
