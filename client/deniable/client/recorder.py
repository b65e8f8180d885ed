"""The recorder: it randomises an answer, or the time of a block, and queues the report."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from threading import local as thread_data
from typing import TYPE_CHECKING

from deniable.client.counts import of_budget
from deniable.errors import ParameterError
from deniable.frozen import NamedTuple
from deniable.messages.notice import warn_once
from deniable.messages.reasons import of_code
from deniable.registry.metric import PER_SECOND
from deniable.source import OS
from deniable.stopwatch import Timing
from deniable.wire.report import Report

if TYPE_CHECKING:
    from collections.abc import Callable

    from deniable.client.consent import Consent
    from deniable.client.counts import Counts
    from deniable.client.metrics import Metrics
    from deniable.device.ledger import Ledger
    from deniable.device.permanent_responses import PermanentResponses
    from deniable.device.prepared import Occasion, Prepared
    from deniable.registry import Metric
    from deniable.source import Source
    from deniable.transport import Sender


class _Block(NamedTuple):
    """A block of the app whose time is to be reported."""

    recorder: Recorder
    prepared: Prepared
    occasion: Occasion  # that in which it began
    timing: Timing

    @property
    def metric(self) -> str:
        return self.prepared.metric.id

    @property
    def ended(self) -> bool:
        return self.timing.ended

    def report(self) -> Report | None:
        return self.recorder.complete(self)


class Recorder:
    """Makes reports. Whether one is made, and what is drawn, spent and read for it, does not depend on the answer."""

    def __init__(
        self,
        metrics: Metrics,
        consent: Consent,
        counts: Counts,
        ledger: Ledger,
        permanent_responses: PermanentResponses,
        sender: Sender,
        *,
        source: Source | None,  # None is the system's, whose noise is drawn ahead
        clock: Callable[[], float],  # seconds since the epoch
        refusal: Callable[[str, str], str | None],  # why the server refused a report of a metric and period; None if it has not
        strict: bool,  # whether an undeclared answer raises once its report is queued
        local: bool,  # whether reports go to this machine, as while the app is developed
    ) -> None:
        self._metrics = metrics
        self._consent = consent
        self._counts = counts
        self._ledger = ledger
        self._permanent_responses = permanent_responses
        self._sender = sender
        self._source = source
        self._clock = clock
        self._refused = refusal
        self._strict = strict
        self._developed = local or strict
        self._warns = local and not strict
        self._recording = thread_data()  # whether this thread is in `record` or `begin`

    def record(
        self,
        prepared: Prepared,  # the metric
        value: object,  # the answer
        elapsed: float | None = None,  # of a time: for how many seconds it has run, at most the longest time of the range
    ) -> bool:
        """Make one report and queue it; return whether it was queued."""
        recording = self._recording
        if getattr(recording, "now", False):  # `record` was called from within `record`, e.g. by a signal handler
            return self._counts.drop("interrupted", prepared)
        recording.now = True
        try:
            return self._record(prepared, value, elapsed)
        finally:
            recording.now = False

    def begin(self, prepared: Prepared) -> Timing | None:
        """Begin a block whose time is recorded, and spend for its report; return None if none is made."""
        recording = self._recording
        if getattr(recording, "now", False):
            self._counts.drop("interrupted", prepared)
            return None
        recording.now = True
        try:
            return self._begin(prepared)
        finally:
            recording.now = False

    def _record(self, prepared: Prepared, value: object, elapsed: float | None) -> bool:
        """Make one report and queue it. An undeclared answer takes the same steps; its error is raised at the end."""
        # The process is noted first: a signal handler may fork meanwhile, and the child must not queue the report, too.
        process, sender, source = os.getpid(), self._sender, self._source or OS
        moment = datetime.fromtimestamp(self._clock() - (elapsed or 0.0), UTC)
        refusal = self._refusal(prepared, moment)  # before anything is drawn, read or spent
        if refusal:
            return self._drop_refused(refusal, prepared)
        # Both are drawn before the answer is looked at, so that neither the sample nor the wait depends on it.
        sampled = prepared.sampled(source)
        if elapsed is None:
            wait: float = prepared.delay(source) if prepared.delayed else 0.0
        else:
            wait = prepared.wait(source, elapsed)
        position, fault = prepared.position(value)
        occasion = prepared.occasion(moment)
        outcome = self._randomize(prepared, occasion, position, sampled=sampled)
        if isinstance(outcome, str):
            dropped: str | None = outcome
        else:
            report = Report(occasion.stratum, outcome)
            dropped = sender.submit(sender.later(wait, report) if wait else report, process)
        self._count(prepared, dropped, occasion)
        if prepared.clipped(position, value):
            self._clip(prepared.metric, value, reported=not dropped)
        if fault is not None:
            self._counts.mistake(prepared.metric.id, named=self._developed, reported=not dropped)
            if isinstance(fault, ParameterError) and self._developed:
                from deniable.client.undeclared import became, undeclared  # noqa: PLC0415 - only a mistake needs it

                instead = became(prepared.metric, value, fault)
                fault = undeclared(prepared.metric, value, fault)
                if self._warns:
                    _warn_of_undeclared(prepared.metric, fault, "This time nothing was reported" if dropped else instead)
            if self._strict or not isinstance(fault, ParameterError):
                raise fault
        return not dropped

    def _clip(self, metric: Metric, value: object, *, reported: bool) -> None:
        """Count what is clipped, and warn about it while the app is developed: the unit of a number may be wrong."""
        self._counts.clip(metric.id, named=self._developed, reported=reported, how=metric.kind.clipped)
        if self._developed:
            from deniable.client.undeclared import clipped  # noqa: PLC0415 - as in `_record`

            warn_once(metric.id, "clipped", f"{clipped(metric, value, reported=reported)}; stats() counts such answers")

    def _begin(self, prepared: Prepared) -> Timing | None:
        process, sender, source = os.getpid(), self._sender, self._source or OS
        moment = datetime.fromtimestamp(self._clock(), UTC)
        refusal = self._refusal(prepared, moment)
        if refusal:
            self._drop_refused(refusal, prepared)
            return None
        sampled, wait, occasion = prepared.sampled(source), prepared.wait(source), prepared.occasion(moment)
        spend = self._spend if prepared.permanent is None else self._permanent_responses.reserve
        dropped = spend(prepared, occasion, sampled=sampled)
        timing = Timing()
        # The report is made later, when its answer is known. Its cost is spent now, so that a crash cannot avoid it.
        dropped = dropped or sender.submit(sender.later(wait, _Block(self, prepared, occasion, timing)), process)
        self._count(prepared, dropped, occasion)
        return None if dropped else timing

    def complete(self, block: _Block) -> Report | None:
        """Make the report of a block, in the sending thread; None if there is none, which is counted."""
        prepared = block.prepared
        try:
            number = block.timing.seconds * PER_SECOND[prepared.metric.unit]
            position, _ = prepared.position(number)
            if prepared.permanent is None:
                outcome: bytes | str = self._payload(prepared, position)
            else:
                outcome = self._permanent_responses.complete(prepared, block.occasion, position)
            if prepared.clipped(position, number):  # a block may take any time, so nobody is warned
                reported, how = not isinstance(outcome, str), prepared.metric.kind.clipped
                self._counts.clip(prepared.metric.id, named=self._developed, reported=reported, how=how)
        except Exception as error:  # noqa: BLE001 - counted; the report is lost
            self._counts.swallow(error, "timed")
            return None
        if isinstance(outcome, str):
            self._counts.drop(outcome, prepared)
            return None
        return Report(block.occasion.stratum, outcome)

    def _refusal(self, prepared: Prepared, moment: datetime) -> str | None:
        """Return why nothing may be recorded now, or None. This does not depend on the answer."""
        if not self._consent.ask():
            return "no_consent"
        return "expired" if prepared.metric.expired(moment.date()) else self._sender.full

    def _drop_refused(self, refusal: str, prepared: Prepared) -> bool:
        odd = self._consent.odd if refusal == "no_consent" else ""
        return self._counts.drop(refusal, prepared, self._error(refusal, prepared), facts=odd, quiet=bool(odd))

    def _error(self, refusal: str, prepared: Prepared) -> ParameterError | None:
        """Return the error of a strict client for a metric whose collection has ended."""
        ended = refusal == "expired" and self._strict
        return ParameterError(f"{prepared.metric.id}: {self._counts.words(refusal, prepared)}") if ended else None

    def _randomize(self, prepared: Prepared, occasion: Occasion, position: int | None, *, sampled: bool) -> bytes | str:
        """Spend, randomise and return the payload, or the reason why there is none. An undeclared answer has no position."""
        if prepared.permanent is not None:
            return self._permanent_responses.respond(prepared, occasion, position, sampled=sampled)
        return self._spend(prepared, occasion, sampled=sampled) or self._payload(prepared, position)

    def _spend(self, prepared: Prepared, occasion: Occasion, *, sampled: bool) -> str | None:
        """Spend for a report; return None, or why there is none."""
        # An answer that is not sampled takes the place of a report of the period, and costs nothing.
        refusal = self._ledger.spend(prepared.allowance, occasion, sampled=sampled)
        return refusal or (None if sampled else "not_sampled")

    def _payload(self, prepared: Prepared, position: int | None) -> bytes:
        if position is None:
            position = prepared.metric.stand_in(self._source or OS)
        return prepared.mechanism.randomize(position, self._source)

    def _count(self, prepared: Prepared, dropped: str | None, occasion: Occasion) -> None:
        """Count a report that was queued, or an answer that was dropped for a reason."""
        if dropped:
            if dropped == "this_period":
                self._drop_period(prepared, occasion)
            elif dropped == "budget":
                ever = self._ledger.ended
                self._counts.drop(dropped, prepared, facts=lambda: of_budget(prepared, ever=ever(prepared.allowance)))
            else:
                self._counts.drop(dropped, prepared)
            # Where reports wait so that the moment of `record` does not show, nothing else may show it.
            self._sender.wake(quiet=bool(prepared.delayed or prepared.longest))
            return
        self._counts.recorded += 1
        if self._consent.agreed is False:  # another thread has withdrawn consent meanwhile
            self._sender.purge()

    def _drop_period(self, prepared: Prepared, occasion: Occasion) -> None:
        """Count an answer to a metric whose reports of the period are made, or were refused by the server."""
        code = self._refused(prepared.metric.id, occasion.stratum.period)
        self._counts.drop("refused_period" if code else "this_period", prepared, facts=of_code(code) if code else "")


def _warn_of_undeclared(metric: Metric, fault: ParameterError, became: str) -> None:
    """Warn about an undeclared answer while the app is developed."""
    # Only while the app is developed: a log can leave the device, and this line has the answer, without noise.
    end = "" if str(fault).endswith("?") else "."
    words = f"{fault}{end} {became}; strict=True shows where"
    warn_once(metric.id, "undeclared", words)
