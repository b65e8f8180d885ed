"""IP addresses, as limits need them: which one a text is, and which part of it identifies its owner."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address

_NETWORK = 64  # bits that a household or a machine shares; it has as many addresses of IPv6 below them as it likes


def parsed(
    address: str,  # from a server, or from a proxy, which may send any text
) -> IPv4Address | IPv6Address | None:
    """Return the address that a text is, or None if it is none. One of IPv4 written as IPv6 is that of IPv4."""
    try:
        ip = ip_address(address.partition("%")[0])
    except ValueError:
        return None
    return (ip.ipv4_mapped or ip) if isinstance(ip, IPv6Address) else ip


def network(
    address: str,  # as for `parsed`
) -> bytes:
    """Return the part of an address that identifies its owner: all of an IPv4 address, 64 bits of an IPv6 address."""
    ip = parsed(address)
    if ip is None:
        return address.encode("utf-8", "surrogateescape")
    return ip.packed[: _NETWORK // 8] if isinstance(ip, IPv6Address) else ip.packed
