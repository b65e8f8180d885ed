"""Ports of this machine."""

from __future__ import annotations

import re
import secrets
import socket
from contextlib import suppress

from deniable.errors import ConfigurationError

_FIRST, _LAST = 10_000, 32_767
"""Systems give outgoing connections higher ports: 32,768 and above on Linux, 49,152 and above elsewhere."""

_BIND = re.compile(r"(?:\[([0-9a-fA-F:.]+)\]|([^:\[\]]+)):([0-9]{1,5})")
_HIGHEST = 65_535


def of_numbers(
    bind: str,  # `HOST:PORT`, an IPv6 address in brackets
) -> tuple[str, int]:
    """Return host and port where a worker shows its numbers; raise ConfigurationError if they are no address."""
    address = _BIND.fullmatch(bind)
    if not address or int(address[3]) > _HIGHEST:
        rule = "write HOST:PORT, such as 127.0.0.1:9464"
        raise ConfigurationError(f"DENIABLE_METRICS_BIND (--metrics-bind) {bind!r}: {rule}")
    return address[1] or address[2], int(address[3])


def free_port() -> int:
    """Return a port that is free on all addresses of this machine, and that no outgoing connection is given meanwhile."""
    while True:
        port = _FIRST + secrets.randbelow(_LAST - _FIRST + 1)
        with socket.socket() as probe, suppress(OSError):  # it is taken
            probe.bind(("", port))
            return port
