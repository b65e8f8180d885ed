"""Where requests come from, as far as a limit needs to know: a number that many addresses share, another one every day.

A source is an IPv4 address or an IPv6 network of 64 bits (one household or machine has as many addresses as it likes). It is
counted under 20 bits of its HMAC-SHA256 with a key of the day, which is drawn at random, kept in the store until the day ends,
and known to no log and no file of ours. A store's own log of writes may outlive that key, and with both one could try all
IPv4 addresses: then 4,096 of them fit each number. A million devices that share numbers are far from any limit that one of
them could reach by itself.
"""

from __future__ import annotations

import hmac
from datetime import UTC, datetime, time, timedelta
from ipaddress import IPv4Address, IPv6Address, ip_address
from threading import Lock
from typing import TYPE_CHECKING

from deniable_aggregator.store import schema, secret

if TYPE_CHECKING:
    from deniable_aggregator.store import Client

__all__ = ["Sources", "network"]

_BITS = 20
_NETWORK = 64
_LATE = 300  # seconds for which servers whose clocks differ may still use the key of yesterday


class Sources:
    """Numbers the sources of requests.

    Parameters
    ----------
    client
        A client of the store, for the key of the day, so that all processes number alike.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._lock = Lock()
        self._day = ""
        self._secret = b""

    def number(self, address: str | None) -> str | None:
        """Return the number of an address on this day, or None where there is no source to speak of.

        Parameters
        ----------
        address
            As the server or the trusted proxy tells it. Without one (a Unix socket), and from this machine itself (its own
            tools, or a proxy that `trusted_proxies` does not know of), there is none.
        """
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
    """Return what is numbered of an address."""
    if not address:
        return None
    ip = _ip(address)
    return None if ip and ip.is_loopback else network(address)


def network(address: str) -> bytes:
    """Return what of an address tells whose it is: all of an IPv4 address, 64 bits of an IPv6 address.

    Parameters
    ----------
    address
        As a server tells it, or a proxy, which may say what it likes.
    """
    ip = _ip(address)
    if ip is None:
        return address.encode("utf-8", "surrogateescape")
    return ip.packed[: _NETWORK // 8] if isinstance(ip, IPv6Address) else ip.packed


def _ip(address: str) -> IPv4Address | IPv6Address | None:
    try:
        ip = ip_address(address.partition("%")[0])
    except ValueError:
        return None
    return (ip.ipv4_mapped or ip) if isinstance(ip, IPv6Address) else ip
