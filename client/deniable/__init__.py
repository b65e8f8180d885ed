"""Telemetry that nobody can hold against the person who sent it.

The functions here use one client for the whole process. `Client` makes a client of your own.

>>> import deniable
>>> deniable.init(registry="metrics.toml", consent=True)  # doctest: +SKIP
>>> deniable.record("ui.theme", "dark")  # doctest: +SKIP
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # type checkers take it for True; importing `typing` would take longer than the rest of this module
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path
    from typing import Any

    from deniable.arrival import Arrival
    from deniable.client import Client
    from deniable.client.people import People, Person
    from deniable.device.journal import SentReport
    from deniable.errors import (
        ConfigurationError,
        DeniableError,
        ParameterError,
        PayloadError,
        RegistryError,
        ServedRegistryError,
        StateError,
    )
    from deniable.explanation import Explanation
    from deniable.handle import MetricHandle
    from deniable.registry import Registry
    from deniable.registry.tables import Budget, Caps
    from deniable.stopwatch import Stopwatch, Timing
    from deniable.transport import Exit, SenderSettings

__all__ = [
    "Arrival",
    "Budget",
    "Caps",
    "Client",
    "ConfigurationError",
    "DeniableError",
    "Explanation",
    "MetricHandle",
    "ParameterError",
    "PayloadError",
    "People",
    "Person",
    "Registry",
    "RegistryError",
    "SenderSettings",
    "SentReport",
    "ServedRegistryError",
    "StateError",
    "Stopwatch",
    "aflush",
    "close",
    "explain",
    "flush",
    "init",
    "journal",
    "metric",
    "people",
    "record",
    "set_consent",
    "stats",
    "timed",
]

__version__ = "0.1.0"

__tracebackhide__ = True  # pytest shows the line of the app

# The client is imported when an app calls `init`. An app that only catches our errors imports almost nothing.
_HOMES = {
    "Arrival": "arrival",
    "Budget": "registry.tables",
    "Caps": "registry.tables",
    "Client": "client",
    "ConfigurationError": "errors",
    "DeniableError": "errors",
    "SentReport": "device.journal",
    "Explanation": "explanation",
    "MetricHandle": "handle",
    "ParameterError": "errors",
    "People": "client.people",
    "Person": "client.people",
    "PayloadError": "errors",
    "Registry": "registry",
    "RegistryError": "errors",
    "SenderSettings": "transport",
    "ServedRegistryError": "errors",
    "StateError": "errors",
    "Stopwatch": "stopwatch",
}
"""The module of each public class, imported when it is first asked for."""

_EXIT_SECONDS = 1.0
_NO_INIT = "deniable.init was not called"

_client: Client | None = None
_early = 0  # answers that were recorded before `init`
_early_seen = False  # whether a developer has seen the line about them


def init(
    dsn: str | None = None,
    *,
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
) -> Client:
    """Start the client of this process. A second call replaces the first client. See `Client` for the parameters."""
    global _client, _early  # noqa: PLW0603 - this function sets the one client of the process
    from deniable.client import Client  # noqa: PLC0415 - slow to import, and only apps that call `init` need it
    from deniable.process.exits import at_exit  # noqa: PLC0415

    before = _client
    replaces = before is not None and before._session is not None and not before._session.closed  # noqa: SLF001 - our own
    if before is None:
        at_exit(_leave, _EXIT_SECONDS)
    else:
        before.close(0.0)
    _client = Client(
        dsn=dsn,
        registry=registry,
        consent=consent,
        segments=segments,
        settings=settings,
        caps=caps,
        state=state,
        registry_key=registry_key,
        allow_http=allow_http,
        strict=strict,
        exit=exit,
    )
    _client._counts.dropped["before_init"] += _early  # noqa: SLF001 - our own
    if _early and not _early_seen:
        _tell_early(_client)
    _early = 0
    if replaces and _client.developed:
        from deniable.messages.notice import warn_once  # noqa: PLC0415 - only a mistake needs it

        warn_once("init", "again", "this client has replaced the one of an earlier init; call init once, where the app starts")
    return _client


def people(
    dsn: str | None = None,
    *,
    registry: str | Path | Registry,
    key: str | bytes,
    store: str | Path | Any,
    consent: Callable[[Any], bool],
    **options: Any,
) -> People:
    """Record for the people who are signed in to a web app. See `People` for the parameters."""
    from deniable.client.people import People  # noqa: PLC0415 - only web apps need it

    return People(dsn, registry=registry, key=key, store=store, consent=consent, **options)


def record(metric: str, value: object) -> bool:
    """Randomise an answer and queue the report; return False before `init`. See `Client.record`."""
    try:
        return _client.record(metric, value) if _client else _drop_early()
    except BaseException:
        metric = value = None  # type: ignore[assignment] # no answer stays in the frames of an error
        raise


def metric(id_: str) -> MetricHandle:
    """Return a handle that records one metric with the current client. It may be made before `init`."""
    from deniable.handle import MetricHandle  # noqa: PLC0415 - imports no client

    return MetricHandle(record, _begin, id_)


def timed(metric: str) -> Stopwatch:
    """Return a stopwatch for a block or a function. See `Client.timed`. It may be made before `init`."""
    from deniable.stopwatch import Stopwatch  # noqa: PLC0415 - imports no client

    return Stopwatch(_begin, metric)


def _begin(metric: str) -> Timing | None:
    if _client is None:
        _drop_early()
        return None
    return _client._begin(metric)  # noqa: SLF001 - our own


def _drop_early() -> bool:
    """Say once that answers before `init` are lost: now, or at `init` if nobody can see it now."""
    global _early, _early_seen  # noqa: PLW0603 - as `_client`
    if not _early:
        try:
            _early_seen = _warn_early(_tell_early)
        except Exception:  # noqa: BLE001 - the interpreter is ending, which imports nothing any more
            _early_seen = False
    _early += 1
    return False


def _warn_early(say: Callable[[], None]) -> bool:
    """Log a call before `init`; return whether the app is run from its source, so that its developer sees the line."""
    from deniable.process.caller import tried_out  # noqa: PLC0415 - only a mistake needs it

    if sys.flags.dev_mode or tried_out():
        from deniable.messages.log import log  # noqa: PLC0415

        log.aloud(say)
        return True
    if "logging" in sys.modules:
        say()
    return False


def _tell_early(client: Client | None = None) -> None:
    from deniable.messages.notice import warn_once  # noqa: PLC0415 - only a mistake needs it
    from deniable.messages.plural import plural  # noqa: PLC0415
    from deniable.messages.reasons import ANSWERS  # noqa: PLC0415

    subject = plural(_early, "answer") if client and client.developed else "all metrics"
    warn_once(subject, "before_init", ANSWERS["before_init"].words())


def _tell_unexplained() -> None:
    from deniable.messages.notice import warn_once  # noqa: PLC0415 - only a mistake needs it

    warn_once("explain", "before_init", f"{_NO_INIT}, so nothing can be explained; call init where the app starts")


def _nothing() -> Arrival:
    from deniable.arrival import Arrival  # noqa: PLC0415 - only an app that did not call `init` needs it

    return Arrival(dropped={"before_init": _early} if _early else {}, why=_NO_INIT)


def set_consent(consent: bool | Callable[[], bool]) -> None:  # noqa: FBT001 - it reads like the setting it is
    """Start or end collection. See `Client.set_consent`."""
    if _client:
        _client.set_consent(consent)


def flush(timeout: float = 5.0) -> Arrival:
    """Send what is queued within `timeout` seconds; return what became of it. See `Client.flush`."""
    return _client.flush(timeout) if _client else _nothing()


async def aflush(timeout: float = 5.0) -> Arrival:  # noqa: ASYNC109 - as for `flush`
    """Do the same as `flush` without blocking the event loop."""
    return await _client.aflush(timeout) if _client else _nothing()


def close(timeout: float = 2.0) -> Arrival:
    """Send what is queued within `timeout` seconds and stop for good; return what became of it."""
    return _client.close(timeout) if _client else _nothing()


def _leave(timeout: float) -> None:
    if _client:
        _client._leave(timeout)  # noqa: SLF001 - our own


def stats() -> dict[str, Any]:
    """Return counts of what happened so far. See `Client.stats`."""
    return _client.stats() if _client else _no_stats()


def _no_stats() -> dict[str, Any]:
    return {
        **dict.fromkeys(
            ("recorded", "undeclared", "clipped", "repeated", "sent", "rejected", "spooled", "pending", "waiting"), 0
        ),
        **{name: {} for name in ("refusals", "faults", "reserved", "off")},
        "dropped": {"before_init": _early} if _early else {},
        "spent": dict.fromkeys(("month", "month_left", "lifetime", "lifetime_left")),
        "disabled": _NO_INIT,
        "trouble": None,
    }


def explain(metric: str, value: object = None) -> Explanation | None:
    """Explain what recording would send; return None before `init`, which is logged. See `Client.explain`."""
    try:
        if _client:
            return _client.explain(metric, value)
        _warn_early(_tell_unexplained)
        return None  # noqa: TRY300 - the frames of both ways are cleared
    except BaseException:
        metric = value = None  # type: ignore[assignment] # as above
        raise


def journal() -> list[SentReport]:
    """Return the reports that were sent, the newest first; empty before `init`. See `Client.journal`."""
    return _client.journal() if _client else []


if not TYPE_CHECKING:  # with `__getattr__`, a type checker would accept any name

    def __getattr__(name):  # noqa: ANN001, ANN202 - of PEP 562
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module  # noqa: PLC0415 - only when a name is asked for

        value = globals()[name] = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
        return value

    def __dir__():  # noqa: ANN202
        return sorted({*globals(), *__all__})
