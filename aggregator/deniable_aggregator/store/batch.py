"""A batch at rest: validated groups of reports, as one binary stream entry that the worker counts without asking further."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from deniable.errors import PayloadError
from deniable.wire.layout import Layout
from deniable.wire.report import Stratum

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["Group", "decode", "encode", "join", "kind"]


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
_kinds: dict[bytes, tuple[Stratum, Layout]] = {}
"""What was decoded before: a stratum and its layout are made once, and are one object ever after."""
_Kind = tuple[str, int, str, str, str, int, int, Literal["index", "bits"]]
_decoder = msgspec.msgpack.Decoder(list[tuple[bytes, bytes]])
_kind_decoder = msgspec.msgpack.Decoder(_Kind)


def kind(stratum: Stratum, layout: Layout) -> bytes:
    """Write what groups of one stratum begin with, which need be done once for all of them."""
    return msgspec.msgpack.encode((*stratum, layout.rows, layout.width, layout.kind))


def join(groups: Sequence[tuple[bytes, bytes]]) -> bytes:
    """Write a batch of groups, of each what `kind` wrote and its payloads, as MessagePack."""
    return msgspec.msgpack.encode(groups)


def encode(groups: Iterable[Group]) -> bytes:
    """Write a batch."""
    return join([(kind(group.stratum, group.layout), group.payloads) for group in groups])


def decode(entry: bytes) -> list[Group]:
    """Read a batch.

    Raises
    ------
    PayloadError
        ``entry``, if it is none that `encode` writes.
    """
    try:
        return [Group(*(_kinds.get(written) or _read(written)), payloads) for written, payloads in _decoder.decode(entry)]
    except (msgspec.DecodeError, ValueError, TypeError) as error:
        # The kind of error only: its words may repeat what stands in the entry, and the reason is logged.
        raise PayloadError("entry", f"a stream entry is a batch as the ingest writes it ({type(error).__name__})") from None


def _read(written: bytes) -> tuple[Stratum, Layout]:
    """Read what `kind` wrote."""
    *names, rows, width, form = _kind_decoder.decode(written)
    if len(_kinds) >= _MOST_KINDS:
        _kinds.clear()
    made = Stratum(*names), Layout(rows, width, form)
    return _kinds.setdefault(written, made)
