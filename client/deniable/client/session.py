"""A session: what a client that is on works with, from the state of the device to the threads that send."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deniable.arrival import Arrival
from deniable.client.recorder import Recorder
from deniable.device.journal import Journal
from deniable.device.ledger import Ledger
from deniable.device.permanent_responses import PermanentResponses
from deniable.device.state import State
from deniable.device.waiting import Waiting
from deniable.source import OS
from deniable.transport import Sender
from deniable.transport.spool import Spool

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from deniable.client.consent import Consent
    from deniable.client.counts import Counts
    from deniable.registry.tables import Budget
    from deniable.source import Source
    from deniable.transport import Batch, Exit, Post, SenderSettings
    from deniable.transport.dsn import Dsn


class Session:
    """The state of the device, the sender of its reports, and the recorder between them."""

    def __init__(
        self,
        dsn: Dsn,
        directory: Path | None,  # where the device keeps its state; None for memory
        settings: SenderSettings,
        budget: Budget,
        consent: Consent,
        counts: Counts,
        *,
        post: Post | None,  # replaces HTTP
        chore: Callable[[], float] | None,  # fetches the served registry, if there is one
        source: Source | None,  # None is the system's, whose noise is drawn ahead
        clock: Callable[[], float],  # seconds since the epoch
        strict: bool,
        exit: Exit,  # noqa: A002 - the app's word for it
    ) -> None:
        self.state = State(directory)
        self.ledger = Ledger(self.state, budget)
        self.permanent_responses = PermanentResponses(self.state, self.ledger, source or OS)
        self.journal = Journal(self.state)
        self.sender = Sender(
            dsn,
            settings,
            post,
            spool=_spool(directory),
            delivered=self._write_journal,
            waiting=Waiting(self.state, clock),
            chore=chore,
            exit=exit,
            helper=_helper(dsn, directory) if exit == "helper" and directory else None,
        )
        self._counts = counts
        counts.trouble = lambda: self.state.trouble
        consent.attach(self.sender, self.journal)
        self.recorder = Recorder(
            consent,
            counts,
            self.ledger,
            self.permanent_responses,
            self.sender,
            source=source,
            clock=clock,
            strict=strict,
            local=dsn.local,
        )

    def _write_journal(self, batch: Batch) -> None:
        self.journal.add(batch.reports)

    def flush(self, timeout: float) -> Arrival:
        """Send what is queued; return whether the server has all reports of this process that may travel."""
        self.sender.flush(timeout)
        return self._arrival()

    def close(self, timeout: float) -> Arrival:
        """Send what is queued and stop for good; return the same as `flush`."""
        self.sender.close(timeout)
        self._put_in_order()
        return self._arrival()

    def leave(self, timeout: float) -> None:
        """Stop for good at the end of the process, in the way that `exit` says."""
        self.sender.leave(timeout)
        self._put_in_order()

    def _put_in_order(self) -> None:
        if self.journal.clearing:
            self.journal.clear()
        self.ledger.return_leases()  # else reports that were paid for and not made would count as spent

    def _arrival(self) -> Arrival:
        arrival = self.sender.arrival
        if arrival.queued:
            return arrival
        waiting = self.sender.waiting
        return Arrival(why=f"{waiting} may not travel yet" if waiting else self._counts.summary())


def forget(directory: Path | None, clock: Callable[[], float]) -> None:
    """Delete what was not sent yet, and the journal: the user has opted out. What was spent stays spent."""
    spool, state = _spool(directory), State(directory)
    if spool:
        spool.purge()
    Waiting(state, clock).purge()
    Journal(state).clear()


def _helper(dsn: Dsn, directory: Path) -> Callable[[], object]:
    def start() -> None:
        from deniable.client import helper  # noqa: PLC0415 - only an app that asks for it needs it, and at its end

        helper.start(dsn, directory)

    return start


def _spool(directory: Path | None) -> Spool | None:
    return Spool(directory / "spool") if directory else None
