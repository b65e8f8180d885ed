"""The file: Parquet with one column of payloads, and a head that says what reports they are.

Payloads are sorted, so a file does not tell in which order they came. Pages and head have checksums, which show a changed bit.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple
from zlib import crc32

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from deniable.wire.layout import Layout
from deniable.wire.report import Stratum
from deniable_aggregator.archive.errors import DamagedFileError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import IO

COLUMN = "payload"
_KEY, _CHECKSUM = "deniable", "deniable.crc32"
_FORMAT = 1
_ROWS = 1 << 20  # of a row group: what is decompressed at once


class Head(NamedTuple):
    """What the reports of a file have in common."""

    stratum: Stratum  # In the file of a commit it has the period that the devices stated; late reports may count in a later one.
    layout: Layout


def write(
    sink: IO[bytes] | pa.NativeFile,  # an open file
    head: Head,  # what they are
    payloads: bytes,  # whole payloads, one after another
) -> None:
    """Write reports, sorted."""
    layout = head.layout
    about = {"format": _FORMAT, **head.stratum._asdict(), "rows": layout.rows, "width": layout.width, "kind": layout.kind}
    about["reports"] = len(payloads) // layout.payload_size
    head_text = json.dumps(about)
    kind = pa.binary(layout.payload_size)
    schema = pa.schema([pa.field(COLUMN, kind, nullable=False)])
    ordered = np.sort(np.frombuffer(payloads, f"S{layout.payload_size}"))
    column = pa.FixedSizeBinaryArray.from_buffers(kind, len(ordered), [None, pa.py_buffer(ordered)])
    # Payloads are nearly random: dictionaries and statistics would only take room.
    with parquet.ParquetWriter(
        sink,
        schema,
        compression="zstd",
        use_dictionary=False,
        write_statistics=False,
        store_schema=False,
        write_page_checksum=True,
    ) as writer:
        writer.add_key_value_metadata({_KEY: head_text, _CHECKSUM: str(crc32(head_text.encode()))})
        writer.write_table(pa.table([column], schema), _ROWS)


def read(
    source: pa.NativeFile,  # an open file; it stays open while the payloads are read
) -> tuple[Head, Iterator[bytes]]:
    """Return the head of a file and its payloads, a million or fewer at once. The last of them may raise DamagedFileError."""
    try:
        opened = parquet.ParquetFile(source, page_checksum_verification=True)
    except pa.ArrowInvalid:
        raise DamagedFileError("it is empty, cut off, or no Parquet file") from None
    fields = _fields_of(opened)
    head = Head(Stratum(*(fields[name] for name in Stratum._fields)), Layout(fields["rows"], fields["width"], fields["kind"]))
    return head, _payloads(opened, head.layout.payload_size, fields["reports"])


def _payloads(opened: parquet.ParquetFile, size: int, reports: int) -> Iterator[bytes]:
    if opened.schema_arrow != pa.schema([pa.field(COLUMN, pa.binary(size), nullable=False)]):
        raise DamagedFileError("it has other columns")
    read = 0
    for group in opened.iter_batches(_ROWS, columns=[COLUMN]):
        column = group.column(0)
        read += len(column)
        yield column.buffers()[1].slice(column.offset * size, len(column) * size).to_pybytes()
    if read != reports:
        raise DamagedFileError("it has more or fewer reports than were written")


def _fields_of(opened: parquet.ParquetFile) -> dict[str, Any]:
    """Return the fields of the head."""
    about: dict[bytes, bytes] = opened.metadata.metadata or {}
    head = about.get(_KEY.encode())
    if head is None:
        raise DamagedFileError("no worker wrote it")
    # Parquet has checksums of pages, not of its metadata.
    if about.get(_CHECKSUM.encode()) != str(crc32(head)).encode():
        raise DamagedFileError("its head is damaged")
    fields: dict[str, Any] = json.loads(head)
    if fields["format"] != _FORMAT:
        raise DamagedFileError(f"its format is {fields['format']}, and this version reads {_FORMAT}")
    return fields
