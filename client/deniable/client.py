"""The SDK's front: an answer goes in, is randomised, and only then leaves this function."""

from __future__ import annotations

import logging
import os
from collections import Counter
from datetime import UTC, datetime
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, Self

from deniable import mechanisms, period
from deniable.dsn import Dsn
from deniable.errors import ConfigurationError, DeniableError, ParameterError
from deniable.explain import Explanation
from deniable.registry import Metric, Registry, load
from deniable.report import Report, Stratum, fingerprint
from deniable.transport import Post, Sender, SenderSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    from deniable.mechanisms import Mechanism

__all__ = ["Client", "MetricHandle"]

log = logging.getLogger("deniable")

_REASONS = (
    *("disabled", "no_consent", "expired", "unknown_metric", "invalid_value"),
    *("queue_full", "closed", "refused_key", "error"),
)

P = ParamSpec("P")


def _guarded(method: Callable[P, bool]) -> Callable[P, bool]:
    """Let no error out of a public method unless the client is strict: count it and return False.

    The log names the kind of error and nothing else: a message might repeat what the app passed in.
    """

    @wraps(method)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> bool:
        client: Client = args[0]  # type: ignore[assignment]
        try:
            return method(*args, **kwargs)
        except Exception as error:
            if client.strict:
                raise
            client.note("error")
            log.debug("deniable: %s in %s was swallowed", type(error).__name__, method.__name__)
            return False

    return guarded


class Client:
    """A telemetry client for one app.

    Without a DSN, with ``DENIABLE_DISABLED`` or ``DO_NOT_TRACK`` set (to anything but empty or 0), or with a configuration that
    cannot be used, it is a no-op that counts what it drops. In normal mode nothing here raises, prints or waits for the
    network; `flush` and `close` wait at most their timeout.

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
    strict
        Raise errors instead of counting them; for development and tests.
    post
        Replaces HTTP, for tests.

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
        strict: bool = False,
        post: Post | None = None,
    ) -> None:
        self.strict = strict
        self._consent = consent
        # A first `counts[reason] += 1` runs Python code between reading and writing, and threads would lose counts there.
        self._drops: Counter[str] = Counter(dict.fromkeys(_REASONS, 0))
        self._recorded = 0
        self._epsilon = 0.0
        self._questions: dict[str, _Question] = {}
        self._sender: Sender | None = None
        self.disabled: str | None = _switched_off()
        try:
            self._open(dsn or os.environ.get("DENIABLE_DSN") or None, registry, segments or {}, settings, post)
        except Exception as error:
            if strict:
                raise
            self.disabled = f"{type(error).__name__}: {error}"
            log.warning("deniable is off: %s", self.disabled)

    def _open(
        self,
        dsn: str | None,
        registry: str | Path | Registry,
        segments: Mapping[str, str],
        settings: SenderSettings | None,
        post: Post | None,
    ) -> None:
        loaded = registry if isinstance(registry, Registry) else load(Path(registry).expanduser())
        self._questions = {
            id_: _Question(metric, mechanisms.of(metric), loaded.segment(metric, segments))
            for id_, metric in loaded.metrics.items()
        }
        if dsn is None:
            self.disabled = self.disabled or "no DSN was given"
            return
        parsed = Dsn.parse(dsn)
        if parsed.app != loaded.app:
            raise ConfigurationError(f"the DSN is for app {parsed.app!r} and the registry for app {loaded.app!r}")
        self._sender = Sender(parsed, settings or _settings_from_environment(), post)

    @_guarded
    def record(self, metric: str, value: object) -> bool:
        """Randomise an answer and queue the result.

        Parameters
        ----------
        metric
            Id of a declared metric.
        value
            The true answer. It is not kept anywhere once this returns.

        Returns
        -------
        bool
            Whether a report was queued.
        """
        question = self._questions.get(metric)
        if question is None:
            return self._drop("unknown_metric", ParameterError("a metric is declared in the registry", metric))
        return self._answer(question, value)

    def _answer(self, question: _Question, value: object) -> bool:
        sender = self._sender
        if sender is None or self.disabled:
            return self._drop("disabled")
        if not (self._consent() if callable(self._consent) else self._consent):
            sender.purge()  # what was recorded before, and not yet sent, is not sent either
            return self._drop("no_consent")
        now = datetime.now(UTC)
        if question.metric.expired(now.date()):
            return self._drop("expired")
        try:
            position = question.metric.position(value)
        except ParameterError as error:
            return self._drop("invalid_value", error)
        report = Report(question.stratum(now), question.mechanism.randomize(position))
        dropped = sender.submit(report)
        if dropped:
            return self._drop(dropped)
        self._recorded += 1
        self._epsilon += question.mechanism.epsilon
        return True

    def _drop(self, reason: str, error: DeniableError | None = None) -> bool:
        self._drops[reason] += 1
        if self.strict and error is not None:
            raise error
        return False

    def note(self, reason: str) -> None:
        """Count a drop for `reason`."""
        self._drops[reason] += 1

    def metric(self, id_: str) -> MetricHandle:
        """Return a handle that records one metric, for hot paths."""
        return MetricHandle(self.record, id_)

    def set_consent(self, consent: bool | Callable[[], bool]) -> None:  # noqa: FBT001 - it reads like the setting it is
        """Begin or end collection; taking consent back drops everything not yet sent."""
        self._consent = consent
        if not consent and self._sender is not None:
            self._sender.purge()

    @_guarded
    def flush(self, timeout: float = 5.0) -> bool:
        """Send what is queued; return whether it was all settled within `timeout` seconds."""
        return self._sender.flush(timeout) if self._sender else True

    @_guarded
    def close(self, timeout: float = 2.0) -> bool:
        """Send what is queued within `timeout` seconds and stop for good."""
        return self._sender.close(timeout) if self._sender else True

    def stats(self) -> dict[str, Any]:
        """Count what happened so far. Stays on the device.

        Returns
        -------
        dict
            ``recorded``, ``sent`` and ``rejected`` reports; ``dropped`` by reason; ``epsilon`` recorded so far, in nats, over
            all metrics; ``disabled``, the reason or None.
        """
        counts = Counter(self._sender.counts if self._sender else {})
        sent, rejected = counts.pop("sent", 0), counts.pop("rejected", 0)
        return {
            "recorded": self._recorded,
            "sent": sent,
            "rejected": rejected,
            "dropped": dict(self._drops + counts),
            "epsilon": self._epsilon,
            "disabled": self.disabled,
        }

    def explain(self, metric: str, value: object = None) -> Explanation:
        """Explain what recording would send; nothing is recorded or sent.

        Parameters
        ----------
        metric
            Id of a declared metric.
        value
            An answer, to draw a sample report for; optional.

        Raises
        ------
        ParameterError
            If the metric is not declared or the answer not in its domain.
        """
        question = self._questions.get(metric)
        if question is None:
            raise ParameterError("a metric is declared in the registry", metric)
        return Explanation.of(question.metric, question.mechanism, value)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<deniable.Client {'off: ' + self.disabled if self.disabled else 'on'}, {len(self._questions)} metrics>"


class MetricHandle:
    """Records one metric.

    Parameters
    ----------
    record
        `Client.record`, or `deniable.record` for whatever client is current.
    id_
        The metric's id.
    """

    __slots__ = ("_id", "_record")

    def __init__(self, record: Callable[[str, object], bool], id_: str) -> None:
        self._record = record
        self._id = id_

    def record(self, value: object) -> bool:
        """Randomise an answer and queue the result; see `Client.record`."""
        return self._record(self._id, value)


class _Question:
    """A metric with its mechanism, and the stratum its reports carry at the moment."""

    __slots__ = ("_hour", "_stratum", "mechanism", "metric", "segment", "tag")

    def __init__(self, metric: Metric, mechanism: Mechanism, segment: str) -> None:
        self.metric = metric
        self.mechanism = mechanism
        self.segment = segment
        self.tag = fingerprint(metric, mechanism.canonical)
        self._hour: tuple[int, int, int, int] | None = None
        self._stratum: Stratum | None = None

    def stratum(self, now: datetime) -> Stratum:
        # No period is shorter than an hour, so its name is worked out once an hour.
        hour = (now.year, now.month, now.day, now.hour)
        if self._stratum is None or hour != self._hour:
            metric = self.metric
            name = period.of(now, metric.period)
            self._stratum = Stratum(metric.id, metric.version, self.tag, name, self.segment)
            self._hour = hour
        return self._stratum


def _switched_off() -> str | None:
    for name in ("DENIABLE_DISABLED", "DO_NOT_TRACK"):
        if os.environ.get(name, "") not in ("", "0"):
            return f"{name} is set"
    return None


def _settings_from_environment() -> SenderSettings:
    """Read ``DENIABLE_FLUSH_AT`` and its like; a bad value is logged and the default used."""
    chosen: dict[str, Any] = {}
    for name, kind in (
        ("flush_at", int),
        ("flush_interval", float),
        ("queue_size", int),
        ("timeout", float),
        ("max_tries", int),
    ):
        text = os.environ.get(f"DENIABLE_{name.upper()}")
        if text is None:
            continue
        try:
            number = kind(text)
            SenderSettings(**{name: number})  # type: ignore[arg-type] # each has its own kind
        except ValueError:  # ParameterError is one
            log.warning("DENIABLE_%s is a number above 0; got %r, the default is used", name.upper(), text)
        else:
            chosen[name] = number
    return SenderSettings(**chosen)
