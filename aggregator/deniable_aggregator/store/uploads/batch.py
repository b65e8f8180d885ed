"""A batch at rest: validated groups of reports in one binary stream entry, with all that counting needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from deniable.errors import PayloadError
from deniable.wire.layout import Layout
from deniable.wire.report import Stratum

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class Group(NamedTuple):
    """Reports of one stratum and layout."""

    stratum: Stratum  # the stratum of the reports
    layout: Layout  # their shape
    payloads: bytes  # the payloads, joined and in base64

    @property
    def reports(self) -> int:
        """Number of reports."""
        return len(self.payloads) // self.layout.payload_size


_MOST_KINDS = 10_000
_kinds: dict[bytes, tuple[Stratum, Layout]] = {}
"""Cache of decoded strata and layouts. Equal ones are the same object."""
_Kind = tuple[str, int, str, str, str, int, int, Literal["index", "bits"]]
_decoder = msgspec.msgpack.Decoder(list[tuple[bytes, bytes]])
_kind_decoder = msgspec.msgpack.Decoder(_Kind)


def kind(stratum: Stratum, layout: Layout) -> bytes:
    """Encode the first bytes of all groups of one stratum."""
    return msgspec.msgpack.encode((*stratum, layout.rows, layout.width, layout.kind))


def join(groups: Sequence[tuple[bytes, bytes]]) -> bytes:
    """Encode a batch as MessagePack, from the bytes of `kind` and the payloads of each group."""
    return msgspec.msgpack.encode(groups)


def encode(groups: Iterable[Group]) -> bytes:
    """Encode a batch."""
    return join([(kind(group.stratum, group.layout), group.payloads) for group in groups])


def decode(entry: bytes) -> list[Group]:
    """Decode a batch.

    Raises
    ------
    PayloadError
        ``entry``, if `encode` did not write it.
    """
    try:
        return [Group(*(_kinds.get(written) or _read(written)), payloads) for written, payloads in _decoder.decode(entry)]
    except (msgspec.DecodeError, ValueError, TypeError) as error:
        # Only the type of the error: its message may quote the entry, and the reason is logged.
        raise PayloadError("entry", f"a stream entry is a batch as the ingest writes it ({type(error).__name__})") from None


def _read(written: bytes) -> tuple[Stratum, Layout]:
    """Decode the bytes of `kind`."""
    *names, rows, width, form = _kind_decoder.decode(written)
    if len(_kinds) >= _MOST_KINDS:
        _kinds.clear()
    made = Stratum(*names), Layout(rows, width, form)
    return _kinds.setdefault(written, made)
