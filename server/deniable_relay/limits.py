"""Limits by address, in memory: of uploads in a minute, and of the reports of one pool.

An address is an IPv4 address, or an IPv6 network of 64 bits, because a household has as many of those as it likes. It is counted
under a keyed digest. The key is drawn when the relay starts and at the end of each day (UTC), and is nowhere else. So what the
memory holds tells nobody an address, and nothing of it is on disk.
"""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from hashlib import blake2b
from ipaddress import IPv6Address, ip_address
from secrets import token_bytes
from threading import Lock
from typing import TYPE_CHECKING

from deniable.upload_rules import Refused

if TYPE_CHECKING:
    from collections.abc import Iterable

    from deniable_relay.pools import Crowd

_MINUTE = 60.0
_DIGEST_BYTES = 8
_NETWORK_BYTES = 8  # of an IPv6 address


class Limits:
    """What one address may do."""

    def __init__(
        self,
        uploads: int,  # in a minute; 0 for no limit
        reports: int,  # of one pool in a day; 0 for no limit
    ) -> None:
        self._most = uploads, reports
        self._lock = Lock()
        self._day, self._minute, self._key = "", 0.0, b""
        self._uploads: Counter[bytes] = Counter()
        self._reports: Counter[tuple[bytes, Crowd]] = Counter()

    def take(self, address: str | None, now: float, reports: Iterable[tuple[Crowd, int]]) -> None:
        """Count an upload with so many reports of each pool; raise `Refused` with 429 if it is above a limit."""
        with self._lock:
            source = self._source(address, now)
            uploads, most = self._most
            self._uploads[source] += 1
            if uploads and self._uploads[source] > uploads:
                raise Refused(429, "rate_limit", f"an address may send {uploads} uploads in a minute")
            counts = Counter({(source, crowd): number for crowd, number in reports})
            if most and any(self._reports[place] + number > most for place, number in counts.items()):
                raise Refused(429, "pool_share", f"an address may have {most} reports of one metric and period in a day")
            self._reports.update(counts)  # `+=` would look at every count of the day

    def _source(self, address: str | None, now: float) -> bytes:
        day = datetime.fromtimestamp(now, UTC).date().isoformat()
        if day != self._day:
            self._day, self._key = day, token_bytes(32)
            self._reports.clear()
            self._uploads.clear()
        if now >= self._minute + _MINUTE:
            self._minute = now
            self._uploads.clear()
        return blake2b(_place(address), key=self._key, digest_size=_DIGEST_BYTES).digest()


def _place(address: str | None) -> bytes:
    try:
        place = ip_address(address or "")
    except ValueError:
        return b""  # a proxy that names none: all of its uploads are one source's
    if isinstance(place, IPv6Address):
        return place.ipv4_mapped.packed if place.ipv4_mapped else place.packed[:_NETWORK_BYTES]
    return place.packed
