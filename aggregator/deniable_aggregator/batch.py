"""A batch at rest: validated groups of reports, as one binary stream entry that the worker counts without asking further."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from deniable.errors import PayloadError
from deniable.layout import Layout
from deniable.report import Stratum

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Group", "decode", "encode"]


class Group(NamedTuple):
    """Reports of one stratum and layout.

    Parameters
    ----------
    stratum
        What they are counted with.
    layout
        Their shape.
    payloads
        Whole payloads, one after another.
    """

    stratum: Stratum
    layout: Layout
    payloads: bytes

    @property
    def reports(self) -> int:
        """Number of reports."""
        return len(self.payloads) // self.layout.payload_size


_Wire = list[tuple[str, int, str, str, str, int, int, str, bytes]]
_decoder = msgspec.msgpack.Decoder(_Wire)


def encode(groups: Iterable[Group]) -> bytes:
    """Write a batch as MessagePack."""
    return msgspec.msgpack.encode(
        [(*g.stratum, g.layout.rows, g.layout.width, g.layout.kind, g.payloads) for g in groups],
    )


def decode(entry: bytes) -> list[Group]:
    """Read a batch.

    Raises
    ------
    PayloadError
        ``entry``, if it is none that `encode` writes.
    """
    try:
        return [
            Group(Stratum(*names), Layout(rows, width, kind), payloads)  # type: ignore[arg-type] # Layout checks its kind
            for *names, rows, width, kind, payloads in _decoder.decode(entry)
        ]
    except (msgspec.DecodeError, ValueError, TypeError) as error:
        # The kind of error only: its words may repeat what stands in the entry, and the reason is logged.
        raise PayloadError("entry", f"a stream entry is a batch as the ingest writes it ({type(error).__name__})") from None
