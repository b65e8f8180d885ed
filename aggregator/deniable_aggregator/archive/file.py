"""The file: Parquet with one column of payloads, and a head that says what reports they are.

Payloads are nearly random, so there are no dictionaries and no statistics. They are sorted, so a file does not tell in which
order they came.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from deniable.wire.layout import Layout
from deniable.wire.report import Stratum

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import IO

COLUMN = "payload"
_KEY = "deniable"
_FORMAT = 1
_ROWS = 1 << 20  # of a row group: what is decompressed at once


class Head(NamedTuple):
    """What the reports of a file are."""

    # What they share. In the file of a commit the period is the devices': late reports may count in a later one.
    stratum: Stratum
    layout: Layout  # the shape of each


def write(
    sink: IO[bytes] | pa.NativeFile,  # an open file
    head: Head,  # what they are
    payloads: bytes,  # whole payloads, one after another
) -> None:
    """Write reports, sorted."""
    layout = head.layout
    about = {"format": _FORMAT, **head.stratum._asdict(), "rows": layout.rows, "width": layout.width, "kind": layout.kind}
    kind = pa.binary(layout.payload_size)
    schema = pa.schema([pa.field(COLUMN, kind, nullable=False)])
    ordered = np.sort(np.frombuffer(payloads, f"S{layout.payload_size}"))
    column = pa.FixedSizeBinaryArray.from_buffers(kind, len(ordered), [None, pa.py_buffer(ordered)])
    with parquet.ParquetWriter(
        sink, schema, compression="zstd", use_dictionary=False, write_statistics=False, store_schema=False
    ) as writer:
        writer.add_key_value_metadata({_KEY: json.dumps(about)})
        writer.write_table(pa.table([column], schema), _ROWS)


def read_head(source: pa.NativeFile) -> Head:
    """Read what the reports of a file are."""
    return _head(parquet.ParquetFile(source))


def read(
    source: pa.NativeFile,  # an open file; it stays open while the payloads are read
) -> tuple[Head, Iterator[bytes]]:
    """Read a file.

    Returns
    -------
    head : Head
        What the reports are.
    payloads : iterator of bytes
        Whole payloads, one after another, a million or fewer at once.
    """
    opened = parquet.ParquetFile(source)
    head = _head(opened)
    return head, _payloads(opened, head.layout.payload_size)


def _payloads(opened: parquet.ParquetFile, size: int) -> Iterator[bytes]:
    for group in opened.iter_batches(_ROWS, columns=[COLUMN]):
        column = group.column(0)
        yield column.buffers()[1].slice(column.offset * size, len(column) * size).to_pybytes()


def _head(opened: parquet.ParquetFile) -> Head:
    told = json.loads((opened.metadata.metadata or {})[_KEY.encode()])
    layout = Layout(told["rows"], told["width"], told["kind"])
    return Head(Stratum(*(told[field] for field in Stratum._fields)), layout)
