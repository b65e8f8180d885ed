"""A batch as it is stored: checked groups of reports in one binary stream entry, with all that counting needs.

Reports that a relay has mixed are `Opened`. Each counts once, in whatever upload it comes and however often. It is known by 64
bits of the digest of its sealed bytes. They were random when it was sealed, so they say nothing of answer, device or time.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from deniable.errors import PayloadError
from deniable.wire.layout import Layout
from deniable.wire.report import Stratum

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime


class Group(NamedTuple):
    """Reports of one stratum and layout."""

    stratum: Stratum
    layout: Layout
    payloads: bytes  # joined and in base64

    @property
    def reports(self) -> int:
        """Number of reports."""
        return len(self.payloads) // self.layout.payload_size


_DIGEST_BYTES = 8
_NAME = 16
_DAY = 86_400
_GROUP = b"\x91\x92"  # MessagePack: a list of one group with two parts. The second, the payloads, is written by the script.

_MOST_KINDS = 10_000
_kinds: dict[bytes, tuple[Stratum, Layout]] = {}
"""Cache of decoded strata and layouts. Equal ones are the same object."""
_Kind = tuple[str, int, str, str, str, int, int, Literal["index", "bits"]]
_decoder = msgspec.msgpack.Decoder(list[tuple[bytes, bytes]])
_kind_decoder = msgspec.msgpack.Decoder(_Kind)


def kind(stratum: Stratum, layout: Layout) -> bytes:
    """Encode a stratum and a layout: the first bytes of a group."""
    return msgspec.msgpack.encode((*stratum, layout.rows, layout.width, layout.kind))


def join(groups: Sequence[tuple[bytes, bytes]]) -> bytes:
    """Encode a batch as MessagePack, from the bytes of `kind` and the payloads of each group."""
    return msgspec.msgpack.encode(groups)


def encode(groups: Iterable[Group]) -> bytes:
    """Encode a batch."""
    return join([(kind(group.stratum, group.layout), group.payloads) for group in groups])


def decode(entry: bytes) -> list[Group]:
    """Decode a batch; raise PayloadError if `encode` did not write it."""
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
    decoded = Stratum(*names), Layout(rows, width, form)
    return _kinds.setdefault(written, decoded)


class Opened(NamedTuple):
    """Reports of one stratum, to be appended unless they were."""

    stratum: Stratum
    layout: Layout
    sealed: Sequence[bytes]  # each as it came
    payloads: Sequence[bytes]  # what was sealed, of the layout
    cap: int  # most entries in the backlog of all partitions, of which each has an equal part
    until: datetime  # from when on no report of the period is taken

    @property
    def key(self) -> str:
        """What chooses the partition. All pools of a stratum come to one, so each report finds its digest there."""
        return "/".join(map(str, self.stratum))

    @property
    def size(self) -> int:
        """Bytes in the store."""
        return len(self.payloads) * (self.layout.payload_size + _DIGEST_BYTES)

    @property
    def digests(self) -> str:
        """The beginning of the names of its digests' sets."""
        return f"{sha256(self.key.encode()).hexdigest()[:_NAME]}:"

    def arguments(
        self,
        partitions: int,  # of the app
    ) -> list[bytes | int]:
        """Return the arguments of the script."""
        head = _GROUP + msgspec.msgpack.encode(kind(self.stratum, self.layout))
        part = -(-self.cap // partitions)
        day = (int(self.until.timestamp()) // _DAY + 2) * _DAY  # an expiry shows the day only
        numbers = [int.from_bytes(sha256(each).digest()[:_DIGEST_BYTES], signed=True) for each in self.sealed]
        return [head, b"".join(self.payloads), self.layout.payload_size, part, day, *numbers]


class Admitted(NamedTuple):
    """What became of opened reports."""

    outcome: str  # "appended"; "full", the backlog is at its cap; "no room", no memory is left for uploads
    new: int = 0  # how many were not appended before
