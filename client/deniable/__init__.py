"""Telemetry that nobody can hold against the person who sent it.

The functions here drive one client for the whole process; `Client` is for those who want their own.

>>> import deniable
>>> deniable.init(registry="metrics.toml", consent=True)  # doctest: +SKIP
>>> deniable.record("ui.theme", "dark")  # doctest: +SKIP
"""

from __future__ import annotations

import atexit
from typing import TYPE_CHECKING, Any

from deniable.client import Client, MetricHandle
from deniable.errors import ConfigurationError, DeniableError, ParameterError, PayloadError, RegistryError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from deniable.explain import Explanation
    from deniable.registry import Registry

__all__ = [
    "Client",
    "ConfigurationError",
    "DeniableError",
    "MetricHandle",
    "ParameterError",
    "PayloadError",
    "RegistryError",
    "close",
    "explain",
    "flush",
    "init",
    "metric",
    "record",
    "set_consent",
    "stats",
]

__version__ = "0.1.0"

_EXIT_SECONDS = 1.0

_client: Client | None = None


def init(
    dsn: str | None = None,
    *,
    registry: str | Path | Registry,
    consent: bool | Callable[[], bool],
    segments: Mapping[str, str] | None = None,
    strict: bool = False,
) -> Client:
    """Start the process's client; a second call replaces the first. See `Client` for the parameters."""
    global _client  # noqa: PLW0603 - one client for the process is what this function is for
    if _client is None:
        atexit.register(close, _EXIT_SECONDS)
    else:
        _client.close(0.0)
    _client = Client(dsn=dsn, registry=registry, consent=consent, segments=segments, strict=strict)
    return _client


def record(metric: str, value: object) -> bool:
    """Randomise an answer and queue the result; False before `init`. See `Client.record`."""
    return _client.record(metric, value) if _client else False


def metric(id_: str) -> MetricHandle:
    """Return a handle that records one metric with whatever client is current; it may be made before `init`."""
    return MetricHandle(record, id_)


def set_consent(consent: bool | Callable[[], bool]) -> None:  # noqa: FBT001 - it reads like the setting it is
    """Begin or end collection. See `Client.set_consent`."""
    if _client:
        _client.set_consent(consent)


def flush(timeout: float = 5.0) -> bool:
    """Send what is queued; return whether it was all settled within `timeout` seconds."""
    return _client.flush(timeout) if _client else True


def close(timeout: float = 2.0) -> bool:
    """Send what is queued within `timeout` seconds and stop for good."""
    return _client.close(timeout) if _client else True


def stats() -> dict[str, Any]:
    """Count what happened so far. See `Client.stats`."""
    return _client.stats() if _client else {"disabled": "deniable.init was not called"}


def explain(metric: str, value: object = None) -> Explanation:
    """Explain what recording would send. See `Client.explain`.

    Raises
    ------
    ConfigurationError
        Before `init`.
    """
    if _client is None:
        raise ConfigurationError("call deniable.init before deniable.explain")
    return _client.explain(metric, value)
