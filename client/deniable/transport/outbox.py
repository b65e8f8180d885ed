"""Reports that wait to be sent, and the account of what became of them."""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deniable.transport.network import Orders
    from deniable.transport.settings import SenderSettings
    from deniable.wire.report import Report

__all__ = ["Outbox"]

_MAX_PAYLOAD_BYTES = 128 * 1024  # of a batch, so that its base64 stays within what a server accepts
_MOST_REFUSALS = 100  # different ones: their codes are the server's
_LAST_BATCH = 1000  # reports of a batch when time runs out: fewer files to wait for


class Outbox:
    """A bounded queue. All of it is used under the lock of the orders, but `full` and ``len``.

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
        self._flush_to = 0  # reports that somebody waits for
        self.counts: Counter[str] = Counter()
        self.refusals: Counter[str] = Counter()  # of the reports that the server refused, by metric and reason
        self.submitted = 0  # reports ever queued
        self.settled = 0  # of these, no longer queued or in flight

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def full(self) -> bool:
        """Whether there is room for no other report."""
        return len(self._queue) >= self._settings.queue_size

    @property
    def due(self) -> bool:
        """Whether a batch is to be made before its time is up."""
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
        """Take a batch's worth of reports, by their number and the size that all reports of a metric have."""
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
        """Have what is queued now sent now; return what `settled` will be then."""
        self._flush_to = self.submitted
        self._orders.changed.notify_all()
        return self._flush_to

    def purge(self) -> None:
        """Drop what is queued."""
        self.settle("purged", len(self._queue))
        self._queue.clear()

    def settle(self, outcome: str, reports: int) -> None:
        """Count queued reports whose fate is known."""
        if reports:
            self.counts[outcome] += reports
            self.settled += reports
            self._orders.changed.notify_all()

    def refuse(self, refusals: Counter[str]) -> None:
        """Count reports by the reason for which the server refused them."""
        for reason, reports in refusals.items():
            if reason in self.refusals or len(self.refusals) < _MOST_REFUSALS:
                self.refusals[reason] += reports

    def count(self, outcome: str, number: int) -> None:
        """Count something else: reports of the spool, or errors."""
        if number:
            self.counts[outcome] += number
