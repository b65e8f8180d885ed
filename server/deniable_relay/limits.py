"""Limits by address, in memory: of uploads in a minute, and of the reports of one metric and period in a day.

An address is an IPv4 address, or an IPv6 network of 64 bits, because a household has as many of those as it likes. What it sends
is added to a cell of a table, which a keyed digest names. The key is drawn when the relay starts and when a day ends (UTC). It is
nowhere else. The memory holds sums, no address and no digest of one. Nothing of it is on disk.

The tables have a fixed size, whoever sends how much. What meets in a cell is counted together. So nobody may send more than the
limit, and in a crowd of many millions somebody may be refused who sent less; their device sends it later.
"""

from __future__ import annotations

from array import array
from collections import Counter
from datetime import UTC, datetime
from hashlib import blake2b
from secrets import token_bytes
from threading import Lock
from typing import TYPE_CHECKING

from deniable.upload_rules import Refused
from deniable.wire import ip

if TYPE_CHECKING:
    from collections.abc import Iterable

    from deniable_relay.pools import Crowd

_MINUTE = 60.0
_CELLS = 1 << 22  # of a day: of 20 million reports in it, 1 in 10^6 meets a cell that others have filled up to 20
_MINUTE_CELLS = 1 << 18  # of uploads
_DIGEST_BYTES = 8


class Limits:
    """What one address may do."""

    def __init__(
        self,
        uploads: int,  # in a minute; 0 for no limit
        reports: int,  # of one metric and period in a day; 0 for no limit
    ) -> None:
        self._most = uploads, reports
        self._lock = Lock()
        self._day, self._minute, self._key = "", 0.0, b""
        self._uploads, self._reports = _table(_MINUTE_CELLS), _table(_CELLS)

    def take(self, address: str | None, now: float, reports: Iterable[tuple[Crowd, int]]) -> None:
        """Count an upload with so many reports of each pool; raise `Refused` with 429 if it is above a limit."""
        source = ip.network(address or "")  # of a proxy that names none: all of its uploads are one source's
        uploads, most = self._most
        with self._lock:
            self._begin(now)
            place = self._cell(_MINUTE_CELLS, source)
            self._uploads[place] += 1
            if uploads and self._uploads[place] > uploads:
                raise Refused(429, "rate_limited", f"an address may send {uploads} uploads in a minute; try again later")
            if not most:
                return
            # Not by segment: clients choose its text, and would have as many counts as they like.
            counts: Counter[int] = Counter()
            for crowd, number in reports:
                stratum = crowd.stratum
                counts[self._cell(_CELLS, source, stratum.metric.encode(), stratum.period.encode())] += number
            if any(self._reports[place] + number > most for place, number in counts.items()):
                raise Refused(429, "pool_share", f"an address may have {most} reports of one metric and period in a day")
            for place, number in counts.items():
                self._reports[place] += number

    def _begin(self, now: float) -> None:
        """Forget what was counted before this day and this minute."""
        day = datetime.fromtimestamp(now, UTC).date().isoformat()
        if day != self._day:
            self._day, self._key = day, token_bytes(32)
            self._uploads, self._reports = _table(_MINUTE_CELLS), _table(_CELLS)
        if now >= self._minute + _MINUTE:
            self._minute = now
            self._uploads = _table(_MINUTE_CELLS)

    def _cell(self, cells: int, *names: bytes) -> int:
        digest = blake2b(b"\0".join(names), key=self._key, digest_size=_DIGEST_BYTES).digest()
        return int.from_bytes(digest) % cells


def _table(cells: int) -> array[int]:
    return array("I", bytes(array("I").itemsize * cells))
