"""The thread that makes batches, has them delivered, and spools those that were not delivered."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING

from deniable.messages.log import log
from deniable.process.imports import undisturbed
from deniable.source import jitter
from deniable.transport.failures import tell_losses
from deniable.transport.outbox import Later
from deniable.wire.batch import Batch
from deniable.wire.report import Report

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from deniable.transport.backlog import Backlog
    from deniable.transport.delivery import Delivery, Verdict
    from deniable.transport.network import Orders
    from deniable.transport.outbox import Outbox
    from deniable.transport.settings import SenderSettings
    from deniable.wire.sealing import Sealer

    Count = Callable[[str, int, Iterable[Report]], None]

_AFTER_ERROR = 1.0


class Dispatch:
    """Makes batches and has them delivered, in the sending thread."""

    def __init__(
        self,
        settings: SenderSettings,  # how to batch and retry
        orders: Orders,  # what the app wants
        outbox: Outbox,  # the queue of reports
        backlog: Backlog,  # keeps batches that were not delivered
        delivery: Delivery,  # delivers batches to the server
        delivered: Callable[[Batch, Verdict], None] | None,  # called with each batch that need not be sent again
        sealer: Sealer | None,  # seals reports for a relay; None if the app has none
    ) -> None:
        self._settings = settings
        self._orders = orders
        self._outbox = outbox
        self._backlog = backlog
        self._delivery = delivery
        self._delivered = delivered
        self._sealer = sealer

    def run(self) -> None:
        """Work until closed."""
        looked = False
        while True:
            try:
                if not looked:
                    with undisturbed():  # imported now, because this thread needs them later
                        import gzip  # noqa: F401, PLC0415
                        import uuid  # noqa: F401, PLC0415
                    if self._sealer is not None:
                        with suppress(Exception):  # if it fails again, these reports are lost, and counted
                            self._sealer.prepare()
                    with self._orders.changed:
                        self._backlog.begin(self._interval())  # the app's last run may have left batches
                    looked = True
                more = self._work()
                tell_losses(+self._outbox.counts + self._backlog.counts)
                if not more:
                    return
            except Exception as error:  # noqa: BLE001 - the host app must never notice; a pause follows
                log.warning("deniable: no batch can be made: %s", type(error).__name__)
                with self._orders.changed:
                    self._orders.changed.wait_for(lambda: self._orders.closed, _AFTER_ERROR)
                looked = looked or self._orders.closed

    def _interval(self) -> float:
        """Draw the time to the next incomplete batch, so that the time of sending says nothing. Without randomness it raises."""
        return 0.8 * self._settings.flush_interval + jitter(0.4 * self._settings.flush_interval)

    def _work(self) -> bool:
        """Do the next thing that is due; return False if this thread must end."""
        if not self._wait():
            self._drain()
            return True
        closed = self._queue_due()
        with self._orders.changed:
            reports = self._outbox.take() if self._orders.closed or not self._orders.paused else ()
        if reports:
            self._make_and_deliver(reports)
        return bool(reports) or not closed

    def _wait(self) -> bool:
        """Wait until a batch is due; return False if the spool must be read first."""
        deadline = time.monotonic() + (0.0 if self._orders.closed else self._interval())
        with self._orders.changed:
            self._orders.look_after()  # also if one batch is due after another
            while not self._outbox.due:
                if self._backlog.due:
                    return False
                left = deadline - time.monotonic()
                if left <= 0:
                    break
                self._orders.wait(min(left, self._backlog.left))
            return True

    def _queue_due(self) -> bool:
        """Queue the reports that may travel from now on, and write the others to disk; return whether the sender was closed."""
        now, early, due = time.monotonic(), list[Later](), list[Report]()
        with self._orders.changed:
            later = self._outbox.take_later(now)
            look, closed = self._outbox.looks, self._orders.closed
            released, self._outbox.released = self._outbox.released, False
        # Without the lock: the report of a block may take a transaction, and `submit` must not wait for the disk.
        for entry in later:
            report = entry.report if entry.report is not None else entry.block.report() if entry.block else None
            # Before it is on disk: a later run may be of another edition of the app, with another relay or none.
            report = self._sealed(report) if report is not None else None
            if report is not None and entry.due <= now:
                due.append(report)
            elif report is not None:
                early.append(Later(entry.due, report))
        stored = not early or self._backlog.keep_later([(entry.report, entry.due - now) for entry in early if entry.report])
        held = [entry.report for entry in early if entry.report] if not stored else []
        forgotten = self._backlog.forget_later() if closed else 0
        if not closed and not self._orders.paused:
            if released:
                self._backlog.make_due()
            due += self._backlog.take_due()
        with self._orders.changed:
            if closed:
                self._outbox.count("undelivered", len(held) + forgotten, held)
            # While the lock was free there may have been a purge, which is meant for these reports, too.
            if self._orders.purged:
                self._outbox.count("purged", len(due) + len(held), [*due, *held])
            else:
                for report in due:
                    self._outbox.put(report)
                for entry in early if not stored and not closed else ():
                    self._outbox.put(entry)
            self._outbox.end_look(look)
            self._orders.changed.notify_all()
        return closed

    def _sealed(self, report: Report) -> Report | None:
        """Return a report as it may travel; None if it cannot be sealed, which is counted."""
        try:
            return self._sealer(report) if self._sealer else report
        except Exception as error:  # noqa: BLE001 - as for a batch
            self._lose(error, (report,), self._outbox.count)
            return None

    def _make_and_deliver(self, reports: tuple[Report, ...]) -> None:
        try:
            batch = Batch.of(self._delivery.app, tuple(map(self._sealer, reports)) if self._sealer else reports)
        except Exception as error:  # noqa: BLE001 - as below
            self._lose(error, reports, self._outbox.settle)
        else:
            self._deliver(batch)

    def _deliver(self, batch: Batch) -> None:
        try:
            halves = self._deliver_whole(batch)
        except Exception as error:  # noqa: BLE001 - the host app must never notice; the loss is counted
            self._lose(error, batch.reports, self._outbox.settle)
        else:
            for half in halves:
                self._deliver(half)

    def _deliver_whole(self, batch: Batch) -> tuple[Batch, ...]:
        """Deliver a batch and settle it, or return its halves to be delivered instead."""
        if self._orders.refused:  # nobody has seen this batch yet
            self._keep(batch, seen=False)
            return ()
        verdict = self._delivery.deliver(batch, self._settings.max_tries)
        if verdict.kind == "large":
            return batch.halves()
        if verdict.kind == "refused":
            self._stop()
        if verdict.kind in ("later", "refused"):
            # A key that nobody can have seen is replaced, so that two networks that see different tries see different keys.
            self._keep(batch if verdict.seen else batch.renewed(), seen=verdict.seen)
            return ()
        # The server answers now, so what waits on disk is tried next.
        if verdict.kind == "accepted":
            with self._orders.changed:
                self._backlog.schedule(0.0)
        self._conclude(batch, verdict, self._outbox.settle)
        return ()

    def _keep(self, batch: Batch, *, seen: bool) -> None:
        """Keep a batch for another try; if its key was refused, by a later run."""
        outcome = self._backlog.keep(batch, seen=seen)
        with self._orders.changed:
            self._outbox.settle(outcome, len(batch.reports), batch.reports)

    def _drain(self) -> None:
        """Try the oldest batch of the spool once. If the server takes it, the next one is due at once."""
        batch = self._backlog.take()
        if batch is None:
            return
        seen = True
        try:
            verdict = self._delivery.deliver(batch, 1)
            seen = verdict.seen
            self._backlog.end(cut=verdict.kind == "later" and verdict.status == 0 and self._orders.abandoned)
            if verdict.kind == "large":
                if not self._backlog.split(batch):
                    with self._orders.changed:
                        self._outbox.count("spool_failed", len(batch.reports), batch.reports)
            elif verdict.kind == "refused":
                self._stop()  # the spool stays for a run with a valid key
            elif verdict.kind != "later":
                self._outbox.from_disk += verdict.accepted
                self._conclude(batch, verdict, self._outbox.count)
                self._backlog.done(batch)
        except Exception as error:  # noqa: BLE001 - such a file would cause an error at every start
            self._backlog.done(batch)
            self._lose(error, batch.reports, self._outbox.count)
        else:
            if verdict.kind == "later":
                self._backlog.put_off()
        finally:
            self._backlog.release(batch, seen=seen)

    def _conclude(self, batch: Batch, verdict: Verdict, count: Count) -> None:
        """Count a batch that need not be sent again, and call `delivered`."""
        errors = 0
        try:
            if self._delivered is not None:
                self._delivered(batch, verdict)
        except Exception as error:  # noqa: BLE001 - the batch was delivered
            log.debug("deniable: after a delivery: %s", type(error).__name__)
            errors = 1
        with self._orders.changed:
            self._orders.refusal = verdict.why or self._orders.refusal
            self._outbox.count("delivered_error", errors)
            self._outbox.refuse(verdict.refusals)
            if verdict.kind == "accepted":
                taken, rejected = verdict.divided(batch)
                count("sent", verdict.accepted, taken)
                count("rejected", len(batch.reports) - verdict.accepted, rejected)
            else:
                count(f"http_{verdict.status}", len(batch.reports), batch.reports)

    def _lose(self, error: Exception, reports: Sequence[Report], count: Count) -> None:
        log.warning("deniable: a batch was lost to an unexpected %s", type(error).__name__)
        with self._orders.changed:
            count("error", len(reports), reports)

    def _stop(self) -> None:
        with self._orders.changed:
            self._orders.refused = True
            self._orders.changed.notify_all()
