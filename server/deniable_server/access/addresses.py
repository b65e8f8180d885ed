"""The source of a request, as precisely as limits need it: a number that many addresses share and that changes every day.

A source is an IPv4 address, or an IPv6 network of 64 bits, because one household or machine has as many addresses as it likes. It
is counted under 20 bits of an HMAC-SHA256 of it. The key is drawn at random each day and kept in the store until the day ends. It
is in no log and no file of ours. A store's own log of writes may outlive the key. With both one could try all IPv4 addresses, and
4,096 of them fit each number. A million devices that share numbers stay far below any limit that one of them could reach.
"""

from __future__ import annotations

import hmac
from datetime import UTC, datetime, time, timedelta
from threading import Lock
from typing import TYPE_CHECKING

from deniable.wire import ip
from deniable_aggregator.store import schema
from deniable_aggregator.store.values import secret

if TYPE_CHECKING:
    from deniable_aggregator.store import Client

_BITS = 20
_LATE = 300  # for which servers with different clocks may still use yesterday's key


class Sources:
    """Maps the sources of requests to numbers."""

    def __init__(
        self,
        client: Client,  # a client of the store, for the key of the day, so that all processes use the same numbers
    ) -> None:
        self._client = client
        self._lock = Lock()
        self._day = ""
        self._secret = b""

    def know(self, address: str | None) -> bool:
        """Return whether an address has no number, or the key of this day was read."""
        return _place(address) is None or self._day == datetime.now(UTC).date().isoformat()

    def number(
        self,
        address: str | None,  # from the server or the trusted proxy; a Unix socket has none
    ) -> str | None:
        """Return the number of an address on this day, or None if there is no source."""
        # This machine's own addresses belong to its own tools, or to a proxy that `trusted_proxies` leaves out.
        place = _place(address)
        if place is None:
            return None
        digest = hmac.digest(self._key(datetime.now(UTC)), place, "sha256")
        return f"{int.from_bytes(digest[:4]) >> (32 - _BITS):05x}"

    def _key(self, now: datetime) -> bytes:
        day = now.date().isoformat()
        with self._lock:
            if day != self._day:
                midnight = datetime.combine(now.date() + timedelta(days=1), time(), UTC)
                life = int((midnight - now).total_seconds()) + _LATE
                self._secret = secret.shared(self._client, schema.SOURCE.of(day), life)
                self._day = day
            return self._secret


def _place(address: str | None) -> bytes | None:
    """Return the part of an address that is numbered."""
    if not address:
        return None
    here = ip.parsed(address)
    return None if here and here.is_loopback else ip.network(address)
