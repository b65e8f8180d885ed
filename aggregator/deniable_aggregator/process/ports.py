"""Ports of this machine."""

from __future__ import annotations

import secrets
import socket
from contextlib import suppress

_FIRST, _LAST = 10_000, 32_767
"""Systems give outgoing connections higher ports: 32,768 and above on Linux, 49,152 and above elsewhere."""


def free_port() -> int:
    """Return a port that is free on all addresses of this machine, and that no outgoing connection is given meanwhile."""
    while True:
        port = _FIRST + secrets.randbelow(_LAST - _FIRST + 1)
        with socket.socket() as probe, suppress(OSError):  # it is taken
            probe.bind(("", port))
            return port
