"""The SDK's front: `Client.record` takes an answer, randomises it and queues the report."""

from __future__ import annotations

import logging
import os
import time
from datetime import UTC, datetime
from pathlib import Path
from threading import local
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from deniable.consent import Consent
from deniable.counts import Counts, delivery, reserved, spent
from deniable.device.journal import Entry, Journal
from deniable.device.ledger import Ledger
from deniable.device.permanent_responses import PermanentResponses
from deniable.device.state import State
from deniable.device.waiting import Waiting
from deniable.dsn import Dsn
from deniable.environment import sender_settings, state_directory, switched_off
from deniable.errors import ConfigurationError, DeniableError, ParameterError, without_locals
from deniable.explanation import Explanation
from deniable.guard import guarded
from deniable.handle import MetricHandle
from deniable.limits.caps import Caps
from deniable.prepared import Prepared, prepare
from deniable.process.notice import warn_once
from deniable.process.threads import in_own_thread
from deniable.registry import Registry, load
from deniable.registry.metric import PER_SECOND
from deniable.source import OS
from deniable.stopwatch import Stopwatch, Timing
from deniable.transport import Batch, Post, Sender, SenderSettings
from deniable.transport.spool import Spool
from deniable.wire.report import Report

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    from deniable.prepared import Occasion
    from deniable.registry import Metric
    from deniable.source import Source

__all__ = ["Client"]

log = logging.getLogger("deniable")
log.addHandler(logging.NullHandler())  # else our warnings would go to the stderr of an app that set up no logging

_LONGEST_NAME = 100  # characters that are looked at of a name that is not declared
_MOST_UNKNOWN = 100  # the nearest declared name is searched for this many unknown names


def _in_words(error: Exception) -> str:
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001 - an exception of the host app whose own `__str__` fails
        return type(error).__name__


class _Block(NamedTuple):
    """A block of the app whose time is to be reported."""

    client: Client
    prepared: Prepared
    occasion: Occasion  # that in which it began
    timing: Timing

    @property
    def ended(self) -> bool:
        return self.timing.ended

    def report(self) -> Report | None:
        return self.client._complete(self)  # noqa: SLF001 - our own


class Client:
    """A telemetry client for one app on one device.

    It is off without a DSN or with an unusable configuration. It is also off if ``DENIABLE_DISABLED`` or ``DO_NOT_TRACK`` is set
    to anything but empty or 0. A client that is off only counts what it drops. Unless `strict`, no method raises, prints or waits
    for the network; `flush` and `close` wait at most their timeout.

    A directory keeps what the device has spent, its permanent responses, and what could not be sent yet. All processes of the app
    on this device share it. Nothing is written before the first report of a person who agreed.

    Parameters
    ----------
    dsn
        ``https://PUBLIC_KEY@host/app``; by default the environment's ``DENIABLE_DSN``.
    registry
        Path of metrics.toml, or a loaded registry.
    consent
        Whether the person agreed, or a function that returns it. Nothing is recorded without consent.
    segments
        The device's value of each segment that the registry declares, e.g. ``{"platform": "linux"}``.
    settings
        Batching and retries; by default from variables such as ``DENIABLE_FLUSH_AT``.
    caps
        What the app allows a registry to ask, and what a device may spend.
    state
        The directory; the state is in its folder named after the app. By default ``DENIABLE_STATE_DIR``, or the system's place
        for such files. None keeps everything in memory, for tests and simulations.
    registry_key
        Public key (base64, Ed25519) of the publisher of a served registry. A served registry can leave out metrics of the given
        one, lower their samples and end them earlier. None to use the given one alone.
    allow_http
        Whether the DSN may be ``http://`` to another machine. Everybody on the way can then read what is sent.
    strict
        Raise errors instead of counting them; for development and tests. The same answers are recorded.
    post
        Replaces HTTP, for tests.
    clock
        Seconds since the epoch; replaced in tests.
    source
        Replaces the operating system's generator, in proofs.

    Raises
    ------
    DeniableError
        Only if `strict`.
    """

    def __init__(
        self,
        *,
        dsn: str | None = None,
        registry: str | Path | Registry,
        consent: bool | Callable[[], bool],
        segments: Mapping[str, str] | None = None,
        settings: SenderSettings | None = None,
        caps: Caps | None = None,
        state: str | Path | None = "",
        registry_key: str | None = None,
        allow_http: bool = False,
        strict: bool = False,
        post: Post | None = None,
        clock: Callable[[], float] = time.time,
        source: Source | None = None,
    ) -> None:
        self.strict = strict
        self._consent = Consent(consent, strict=strict)
        self._source = source  # None is the system's, whose noise is drawn ahead
        self._segments = {} if segments is None else segments
        self._caps = Caps() if caps is None else caps
        self._allow_http = allow_http
        self._clock = clock
        self._counts = Counts()
        self._recording = local()  # whether this thread is in `record`
        self._prepared: dict[str, Prepared] = {}
        self._sender: Sender | None = None
        self._local = False
        self.disabled: str | None = switched_off()
        try:
            self._open(dsn or os.environ.get("DENIABLE_DSN") or None, registry, settings, state, registry_key, post)
        except Exception as error:
            if strict:
                raise
            self.disabled = _in_words(error)
            log.warning("deniable is off: %s", self.disabled)

    def _open(
        self,
        dsn: str | None,
        registry: str | Path | Registry,
        settings: SenderSettings | None,
        state: str | Path | None,
        registry_key: str | None,
        post: Post | None,
    ) -> None:
        loaded = registry if isinstance(registry, Registry) else load(Path(registry).expanduser())
        self._budget = self._caps.tightened(loaded.budget)
        self._use(loaded)
        for name in self._segments if isinstance(self._segments, dict) else ():  # other mappings may be endless
            if type(name) is str and name not in loaded.segments:
                warn_once(f"segment {name}", "unknown_segment", "the registry declares no such segment, so it is not sent")
        directory = None if state is None else (Path(state).expanduser() if state else state_directory()) / loaded.app
        spool = Spool(directory / "spool") if directory else None
        self._state = State(directory)
        self._ledger = Ledger(self._state, self._budget, self._clock)
        self._permanent_responses = PermanentResponses(self._state, self._ledger, self._source or OS)
        self._journal = Journal(self._state)
        waiting = Waiting(self._state, self._clock)
        if self.disabled:  # the user has opted out
            log.warning("deniable is off: %s", self.disabled)
            if spool:
                spool.purge()
            waiting.purge()
            self._journal.clear()
            return
        if dsn is None:
            self.disabled = "no DSN was given"
            log.warning("deniable is off: %s", self.disabled)
            return
        parsed = Dsn.parse(dsn, allow_http=self._allow_http)
        self._local = parsed.local
        if parsed.app != loaded.app:
            raise ConfigurationError(f"the DSN is for app {parsed.app!r} and the registry for app {loaded.app!r}")
        chore = self._fetcher(parsed, registry_key, loaded, directory) if registry_key else None
        self._sender = Sender(
            parsed,
            settings or sender_settings(),
            post,
            spool=spool,
            delivered=self._write_journal,
            waiting=waiting,
            chore=chore,
        )
        self._consent.attach(self._sender, self._journal)

    def _fetcher(self, dsn: Dsn, key: str, bundled: Registry, directory: Path | None) -> Callable[[], float]:
        from deniable.served_registry.fetch import Fetcher  # noqa: PLC0415 - only apps with a served registry need it

        return Fetcher(dsn, key, bundled, directory, use=self._use, refuse=self._refuse)

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._clock(), UTC)

    def _use(self, registry: Registry) -> None:
        """Use a registry from now on. The sending thread calls this with a served one."""
        self._prepared = prepare(registry, self._segments, self._caps, self._budget, self._now().date())
        self._registry = registry

    def _refuse(self, reason: str) -> None:
        """Stop for good, because the served registry must not be used. Called by the sending thread."""
        self.disabled = reason
        if self._sender is not None:
            self._sender.stop()
        log.warning("deniable is off: %s", reason)

    def _write_journal(self, batch: Batch) -> None:
        self._journal.add(batch.reports)

    def record(self, metric: str, value: object) -> bool:
        """Randomise an answer and queue the report.

        An undeclared answer is reported, too: as the metric's `other`, or as a random answer. So whether a report is sent does
        not depend on the answer.

        Parameters
        ----------
        metric
            Id of a declared metric.
        value
            The true answer. None is an answer only if the metric declares `none`. The answer is not kept once this returns.

        Returns
        -------
        bool
            Whether a report was queued. A metric is reported once a period, or as often as it declares.

        Raises
        ------
        DeniableError
            Only if strict. An unknown metric raises at once. An undeclared answer raises after its report is queued.
        """
        try:
            return self._record(metric, value)
        except BaseException as error:  # noqa: BLE001 - counted; the host app must never notice
            metric = value = None  # type: ignore[assignment] # no answer stays in the frames of an error
            if self.strict or not isinstance(error, Exception):
                raise without_locals(error) from None
            self.count_error(error, "record")
            return False

    def _record(self, metric: str, value: object, elapsed: float | None = None) -> bool:
        prepared = self._prepared.get(metric)
        if prepared is None:
            return self._drop_unknown(metric, value)
        recording = self._recording
        if getattr(recording, "now", False):  # `record` was called from within `record`, e.g. by a signal handler
            return self._drop("interrupted")
        recording.now = True
        try:
            return self._report(prepared, value, elapsed)
        finally:
            recording.now = False

    def _report(self, prepared: Prepared, value: object, elapsed: float | None) -> bool:
        """Make one report and queue it. An undeclared answer takes the same steps; its error is raised at the end.

        Parameters
        ----------
        prepared, value
            The metric and the answer.
        elapsed
            For a time: for how many seconds it has run, at most the longest time of the range. None for any other answer.
        """
        process, sender = os.getpid(), self._sender
        moment = self._now() if elapsed is None else datetime.fromtimestamp(self._clock() - elapsed, UTC)
        refusal = self._refusal(prepared, moment)  # before anything is drawn, read or spent
        if refusal or sender is None:
            return self._drop(refusal or "disabled")
        source = self._source or OS
        sampled = prepared.sampled(source)
        if elapsed is None:
            wait: float = prepared.delay(source) if prepared.delayed else 0.0
        else:
            wait = prepared.wait(source, elapsed)
        position, fault = prepared.position(value)
        occasion = prepared.occasion(moment)
        made = self._randomize(prepared, occasion, position, sampled=sampled)
        if isinstance(made, str):
            dropped: str | None = made
        else:
            report = Report(occasion.stratum, made)
            dropped = sender.submit(sender.later(wait, report) if wait else report, process)
        if dropped:
            self._drop(dropped)
            sender.wake()
        else:
            self._counts.recorded += 1
            if self._consent.agreed is False:  # another thread has withdrawn consent meanwhile
                sender.purge()
        if prepared.clipped(position, value):
            self._counts.clipped += 1
        if fault is not None:
            self._counts.undeclared += 1
            self._warn_of_undeclared(prepared.metric)
            if self.strict or not isinstance(fault, ParameterError):
                raise fault
        return not dropped

    def _refusal(self, prepared: Prepared, moment: datetime) -> str | None:
        """Return why nothing may be recorded now, or None. This does not depend on the answer."""
        sender = self._sender
        if sender is None or self.disabled:
            return "disabled"
        if not self._consent.ask():
            return "no_consent"
        return "expired" if prepared.metric.expired(moment.date()) else sender.full

    def _randomize(self, prepared: Prepared, occasion: Occasion, position: int | None, *, sampled: bool) -> bytes | str:
        """Spend, randomise and return the payload, or the reason why there is none. An undeclared answer has no position."""
        if prepared.permanent is not None:
            return self._permanent_responses.respond(prepared, occasion, position, sampled=sampled)
        refusal = self._ledger.spend(prepared.allowance, occasion, sampled=sampled) or (None if sampled else "not_sampled")
        if refusal:
            return refusal
        return self._payload(prepared, position) if position is None else prepared.mechanism.randomize(position, self._source)

    def _spend(self, prepared: Prepared, occasion: Occasion, *, sampled: bool) -> str | None:
        refusal = self._ledger.spend(prepared.allowance, occasion, sampled=sampled)
        return refusal or (None if sampled else "not_sampled")

    def _payload(self, prepared: Prepared, position: int | None) -> bytes:
        if position is None:
            position = prepared.metric.stand_in(self._source or OS)
        return prepared.mechanism.randomize(position, self._source)

    @guarded(lambda: None)
    def _begin(self, metric: str) -> Timing | None:
        """Begin a block whose time is recorded, and spend for its report; return None if none is made."""
        prepared = self._prepared.get(metric)
        if prepared is None:
            self._drop_unknown(metric, None)
            return None
        self._require_time(prepared)
        recording = self._recording
        if prepared.metric.unit not in PER_SECOND or getattr(recording, "now", False):
            self._drop("interrupted" if prepared.metric.unit in PER_SECOND else "unit")
            return None
        recording.now = True
        try:
            return self._begin_report(prepared)
        finally:
            recording.now = False

    def _begin_report(self, prepared: Prepared) -> Timing | None:
        process, sender, moment, source = os.getpid(), self._sender, self._now(), self._source or OS
        refusal = self._refusal(prepared, moment)
        if refusal or sender is None:
            self._drop(refusal or "disabled")
            return None
        sampled, wait, occasion = prepared.sampled(source), prepared.wait(source), prepared.occasion(moment)
        spend = self._spend if prepared.permanent is None else self._permanent_responses.reserve
        dropped = spend(prepared, occasion, sampled=sampled)
        timing = Timing()
        dropped = dropped or sender.submit(sender.later(wait, _Block(self, prepared, occasion, timing)), process)
        if dropped:
            self._drop(dropped)
            sender.wake()
            return None
        self._counts.recorded += 1
        if self._consent.agreed is False:  # another thread has withdrawn consent meanwhile
            sender.purge()
        return timing

    def _complete(self, block: _Block) -> Report | None:
        """Make the report of a block, in the sending thread; None if there is none, which is counted."""
        prepared = block.prepared
        try:
            number = block.timing.seconds * PER_SECOND[prepared.metric.unit]
            position, _ = prepared.position(number)
            if prepared.permanent is None:
                made: bytes | str = self._payload(prepared, position)
            else:
                made = self._permanent_responses.complete(prepared, block.occasion, position)
            self._counts.clipped += prepared.clipped(position, number)
        except Exception as error:  # noqa: BLE001 - counted; the report is lost
            self.count_error(error, "timed")
            return None
        if isinstance(made, str):
            self._drop(made)
            return None
        return Report(block.occasion.stratum, made)

    def _drop(self, reason: str, error: DeniableError | None = None) -> bool:
        self._counts.dropped[reason] += 1
        if self.strict and error is not None:
            raise error
        return False

    def _drop_unknown(self, metric: str, value: object) -> bool:
        if type(metric) is str:
            metric = metric[:_LONGEST_NAME]  # it may be an answer of any length
        error = ParameterError("a metric is declared in the registry", metric)
        swapped = (
            type(value) is str and len(value) <= _LONGEST_NAME and value in self._prepared
        )  # then `metric` is the answer and must not be logged
        if swapped:
            error = ParameterError("the metric is the first argument of record, the answer the second", value)
        if self.disabled:  # perhaps because the registry could not be read
            return self._drop("disabled", error)
        if swapped:
            warn_once(str(value), "unknown_metric", error.rule)
        elif type(metric) is str:
            self._warn_of_unknown(metric)
        return self._drop("unknown_metric", error)

    def _warn_of_unknown(self, metric: str) -> None:
        """Warn about an undeclared metric. Its name is not logged: if the arguments were swapped, it is the answer."""
        if self._counts.dropped["unknown_metric"] >= _MOST_UNKNOWN:  # searching for the nearest name is slow
            return
        from difflib import get_close_matches  # noqa: PLC0415 - slow to import, and only a mistake needs it

        near = get_close_matches(metric, self._prepared, 1)
        if near:
            warn_once(near[0], "unknown_metric", "record was given a similar name, which the registry does not declare")
        else:
            warn_once("record", "unknown_metric", "the registry does not declare the metric; strict=True shows which")

    def _warn_of_undeclared(self, metric: Metric) -> None:
        """Warn about an undeclared answer, without it, while the app is developed.

        Elsewhere nothing is logged: a log can leave the device, and this line depends on the answer and has no noise.
        """
        if self._local and not self.strict:
            instead = "what stands for none" if metric.axis else "a random one" if metric.other is None else "its other"
            words = f"an answer is none that the registry declares, so {instead} was reported instead"
            warn_once(metric.id, "undeclared", f"{words}; strict=True shows where, and stats() counts such answers")

    def count_error(self, error: Exception, where: str) -> None:
        """Count an error that the app does not see. Only its type is logged: the message might contain an answer."""
        self._counts.dropped["error"] += 1
        log.debug("deniable: %s in %s was swallowed", type(error).__name__, where)

    def metric(self, id_: str) -> MetricHandle:
        """Return a handle that records one metric."""
        return MetricHandle(self.record, self._begin, id_)

    def timed(self, metric: str) -> Stopwatch:
        """Return a stopwatch, which records how long a block or a function takes, in the unit of the metric.

        It never changes what the block does: it records also if the block raises, and the error goes on. The report is made some
        time after the block began, which does not depend on how long the block took; see `Stopwatch`.

        Parameters
        ----------
        metric
            Id of a number metric whose unit is us, ms, s, min or h.

        Examples
        --------
        >>> with client.timed("search.ms"):  # doctest: +SKIP
        ...     search()
        >>> @client.timed("search.ms")  # doctest: +SKIP
        ... def search(): ...
        """
        return Stopwatch(self._begin, metric)

    @guarded(bool)
    def record_time(self, metric: str, seconds: float) -> bool:
        """Record a time in the unit of a metric. For a time that was measured otherwise than by `timed`.

        What was timed counts as begun so many seconds ago. Its period is that of this beginning, and the report travels as one
        by `timed` does. But this call itself tells the time where it can be seen, as in the time of a file on the device. A time
        beyond the range cannot travel with the others, since the moment has passed. So prefer `timed`.

        Parameters
        ----------
        metric
            Id of a number metric whose unit is us, ms, s, min or h.
        seconds
            The time. What is no number is undeclared.

        Returns
        -------
        bool
            Whether a report was queued.

        Raises
        ------
        ParameterError
            If strict and the unit is another one.
        """
        prepared = self._prepared.get(metric)
        if prepared is None:
            return self._drop_unknown(metric, None)
        self._require_time(prepared)
        if prepared.metric.unit not in PER_SECOND:
            return self._drop("unit")
        return self._record(metric, *prepared.in_unit(seconds))

    def _require_time(self, prepared: Prepared) -> None:
        """Raise an error if strict and the metric counts no time."""
        if self.strict and prepared.metric.unit not in PER_SECOND:
            self._drop(
                "unit",
                ParameterError(f"the unit of {prepared.metric.id} is one of {', '.join(PER_SECOND)}", prepared.metric.unit),
            )

    @guarded(lambda: None)
    def set_consent(self, consent: bool | Callable[[], bool]) -> None:  # noqa: FBT001 - it reads like the setting it is
        """Start or end collection. Withdrawn consent drops everything not sent yet, in memory and on disk.

        The ledger and the permanent responses stay. If they were deleted, a person who agrees again would spend the budget again.
        """
        self._consent.replace(consent)

    @guarded(bool)
    def flush(self, timeout: float = 5.0) -> bool:
        """Send what is queued now, and wait for it at most `timeout` seconds.

        Returns
        -------
        bool
            Whether the server took every report that this process has recorded and that may travel. It is False if there was
            none, or if any was kept on disk for another try, refused or lost. Reports that may not travel yet do not matter here:
            they stay, and a later call or run sends them. `stats` counts each kind.
        """
        if self._sender is None:
            return False
        self._sender.flush(timeout)
        return self._sender.arrived

    async def aflush(self, timeout: float = 5.0) -> bool:  # noqa: ASYNC109 - as for `flush`
        """Do the same as `flush` without blocking the event loop."""
        try:
            return await in_own_thread(lambda: self.flush(timeout), "deniable-flush")
        except Exception as error:
            if self.strict:
                raise
            self.count_error(error, "aflush")
            return False

    @guarded(bool)
    def close(self, timeout: float = 2.0) -> bool:
        """Stop for good: send what is queued within `timeout` seconds, and keep the rest for the next start.

        Returns
        -------
        bool
            As of `flush`.
        """
        if self._sender is None:
            return False
        self._sender.close(timeout)
        if self._journal.clearing:
            self._journal.clear()
        self._ledger.return_leases()
        return self._sender.arrived

    @guarded(dict)
    def stats(self) -> dict[str, Any]:
        """Return counts of what happened so far. They are never sent.

        Returns
        -------
        dict
            - ``recorded``: reports that this process queued.
            - ``sent``, ``rejected``: those that the server took, and those that it refused.
            - ``refusals``: refused reports by metric and reason, including those of batches that were dropped for it.
            - ``spooled``: those kept on disk for later. Another process may send them.
            - ``waiting``: those that may not travel yet, of this and earlier processes.
            - ``repeated``: those that repeat an earlier answer, because the metric has no room for another one.
            - ``undeclared``: answers that their metric does not declare.
            - ``clipped``: numbers beyond the range of their metric, reported as its nearer end.
            - ``dropped``: answers and reports that were dropped, by reason.
            - ``faults``: errors that cost no report, by kind.
            - ``reserved``: nats that each metric may spend in a window and over a lifetime. None means no bound.
            - ``spent``: nats that the device has spent and has left. None means no bound, or that the state cannot be read.
            - ``disabled``: why the client is off, or None.
            - ``trouble``: what is wrong with the state, or None.
        """
        sender = self._sender
        return {
            "recorded": self._counts.recorded,
            "undeclared": self._counts.undeclared,
            "clipped": self._counts.clipped,
            "repeated": self._permanent_responses.repeated if sender else 0,
            **delivery(self._counts, sender),
            "waiting": sender.waiting if sender else 0,
            "reserved": reserved(self._prepared),
            "spent": spent(self._ledger if sender else None),
            "disabled": self.disabled,
            "trouble": self._state.trouble if sender else None,
        }

    @guarded(lambda: None)
    def explain(self, metric: str, value: object = None) -> Explanation | None:
        """Explain what recording would send. Nothing is recorded, spent or sent.

        Parameters
        ----------
        metric
            Id of a declared metric.
        value
            An answer for an example of a report; optional.

        Returns
        -------
        Explanation or None
            None if the metric or the answer is not declared.

        Raises
        ------
        ParameterError
            In these cases, if `strict`.
        """
        if metric not in self._prepared:
            if self.strict:
                raise ParameterError("a metric is declared in the registry", metric)
            return None
        try:
            return Explanation.of(self._registry, metric, self._budget, value)
        except ParameterError:
            if self.strict:
                raise
            return None

    @guarded(list)
    def journal(self) -> list[Entry]:
        """Return the last thousand reports that were sent, the newest first. An app can show them to its user."""
        return self._journal.entries() if self._sender else []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<deniable.Client {'off: ' + self.disabled if self.disabled else 'on'}, {len(self._prepared)} metrics>"
