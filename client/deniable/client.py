"""The SDK's front: an answer goes in, is randomised, and only then leaves this function."""

from __future__ import annotations

import logging
import os
import time
from collections import Counter
from datetime import UTC, datetime
from functools import wraps
from math import isinf
from pathlib import Path
from threading import Thread, local
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar

from deniable.device.journal import Entry, Journal
from deniable.device.ledger import Ledger
from deniable.device.permanent_responses import Memo
from deniable.device.state import State
from deniable.dsn import Dsn
from deniable.environment import sender_settings, state_directory, switched_off
from deniable.errors import ConfigurationError, DeniableError, ParameterError, StateError, without_locals
from deniable.explanation import Explanation
from deniable.handle import MetricHandle
from deniable.limits.allowance import MICRO
from deniable.limits.caps import Caps
from deniable.process.notice import tell
from deniable.question import Question, questions
from deniable.registry import Registry, load
from deniable.source import OS
from deniable.transport import Batch, Post, Sender, SenderSettings
from deniable.transport.spool import Spool
from deniable.wire.report import Report

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    from deniable.limits.allowance import Allowance
    from deniable.question import Occasion
    from deniable.registry import Metric
    from deniable.source import Source

__all__ = ["Client"]

log = logging.getLogger("deniable")
log.addHandler(logging.NullHandler())  # an app that set up no logging would else find our warnings on its stderr

_REASONS = (
    *("disabled", "no_consent", "expired", "unknown_metric", "not_sampled", "this_period", "budget", "state"),
    *("queue_full", "closed", "refused_key", "no_thread", "interrupted", "error"),
)
_FAULTS = ("spool_damaged", "delivered_error", "chore_error")

P = ParamSpec("P")
T = TypeVar("T")


def _guarded(otherwise: Callable[[], Any]) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Let no error out of a public method unless the client is strict: count it and return what `otherwise` makes.

    The log names the kind of error and nothing else: a message might repeat what the app passed in.
    """

    def decorate(method: Callable[P, T]) -> Callable[P, T]:
        @wraps(method)
        def guarded(*args: P.args, **kwargs: P.kwargs) -> T:
            client: Client = args[0]  # type: ignore[assignment]
            try:
                return method(*args, **kwargs)
            except Exception as error:  # noqa: BLE001 - counted; the host app must never notice
                args, kwargs = (), {}  # type: ignore[assignment] # an answer may be among them
                if client.strict:
                    raise without_locals(error) from None
                client.note(error, method.__name__)
                result: T = otherwise()
                return result

        return guarded

    return decorate


def _position(metric: Metric, value: object) -> tuple[int | None, BaseException | None]:
    """Return the place of an answer in its domain; or None, and what to raise once a report is queued all the same."""
    try:
        return metric.position(value), None
    except ParameterError as error:
        return None, error
    except Exception:  # noqa: BLE001 - an object of the host's, which cannot even be read
        return None, ParameterError(f"an answer to {metric.id} is a plain value", "another object")
    except BaseException as error:  # noqa: BLE001 - the program is to end; it is raised, in any mode, when the report is queued
        return None, error


def _nats(allowance: Allowance) -> dict[str, float | None]:
    lifetime = None if allowance.lifetime is None else allowance.lifetime / MICRO
    return {"window": allowance.window / MICRO, "lifetime": lifetime}


def _told(error: Exception) -> str:
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
        self._consent = consent
        self._consented: bool | None = None
        self._puzzled = False  # by a consent that is neither True nor False
        self._unforgotten = False  # the journal is to be emptied, and could not be
        self._source = source
        self._segments = {} if segments is None else segments
        self._caps = Caps() if caps is None else caps
        self._allow_http = allow_http
        self._clock = clock
        # A first `counts[reason] += 1` runs Python code between reading and writing, and threads would lose counts there.
        self._drops: Counter[str] = Counter(dict.fromkeys(_REASONS, 0))
        self._recorded = self._undeclared = 0
        self._amid = local()
        self._questions: dict[str, Question] = {}
        self._sender: Sender | None = None
        self.disabled: str | None = switched_off()
        try:
            self._open(dsn or os.environ.get("DENIABLE_DSN") or None, registry, settings, state, registry_key, post)
        except Exception as error:
            if strict:
                raise
            self.disabled = _told(error)
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
        for name in self._segments if isinstance(self._segments, dict) else ():  # what is none may go on for ever
            if type(name) is str and name not in loaded.segments:
                tell(f"segment {name}", "unknown_segment", "the registry declares no such segment, so it is not sent")
        directory = None if state is None else (Path(state).expanduser() if state else state_directory()) / loaded.app
        spool = Spool(directory / "spool") if directory else None
        self._state = State(directory)
        self._ledger = Ledger(self._state, self._budget, self._clock)
        self._memo = Memo(self._state, self._ledger, self._source or OS)
        self._journal = Journal(self._state)
        if self.disabled:  # somebody has opted out
            if spool:
                spool.purge()
            self._clear_journal()
            return
        if dsn is None:
            self.disabled = "no DSN was given"
            return
        parsed = Dsn.parse(dsn, allow_http=self._allow_http)
        if parsed.app != loaded.app:
            raise ConfigurationError(f"the DSN is for app {parsed.app!r} and the registry for app {loaded.app!r}")
        chore = self._fetcher(parsed, registry_key, loaded, directory) if registry_key else None
        self._sender = Sender(parsed, settings or sender_settings(), post, spool=spool, delivered=self._delivered, chore=chore)
        if not callable(self._consent):
            self._sender.pause(self._consent is not True)
            self._consented = self._consent is True  # a no at the start withdraws nothing: the app may not have asked yet
            if self._consent is not True and self._consent is not False:
                self._doubt(self._consent, None)

    def _fetcher(self, dsn: Dsn, key: str, bundled: Registry, directory: Path | None) -> Callable[[], float]:
        from deniable.served_registry.fetch import Fetcher  # noqa: PLC0415 - only apps whose registry is served need it

        return Fetcher(dsn, key, bundled, directory, use=self._use, refuse=self._refuse)

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._clock(), UTC)

    def _use(self, registry: Registry) -> None:
        """Go on with a registry: the app's, or in the sending thread a served one."""
        self._questions = questions(registry, self._segments, self._caps, self._budget, self._now().date())
        self._registry = registry

    def _refuse(self, reason: str) -> None:
        """Send nothing any more: the server's registry was tampered with. Run by the sending thread."""
        self.disabled = reason
        if self._sender is not None:
            self._sender.stop()
        log.warning("deniable is off: %s", reason)

    def _delivered(self, batch: Batch) -> None:
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
            metric = value = None  # type: ignore[assignment] # whoever logs the frames of an error is not to find the answer
            if self.strict or not isinstance(error, Exception):
                raise without_locals(error) from None
            self.note(error, "record")
            return False

    def _record(self, metric: str, value: object) -> bool:
        question = self._questions.get(metric)
        if question is None:
            return self._drop_unknown(metric, value)
        amid = self._amid
        if getattr(amid, "record", False):  # a consent function, a signal handler or a finaliser records
            return self._drop("interrupted")
        amid.record = True
        try:
            return self._answer(question, value)
        finally:
            amid.record = False

    def _answer(self, question: Question, value: object) -> bool:
        process = os.getpid()
        now = self._now()
        refusal = self._refusal(question, now)  # before anything is drawn, looked at or spent
        if refusal or self._sender is None:
            return self._drop(refusal or "disabled")
        sampled = question.sampled(self._source or OS)
        position, fault = _position(question.metric, value)
        recorded = self._report(question, question.occasion(now), position, process, self._sender, sampled=sampled)
        if fault is not None:
            self._undeclared += 1
            if self.strict or not isinstance(fault, ParameterError):
                raise fault
        return recorded

    def _report(
        self, question: Question, occasion: Occasion, position: int | None, process: int, sender: Sender, *, sampled: bool
    ) -> bool:
        """Make one report and queue it; nothing here knows whether the answer was declared, but what stands in for it."""
        made = self._randomize(question, occasion, position, sampled=sampled)
        dropped = made if isinstance(made, str) else sender.submit(Report(occasion.stratum, made), process)
        if dropped:
            return self._drop(dropped)
        if self._consented is False:  # taken back meanwhile, by another thread
            sender.purge()
        self._recorded += 1
        return True

    def _refusal(self, question: Question, now: datetime) -> str | None:
        sender = self._sender
        if sender is None or self.disabled:
            return "disabled"
        if not self._agreed(sender):
            return "no_consent"
        return "expired" if question.metric.expired(now.date()) else sender.full

    def _randomize(self, question: Question, occasion: Occasion, position: int | None, *, sampled: bool) -> bytes | str:
        """Make a payload, once it is paid for; or tell why there is none. The position is None of an answer not declared."""
        if question.chain is not None:
            return self._memo.respond(question, occasion, position, sampled=sampled)
        refusal = self._ledger.spend(question.allowance, occasion, sampled=sampled) or (None if sampled else "not_sampled")
        if refusal:
            return refusal
        if position is None:
            position = question.metric.stand_in(self._source or OS)
        return question.mechanism.randomize(position, self._source)

    def _agreed(self, sender: Sender) -> bool:
        """Ask for consent, and act on it before anything is raised. Only True is a yes."""
        fault: Exception | None = None
        try:
            given = self._consent() if callable(self._consent) else self._consent
        except Exception as error:  # noqa: BLE001 - whatever it is, it is no yes
            given, fault = None, error
        agreed = given is True
        if agreed is not self._consented:
            self._consented = agreed
            sender.pause(not agreed)
            if not agreed:
                self._withdraw(sender)
        elif self._unforgotten:
            self._clear_journal()
        if given is not True and given is not False:
            self._doubt(given, fault)
        return agreed

    def _doubt(self, given: object, fault: Exception | None) -> None:
        """Tell once of a consent that is neither a yes nor a no; in strict mode, raise."""
        got = type(given).__name__ if fault is None else f"a function that raised {type(fault).__name__}"
        words = f"consent is True or False, and nothing else; got {got}, which is taken for a no"
        if self.strict:
            raise fault or ConfigurationError(words)
        if not self._puzzled:
            log.warning("deniable: %s", words)
        self._puzzled = True

    def _withdraw(self, sender: Sender) -> None:
        """Take back what was recorded and not yet sent, and forget what was sent."""
        sender.purge()
        self._clear_journal()

    def _clear_journal(self) -> None:
        try:
            self._journal.clear()
        except StateError:
            self._unforgotten = True  # and tried again
        else:
            self._unforgotten = False

    def _drop(self, reason: str, error: DeniableError | None = None) -> bool:
        self._drops[reason] += 1
        if self.strict and error is not None:
            raise error
        return False

    def _drop_unknown(self, metric: str, value: object) -> bool:
        error = ParameterError("a metric is declared in the registry", metric)
        swapped = type(value) is str and value in self._questions  # so the other one is the answer, which is told nobody
        if swapped:
            error = ParameterError("the metric is the first argument of record, the answer the second", value)
        if self.disabled:  # maybe since no registry could be read
            return self._drop("disabled", error)
        if swapped:
            tell(str(value), "unknown_metric", error.rule)
        elif type(metric) is str:
            tell(metric, "unknown_metric", "the registry declares no such metric")
        return self._drop("unknown_metric", error)

    def note(self, error: Exception, where: str) -> None:
        """Count an error that the app is not to see. The log names its kind only: the message might repeat an answer."""
        self._drops["error"] += 1
        log.debug("deniable: %s in %s was swallowed", type(error).__name__, where)

    def metric(self, id_: str) -> MetricHandle:
        """Return a handle that records one metric, for hot paths."""
        return MetricHandle(self.record, id_)

    @_guarded(lambda: None)
    def set_consent(self, consent: bool | Callable[[], bool]) -> None:  # noqa: FBT001 - it reads like the setting it is
        """Begin or end collection; taking consent back drops everything not yet sent, here and on disk.

        What was spent and the permanent responses stay: they are no telemetry, and without them a person who agrees again
        would be asked anew, at new cost.
        """
        self._consent = consent
        if self._sender is None:
            return
        known = self._consented
        if not self._agreed(self._sender) and known is False:  # it was off already: what an earlier run left is withdrawn, too
            self._withdraw(self._sender)

    @_guarded(bool)
    def flush(self, timeout: float = 5.0) -> bool:
        """Send what is queued; return whether it was all settled within `timeout` seconds."""
        return self._sender.flush(timeout) if self._sender else True

    async def aflush(self, timeout: float = 5.0) -> bool:  # noqa: ASYNC109 - as for `flush`
        """Do as `flush` does, without holding up the event loop."""
        try:
            return await self._flush_aside(timeout)
        except Exception as error:
            if self.strict:
                raise
            self.note(error, "aflush")
            return False

    async def _flush_aside(self, timeout: float) -> bool:  # noqa: ASYNC109
        import asyncio  # noqa: PLC0415 - whoever calls this has it
        from concurrent.futures import Future  # noqa: PLC0415 - and this with it

        flushed: Future[bool] = Future()
        flushed.set_running_or_notify_cancel()  # who waits may give up; the flush goes on

        def flush() -> None:
            try:
                flushed.set_result(self.flush(timeout))
            except Exception as error:  # noqa: BLE001 - raised where it is waited for
                flushed.set_exception(error)

        # In a thread of its own: those of the loop may all be busy, for longer than `timeout`.
        Thread(target=flush, name="deniable-flush", daemon=True).start()
        return await asyncio.wrap_future(flushed)

    @_guarded(bool)
    def close(self, timeout: float = 2.0) -> bool:
        """Send what is queued within `timeout` seconds, keep the rest for the next start, and stop for good."""
        if self._sender is None:
            return True
        done = self._sender.close(timeout)
        if self._unforgotten:
            self._clear_journal()
        self._ledger.settle()
        return done

    @_guarded(dict)
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
        counts = Counter(self._sender.counts if self._sender else {})
        sent, rejected, spooled = (counts.pop(name, 0) for name in ("sent", "rejected", "spooled"))
        faults = {name: counts.pop(name) for name in _FAULTS if counts[name]}
        return {
            "recorded": self._recorded,
            "sent": sent,
            "rejected": rejected,
            "refusals": dict(self._sender.refusals) if self._sender else {},
            "spooled": spooled,
            "repeated": self._memo.repeated if self._sender else 0,
            "undeclared": self._undeclared,
            "dropped": dict(self._drops + counts),
            "faults": faults,
            "reserved": {id_: _nats(each.allowance) for id_, each in self._questions.items()},
            "spent": self._spent(),
            "disabled": self.disabled,
            "trouble": self._state.trouble if self._sender else None,
        }

    def _spent(self) -> dict[str, float | None]:
        names = ("window", "window_left", "lifetime", "lifetime_left")
        try:
            spent = self._ledger.spent() if self._sender else None
        except StateError:
            spent = None
        amounts = {name: getattr(spent, name, None) for name in names}
        return {name: None if amount is None or isinf(amount) else amount for name, amount in amounts.items()}

    @_guarded(lambda: None)
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
        question = self._questions.get(metric)
        if question is None:
            raise ParameterError("a metric is declared in the registry", metric)
        return Explanation.of(self._registry, metric, self._budget, value)

    @_guarded(list)
    def journal(self) -> list[Entry]:
        """List the last thousand reports that were sent, the newest first: an app may show people what left their device."""
        if self._unforgotten:
            self._clear_journal()
        return self._journal.entries() if self._sender and not self._unforgotten else []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<deniable.Client {'off: ' + self.disabled if self.disabled else 'on'}, {len(self._questions)} metrics>"
