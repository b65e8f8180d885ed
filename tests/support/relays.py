"""A relay's pools: crowds, and sealed reports in them."""

from __future__ import annotations

import os

from deniable.wire.report import Stratum
from deniable_relay.pools import Crowd

FIRST, LAST = 1000.0, 2000.0
"""When pools close, in seconds since 1970."""
SIZE = 56


def crowd(metric="theme", least=3, number=1):
    return Crowd(Stratum(metric, 1, "0" * 16, "2026-11-27", ""), number, least, FIRST, LAST)


def sealed(count):
    return [os.urandom(SIZE) for _ in range(count)]
