"""The queue of reports that wait to be sent, and the counts of what became of them."""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deniable.transport.network import Orders
    from deniable.transport.settings import SenderSettings
    from deniable.wire.report import Report

__all__ = ["Outbox"]

_MAX_PAYLOAD_BYTES = 128 * 1024  # of a batch, so that a server accepts its base64
_MOST_REFUSALS = 100  # different refusals that are counted; the server chooses their codes
_LAST_BATCH = 1000  # reports of a batch at the end: larger batches are fewer files to write


class Outbox:
    """A bounded queue. The lock of the orders guards everything except `full` and ``len``.

    Parameters
    ----------
    settings
        How to batch.
    orders
        What the app wants.
    """

    def __init__(self, settings: SenderSettings, orders: Orders) -> None:
        self._settings = settings
        self._orders = orders
        self._queue: deque[Report] = deque()
        self._flush_to = 0  # reports up to this number must be sent now
        self.counts: Counter[str] = Counter()
        self.refusals: Counter[str] = Counter()  # reports that the server refused, by metric and reason
        self.submitted = 0  # reports that were ever queued
        self.settled = 0  # those of them that are no longer queued or in flight
        self.arrived = 0  # those of them that the server took, unless they were on disk meanwhile

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def full(self) -> bool:
        """Whether there is no room for another report."""
        return len(self._queue) >= self._settings.queue_size

    @property
    def due(self) -> bool:
        """Whether a batch must be made before the interval is over."""
        if self._orders.closed or self._orders.paused:
            return self._orders.closed
        flushing = bool(self._queue) and self.settled < self._flush_to
        return flushing or len(self._queue) >= self._settings.flush_at

    def put(self, report: Report) -> None:
        """Queue a report."""
        self._queue.append(report)
        self.submitted += 1
        if len(self._queue) == self._settings.flush_at:
            self._orders.changed.notify_all()

    def take(self) -> tuple[Report, ...]:
        """Take the reports of a batch, limited by their number and the size of their payloads."""
        taken: list[Report] = []
        size = 0
        most = max(self._settings.flush_at, _LAST_BATCH if self._orders.closed else 0)
        while self._queue and len(taken) < most:
            size += len(self._queue[0].payload)
            if taken and size > _MAX_PAYLOAD_BYTES:
                break
            taken.append(self._queue.popleft())
        self._orders.seen = self._orders.purges
        return tuple(taken)

    def hurry(self) -> int:
        """Have the queued reports sent now; return the value of `settled` after that."""
        self._flush_to = self.submitted
        self._orders.changed.notify_all()
        return self._flush_to

    def purge(self) -> None:
        """Drop all queued reports."""
        self.settle("purged", len(self._queue))
        self._queue.clear()

    def settle(self, outcome: str, reports: int) -> None:
        """Count reports that are no longer queued or in flight."""
        if reports:
            self.counts[outcome] += reports
            self.settled += reports
            self.arrived += reports if outcome == "sent" else 0
            self._orders.changed.notify_all()

    def refuse(self, refusals: Counter[str]) -> None:
        """Count reports that the server refused, by metric and reason."""
        for reason, reports in refusals.items():
            if reason in self.refusals or len(self.refusals) < _MOST_REFUSALS:
                self.refusals[reason] += reports

    def count(self, outcome: str, number: int) -> None:
        """Count reports of the spool, or errors."""
        if number:
            self.counts[outcome] += number
