"""The queue of reports to be sent, those that may not travel yet, and the counts of what became of them."""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING, Protocol

from deniable.errors import ParameterError
from deniable.frozen import NamedTuple
from deniable.transport.settings import SenderSettings

if TYPE_CHECKING:
    from collections.abc import Iterable

    from deniable.transport.network import Orders
    from deniable.wire.report import Report

_MAX_PAYLOAD_BYTES = 128 * 1024  # of a batch, so that a server accepts its base64
_MOST_REFUSALS = 100  # different refusals that are counted; the server chooses their codes
_LAST_BATCH = 1000  # reports of a batch at the end: larger batches are fewer files to write


class Block(Protocol):
    """A block of the app whose time is to be reported."""

    @property
    def metric(self) -> str:
        """The id of its metric."""

    @property
    def ended(self) -> bool:
        """Whether its time is known."""

    def report(self) -> Report | None:
        """Make the report; None if there is none, which is counted. A block that runs has the time until now. It never raises."""


class Later(NamedTuple):
    """A report with an earliest time of sending."""

    due: float  # the earliest time, on the monotonic clock
    report: Report | None  # the report; None if it is made at that time, or at the end of the process
    block: Block | None = None  # makes it


class Outbox:
    """A bounded queue. The lock of the orders guards everything except `full` and ``len``."""

    def __init__(
        self,
        settings: SenderSettings,  # how to batch
        orders: Orders,  # what the app wants
    ) -> None:
        if not isinstance(settings, SenderSettings):
            raise ParameterError("settings: write SenderSettings(...), or leave it out", settings)
        self._settings = settings
        self._orders = orders
        self._queue: deque[Report] = deque()
        self._later: list[Later] = []
        self._flush_to = 0  # reports up to this number must be sent now
        self.looks = 0  # how often somebody wanted the reports that have become due to be queued
        self.looked = 0  # the number of `looks` when that was done last
        self.released = False  # whether those on disk are due now, for tests
        self.counts: Counter[str] = Counter()
        self.fates: Counter[tuple[str, str]] = Counter()  # the same by metric: outcomes and metrics, where they are known
        self._taken: tuple[Report, ...] = ()  # reports of the last batch
        self.refusals: Counter[str] = Counter()  # reports that the server refused, by metric and reason
        self.submitted = 0  # reports that were ever queued
        self.settled = 0  # those of them that are no longer queued or in flight
        self.from_disk = 0  # reports that the server took from the spool

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def later(self) -> int:
        """Number of reports that may not travel yet. Those on disk are not among them."""
        return len(self._later)

    @property
    def full(self) -> bool:
        """Whether there is no room for another report."""
        return len(self._queue) + len(self._later) >= self._settings.queue_size

    @property
    def hurried(self) -> bool:
        """Whether reports that have become due must be queued now."""
        return self.looked < self.looks

    @property
    def due(self) -> bool:
        """Whether a batch must be made before the interval is over."""
        if self._orders.closed or self._orders.paused:
            return self._orders.closed
        flushing = bool(self._queue) and self.settled < self._flush_to
        return flushing or self.hurried or len(self._queue) >= self._settings.flush_at

    def put(self, report: Report | Later) -> None:
        """Queue a report, or keep one that may not travel yet."""
        if type(report) is Later:
            self._later.append(report)
            return
        self._queue.append(report)  # type: ignore[arg-type] # `isinstance` would take longer
        self.submitted += 1
        # Only the report that reaches the limit wakes the sending thread: the app's thread must lose no time.
        if len(self._queue) == self._settings.flush_at:
            self._orders.changed.notify_all()

    def take_later(self, now: float) -> list[Later]:
        """Take what has become due, and what can be written to disk; at the end, all."""
        taken: list[Later] = []
        left: list[Later] = []
        for entry in self._later:
            (taken if entry.due <= now or entry.report is not None or self._orders.closed else left).append(entry)
        self._later = left
        # From here on a purge is meant for what was taken, too: `Orders.purged` shows it.
        self._orders.seen = self._orders.purges
        return taken

    def make_due(self) -> None:
        """Let every report travel now whose answer is known; for tests."""
        self.released = True
        self._later = [
            each if each.block is not None and not each.block.ended else each._replace(due=0.0) for each in self._later
        ]

    def take(self) -> tuple[Report, ...]:
        """Take the reports of a batch, limited by their number and the size of their payloads."""
        taken: list[Report] = []
        size = 0
        most = max(self._settings.flush_at, _LAST_BATCH if self._orders.closed else 0)
        while self._queue and len(taken) < most:
            size += len(self._queue[0].payload)
            # The first report is taken whatever its size, so that none stays in the queue for ever.
            if taken and size > _MAX_PAYLOAD_BYTES:
                break
            taken.append(self._queue.popleft())
        self._orders.seen = self._orders.purges
        self._taken = tuple(taken)
        return self._taken

    def end_look(self, look: int) -> None:
        """Note that the reports that have become due are queued. If somebody wanted that, all queued ones are sent now."""
        if look > self.looked:
            self.looked, self._flush_to = look, self.submitted

    def hurry(
        self,
        look: int,  # The number of the look that was wanted before. If that has ended, the reports are those queued at its end.
    ) -> int:
        """Have the queued reports sent now; return the value of `settled` after that."""
        if not look or self.looked < look:
            self._flush_to = self.submitted
        self._orders.changed.notify_all()
        return self._flush_to

    def purge(self) -> None:
        """Drop all reports."""
        self.settle("purged", len(self._queue), self._queue)
        self._queue.clear()
        self.count("purged", len(self._later), (each.report for each in self._later if each.report))
        self._later = []

    def unsent(self) -> Counter[tuple[str, str]]:
        """Count the reports that are queued or in flight as pending, and others as waiting, by metric as far as it is known."""
        flying = self.submitted - self.settled - len(self._queue)
        pending = [*self._queue, *(self._taken if flying == len(self._taken) else ())]
        blocks = Counter(("waiting", each.block.metric) for each in self._later if each.block)
        return by_metric("pending", pending) + by_metric("waiting", (each.report for each in self._later if each.report)) + blocks

    def settle(self, outcome: str, reports: int, of: Iterable[Report] = ()) -> None:
        """Count reports that are no longer queued or in flight; `of` are those whose metrics are known."""
        if reports:
            self.count(outcome, reports, of)
            self.settled += reports
            self._orders.changed.notify_all()

    def refuse(self, refusals: Counter[str]) -> None:
        """Count reports that the server refused, by metric and reason."""
        for reason, reports in refusals.items():
            if reason in self.refusals or len(self.refusals) < _MOST_REFUSALS:
                self.refusals[reason] += reports

    def count(self, outcome: str, number: int, of: Iterable[Report] = ()) -> None:
        """Count reports of the spool, or errors."""
        if number:
            self.counts[outcome] += number
            self.fates.update(by_metric(outcome, of))


def by_metric(outcome: str, reports: Iterable[Report]) -> Counter[tuple[str, str]]:
    """Count reports by what became of them and their metric."""
    return Counter((outcome, report.stratum.metric) for report in reports)
