"""A session: what a client that is on works with, from the state of the device to the threads that send."""

from __future__ import annotations

import os
from collections import Counter
from typing import TYPE_CHECKING

from deniable.arrival import Arrival
from deniable.client.counts import FAULTS, NO_DROPS, Drops
from deniable.client.recorder import Recorder
from deniable.device.journal import Journal
from deniable.device.ledger import Ledger
from deniable.device.permanent_responses import PermanentResponses
from deniable.device.state import State
from deniable.device.waiting import Waiting
from deniable.frozen import NamedTuple
from deniable.messages.reasons import ANSWERS, LATER, LOSSES
from deniable.source import OS
from deniable.transport import Sender
from deniable.transport.spool import Spool
from deniable.wire.sealing import Sealer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from deniable.client.consent import Consent
    from deniable.client.counts import Counts
    from deniable.client.metrics import Metrics
    from deniable.device.journal import SentReport
    from deniable.registry import Registry
    from deniable.source import Source
    from deniable.transport import Exit, Post, SenderSettings
    from deniable.transport.dsn import Dsn


_UNDELIVERED = ("undelivered", "spool_failed", "spool_full", "spool_expired")  # losses that have the cause of the last try


class _Totals(NamedTuple):
    """What has become of all reports and answers so far."""

    process: int
    outcomes: Counter[str]  # of reports
    fates: Counter[tuple[str, str]]  # the same by outcome and metric, where it is known
    drops: Drops
    from_disk: int  # reports that the server took from the spool


class Session:
    """The state of the device, the sender of its reports, and the recorder between them."""

    def __init__(
        self,
        dsn: Dsn,
        directory: Path | None,  # where the device keeps its state; None for memory
        settings: SenderSettings,
        metrics: Metrics,
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
        self.ledger = Ledger(self.state, metrics.budget)
        self.permanent_responses = PermanentResponses(self.state, self.ledger, source or OS)
        self.journal = Journal(self.state)
        self.sender = Sender(
            dsn,
            settings,
            post,
            spool=_spool(directory),
            delivered=lambda batch, verdict: verdict.write(batch, self.journal),
            waiting=Waiting(self.state, clock),
            chore=chore,
            exit=exit,
            upkeep=self.ledger.renew_ahead,
            sealer=_sealer(metrics.registry),
            helper=_helper(dsn, directory) if exit == "helper" and directory else None,
        )
        self.ledger.nearly_used = self.sender.look_after
        self._counts = counts
        self._last = _Totals(os.getpid(), Counter(), Counter(), NO_DROPS, 0)
        counts.trouble = lambda: self.state.trouble
        consent.attach(self.sender, self.journal)
        self.recorder = Recorder(
            metrics,
            consent,
            counts,
            self.ledger,
            self.permanent_responses,
            self.sender,
            source=source,
            clock=clock,
            refusal=self.journal.refusal,
            strict=strict,
            local=dsn.local,
        )

    @property
    def closed(self) -> bool:
        """Whether it has stopped for good."""
        return self.sender.full == "closed"

    def flush(self, timeout: float) -> Arrival:
        """Send what is queued; return what became of answers and reports since the last call."""
        before = self._before()
        self.sender.flush(timeout)
        return self._arrival(before)

    def close(self, timeout: float) -> Arrival:
        """Send what is queued and stop for good; return the same as `flush`."""
        before = self._before()
        self.sender.close(timeout)
        self._put_in_order()
        return self._arrival(before)

    def sent(self, registry: Registry) -> list[SentReport]:
        """Return the reports that were sent, with what they name of the metrics of a registry."""
        entries = self.journal.entries()
        if not entries:
            return []
        from deniable.evidence import with_names  # noqa: PLC0415 - few programs look

        return with_names(entries, registry)

    def leave(self, timeout: float) -> None:
        """Stop for good at the end of the process, in the way that `exit` says."""
        self.sender.leave(timeout)
        self._put_in_order()

    def _put_in_order(self) -> None:
        if self.journal.clearing:
            self.journal.clear()
        self.ledger.return_leases()  # else reports that were paid for and not made would count as spent

    def _before(self) -> _Totals:
        """Return what the last call saw. Two calls at one time see the same."""
        # A forked child has counts of its own, and no reports of its parent.
        return (
            self._last if self._last.process == os.getpid() else _Totals(os.getpid(), Counter(), Counter(), self._last.drops, 0)
        )

    def _arrival(self, before: _Totals) -> Arrival:
        sender = self.sender
        now = self._last = _Totals(os.getpid(), sender.counts, sender.fates, self._counts.drops(), sender.from_disk)
        outcomes, drops = now.outcomes - before.outcomes, now.drops.since(before.drops)
        refused = sum(number for name, number in outcomes.items() if _kind(name) == "refused")
        losses = [name for name in outcomes if name in LOSSES and _kind(name)]
        pending, waiting = sender.pending, sender.waiting
        why = [sender.trouble or "no answer has come yet; a longer timeout may bring one"] if pending else []
        why += [LATER.words()] if waiting else []
        why += [sender.refusal] if refused else []
        if any(name in _UNDELIVERED for name in losses) and sender.trouble:
            why.append(sender.trouble)
        why += [LOSSES[name].words() for name in losses] + ([ANSWERS["error"].words()] if outcomes["error"] else [])
        why += self._counts.why(drops)
        if not (why or outcomes["sent"] or waiting):
            earlier = before.outcomes or before.drops.dropped
            why = ["nothing was recorded since the last call" if earlier else "nothing was recorded"]
        return Arrival(
            sent=outcomes["sent"],
            from_disk=now.from_disk - before.from_disk,
            pending=pending,
            waiting=waiting,
            refused=refused,
            lost=sum(number for name, number in outcomes.items() if _kind(name) == "lost"),
            deleted=outcomes["purged"],
            dropped=dict(drops.dropped),
            undeclared=dict(drops.undeclared),
            clipped=dict(drops.clipped),
            metrics=_by_metric(now.fates - before.fates, sender.unsent if pending or waiting else Counter(), drops.by_metric),
            why="; ".join(dict.fromkeys(why)),
        )


def off(reason: str | None, counts: Counts) -> Arrival:
    """Return what becomes of the answers of a client that is off."""
    drops = counts.news()
    metrics = _by_metric(Counter(), Counter(), drops.by_metric)
    return Arrival(dropped=dict(drops.dropped), metrics=metrics, why=f"the client is off: {reason}")


def _kind(outcome: str) -> str:
    """Return what an outcome of a report is for `Arrival`; empty if it is none of its numbers."""
    if outcome == "rejected" or outcome.startswith("http_"):
        return "refused"
    if outcome == "purged":
        return "deleted"
    if outcome == "error" or (outcome in LOSSES and outcome not in FAULTS):
        return "lost"
    return "sent" if outcome == "sent" else ""


def _by_metric(
    fates: Counter[tuple[str, str]],  # of reports: outcomes and metrics
    unsent: Counter[tuple[str, str]],  # the same of reports that are pending or waiting
    dropped: Counter[tuple[str, str]],  # of answers: reasons and metrics
) -> dict[str, dict[str, int]]:
    numbers: Counter[tuple[str, str]] = Counter()
    for (outcome, metric), number in fates.items():
        numbers[metric, _kind(outcome)] += number
    numbers.update({(metric, what): number for (what, metric), number in (unsent + dropped).items()})
    metrics: dict[str, dict[str, int]] = {}
    for (metric, what), number in sorted(numbers.items()):
        if what:
            metrics.setdefault(metric, {})[what] = number
    return metrics


def forget(directory: Path | None, clock: Callable[[], float]) -> None:
    """Delete what was not sent yet, and the journal: the user has opted out. What was spent stays spent."""
    spool, state = _spool(directory), State(directory)
    if spool:
        spool.purge()
    Waiting(state, clock).purge()
    Journal(state).clear()


def _sealer(registry: Registry) -> Sealer | None:
    """Return what seals reports for the relay of the app's own registry. A served one only leaves metrics out."""
    relay = registry.relay
    return Sealer(registry.app, relay.number, relay.public_key) if relay else None


def _helper(dsn: Dsn, directory: Path) -> Callable[[], object]:
    def start() -> None:
        from deniable.client import helper  # noqa: PLC0415 - only an app that asks for it needs it, and at its end

        helper.start(dsn, directory)

    return start


def _spool(directory: Path | None) -> Spool | None:
    return Spool(directory / "spool") if directory else None
