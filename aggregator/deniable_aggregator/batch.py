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


_MOST_KINDS = 10_000
_kinds: dict[tuple[object, ...], tuple[Stratum, Layout]] = {}
"""What was decoded before: a stratum and its layout are made once, and are one object ever after."""
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
        return [Group(*(_kinds.get(fields[:-1]) or _kind(fields)), fields[-1]) for fields in _decoder.decode(entry)]
    except (msgspec.DecodeError, ValueError, TypeError) as error:
        # The kind of error only: its words may repeat what stands in the entry, and the reason is logged.
        raise PayloadError("entry", f"a stream entry is a batch as the ingest writes it ({type(error).__name__})") from None


def _kind(fields: tuple[str, int, str, str, str, int, int, str, bytes]) -> tuple[Stratum, Layout]:
    *names, rows, width, kind, _ = fields
    if len(_kinds) >= _MOST_KINDS:
        _kinds.clear()
    made = Stratum(*names), Layout(rows, width, kind)  # type: ignore[arg-type] # Layout checks its kind
    return _kinds.setdefault(fields[:-1], made)
