"""What the relay counts, for Prometheus. There is no number of one metric or period: it would say when each report came."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Gauge, generate_latest

if TYPE_CHECKING:
    from collections import Counter

CONTENT_TYPE = CONTENT_TYPE_LATEST

_TOTALS = {
    "forwarded": "Reports that the server has taken",
    "too_few": "Reports that were dropped, because their pool stayed too small",
    "waiting": "Reports whose pool has not closed",
    "closed": "Reports of closed pools that the server has not taken yet",
}


def write(totals: Counter[str], held: int) -> bytes:
    """Write the numbers in the text format of Prometheus."""
    numbers = CollectorRegistry()
    for name, about in _TOTALS.items():
        Gauge(f"deniable_relay_{name}_reports", about, registry=numbers).set(totals[name])
    Gauge("deniable_relay_held_pools", "Pools that the server has refused so far, or not answered", registry=numbers).set(held)
    return generate_latest(numbers)
