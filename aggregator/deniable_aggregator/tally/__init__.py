"""The tally: the sum of reports. For every mechanism it is one int64 matrix and a number of reports for each row.

Tallies add. Merging is associative and commutative, so reports may be counted in any order, on any machine and in any number of
pieces.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from deniable.errors import ParameterError, PayloadError
from deniable_aggregator.tally import kernels

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from deniable.mechanisms import Mechanism
    from deniable.wire.layout import Layout

__all__ = [
    "Tally",
    "check_cells",
    "count",
    "count_few",
    "empty",
    "from_cells",
    "merge",
    "most_cells",
    "sift",
    "valid",
    "valid_bytes",
    "without",
]

_BYTES = bytes(range(256))
_PLENTY = 64  # cells for each report, or for each bit of one, from which on those that are 0 are left out
_FEW = 64  # payloads up to which a check in Python is faster than a call of numpy


@dataclass(frozen=True, slots=True, eq=False)
class Tally:
    """A sum of reports of one layout.

    Parameters
    ----------
    layout
        Shape of the reports.
    counts
        int64 array (rows, width): how often each index was named, or each bit set.
    reports
        int64 array (rows,): reports of each row.
    """

    layout: Layout
    counts: NDArray[np.int64]
    reports: NDArray[np.int64]

    @property
    def n(self) -> int:
        """Number of reports."""
        return int(self.reports.sum())

    @property
    def cells(self) -> NDArray[np.int64]:
        """The tally as one vector. It has the counts row by row, then, for bits, the reports of each row.

        With indices every report counts once, so the reports of a row are the sum of its counts, and are left out.
        """
        if self.layout.kind == "index":
            return self.counts.ravel()
        return np.concatenate([self.counts.ravel(), self.reports])

    def by_parts(self, mechanism: Mechanism) -> NDArray[np.int64]:
        """Count the reports that estimates rest on: (parts,), those of each of `Mechanism.parts`.

        Raises
        ------
        ParameterError
            If the mechanism has another layout.
        """
        self.check_decoder(mechanism)
        if not mechanism.part:
            return np.array([self.n], np.int64)
        return np.array([self.reports[list(rows)].sum() for rows in mechanism.parts], np.int64)

    def check_decoder(self, mechanism: Mechanism) -> None:
        """Refuse a mechanism that made no such reports.

        Raises
        ------
        ParameterError
            If it has another layout.
        """
        if self.layout != mechanism.layout:
            raise ParameterError(f"the layout: decode with {mechanism.name} a tally of {mechanism.layout}", self.layout)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Tally):
            return NotImplemented
        same = np.array_equal(self.counts, other.counts) and np.array_equal(self.reports, other.reports)
        return self.layout == other.layout and same

    __hash__ = None  # type: ignore[assignment] # arrays are mutable


def empty(layout: Layout) -> Tally:
    """Make a tally of no reports."""
    return Tally(layout, np.zeros((layout.rows, layout.width), np.int64), np.zeros(layout.rows, np.int64))


def from_cells(layout: Layout, cells: NDArray[np.int64]) -> Tally:
    """Make a tally from its vector. Missing cells at the end are 0."""
    size, most = layout.rows * layout.width, most_cells(layout)
    check_cells(layout, len(cells))
    padded = cells
    if len(cells) < most:
        padded = np.zeros(most, np.int64)
        padded[: len(cells)] = cells
    counts = padded[:size].reshape(layout.rows, layout.width)
    return Tally(layout, counts, counts.sum(axis=1) if layout.kind == "index" else padded[size:])


def most_cells(layout: Layout) -> int:
    """Return the length of the vector of a tally."""
    return layout.rows * layout.width + (layout.rows if layout.kind == "bits" else 0)


def check_cells(layout: Layout, number: int) -> None:
    """Refuse more cells than a layout has."""
    if number > most_cells(layout):
        raise ParameterError(f"the cells of this layout: write {most_cells(layout)} at most", number)


@lru_cache(1024)
def valid_bytes(layout: Layout) -> tuple[tuple[int, bytes], ...]:
    """List places in a payload with the bytes there that prove its part valid; another byte may be valid, too."""
    # For most groups, which are small, this check is faster than a call of numpy. A number is below another one if its highest
    # byte is below that of the other.
    size, head = layout.payload_size, layout.row_size
    if layout.kind == "index":
        limits = [(size - 1, layout.rows * layout.width >> 8 * (size - 1))]
    else:
        limits = [(head - 1, layout.rows >> 8 * (head - 1))] if head else []
        limits += [(size - 1, 1 << layout.width % 8)] if layout.width % 8 else []
    return tuple((place, _BYTES[:limit]) for place, limit in limits if limit < len(_BYTES))


def valid(
    layout: Layout,  # shape of the reports
    payloads: bytes,  # whole payloads, one after another
) -> NDArray[np.bool_]:
    """Check for each payload whether a device could have sent it; raise `PayloadError` if the bytes are not whole payloads."""
    table = _table(layout, payloads)
    if layout.kind == "index":
        return kernels.widen(table) < layout.rows * layout.width
    good = kernels.widen(table[:, : layout.row_size]) < layout.rows
    padding = -layout.width % 8
    if padding:
        good &= table[:, -1] >> (8 - padding) == 0
    return good


def sift(
    layout: Layout,  # shape of the reports
    payloads: bytes,  # whole payloads, one after another
) -> tuple[bytes, int, PayloadError | None]:
    """Separate valid payloads from the others: return these, how many others there are, and what the first one breaks."""
    if _surely_valid(layout, payloads):
        return payloads, 0, None
    if len(payloads) <= _FEW * layout.payload_size and _all_valid(layout, payloads):
        return payloads, 0, None
    good = valid(layout, payloads)
    if good.all():
        return payloads, 0, None
    table = _table(layout, payloads)
    reason = PayloadError("payload", "no device could have sent this payload")
    try:
        layout.unpack(table[int(np.flatnonzero(~good)[0])].tobytes())
    except PayloadError as error:
        reason = error
    return table[good].tobytes(), int((~good).sum()), reason


def count(layout: Layout, payloads: bytes) -> Tally:
    """Count reports, which must all be valid.

    Raises
    ------
    PayloadError
        If no device could have sent a payload. Nothing is counted then.
    """
    _, _, reason = sift(layout, payloads)
    if reason:
        raise reason
    counted = empty(layout)
    data = np.frombuffer(payloads, np.uint8)
    if layout.kind == "index":
        kernels.histogram(data, layout.payload_size, counted.counts.reshape(-1))
        return Tally(layout, counted.counts, counted.counts.sum(axis=1))
    kernels.popcount(data, layout.row_size, layout.payload_size, layout.width, counted.counts, counted.reports)
    return counted


def count_few(layout: Layout, payloads: bytes) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
    """Count few reports: the numbers of the cells of `Tally.cells` that are not 0, in order, and their counts; else None."""
    # Without an element for each cell: a layout may have a million.
    size, reports = layout.rows * layout.width, len(payloads) // layout.payload_size
    if reports * (_PLENTY if layout.kind == "index" else _PLENTY * layout.width) > size:
        return None
    _, _, reason = sift(layout, payloads)
    if reason:
        raise reason
    table = _table(layout, payloads)
    if layout.kind == "index":
        cells, counts = np.unique(kernels.widen(table), return_counts=True)
        return cells.astype(np.int64), counts.astype(np.int64)
    rows, of = np.unique(kernels.widen(table[:, : layout.row_size]), return_inverse=True)
    bits = np.zeros((len(rows), layout.width), np.int64)
    np.add.at(bits, of, np.unpackbits(table[:, layout.row_size :], axis=1, count=layout.width, bitorder="little"))
    row, bit = np.nonzero(bits)
    cells = np.concatenate([rows.astype(np.int64)[row] * layout.width + bit, size + rows.astype(np.int64)])
    return cells.astype(np.int64), np.concatenate([bits[row, bit], np.bincount(of, minlength=len(rows))]).astype(np.int64)


def merge(first: Tally, *others: Tally) -> Tally:
    """Add tallies of one layout.

    Raises
    ------
    ParameterError
        If their layouts differ.
    """
    for other in others:
        if other.layout != first.layout:
            raise ParameterError(f"the layout: merge tallies of one, here {first.layout}", other.layout)
    counts = sum((other.counts for other in others), first.counts)
    return Tally(first.layout, counts, sum((other.reports for other in others), first.reports))


def without(total: Tally, *others: Tally) -> Tally:
    """Subtract tallies from one that contains them.

    Raises
    ------
    ParameterError
        If their layouts differ.
    """
    contained = merge(empty(total.layout), *others)
    return merge(total, Tally(contained.layout, -contained.counts, -contained.reports))


def _table(layout: Layout, payloads: bytes) -> NDArray[np.uint8]:
    size = layout.payload_size
    if len(payloads) % size:
        raise PayloadError(
            "payload_length", f"payloads must be of {size} bytes, one after another; these have {len(payloads)} bytes"
        )
    return np.frombuffer(payloads, np.uint8).reshape(-1, size)


def _surely_valid(layout: Layout, payloads: bytes) -> bool:
    size = layout.payload_size
    if not payloads or len(payloads) % size:
        return False
    return not any(payloads[place::size].translate(None, allowed) for place, allowed in valid_bytes(layout))


def _all_valid(layout: Layout, payloads: bytes) -> bool:
    """Check each payload in Python."""
    size = layout.payload_size
    if not payloads or len(payloads) % size:
        return False
    head, limit = (size, layout.rows * layout.width) if layout.kind == "index" else (layout.row_size, layout.rows)
    if max([int.from_bytes(payloads[at : at + head], "little") for at in range(0, len(payloads), size)]) >= limit:
        return False
    padding = layout.width % 8 if layout.kind == "bits" else 0
    return not padding or not payloads[size - 1 :: size].translate(None, _BYTES[: 1 << padding])
