"""A capture of the answers that an app records during a test."""

from __future__ import annotations

import os
import warnings
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import deniable
from deniable.arrival import Arrival
from deniable.cli import Telemetry
from deniable.client import Client
from deniable.client.consent import oddity
from deniable.client.guard import guarded
from deniable.client.metrics import no_time
from deniable.client.people import NO_FUNCTION, Person
from deniable.client.undeclared import clipped, undeclared
from deniable.errors import ConfigurationError, ParameterError
from deniable.handle import MetricHandle
from deniable.messages.log import log
from deniable.messages.lookalike import did_you_mean
from deniable.messages.reasons import ANSWERS
from deniable.process.caller import caller
from deniable.process.clock import now
from deniable.process.surroundings import switched_off
from deniable.registry import Registry, load
from deniable.registry.metric import PER_SECOND
from deniable.stopwatch import Stopwatch, Timing
from deniable.testing.seen import Captured

__tracebackhide__ = True  # pytest shows where the app records, and not how that is captured

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from deniable.explanation import Explanation

_NO_REGISTRY = (
    "no registry is known, so nothing can be checked: set deniable_registry = metrics.toml in the ini file of pytest, or write "
    "Capture('metrics.toml'), or have the test call deniable.init; to take everything, set lenient = True of the capture"
)
_EARLY = "recorded before deniable.init, so a device drops it: call init first, where the app starts"
_HERE = "the answers are captured by a test"
_OF_THE_NETWORK = ("dsn", "settings", "state", "registry_key", "allow_http", "post")


class Capture:
    """Captures all answers that the clients of this process record while it is open.

    The app may call `deniable.init` before, meanwhile or never. It may record by the functions of ``deniable``, a
    `deniable.Client`, a handle, or for a person of `deniable.people`. While the capture is open, nothing is randomised, queued,
    kept or sent, and no thread is started. ``flush`` says what a device would have sent of all that was captured: once a period,
    and nothing after the last day of a metric. It does not look at the DSN, the budget or `sample`. An answer that a device would
    drop as ``this_period`` or ``expired`` is captured all the same. An answer before `init`, which is lost, is a fault.

    Parameters
    ----------
    registry
        A path or a loaded registry for an app that never calls `init`. Without one it cannot be checked, and each of its answers
        is a fault, unless the capture is lenient. Other answers are checked against the registry of their client.
    lenient
        Capture undeclared metrics and answers, too, and check nothing.
    needs_consent
        Drop answers as in production while the app has no consent, or if the test sets DO_NOT_TRACK. False captures them all.

    Attributes
    ----------
    faults : list of str
        Undeclared metrics and answers that were recorded, with the line of the app. Without any registry, all answers. After the
        capture also answers that came before the app called `init`, if it called it during the capture.
    without_consent : list of str
        Where the app recorded without consent, by line, so that nothing was captured. A device records nothing then, either.
    clipped : list of Captured
        Numbers beyond the range of their metric, sets of more options than their ``most``, and texts longer than their
        ``max_length``. Each is a warning of Python as well, so that pytest lists it, but not a time by ``timed``: a block may
        take any time.
    """

    def __init__(
        self, registry: str | Path | Registry | None = None, *, lenient: bool = False, needs_consent: bool = True
    ) -> None:
        self.lenient = lenient
        self.needs_consent = needs_consent
        self.faults: list[str] = []
        self.without_consent: list[str] = []
        self.clipped: list[Captured] = []
        self._off_before = self._begun = False  # as it was before the capture
        self._registry = load(registry) if isinstance(registry, str | Path) else registry
        self._taken: list[Captured] = []
        self._early: list[str] = []  # the lines of the app that recorded before `init`, if it is still called
        self._outcomes: Counter[str] = Counter()  # what a device would have done with them: sent, or why dropped
        self._reports: Counter[tuple[str, str, str]] = Counter()  # reports, by person, metric and period
        self._stand_in: Client | None = None
        self._replaced: list[tuple[Any, str, Any]] = []
        # Ids, of all registries that are known.
        self._declared: set[str] = set(self._registry.metrics) if self._registry else set()

    @property
    def answers(self) -> list[Captured]:
        """All recorded answers, in order."""
        return list(self._taken)

    def values(self, metric: str) -> list[Any]:
        """Return the recorded answers to a metric, in order.

        Parameters
        ----------
        metric
            The metric's id.

        Returns
        -------
        list
            Empty if there are none.

        Raises
        ------
        ParameterError
            If no registry that the capture knows declares the metric, unless the capture is lenient.
        """
        values = [taken.value for taken in self._taken if taken.metric == metric]
        if self._declared and metric not in self._declared and not values and not self.lenient:
            raise ParameterError(f"{metric!r} is not declared in the registry{did_you_mean(metric, sorted(self._declared))}")
        return values

    def clear(self) -> None:
        """Forget all recorded answers and all faults."""
        self._taken.clear()
        self._outcomes.clear()
        self._reports.clear()
        self.faults.clear()
        self.without_consent.clear()
        self.clipped.clear()
        self._early.clear()

    def __enter__(self) -> Self:
        self._off_before = bool(switched_off())
        before = deniable._client  # noqa: SLF001
        # Without a client the app has not called init, and perhaps never will. An earlier test may have left one, whose registry
        # is not that of this capture.
        if before is None or self._registry is not None:
            registry = self._registry or Registry("app", {})
            segments = {name: values[0] for name, values in registry.segments.items()}
            self._stand_in = Client.__new__(Client)
            _begin(Client.__init__, self._stand_in, registry=registry, consent=True, segments=segments, strict=True)
            if before is not None:
                self._stand_in._consent.setting = before._consent.setting  # noqa: SLF001
        else:
            self._note(before)
        self._begun = before is not None
        self._replace(deniable, "_client", self._stand_in or before)  # restored at the end
        self._replace_methods()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if deniable._client is not self._stand_in and not self.lenient:  # noqa: SLF001 - then `init` was called
            self.faults += [f"{line}: {_EARLY}" for line in self._early]
        while self._replaced:
            setattr(*self._replaced.pop())

    def _replace(self, owner: Any, name: str, value: Any) -> None:
        self._replaced.append((owner, name, getattr(owner, name)))
        setattr(owner, name, value)

    def _replace_methods(self) -> None:
        begin = Client.__init__

        def init(client: Client, *, strict: bool = False, **options: Any) -> None:
            needed = {name: value for name, value in options.items() if name not in _OF_THE_NETWORK}
            try:
                _begin(begin, client, strict=strict or not self.lenient, **needed)
            except ParameterError:  # a segment is missing: a fault when such a metric is recorded, as perhaps none is
                if strict or not client._metrics.off:  # noqa: SLF001
                    raise
            client.strict = strict
            self._note(client)

        def record(client: Client, metric: str, value: object) -> bool:
            return self._take(client, metric, value)

        def record_person(person: Person, metric: str, value: object) -> bool:
            return self._take(person, metric, value)

        def record_handle(handle: MetricHandle, value: object) -> bool:
            # A handle that was made before the capture holds the original method.
            return self._take(_owner(handle._record), handle._id, value)  # noqa: SLF001

        def set_consent(client: Client, consent: bool | Callable[[], bool]) -> None:  # noqa: FBT001 - as in the client
            client._consent.setting = consent  # noqa: SLF001 - nothing is sent or withdrawn during the capture

        def settled(client: Client, timeout: float = 0) -> Arrival:  # noqa: ARG001
            sent, dropped = self._outcomes["sent"], {name: number for name, number in self._outcomes.items() if name != "sent"}
            why = "; ".join(ANSWERS[reason].words() for reason in dropped)
            return Arrival(sent=sent, dropped=dropped, why=why if self._outcomes else "nothing was recorded")

        async def settled_async(client: Client, timeout: float = 0) -> Arrival:  # noqa: ARG001, ASYNC109
            return settled(client)

        self._replace(Client, "__init__", init)
        self._replace(Client, "record", record)
        self._replace(MetricHandle, "record", record_handle)
        self._replace(Client, "set_consent", set_consent)
        self._replace(Client, "flush", settled)
        self._replace(Client, "aflush", settled_async)
        self._replace(Client, "close", settled)
        self._replace(Person, "record", record_person)
        self._replace_times()
        self._replace_explain()
        self._replace_tool()

    def _replace_tool(self) -> None:
        record = Telemetry.record

        def record_if_on(telemetry: Telemetry, metric: str, value: object) -> bool:
            if why := telemetry.off:
                self._outcomes["no_consent"] += 1
                self.without_consent.append(f"{_caller()}: {telemetry._unrecorded(metric, why)}")  # noqa: SLF001 - our own
                return False
            return record(telemetry, metric, value)

        self._replace(Telemetry, "record", record_if_on)

    def _replace_explain(self) -> None:
        @guarded(lambda: None)
        def explain(client: Client, metric: str, value: object = None) -> Explanation | None:
            # The client of a capture is strict so that its faults are raised, and not what the app sees of an explanation.
            metrics = client._metrics  # noqa: SLF001
            return metrics.explain(metric, value, named=True, strict=client.strict and client is not self._stand_in)

        self._replace(Client, "explain", explain)

    def _replace_times(self) -> None:
        def record_time(client: Client, metric: str, seconds: float) -> bool:
            return self._take(client, metric, _in_unit(client, metric, seconds))

        def enter(watch: Stopwatch) -> Stopwatch:
            # A stopwatch that was made before the capture holds the original method.
            watch._blocks.append(self._timing(_owner(watch._begin), watch._metric))  # noqa: SLF001
            return watch

        self._replace(Client, "record_time", record_time)
        self._replace(Stopwatch, "__enter__", enter)

    def _timing(self, owner: Client | Person | None, metric: str) -> Timing | Exception | None:
        """Return a timing that is captured when it stops, or the error to raise then."""
        client = _client(owner)
        if client is None:
            return None
        try:
            _in_unit(client, metric, 0.0)
        except ParameterError as error:
            return error
        return _CapturedTiming(lambda seconds: self._take(owner, metric, _in_unit(client, metric, seconds), block=True))

    def _take(self, owner: Client | Person | None, metric: str, value: object, *, block: bool = False) -> bool:
        client = _client(owner)
        if client is None or (isinstance(owner, Person) and owner._is_nobody()):  # noqa: SLF001
            return False
        answer = self._consent(owner) if self.needs_consent else True
        if self.needs_consent and ((switched_off() and not self._off_before) or answer is not True):
            self._outcomes["no_consent"] += 1
            self.without_consent.append(f"{_caller()}: {ANSWERS['no_consent'].words(oddity(answer) or metric)}")
            return False
        self._note(client)
        if not self.lenient:
            try:
                if client is self._stand_in and self._registry is None:
                    raise ConfigurationError(_NO_REGISTRY)  # noqa: TRY301 - a fault as the others
                _check(client, metric, value)
            except (ParameterError, ConfigurationError) as error:
                self.faults.append(f"{_caller()}: {error}")
                raise
            self._note_clipped(client, metric, value, block=block)
        if client is self._stand_in and not self._begun:
            self._early.append(_caller())
        self._taken.append(Captured.of(client, metric, value))
        self._outcomes[self._outcome(owner, client, metric)] += 1
        return True

    def _note_clipped(self, client: Client, metric: str, value: object, *, block: bool) -> None:
        prepared = client._metrics.prepared[metric]  # noqa: SLF001
        if prepared.clipped(prepared.position(value)[0], value):
            self.clipped.append(Captured.of(client, metric, value))
            if not block:
                frame = caller()
                words = f"{metric}: {clipped(prepared.metric, value, reported=True)}"
                warnings.warn_explicit(words, UserWarning, frame.f_code.co_filename, frame.f_lineno)

    def _outcome(self, owner: Client | Person | None, client: Client, metric: str) -> str:
        prepared = client._metrics.prepared.get(metric)  # noqa: SLF001
        if prepared is None:  # of a lenient capture
            return "sent"
        moment = datetime.fromtimestamp(now(), UTC)
        if prepared.metric.expired(moment.date()):
            return "expired"
        person = str(owner._identifier) if isinstance(owner, Person) else ""  # noqa: SLF001
        report = (person, metric, prepared.occasion(moment).stratum.period)
        if self._reports[report] >= prepared.metric.per_period:
            return "this_period"
        self._reports[report] += 1
        return "sent"

    def _consent(self, owner: Client | Person | None) -> object:
        try:
            return _consent(owner)
        except ConfigurationError as error:
            self.faults.append(f"{_caller()}: {error}")
            raise

    def _note(self, client: Client | None) -> None:
        if client is not None:
            self._declared |= {*client._metrics.prepared, *client._metrics.off}  # noqa: SLF001


class _CapturedTiming(Timing):
    """A timing that is captured when it stops."""

    __slots__ = ("_take",)

    def __init__(self, take: Callable[[float], bool]) -> None:
        super().__init__()
        self._take = take

    def stop(self) -> None:
        super().stop()
        self._take(self.seconds)


def _owner(method: object) -> Client | Person | None:
    """Return the client or the person of a method; the current client for others."""
    owner = getattr(method, "__self__", None)
    return owner if isinstance(owner, Client | Person) else deniable._client  # noqa: SLF001


def _client(owner: Client | Person | None) -> Client | None:
    return owner._people._client if isinstance(owner, Person) else owner  # noqa: SLF001


def _in_unit(client: Client, metric: str, seconds: float) -> object:
    """Return a time in the unit of a metric; of an undeclared one in seconds. In strict mode another unit is an error."""
    prepared = client._metrics.prepared.get(metric)  # noqa: SLF001
    if prepared is None:
        return seconds
    if prepared.metric.unit in PER_SECOND:
        return prepared.in_unit(seconds)[0]
    if client.strict:
        raise no_time(prepared.metric)
    return seconds


def _begin(begin: Callable[..., None], client: Client, **options: Any) -> None:
    """Initialise a client that reads its registry, has no DSN and keeps nothing."""
    dsn = os.environ.pop("DENIABLE_DSN", None)
    show, warning = log.show, log.warning
    log.show = lambda: None  # type: ignore[method-assign] # that the client is off is no news here
    log.warning = lambda line, *_: None if line.startswith("deniable is off") else warning(line, *_)  # type: ignore[method-assign]
    try:
        begin(client, state=None, **options)
        if client.disabled and not switched_off() and client._metrics.prepared:  # noqa: SLF001 - it has no DSN
            client.disabled = _HERE
    finally:
        log.show, log.warning = show, warning  # type: ignore[method-assign]
        if dsn is not None:
            os.environ["DENIABLE_DSN"] = dsn


def _consent(owner: Client | Person | None) -> object:
    if isinstance(owner, Person):
        consent_of = owner._people._consent  # noqa: SLF001
        if not callable(consent_of):
            raise ConfigurationError(NO_FUNCTION)
        return consent_of(owner._identifier)  # noqa: SLF001
    consent = owner._consent.setting if owner else False  # noqa: SLF001
    return consent() if callable(consent) else consent


def _check(client: Client, metric: str, value: object) -> None:
    prepared = client._metrics.prepared.get(metric)  # noqa: SLF001
    if prepared is None:
        raise client._metrics.unknown(metric, None)  # noqa: SLF001
    _, fault = prepared.position(value)
    if isinstance(fault, ParameterError):
        error = undeclared(prepared.metric, value, fault)
        other = prepared.metric.other
        if other is None:
            raise error
        end = "" if str(error).endswith("?") else "."
        meant = "If you want that, set deniable_capture.lenient = True; then the capture keeps answers as the app gave them"
        raise ParameterError(f"{error}{end} A device reports {other!r} instead. {meant}")
    if fault is not None:
        raise fault


def _caller() -> str:
    return f"{(frame := caller()).f_code.co_filename}:{frame.f_lineno}"  # the nearest line that is not ours
