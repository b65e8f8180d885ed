"""The simulated devices of ``deniable demo``. Their processes import this module, so it needs no more than the SDK."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from deniable import Budget, Caps, Client, registry
from deniable.errors import ConfigurationError
from deniable.exact.epsilon import MAX_EPSILON
from deniable.messages.log import log
from deniable.transport import SenderSettings

if TYPE_CHECKING:
    from deniable_server.local.population import Answer

_DAY = 86_400
_UNLIMITED = Caps(epsilon=MAX_EPSILON, permanent=MAX_EPSILON, budget=Budget(per_month=None, lifetime=None))


def answer(
    # dsn, registry_path: of the app
    dsn: str,
    registry_path: str,
    names: list[str],  # the metrics
    rows: list[tuple[Answer, ...]],  # the answers to these, one row for each device
    moment: float | None = None,  # when they answer, in seconds since 1970; None for now
) -> None:
    """Record the answers of devices, and send them; raise ConfigurationError unless every report was accepted."""
    _forget_this_user()
    settings = SenderSettings(flush_at=500, queue_size=len(rows) * len(names) + 1)
    # One process records for many devices, which the SDK treats as one: so it may answer as often, without a budget or a state.
    # Twice as often: what a lease is renewed with cannot be used until it is added, and none is to be dropped for that.
    loaded, most = registry.load(registry_path), 2 * len(rows)
    of_all = replace(loaded, budget=None, metrics={name: replace(loaded.metrics[name], per_period=most) for name in names})
    clock = time.time if moment is None else _Clock(moment)
    with Client(
        dsn=dsn, registry=of_all, consent=True, settings=settings, caps=_UNLIMITED, state=None, strict=True, clock=clock
    ) as client:
        log.hide()  # what real data has beyond a range is no mistake of the demo's user
        for row in rows:
            for name, value in zip(names, row, strict=True):
                client.record(name, value)
        client.flush(60.0)
        stats = client.stats()
    if stats["sent"] != len(rows) * len(names):
        raise ConfigurationError(f"not every report was accepted: {stats}")


def answer_daily(
    # dsn, registry_path: of the app
    dsn: str,
    registry_path: str,
    name: str,  # the metric
    rows: list[tuple[int, ...]],  # one row for each device, with an answer for each day
) -> None:
    """Record the answers that devices give each day, and send them; raise ConfigurationError unless all were accepted."""
    # Each device has a client of its own, because it keeps a permanent response. Its clock goes from day to day, to today.
    _forget_this_user()
    loaded, today = registry.load(registry_path), time.time()
    loaded = replace(loaded, budget=None, metrics={name: loaded.metrics[name]})
    for row in rows:
        days = [today - _DAY * ago for ago in reversed(range(len(row)))]
        clock = _Clock(today)
        with Client(dsn=dsn, registry=loaded, consent=True, caps=_UNLIMITED, state=None, strict=True, clock=clock) as client:
            for clock.now, value in zip(days, row, strict=True):
                client.record(name, value)
            client.flush(60.0)
            stats = client.stats()
        if stats["sent"] != len(row):
            raise ConfigurationError(f"not every report was accepted: {stats}")


class _Clock:
    """A clock that stands until it is set."""

    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def _forget_this_user() -> None:
    """Forget whether this user opted out: the simulated people have not."""
    for name in ("DO_NOT_TRACK", "DENIABLE_DISABLED"):
        os.environ.pop(name, None)
