"""A file of the archive has as many reports as its head says, neither fewer nor more."""

from __future__ import annotations

import io

import pyarrow as pa
import pytest
from pyarrow import parquet

from deniable.wire.layout import Layout
from deniable.wire.report import Stratum
from deniable_aggregator.archive import file
from deniable_aggregator.archive.errors import DamagedFileError


@pytest.mark.parametrize("number", [2, 4])
def test_another_number_of_reports_is_damage(number):
    sink = io.BytesIO()
    file.write(sink, file.Head(Stratum("m", 1, "f", "2026-11-21", ""), Layout(1, 8, "bits")), b"\1\2\3")
    opened = parquet.ParquetFile(pa.BufferReader(sink.getvalue()))
    assert b"".join(file._payloads(opened, 1, 3)) == b"\1\2\3"
    with pytest.raises(DamagedFileError, match="more or fewer reports"):
        list(file._payloads(opened, 1, number))
