"""The SDK's front: `Client.record` takes an answer, randomises it and queues the report."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from deniable.arrival import SWALLOWED, Arrival
from deniable.client.arguments import check
from deniable.client.consent import Consent
from deniable.client.counts import Counts, delivery, spent
from deniable.client.environment import sender_settings
from deniable.client.guard import guarded, in_words, settling
from deniable.client.metrics import Metrics, no_time
from deniable.client.session import Session, forget, off
from deniable.errors import ConfigurationError, without_locals
from deniable.handle import MetricHandle
from deniable.messages.log import log
from deniable.messages.plural import plural
from deniable.process.caller import tried_out
from deniable.process.clock import now
from deniable.process.surroundings import state_root, switched_off
from deniable.process.threads import in_own_thread
from deniable.registry import Registry, load
from deniable.registry.metric import PER_SECOND
from deniable.stopwatch import Stopwatch
from deniable.transport.dsn import Dsn, leads_here

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    from deniable.client.recorder import Recorder
    from deniable.device.journal import SentReport
    from deniable.device.prepared import Prepared
    from deniable.explanation import Explanation
    from deniable.registry.tables import Caps
    from deniable.source import Source
    from deniable.stopwatch import Timing
    from deniable.transport import Exit, Post, SenderSettings

__all__ = ["Client"]


class Client:
    """A telemetry client for one app on one device.

    It is off without a DSN or with an unusable configuration. It is also off if ``DENIABLE_DISABLED`` or ``DO_NOT_TRACK`` is set
    to anything but empty or 0. A client that is off only counts what it drops. Unless `strict`, no method raises, prints or waits
    for the network; `flush` and `close` wait at most their timeout. Whatever drops a report says so once, on the logger
    ``deniable``, and on stderr while the app is developed.

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
        What the app allows a registry to ask, and what a device may spend; by default the ``[caps]`` of the registry.
    state
        The directory; the state is in its folder named after the app. By default ``DENIABLE_STATE_DIR``, or the system's place
        for such files. None keeps everything in memory, for tests and simulations.
    registry_key
        Public key (base64, Ed25519) of the publisher of a served registry, which can leave metrics out, or ask less and shorter.
    allow_http
        Whether the DSN may be ``http://`` to another machine. Everybody on the way can then read what is sent.
    strict
        Raise errors instead of counting them; for development and tests. The same answers are recorded.
    exit
        What happens at the end of the process to reports that were not sent yet. ``"wait"`` sends them, for at most a second.
        ``"spool"`` keeps them for a later run. ``"helper"`` does the same, and at most once a day has a process in the background
        send them. ``"auto"`` is ``"spool"`` in the client's first ten seconds, and then ``"wait"``.
    post, clock, source
        Replace HTTP, the seconds since the epoch, and the operating system's generator, in tests and proofs.

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
        exit: Exit = "auto",  # noqa: A002 - what it is about
        post: Post | None = None,
        clock: Callable[[], float] = now,
        source: Source | None = None,
    ) -> None:
        self.strict = strict
        self._local = leads_here(dsn, os.environ.get("DENIABLE_DSN"))
        self.developed: bool = strict or sys.flags.dev_mode or self._local
        if self.developed:
            log.show()
        self._consent = Consent(consent, strict=strict)
        self._counts = Counts(developed=self.developed and state is not None)
        self._metrics = Metrics({} if segments is None else segments, caps, clock, self._counts, strict=strict)
        self._session: Session | None = None
        self.disabled: str | None = switched_off()
        try:
            check(locals())
            loaded = registry if isinstance(registry, Registry) else load(registry)
            self._metrics.open(loaded)
            directory = None if state is None else (Path(state).expanduser() if state else state_root()) / loaded.app
            dsn = dsn or os.environ.get("DENIABLE_DSN")
            if self.disabled:  # the user has opted out; then no later run may send what an earlier one left on disk
                self._turn_off(self.disabled)
                forget(directory, clock)
            elif not dsn:
                self._turn_off("no DSN was given; pass one to init, or set DENIABLE_DSN", developed=bool(consent) and tried_out())
            else:
                address = Dsn.parse(dsn, app=loaded.app, allow_http=allow_http)
                self._session = Session(
                    address,
                    directory,
                    sender_settings() if settings is None else settings,
                    self._metrics,
                    self._consent,
                    self._counts,
                    post=post,
                    chore=self._fetcher(address, registry_key, loaded, directory) if registry_key else None,
                    source=source,
                    clock=clock,
                    strict=strict,
                    exit=exit,
                )
                # A person who agreed before the program began. It shows when that was, so not where reports hide their moment.
                if self._consent.agreed and not any(each.delayed for each in self._metrics.prepared.values()):
                    self._session.sender.begin()
        except Exception as error:
            if strict:
                raise
            developed = isinstance(error, ConfigurationError) or tried_out()  # another fault may be one of the device
            self._turn_off(in_words(error), developed=developed and not self.disabled)

    def _fetcher(self, dsn: Dsn, key: str, bundled: Registry, directory: Path | None) -> Callable[[], float]:
        from deniable.served_registry.fetch import Fetcher  # noqa: PLC0415 - only apps with a served registry need it

        return Fetcher(dsn, key, bundled, directory, use=self._metrics.use, refuse=self._refuse)

    def _refuse(self, reason: str) -> None:
        """Stop for good, because the served registry must not be used. Called by the sending thread."""
        self._turn_off(reason)  # no answer is taken any more; then none is sent
        if self._session is not None:
            self._session.sender.stop()

    def _turn_off(self, reason: str, *, developed: bool = False) -> None:
        self.disabled = reason
        if developed:
            log.show()
        log.warning("deniable is off: %s", reason)

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
            self._counts.swallow(error, "record")
            return False

    def _record(self, metric: str, value: object, elapsed: float | None = None, recorder: Recorder | None = None) -> bool:
        prepared, session = self._metrics.find(metric), self._session
        if prepared is None:
            return self._drop_unknown(metric, value)
        if session is None or self.disabled:
            return self._counts.drop("disabled", prepared, facts=self.disabled or "")
        return (recorder or session.recorder).record(prepared, value, elapsed)

    @guarded(lambda: None)
    def _begin(self, metric: str, recorder: Recorder | None = None) -> Timing | None:
        """Begin a block whose time is recorded, and spend for its report; return None if none is made."""
        prepared, session = self._of_time(metric), self._session
        if prepared is None:
            return None
        if session is None or self.disabled:
            self._counts.drop("disabled", prepared, facts=self.disabled or "")
            return None
        return (recorder or session.recorder).begin(prepared)

    def _of_time(self, metric: str) -> Prepared | None:
        """Return a metric that counts a time. None for another, which is counted, and raised if strict."""
        prepared = self._metrics.find(metric)
        if prepared is None:
            self._drop_unknown(metric, None)
        elif prepared.metric.unit not in PER_SECOND:
            self._counts.drop("unit", prepared, no_time(prepared.metric) if self.strict else None)
            return None
        return prepared

    def _drop_unknown(self, metric: str, value: object) -> bool:
        error = self._metrics.unknown(metric, value) if self.strict else None
        if self.disabled:  # perhaps because the registry could not be read
            return self._counts.drop("disabled", error=error, facts=self.disabled)
        return self._metrics.drop(metric, value, error, named=self.developed)

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

        What was timed counts as begun so many seconds ago, and its report travels as one by `timed`. But this call itself tells
        the time where it can be seen, as in the time of a file on the device, and a time beyond the range cannot travel with the
        others. So prefer `timed`.

        Parameters
        ----------
        metric
            Id of a number metric whose unit is us, ms, s, min or h.
        seconds
            The time. What is no number is undeclared.

        Returns
        -------
        bool
            Whether a report was queued. If strict, a metric of another unit raises `ParameterError`.
        """
        prepared = self._of_time(metric)
        return prepared is not None and self._record(metric, *prepared.in_unit(seconds))

    @guarded(lambda: None)
    def set_consent(self, consent: bool | Callable[[], bool]) -> None:  # noqa: FBT001 - it reads like the setting it is
        """Start or end collection. Withdrawn consent drops everything not sent yet, in memory and on disk.

        The ledger and the permanent responses stay. If they were deleted, a person who agrees again would spend the budget again.
        """
        self._consent.replace(consent)

    @settling
    def flush(self, timeout: float = 5.0) -> Arrival:
        """Send what is queued now, and wait for it at most `timeout` seconds.

        Returns
        -------
        Arrival
            What became of answers and reports since the last call. True if the server took reports, also of earlier runs, and
            nothing is missing. Else its `status` is ``"incomplete"``, ``"nothing to send"`` or ``"not delivered"``, and its text
            says why. Reports that may not travel yet are not missing: they stay, and a later call or run sends them.
        """
        return self._session.flush(timeout) if self._session else off(self.disabled, self._counts)

    async def aflush(self, timeout: float = 5.0) -> Arrival:  # noqa: ASYNC109 - as for `flush`
        """Do the same as `flush` without blocking the event loop."""
        try:
            return await in_own_thread(lambda: self.flush(timeout), "deniable-flush")
        except Exception as error:
            if self.strict:
                raise
            self._counts.swallow(error, "aflush")
            return SWALLOWED

    @settling
    def close(self, timeout: float = 2.0) -> Arrival:
        """Stop for good: send what is queued within `timeout` seconds and keep the rest for the next start. Return as `flush`."""
        return self._session.close(timeout) if self._session else off(self.disabled, self._counts)

    @guarded(lambda: None)
    def _leave(self, timeout: float) -> None:
        """Stop for good at the end of the process, in the way that `exit` says."""
        if self._session is not None:
            self._session.leave(timeout)

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
            - ``pending``: those that wait to be sent or for another try, of this and earlier processes.
            - ``waiting``: those that may not travel yet, of this and earlier processes.
            - ``repeated``: those that repeat an earlier answer, because the metric has no room for another one.
            - ``undeclared``: answers that their metric does not declare.
            - ``clipped``: numbers reported as the nearer end of their range, sets cut to ``most``, texts cut to ``max_length``.
            - ``dropped``: answers and reports that were dropped, by reason.
            - ``faults``: errors that cost no report, by kind.
            - ``reserved``: nats that each metric may spend in a month and ever. None means no bound.
            - ``spent``: nats spent and left, in this month and ever. None means no bound, or that the state cannot be read.
            - ``off``: why metrics are off, by id, with the line to change.
            - ``disabled``, ``trouble``: why the client is off, and what is wrong with the state, or None.
        """
        session = self._session
        return {
            "recorded": self._counts.recorded,
            "undeclared": self._counts.undeclared,
            "clipped": self._counts.clipped,
            "repeated": session.permanent_responses.repeated if session else 0,
            **delivery(self._counts, session.sender if session else None),
            "reserved": self._metrics.reserved(),
            "spent": spent(session.ledger if session else None, self._metrics.month),
            "off": self._metrics.off,
            "disabled": self.disabled,
            "trouble": session.state.trouble if session else None,
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
            None if the metric is off or not declared, which the log says. The example of an undeclared answer is one of what is
            reported instead, and the log says so if the DSN leads to this machine. If `strict`, these cases raise an error.
        """
        return self._metrics.explain(metric, value, named=self._local, strict=self.strict)  # named as `record` does

    @guarded(list)
    def journal(self) -> list[SentReport]:
        """Return the last thousand reports that were sent, the newest first. An app can show them to its user."""
        return self._session.sent(self._metrics.registry) if self._session else []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        metrics = plural(len(self._metrics.prepared), "metric")
        return f"<deniable.Client {'off: ' + self.disabled if self.disabled else 'on'}, {metrics}>"
