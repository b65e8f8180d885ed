"""What the relay counts, for Prometheus. There is no number of one metric or period: it would say when each report came."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterator

    from prometheus_client.metrics_core import Metric

CONTENT_TYPE = CONTENT_TYPE_LATEST

_EVER = {
    "forwarded": "Reports that the server has taken",
    "too_few": "Reports that were dropped, because their pool stayed too small",
    "too_late": "Reports that were dropped, because the server had closed their period",
}
_NOW = {
    "waiting": "Reports whose pool has not closed, at the first look of this hour",
    "closed": "Reports of closed pools that the server has not taken yet",
}


class Hourly:
    """A number as it was at the first look of an hour, and 0 as soon as it is 0. Its course hides when each report came."""

    def __init__(self) -> None:
        self._hour, self._number = -1, 0

    def seen(
        self,
        number: int,  # as it is
        now: float,  # seconds since 1970
    ) -> int:
        """Return the number as others may see it."""
        hour = int(now) // 3600
        if hour != self._hour or number == 0:
            self._hour, self._number = hour, number
        return self._number


class _Numbers(Collector):
    def __init__(self, totals: Counter[str], held: Counter[str]) -> None:
        self._totals, self._held = totals, held

    def collect(self) -> Iterator[Metric]:
        for name, about in _EVER.items():
            yield CounterMetricFamily(f"deniable_relay_{name}_reports", about, self._totals[name])
        for name, about in _NOW.items():
            yield GaugeMetricFamily(f"deniable_relay_{name}_reports", about, self._totals[name])
        about = "Closed pools that the server has not taken, by its answer"
        pools = GaugeMetricFamily("deniable_relay_held_pools", about, labels=["answer"])
        for answer, number in self._held.items():
            pools.add_metric([answer], number)
        yield pools


def write(
    totals: Counter[str],  # reports, by what became of them
    held: Counter[str],  # pools, by what the server answered
) -> bytes:
    """Write the numbers in the text format of Prometheus."""
    numbers = CollectorRegistry()
    numbers.register(_Numbers(totals, held))
    return generate_latest(numbers)
