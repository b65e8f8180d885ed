"""The formats of rows: JSON, CSV, and with the extra ``export`` Parquet and Arrow."""

from __future__ import annotations

import csv
import io
from datetime import date, datetime
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec.structs import replace

if TYPE_CHECKING:
    from collections.abc import Callable

    from deniable_aggregator.answer.model.rows import Cell, Rows

_READ: dict[str, Callable[[str], date]] = {"date": date.fromisoformat, "time": datetime.fromisoformat}
_FORMULA = "=+-@\uff1d\uff0b\uff0d\uff20"  # the last four are the same in full width


class Format(NamedTuple):
    """A way to write rows."""

    media: str  # its media type
    write: Callable[[Rows], bytes]
    needs: str = ""  # the package that it needs, or nothing
    packed: bool = False  # whether it is compressed by itself

    def available(self) -> bool:
        """Return whether what it needs is installed."""
        return not self.needs or find_spec(self.needs) is not None


def _csv(answer: Rows) -> bytes:
    file = io.StringIO()
    writer = csv.writer(file)
    names = [each.name for each in answer.columns]
    writer.writerow(names)
    writer.writerows([plain(row[name]) for name in names] for row in answer.rows)
    return file.getvalue().encode()


def plain(
    cell: Cell,  # what it contains
) -> str:
    """Write a cell: empty for None, and true or false as in JSON."""
    if cell is None:
        return ""
    if isinstance(cell, bool):
        return str(cell).lower()
    return _harmless(cell) if isinstance(cell, str) else repr(cell)


def _harmless(text: str) -> str:
    """Put an apostrophe before a text that a spreadsheet would run as a formula."""
    # A search may find texts that devices sent, and whoever opens the file did not declare the metric.
    if not text.lstrip().startswith(tuple(_FORMULA)):
        return text
    try:
        float(text)
    except ValueError:
        return f"'{text}"
    return text  # a plain number, such as -5


def _table(answer: Rows) -> Any:
    import pyarrow as pa  # noqa: PLC0415

    types = {
        "text": pa.string(),
        "integer": pa.int64(),
        "number": pa.float64(),
        "boolean": pa.bool_(),
        "date": pa.date32(),
        "time": pa.timestamp("ms", "UTC"),
    }
    fields = [pa.field(each.name, types[each.type], metadata={"meaning": each.meaning}) for each in answer.columns]
    about = {"deniable": msgspec.json.encode(replace(answer, rows=[]))}
    columns: dict[str, list[Any]] = {each.name: [row[each.name] for row in answer.rows] for each in answer.columns}
    for column in answer.columns:
        if column.type in _READ:
            columns[column.name] = [_READ[column.type](text) if text else None for text in columns[column.name]]
    return pa.table(columns, pa.schema(fields, metadata=about))


def _parquet(answer: Rows) -> bytes:
    from pyarrow import BufferOutputStream, parquet  # noqa: PLC0415

    file = BufferOutputStream()
    parquet.write_table(_table(answer), file, compression="zstd")
    return bytes(file.getvalue())


def _arrow(answer: Rows) -> bytes:
    from pyarrow import BufferOutputStream, ipc  # noqa: PLC0415

    file, table = BufferOutputStream(), _table(answer)
    with ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    return bytes(file.getvalue())


JSON = Format("application/json", msgspec.json.encode)
FORMATS = {
    "json": JSON,
    "csv": Format("text/csv", _csv),
    "parquet": Format("application/vnd.apache.parquet", _parquet, "pyarrow", packed=True),
    "arrow": Format("application/vnd.apache.arrow.file", _arrow, "pyarrow"),
}
"""By the name that a query asks with."""
