"""The layout of a payload: one row, and in it either one index or a set of bits.

Every report of a mechanism is one payload of one layout. So payloads can be checked and counted without the mechanism. All
numbers are little-endian.

``index``
    The cell number ``row * width + index``, in as few bytes as hold ``rows * width - 1``.
``bits``
    First the row number, in as few bytes as hold ``rows - 1``; none if there is one row. Then ``width`` bits: bit ``i`` is bit
    ``i % 8`` of byte ``i // 8``. Padding bits are zero.
"""

from __future__ import annotations

from typing import Literal

from deniable.errors import ParameterError, PayloadError
from deniable.frozen import dataclass, field

Kind = Literal["index", "bits"]

MAX_CELLS = 1 << 22
"""Most cells of a tally (32 MiB of int64)."""


MAX_ROWS = 4096
"""Most rows of a mechanism with permanent responses whose rows grow with its domain.

A device keeps its row for good, and each of its reports shows it. So a device hides only among the devices that share its row.
"""

MAX_REPORT_BYTES = 256
"""Largest payload that ``auto`` chooses by default: a bit for each of 2,048 values."""


def _bytes_for(largest: int) -> int:
    return (largest.bit_length() + 7) // 8


@dataclass(frozen=True, slots=True)
class Layout:
    """The layout of a mechanism's payloads, and of the tally that sums them, which has at most 4,194,304 cells."""

    rows: int  # number of rows (hash functions, cohorts); 1 if the mechanism has none
    width: int  # number of indices or bits in a row; at least 2 for `index`, 1 for `bits`
    kind: Kind  # "index" or "bits"
    row_size: int = field(init=False, repr=False, compare=False)  # bytes of the row number in a `bits` payload; 0 for `index`
    payload_size: int = field(init=False, repr=False, compare=False)  # Bytes of every payload. It never depends on the value.

    def __post_init__(self) -> None:
        if self.kind not in ("index", "bits"):
            raise ParameterError("kind: write 'index' or 'bits'", self.kind)
        if self.rows < 1:
            raise ParameterError("rows: write 1 or more", self.rows)
        if self.width < (2 if self.kind == "index" else 1):
            raise ParameterError("width: write 2 or more for indices, 1 or more for bits", self.width)
        if self.rows * self.width > MAX_CELLS:
            raise ParameterError(f"{self.rows} rows of {self.width} are too many: use {MAX_CELLS} cells at most")
        if self.kind == "index":
            row_size, size = 0, _bytes_for(self.rows * self.width - 1)
        else:
            row_size = _bytes_for(self.rows - 1)
            size = row_size + (self.width + 7) // 8
        object.__setattr__(self, "row_size", row_size)
        object.__setattr__(self, "payload_size", size)

    def pack(
        self,
        row: int,  # in [0, rows)
        content: int,  # the index in [0, width), or the bits as an integer in [0, 2**width)
    ) -> bytes:
        """Encode a payload, `payload_size` bytes."""
        if self.kind == "index":
            return (row * self.width + content).to_bytes(self.payload_size, "little")
        return row.to_bytes(self.row_size, "little") + content.to_bytes(self.payload_size - self.row_size, "little")

    def unpack(self, payload: bytes) -> tuple[int, int]:
        """Decode a payload: its row, and the index or the bits; raise `PayloadError` for one that no device could have sent."""
        if len(payload) != self.payload_size:
            raise PayloadError("payload_length", f"a payload must have {self.payload_size} bytes; this has {len(payload)}")
        if self.kind == "index":
            cell = int.from_bytes(payload, "little")
            if cell >= self.rows * self.width:
                raise PayloadError("index_range", f"a cell must be below {self.rows} x {self.width}; this is {cell}")
            return divmod(cell, self.width)
        row = int.from_bytes(payload[: self.row_size], "little")
        bits = int.from_bytes(payload[self.row_size :], "little")
        if row >= self.rows:
            raise PayloadError("row_range", f"a row must be below {self.rows}; this is {row}")
        if bits >> self.width:
            raise PayloadError("padding_bits", f"bits from {self.width} up are zero")
        return row, bits
