"""The SDK's front: `Client.record` takes an answer, randomises it and queues the report."""

from __future__ import annotations

import logging
import os
import time
from datetime import UTC, datetime
from pathlib import Path
from threading import local
from typing import TYPE_CHECKING, Any, Self

from deniable.consent import Consent
from deniable.counts import Counts, delivery, reserved, spent
from deniable.device.journal import Entry, Journal
from deniable.device.ledger import Ledger
from deniable.device.permanent_responses import PermanentResponses
from deniable.device.state import State
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
from deniable.source import OS
from deniable.transport import Batch, Post, Sender, SenderSettings
from deniable.transport.spool import Spool
from deniable.wire.report import Report

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    from deniable.prepared import Occasion
    from deniable.source import Source

__all__ = ["Client"]

log = logging.getLogger("deniable")
log.addHandler(logging.NullHandler())  # an app that set up no logging would else find our warnings on its stderr

_MOST_UNKNOWN = 100  # unknown names for which the nearest declared one is looked for


def _in_words(error: Exception) -> str:
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001 - the host's own, which cannot even be printed
        return type(error).__name__


class Client:
    """A telemetry client for one app on one device.

    Without a DSN, with ``DENIABLE_DISABLED`` or ``DO_NOT_TRACK`` set (to anything but empty or 0), or with a configuration that
    cannot be used, it is a no-op that counts what it drops. In normal mode nothing here raises, prints or waits for the
    network; `flush` and `close` wait at most their timeout.

    What a device has spent, its permanent responses and what could not be sent yet are kept in a directory; all processes of the
    app on this device share it. Nothing is written before the first report of somebody who agreed.

    Parameters
    ----------
    dsn
        ``https://PUBLIC_KEY@host/app``; by default the environment's ``DENIABLE_DSN``.
    registry
        Path of metrics.toml, or a loaded registry.
    consent
        Whether the person agreed, or a function that tells. Nothing is recorded without.
    segments
        Value of each public breakdown the registry declares, e.g. ``{"platform": "linux"}``.
    settings
        Batching and retries; by default from ``DENIABLE_FLUSH_AT`` and its like.
    caps
        What the app allows a registry to ask, and what a device may spend.
    state
        Directory to keep things in, in a folder of the app's; by default the environment's ``DENIABLE_STATE_DIR``, or the
        system's place for such files. None keeps everything in memory, where each start begins anew: for tests and simulations.
    registry_key
        Public key (base64, Ed25519) of whoever may publish a registry on the server, which can leave out metrics of the one
        given here, lower their samples and end them earlier; None to use this one alone.
    allow_http
        Whether the DSN may be ``http://`` to another machine, where everybody on the way can read what is sent.
    strict
        Raise errors instead of counting them; for development and tests. What is recorded is recorded all the same.
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
        for name in self._segments if isinstance(self._segments, dict) else ():  # anything else may be endless
            if type(name) is str and name not in loaded.segments:
                warn_once(f"segment {name}", "unknown_segment", "the registry declares no such segment, so it is not sent")
        directory = None if state is None else (Path(state).expanduser() if state else state_directory()) / loaded.app
        spool = Spool(directory / "spool") if directory else None
        self._state = State(directory)
        self._ledger = Ledger(self._state, self._budget, self._clock)
        self._permanent_responses = PermanentResponses(self._state, self._ledger, self._source or OS)
        self._journal = Journal(self._state)
        if self.disabled:  # somebody has opted out
            if spool:
                spool.purge()
            self._journal.clear()
            return
        if dsn is None:
            self.disabled = "no DSN was given"
            return
        parsed = Dsn.parse(dsn, allow_http=self._allow_http)
        if parsed.app != loaded.app:
            raise ConfigurationError(f"the DSN is for app {parsed.app!r} and the registry for app {loaded.app!r}")
        chore = self._fetcher(parsed, registry_key, loaded, directory) if registry_key else None
        self._sender = Sender(
            parsed, settings or sender_settings(), post, spool=spool, delivered=self._write_journal, chore=chore
        )
        self._consent.attach(self._sender, self._journal)

    def _fetcher(self, dsn: Dsn, key: str, bundled: Registry, directory: Path | None) -> Callable[[], float]:
        from deniable.served_registry.fetch import Fetcher  # noqa: PLC0415 - only apps whose registry is served need it

        return Fetcher(dsn, key, bundled, directory, use=self._use, refuse=self._refuse)

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._clock(), UTC)

    def _use(self, registry: Registry) -> None:
        """Go on with a registry: the app's, or in the sending thread a served one."""
        self._prepared = prepare(registry, self._segments, self._caps, self._budget, self._now().date())
        self._registry = registry

    def _refuse(self, reason: str) -> None:
        """Send nothing any more: the server's registry was tampered with. Run by the sending thread."""
        self.disabled = reason
        if self._sender is not None:
            self._sender.stop()
        log.warning("deniable is off: %s", reason)

    def _write_journal(self, batch: Batch) -> None:
        self._journal.add(batch.reports)

    def record(self, metric: str, value: object) -> bool:
        """Randomise an answer and queue the result.

        Whatever the answer, the same happens: one that the metric does not declare is reported, too, as the answer that stands
        for all others, or as a random one.

        Parameters
        ----------
        metric
            Id of a declared metric.
        value
            The true answer; None where the metric says which answer that is. It is not kept anywhere once this returns.

        Returns
        -------
        bool
            Whether a report was queued. A metric is reported once a period, or as often as it declares.

        Raises
        ------
        DeniableError
            Only if strict: if the metric is unknown; or, once the report is queued, if the answer is not declared.
        """
        try:
            return self._record(metric, value)
        except BaseException as error:  # noqa: BLE001 - counted; the host app must never notice
            metric = value = None  # type: ignore[assignment] # no answer stays in the frames of an error
            if self.strict or not isinstance(error, Exception):
                raise without_locals(error) from None
            self.count_error(error, "record")
            return False

    def _record(self, metric: str, value: object) -> bool:
        prepared = self._prepared.get(metric)
        if prepared is None:
            return self._drop_unknown(metric, value)
        recording = self._recording
        if getattr(recording, "now", False):  # a consent function, a signal handler or a finaliser records
            return self._drop("interrupted")
        recording.now = True
        try:
            return self._report(prepared, value)
        finally:
            recording.now = False

    def _report(self, prepared: Prepared, value: object) -> bool:
        """Make one report and queue it. An answer that is not declared takes the same steps; it is raised at their end."""
        process, sender, moment = os.getpid(), self._sender, self._now()
        refusal = self._refusal(prepared, moment)  # before anything is drawn, read or spent
        if refusal or sender is None:
            return self._drop(refusal or "disabled")
        sampled = prepared.sampled(self._source or OS)
        position, fault = prepared.position(value)
        occasion = prepared.occasion(moment)
        made = self._randomize(prepared, occasion, position, sampled=sampled)
        dropped = made if isinstance(made, str) else sender.submit(Report(occasion.stratum, made), process)
        if dropped:
            self._drop(dropped)
        else:
            self._counts.recorded += 1
            if self._consent.agreed is False:  # another thread has taken it back in the meantime
                sender.purge()
        if fault is not None:
            self._counts.undeclared += 1
            if self.strict or not isinstance(fault, ParameterError):
                raise fault
        return not dropped

    def _refusal(self, prepared: Prepared, moment: datetime) -> str | None:
        """Return why nothing may be recorded now, whatever the answer; None if it may."""
        sender = self._sender
        if sender is None or self.disabled:
            return "disabled"
        if not self._consent.ask():
            return "no_consent"
        return "expired" if prepared.metric.expired(moment.date()) else sender.full

    def _randomize(self, prepared: Prepared, occasion: Occasion, position: int | None, *, sampled: bool) -> bytes | str:
        """Pay for a report and return its payload, or why there is none. The position is None of an undeclared answer."""
        if prepared.permanent is not None:
            return self._permanent_responses.respond(prepared, occasion, position, sampled=sampled)
        refusal = self._ledger.spend(prepared.allowance, occasion, sampled=sampled) or (None if sampled else "not_sampled")
        if refusal:
            return refusal
        if position is None:
            position = prepared.metric.stand_in(self._source or OS)
        return prepared.mechanism.randomize(position, self._source)

    def _drop(self, reason: str, error: DeniableError | None = None) -> bool:
        self._counts.dropped[reason] += 1
        if self.strict and error is not None:
            raise error
        return False

    def _drop_unknown(self, metric: str, value: object) -> bool:
        error = ParameterError("a metric is declared in the registry", metric)
        swapped = type(value) is str and value in self._prepared  # then the answer is in the other place, and is not logged
        if swapped:
            error = ParameterError("the metric is the first argument of record, the answer the second", value)
        if self.disabled:  # maybe since no registry could be read
            return self._drop("disabled", error)
        if swapped:
            warn_once(str(value), "unknown_metric", error.rule)
        elif type(metric) is str:
            self._warn_of_unknown(metric)
        return self._drop("unknown_metric", error)

    def _warn_of_unknown(self, metric: str) -> None:
        """Warn of a metric that is not declared. The text is not logged: with swapped arguments it is the answer."""
        if self._counts.dropped["unknown_metric"] >= _MOST_UNKNOWN:  # looking for the nearest name takes a while
            return
        from difflib import get_close_matches  # noqa: PLC0415 - slow to import, and only a mistake needs it

        near = get_close_matches(metric, self._prepared, 1)
        if near:
            warn_once(near[0], "unknown_metric", "record was given a similar name, which the registry does not declare")
        else:
            warn_once("record", "unknown_metric", "the registry does not declare the metric; strict=True shows which")

    def count_error(self, error: Exception, where: str) -> None:
        """Count an error that the app does not see. The log names its kind only: the message might repeat an answer."""
        self._counts.dropped["error"] += 1
        log.debug("deniable: %s in %s was swallowed", type(error).__name__, where)

    def metric(self, id_: str) -> MetricHandle:
        """Return a handle that records one metric, for hot paths."""
        return MetricHandle(self.record, id_)

    @guarded(lambda: None)
    def set_consent(self, consent: bool | Callable[[], bool]) -> None:  # noqa: FBT001 - it reads like the setting it is
        """Begin or end collection; taking consent back drops everything not yet sent, here and on disk.

        What was spent and the permanent responses stay. They are no telemetry, and if they were deleted, a person who agrees
        again would pay again.
        """
        self._consent.replace(consent)

    @guarded(bool)
    def flush(self, timeout: float = 5.0) -> bool:
        """Send what is queued; return whether it was all settled within `timeout` seconds."""
        return self._sender.flush(timeout) if self._sender else True

    async def aflush(self, timeout: float = 5.0) -> bool:  # noqa: ASYNC109 - as for `flush`
        """Do as `flush` does, without holding up the event loop."""
        try:
            return await in_own_thread(lambda: self.flush(timeout), "deniable-flush")
        except Exception as error:
            if self.strict:
                raise
            self.count_error(error, "aflush")
            return False

    @guarded(bool)
    def close(self, timeout: float = 2.0) -> bool:
        """Send what is queued within `timeout` seconds, keep the rest for the next start, and stop for good."""
        if self._sender is None:
            return True
        done = self._sender.close(timeout)
        if self._journal.clearing:
            self._journal.clear()
        self._ledger.return_leases()
        return done

    @guarded(dict)
    def stats(self) -> dict[str, Any]:
        """Count what happened so far. Stays on the device.

        Returns
        -------
        dict
            ``recorded`` reports, by this process; of these ``sent``, ``rejected`` by the server (``refusals`` has them by
            metric and reason, also those of a batch that was dropped for it), ``spooled`` for later (and then
            ``sent``, maybe by another process), and ``repeated``, of an earlier answer where the metric has no room for another;
            ``undeclared`` answers that were given; ``dropped`` by reason; ``faults`` that cost no report; ``reserved``: nats that
            each metric may spend, in a window and over a lifetime (None without a bound); ``spent``: nats that this device has
            spent and has left, likewise (None also if the state cannot be read); ``disabled`` and ``trouble`` (with the state) in
            words, or None.
        """
        sender = self._sender
        return {
            "recorded": self._counts.recorded,
            "undeclared": self._counts.undeclared,
            "repeated": self._permanent_responses.repeated if sender else 0,
            **delivery(self._counts, sender),
            "reserved": reserved(self._prepared),
            "spent": spent(self._ledger if sender else None),
            "disabled": self.disabled,
            "trouble": self._state.trouble if sender else None,
        }

    @guarded(lambda: None)
    def explain(self, metric: str, value: object = None) -> Explanation | None:
        """Explain what recording would send; nothing is recorded, spent or sent.

        Parameters
        ----------
        metric
            Id of a declared metric.
        value
            An answer, to draw a sample report for; optional.

        Returns
        -------
        Explanation or None
            None if the metric is not declared or the answer not in its domain.

        Raises
        ------
        ParameterError
            In these cases, if `strict`.
        """
        prepared = self._prepared.get(metric)
        if prepared is None:
            raise ParameterError("a metric is declared in the registry", metric)
        return Explanation.of(self._registry, metric, self._budget, value)

    @guarded(list)
    def journal(self) -> list[Entry]:
        """List the last thousand reports that were sent, the newest first: an app may show people what left their device."""
        return self._journal.entries() if self._sender else []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<deniable.Client {'off: ' + self.disabled if self.disabled else 'on'}, {len(self._prepared)} metrics>"
