"""What is kept for later: batches that were not delivered, and reports that may not travel yet. Purged without consent."""

from __future__ import annotations

import time
from collections import Counter
from threading import Thread
from typing import TYPE_CHECKING

from deniable.messages.log import log
from deniable.source import jitter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deniable.device.waiting import Waiting
    from deniable.transport.network import Orders
    from deniable.transport.spool import Spool
    from deniable.wire.batch import Batch
    from deniable.wire.report import Report

_NEVER = float("inf")
_FIRST_PAUSE, _LAST_PAUSE = 60.0, 3600.0  # seconds between tries while the server is away
_PURE_FOR = 60.0


class Backlog:
    """Decides when the spool is read. A sender without a spool has a backlog that keeps nothing."""

    def __init__(
        self,
        spool: Spool | None,  # where batches wait, or None
        orders: Orders,  # What the app wants. Its lock guards the attributes of this object.
        waiting: Waiting | None = None,  # where reports wait that may not travel yet, or None
    ) -> None:
        self._spool = spool
        self._waiting = waiting
        self._orders = orders
        self._at = _NEVER
        self._pause = _FIRST_PAUSE
        self._purging = 0
        self._pure_until = 0.0
        self._beginning = False  # whether this run begins with what earlier ones left
        self.taken = False  # whether a batch is taken, which must be released before the process ends

    @property
    def due(self) -> bool:
        """Whether the spool must be read now."""
        return self.left <= 0

    @property
    def left(self) -> float:
        """Seconds until the spool must be read; infinite if no time is set, or the server refuses the key."""
        idle = self._orders.paused or self._orders.refused or self._purging or self._spool is None
        return _NEVER if idle else self._at - time.monotonic()

    @property
    def purging(self) -> bool:
        """Whether batches are being purged."""
        return self._purging > 0

    @property
    def counts(self) -> Counter[str]:
        """The counts of what was kept and lost."""
        return sum((each.counts for each in (self._spool, self._waiting) if each is not None), Counter[str]())

    def touch(self) -> None:
        """Note that there may be batches to purge again."""
        self._pure_until = 0.0

    def schedule(self, seconds: float) -> None:
        """Read the spool after some seconds; at once after a delivery, since then the server answers."""
        self._at = time.monotonic() + seconds
        if seconds <= 0:
            self._pause = _FIRST_PAUSE
            self._beginning = False  # whoever asks for it now is not held up by what another run did within the hour

    def begin(self, seconds: float) -> None:
        """Read what an earlier run left after some seconds, unless it is to be read sooner."""
        self._at = min(self._at, time.monotonic() + seconds)

    def begin_now(self) -> None:
        """Read what an earlier run left now, unless another run has done so within the hour."""
        self._beginning = True
        self.begin(0.0)

    @property
    def waiting(self) -> bool:
        """Whether there are batches, from this run or an earlier one."""
        return self._spool is not None and len(self._spool) > 0

    @property
    def reports(self) -> int:
        """Number of reports in these batches. The caller must not hold the lock, since this reads files."""
        return self._spool.reports if self._spool is not None else 0

    def unsent(self) -> Counter[tuple[str, str]]:
        """Count both by metric, as far as it is known, as pending and as waiting. As for `reports` and `later`."""
        pending = self._spool.metrics() if self._spool is not None else {}
        waiting = self._waiting.metrics() if self._waiting is not None else {}
        numbers = Counter({("pending", metric): number for metric, number in pending.items()})
        return numbers + Counter({("waiting", metric): number for metric, number in waiting.items()})

    @property
    def later(self) -> int:
        """Number of reports that may not travel yet. The caller must not hold the lock, since this reads the state."""
        return len(self._waiting) if self._waiting is not None else 0

    def keep_later(self, reports: Sequence[tuple[Report, float]]) -> bool:
        """Keep reports, each with the seconds that it must wait; return whether they are kept, or were purged meanwhile."""
        if self._waiting is None or not self._waiting.put(reports):
            return False
        if self._orders.purged:  # meanwhile, perhaps before they were written
            self._waiting.purge()
        return True

    def forget_later(self) -> int:
        """At the end, drop the reports that wait in memory; return how many there were."""
        return self._waiting.forget() if self._waiting is not None else 0

    def take_due(self) -> list[Report]:
        """Take the reports that may travel now."""
        return self._waiting.take() if self._waiting is not None else []

    def make_due(self) -> None:
        """Let all reports travel now; for tests."""
        if self._waiting is not None:
            self._waiting.make_due()

    def put_off(self) -> None:
        """Read the spool later. Each time the pause is twice as long, up to an hour."""
        seconds = 0.8 * self._pause + jitter(0.4 * self._pause)
        with self._orders.changed:
            self._at = time.monotonic() + seconds
            self._pause = min(2 * self._pause, _LAST_PAUSE)
            self._orders.changed.notify_all()

    def end(
        self,
        *,
        cut: bool,  # whether the end of the process cut it
    ) -> None:
        """Note for other runs how a try of a taken batch ended."""
        if self._spool is not None and not self._orders.purged:
            self._spool.end(cut=cut)

    def keep(
        self,
        batch: Batch,
        *,
        seen: bool,  # whether somebody may have seen its key
    ) -> str:
        """Keep a batch that was not delivered, unless there was a purge; return what became of it."""
        if self._orders.purged:
            return "purged"
        if self._spool is None:
            return "undelivered"
        if not self._spool.put(batch, seen=seen):
            return "spool_failed"
        if self._orders.purged:  # meanwhile, perhaps before the file was written
            self._spool.purge()
        with self._orders.changed:
            self._at = min(self._at, time.monotonic() + self._pause)
        return "spooled"

    def take(self) -> Batch | None:
        """Take the oldest batch that no other process has taken, if the spool must be read now."""
        with self._orders.changed:
            self._orders.seen = self._orders.purges
            if self._spool is None or not self.due:
                return None
            self.taken, beginning, self._beginning, at = True, self._beginning, False, self._at
        if beginning and not self._spool.begin():
            with self._orders.changed:
                self.taken = False
                if self._at == at:  # else somebody has asked for it meanwhile
                    self.put_off()
            return None
        batch = self._spool.take()
        if batch is None:
            with self._orders.changed:
                self._at, self.taken = _NEVER, False
                self._orders.changed.notify_all()
        return batch

    def release(self, batch: Batch, *, seen: bool) -> None:
        """Leave a taken batch for later. If nobody can have seen its key, it gets a new one."""
        if self._spool is not None:
            self._spool.release(batch, seen=seen)
        with self._orders.changed:
            self.taken = False
            self._orders.changed.notify_all()

    def done(self, batch: Batch) -> None:
        """Remove a taken batch."""
        if self._spool is not None:
            self._spool.done(batch)

    def split(self, batch: Batch) -> bool:
        """Replace a taken batch by its halves; return False if they cannot be written."""
        # The halves first. If the process ends in between, the batch is split again, into halves of the same keys: they count
        # once.
        stored = [self._spool is not None and self._spool.put(half) for half in batch.halves()]
        self.done(batch)
        return all(stored)

    def purge(self, timeout: float) -> None:
        """Remove all spooled batches; wait for the disk for at most `timeout` seconds."""
        with self._orders.changed:
            if (self._spool is None and self._waiting is None) or time.monotonic() < self._pure_until:
                return
            self._pure_until = time.monotonic() + _PURE_FOR
            self._purging += 1
        # In another thread than the sending one, which an app without consent may not have.
        thread = Thread(target=self._purge, name="deniable-purge", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the interpreter is ending
            self._purge()
        else:
            thread.join(timeout)

    def _purge(self) -> None:
        try:
            if self._waiting is not None:
                self._waiting.purge()
            if self._spool is not None:
                self._spool.purge()
        except Exception as error:  # noqa: BLE001 - the host app must never notice
            log.warning("deniable: the spool was not purged: %s", type(error).__name__)
        with self._orders.changed:
            self._purging -= 1
            self._orders.changed.notify_all()
