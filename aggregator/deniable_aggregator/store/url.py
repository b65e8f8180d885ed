"""The URL of a store, which may name several servers: ``redis+cluster://one:7000,[::1]:7002``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from urllib.parse import SplitResult

Place = tuple[str, int]
"""A host and a port; 0 for the usual one."""

_PLACES: Final = re.compile(r"(?<=://)((?:[^/?#]*@)?)([^/?#]*)")
"""Who logs in, and where: what stands before the path of a URL."""


def parts(url: str) -> SplitResult:
    """Take a URL apart as if it named its first server alone; raise ValueError if it is invalid."""
    # Pythons since 2025 refuse an address in brackets behind another host.
    return urlsplit(_PLACES.sub(lambda authority: authority[1] + authority[2].partition(",")[0], url, count=1))


def places(url: str) -> list[Place]:
    """Return host and port of each server that a URL names; 0 for the usual port. Raise ValueError if one is invalid."""
    authority = _PLACES.search(url)
    hosts = [urlsplit(f"//{host}") for host in (authority[2] if authority else "").split(",")]
    return [(host.hostname or "localhost", host.port or 0) for host in hosts]


def kind(url: str) -> str:
    """Return what follows the ``+`` of a URL's scheme: ``cluster``, ``sentinel``, or nothing for one server."""
    return parts(url).scheme.partition("+")[2]
