"""Sending: a bounded queue, two daemon threads, and a spool for batches that could not be delivered.

Only randomised reports come here; raw answers stay in `deniable.client`. Nothing in this folder raises errors into the host app.
Only `Sender.flush`, `Sender.close` and `Sender.purge` make it wait, and they keep their deadlines. One thread makes batches and
writes the spool (`dispatch`). Another talks to the network (`network`).
"""

from __future__ import annotations

import os
import time
from collections import Counter
from contextlib import suppress
from threading import Thread, current_thread
from typing import TYPE_CHECKING, ClassVar, Literal, get_args
from weakref import WeakSet

from deniable.errors import ParameterError
from deniable.process.exits import at_exit
from deniable.process.forks import over_forks
from deniable.source import jitter
from deniable.transport.backlog import Backlog
from deniable.transport.delivery import Delivery, Verdict
from deniable.transport.dispatch import Dispatch
from deniable.transport.failures import tell_losses
from deniable.transport.http import HttpPost, Post
from deniable.transport.network import Courier, Orders
from deniable.transport.outbox import Block, Later, Outbox
from deniable.transport.settings import SenderSettings
from deniable.transport.spool import Spool
from deniable.wire import addresses
from deniable.wire.batch import Batch
from deniable.wire.report import Report

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from threading import Condition

    from deniable.device.waiting import Waiting
    from deniable.transport.dsn import Dsn
    from deniable.wire.sealing import Sealer

__all__ = ["Batch", "HttpPost", "Post", "Sender", "SenderSettings", "Spool", "Verdict"]

Exit = Literal["auto", "wait", "spool", "helper"]
"""What becomes of the queue when the process ends; see `deniable.Client`."""

_EXIT_SECONDS = 1.0
_YOUNG = 10.0  # seconds; a program that ends sooner does not wait for a server
_END_SHARE = 0.25  # share of the time to close that is kept for what is left
_PURGE_SECONDS = 1.0


class Sender:
    """Queues reports and sends them from its own threads."""

    _alive: ClassVar[WeakSet[Sender]] = WeakSet()

    def __init__(
        self,
        dsn: Dsn,  # where to send
        settings: SenderSettings,  # how to batch and retry
        post: Post | None = None,  # Sends a request. None for HTTP, which is imported in the thread on first use.
        *,
        spool: Spool | None = None,  # Where batches wait that could not be delivered. With None they are lost and counted.
        # Called with each batch that need not be sent again, in the thread that makes batches. Its errors are counted.
        delivered: Callable[[Batch, Verdict], None] | None = None,
        # Where reports wait that may not travel yet. With None they wait in memory, and at the end they are lost and counted.
        waiting: Waiting | None = None,
        # Called in the thread that talks to the network, first with the first request. It returns the seconds until the next
        # call. After an error, which is counted, the next call is an hour later. It is not called while paused.
        chore: Callable[[], float] | None = None,
        exit: Exit = "auto",  # noqa: A002 - the app's word for it. What becomes of the queue when the process ends.
        helper: Callable[[], object] | None = None,  # called at the end if batches are left on disk, with `exit` "helper"
        upkeep: Callable[[], object] = lambda: None,  # called in the thread that makes batches, some time after `look_after`
        sealer: Sealer | None = None,  # Seals reports for a relay, in the thread that makes batches. None if the app has none.
    ) -> None:
        self._dsn = dsn
        self._settings = settings
        self._given_post = post
        self._spool = spool
        self._waiting = waiting
        self._delivered = delivered
        self._chore = chore
        self._sealer = sealer
        if exit not in get_args(Exit):
            raise ParameterError(f"exit: write one of {', '.join(get_args(Exit))}", exit)
        self._exit = exit
        self._helper = helper
        self._begun = time.monotonic()
        self._orders = Orders(spooled=spool is not None, upkeep=upkeep)
        self._courier: Courier | None = None
        self.reset()
        self._alive.add(self)

    def reset(self) -> None:
        """Start again with an empty queue, no threads, no counts and new locks."""
        if self._courier is not None:
            self._courier.forget()
        if self._spool is not None:
            self._spool.reset()
        if self._waiting is not None:
            self._waiting.reset()
        self._orders = self._orders.renewed()
        self._outbox = Outbox(self._settings, self._orders)
        self._backlog = Backlog(self._spool, self._orders, self._waiting)
        self._courier = None
        self._thread: Thread | None = None
        self._woken = self._hastened = False

    @classmethod
    def locks(cls) -> Iterator[Condition]:
        """Yield the locks of every sender of this process."""
        yield from (sender._orders.changed for sender in cls._alive)  # noqa: SLF001 - our own

    @classmethod
    def reset_all(cls) -> None:
        """Reset every sender in a forked child. The child has no sending threads, and the parent sends the queued reports."""
        for sender in cls._alive:
            sender.reset()

    @classmethod
    def leave_all(cls, timeout: float) -> None:
        """At the end of the process, leave all senders that the app has not closed, within `timeout` seconds together."""
        deadline = time.monotonic() + timeout
        left = [sender for sender in cls._alive if not sender._orders.closed]  # noqa: SLF001 - our own
        while left:
            sender = left.pop()
            with suppress(Exception):
                sender.leave(max(0.0, deadline - time.monotonic()) / (len(left) + 1))

    @property
    def counts(self) -> Counter[str]:
        """Counts of what became of reports."""
        # - `sent`, `rejected`.
        # - `spooled`: later `sent`, `rejected` or lost, perhaps by another process.
        # - Lost, or not of reports: those of `LOSSES`, and `error`, `http_` with a status.
        with self._orders.changed:
            return self._outbox.counts + self._backlog.counts

    @property
    def waiting(self) -> int:
        """Number of reports that may not travel yet, of this process and on the device."""
        return self._outbox.later + self._backlog.later

    @property
    def refusals(self) -> Counter[str]:
        """Counts of the reports that the server refused, by metric and reason. They were ``rejected`` or lost as ``http_422``."""
        with self._orders.changed:
            return Counter(self._outbox.refusals)

    @property
    def full(self) -> str | None:
        """The reason why `submit` would drop a report now, or None."""
        if self._orders.closed:
            return "closed"
        if self._orders.refused:
            return "refused_key"
        return "queue_full" if self._outbox.full else None

    @property
    def pending(self) -> int:
        """Number of reports that wait to be sent, or for another try, of this process and on the device."""
        with self._orders.changed:
            queued = self._outbox.submitted - self._outbox.settled
        return queued + self._backlog.reports

    @property
    def unsent(self) -> Counter[tuple[str, str]]:
        """Numbers of reports that are `pending` or `waiting`, by this word and metric, as far as the metric is known."""
        with self._orders.changed:
            queued = self._outbox.unsent()
        return queued + self._backlog.unsent()

    @property
    def fates(self) -> Counter[tuple[str, str]]:
        """Counts of what became of reports: outcomes and metrics, where they are known."""
        with self._orders.changed:
            return Counter(self._outbox.fates)

    @property
    def from_disk(self) -> int:
        """Number of reports that the server took from the spool."""
        return self._outbox.from_disk

    @property
    def trouble(self) -> str | None:
        """Why the last batch was not delivered."""
        return self._orders.trouble

    @property
    def refusal(self) -> str:
        """Why the server refused reports, the last time."""
        return self._orders.refusal

    def submit(self, report: Report | Later, process: int | None = None) -> str | None:
        """Queue a report; return None, or why it was dropped. A report that another process made is dropped, too."""
        outbox = self._outbox  # if a signal handler forks now, the child uses this outbox, which is never sent there
        if process is not None and process != os.getpid():
            return "interrupted"
        with self._orders.changed:
            dropped = self.full
            if dropped is not None:
                return dropped
            # A thread that begins with a report that must wait makes no request now, which would tell the moment.
            quiet = type(report) is Later
            if self._thread is None and not self._start(quiet=quiet):
                return "no_thread"
            if not (quiet or self._hastened):
                self._hasten()
            self._backlog.touch()
            outbox.put(report)
        return None if outbox is self._outbox else "interrupted"

    def later(self, seconds: float, report: Report | Block) -> Later:
        """Return a report that may not travel before some seconds have passed; then it travels some time later, with others."""
        # The report of a block is made then, or at the end of the process.
        due = time.monotonic() + seconds + jitter(self._settings.flush_interval)
        return Later(due, report, None) if isinstance(report, Report) else Later(due, None, report)

    def wake(
        self,
        *,
        quiet: bool = True,  # whether the moment of sending must not show that of this call
    ) -> None:
        """Send what an earlier run left, some time later, even if this one has no report to send. A second call does nothing."""
        if self._woken and (quiet or self._hastened):
            return
        later = not self._woken and self._backlog.later > 0
        self._woken = True
        with self._orders.changed:
            if self._has_left(later=later, quiet=True) and not quiet:
                self._hasten()
            self._hastened = self._hastened or not quiet

    def begin(self) -> None:
        """Send what an earlier run left now, before anything is recorded: a program that runs briefly has no better moment."""
        with self._orders.changed:
            if self._has_left(quiet=True):
                self._hasten()

    def _hasten(self) -> None:
        self._hastened = True
        self._backlog.begin_now()
        self._orders.changed.notify_all()

    def look_after(self) -> None:
        """Have the upkeep done in the sending thread, if there is one."""
        with self._orders.changed:
            self._orders.neglected = True
            self._orders.changed.notify_all()

    @classmethod
    def all(cls) -> list[Sender]:
        """Return the senders of this process."""
        return list(cls._alive)

    def make_due(self) -> None:
        """Let every report that waits travel now; for tests of apps."""
        with self._orders.changed:
            self._outbox.make_due()

    def flush(self, timeout: float, *, again: bool = True) -> bool:
        """Send what is queued now; return whether all of it was sent, spooled or lost within `timeout` seconds."""
        # Reports that may not travel yet are not waited for, and stay. If the server answers, what waits on disk is sent, too. If
        # nothing is queued and `again`, or nothing ever was, this is tried anyhow. It does not wait for reports that are recorded
        # meanwhile. It returns at once while paused, after `close`, and in the sending threads.
        deadline = time.monotonic() + timeout
        later = self._thread is None and self._backlog.later > 0
        look = 0
        with self._orders.changed:
            settled = self._outbox.settled
            if not self._in_vain() and (self._thread is not None or self._has_left(later=later)):
                look = self._outbox.looks = self._outbox.looks + 1
                self._orders.changed.notify_all()
                self._orders.changed.wait_for(lambda: self._outbox.looked >= look or self._in_vain(), timeout)
            target = self._outbox.hurry(look)
            # What was queued may be settled by now, and the server has been asked then.
            idle = self._outbox.settled == settled and self._is_settled(target) and (again or not target)
            if idle and not self._in_vain() and self._has_left():
                self._backlog.schedule(0.0)
                self._orders.changed.notify_all()
            for done in (lambda: self._is_settled(target), lambda: not self._backlog.due):
                self._orders.changed.wait_for(lambda done=done: done() or self._in_vain(), deadline - time.monotonic())  # type: ignore[misc]
            return self._is_settled(target)

    def close(self, timeout: float) -> bool:
        """Stop for good: within `timeout` seconds send what is queued, and keep the rest in the spool."""
        deadline = time.monotonic() + timeout
        # A quarter of this time is kept for what is left: it goes to the spool, or is counted as lost where there is none.
        self.flush((1 - _END_SHARE) * timeout, again=False)
        with self._orders.changed:
            target = self._outbox.submitted
            self._end(deadline - time.monotonic())
            return self._is_settled(target)

    def leave(self, timeout: float) -> None:
        """Stop for good at the end of the process: as `close`, or at once, with what is queued on disk for a later run."""
        young = time.monotonic() - self._begun < _YOUNG
        if self._spool is None or self._exit == "wait" or (self._exit == "auto" and not young):
            self.close(timeout)
            return
        with self._orders.changed:
            self._orders.to_disk = True
            self._end(timeout)
        if self._helper is not None and self._backlog.waiting and not self._orders.refused:
            self._helper()

    def _end(self, timeout: float) -> None:
        """Have the sending threads write what is queued to disk, and end."""
        if not self._orders.closed and self._thread is not None:
            self._outbox.looks += 1
        self._orders.closed = True
        self._orders.changed.notify_all()
        if not self._inside():
            self._orders.changed.wait_for(self._is_all_settled, timeout)

    def purge(self) -> None:
        """Drop everything not sent yet: the queue, a batch that waits for another try or an answer, and the spool."""
        with self._orders.changed:
            self._orders.purges += 1
            self._outbox.purge()
            self._orders.changed.notify_all()
        # The spool is empty when this returns, unless the disk takes longer than a second. An app that records without consent
        # calls this all the time. So a purged spool is not purged again for a minute.
        self._backlog.purge(_PURGE_SECONDS)
        tell_losses(+self.counts)

    def pause(self, paused: bool) -> None:  # noqa: FBT001 - it reads like the setting it is
        """Pause or resume sending. What is queued or spooled is kept."""
        with self._orders.changed:
            self._orders.held = paused
            self._orders.changed.notify_all()

    def stop(self) -> None:
        """Stop sending for good, also if a pause ends."""
        with self._orders.changed:
            self._orders.stopped = True
            self._orders.changed.notify_all()

    def _has_left(self, *, later: bool = False, quiet: bool = False) -> bool:
        """Return whether an earlier run left batches or reports, and the threads that send them are there."""
        left = self.full is None and (later or self._backlog.waiting)
        return left and (self._thread is not None or self._start(quiet=quiet))

    def _start(self, *, quiet: bool) -> bool:
        """Start both threads; return False if the interpreter is ending or the system has too many threads."""
        # If `quiet`, there is no request before the first upload.
        # Both are started here, because a thread could not start the other one while the interpreter is ending.
        try:
            courier = Courier(self._orders, self._make_post, self._chore, self._count_chore_error, quiet=quiet)
            delivery = Delivery(self._dsn, self._settings.timeout, self._orders, courier)
            work = Dispatch(self._settings, self._orders, self._outbox, self._backlog, delivery, self._delivered, self._sealer)
            thread = Thread(target=self._run, args=(work, courier), name="deniable-sender", daemon=True)
        except RuntimeError:  # an isolated subinterpreter has no daemon threads
            return False
        try:
            courier.thread.start()
            thread.start()
        except RuntimeError:
            courier.stop()
            return False
        self._courier, self._thread = courier, thread
        return True

    def _run(self, dispatch: Dispatch, courier: Courier) -> None:
        outbox = self._outbox
        try:
            dispatch.run()
        finally:
            courier.stop()
            with self._orders.changed:
                outbox.looked = outbox.looks  # also after an error
                self._orders.changed.notify_all()

    def _make_post(self) -> Post:
        return self._given_post or HttpPost(f"{self._dsn.url}{addresses.REPORTS}")

    def _count_chore_error(self) -> None:
        with self._orders.changed:
            self._outbox.count("chore_error", 1)

    def _inside(self) -> bool:
        """Return whether this is one of the sending threads, which must not wait for themselves."""
        return self._courier is not None and current_thread() in (self._thread, self._courier.thread)

    def _in_vain(self) -> bool:
        return self._orders.closed or self._orders.paused or self._inside()

    def _is_all_settled(self) -> bool:
        """Return whether nothing is left to do at the end: all that was queued has ended, and what must wait is kept."""
        return not (self._outbox.hurried or self._backlog.taken) and self._is_settled(self._outbox.submitted)

    def _is_settled(self, target: int) -> bool:
        return self._outbox.settled >= target and not self._backlog.purging


over_forks(Sender.locks, Sender.reset_all)
at_exit(Sender.leave_all, _EXIT_SECONDS)
