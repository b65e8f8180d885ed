"""The simulated devices of ``deniable demo``. Their processes import this module, so it needs no more than the SDK."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from deniable import Budget, Caps, Client, registry
from deniable.errors import ConfigurationError
from deniable.exact.epsilon import MAX_EPSILON
from deniable.transport import SenderSettings

if TYPE_CHECKING:
    from deniable_server.local.population import Answer

__all__ = ["answer"]


def answer(dsn: str, registry_path: str, names: list[str], rows: list[tuple[Answer, ...]]) -> None:
    """Record the answers of some devices, and send them.

    Parameters
    ----------
    dsn, registry_path
        Of the app.
    names
        The metrics.
    rows
        The answers to these, one row for each device.

    Raises
    ------
    ConfigurationError
        If not every report was accepted.
    """
    for name in ("DO_NOT_TRACK", "DENIABLE_DISABLED"):  # the simulated people are not this user
        os.environ.pop(name, None)
    settings = SenderSettings(flush_at=500, queue_size=len(rows) * len(names) + 1)
    # One process records for many devices, which the SDK treats as one: so it may answer as often, without a budget or a state.
    caps = Caps(epsilon=MAX_EPSILON, permanent=MAX_EPSILON, budget=Budget(per_window=None, lifetime=None))
    loaded = registry.load(registry_path)
    of_all = replace(loaded, metrics={id_: replace(metric, per_period=len(rows)) for id_, metric in loaded.metrics.items()})
    with Client(dsn=dsn, registry=of_all, consent=True, settings=settings, caps=caps, state=None, strict=True) as client:
        for row in rows:
            for name, value in zip(names, row, strict=True):
                client.record(name, value)
        client.flush(60.0)
        stats = client.stats()
    if stats["sent"] != len(rows) * len(names):
        raise ConfigurationError(f"not every report was accepted: {stats}")
