"""The pulse of an app: which workers live, how much waits and for how long."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deniable_aggregator.store import Store

__all__ = ["BEAT_SECONDS", "LIFE_SECONDS", "Pulse", "beat", "feel", "stop"]

BEAT_SECONDS = 5.0
LIFE_SECONDS = 60
"""For which a worker is believed to live without a beat."""


@dataclass(frozen=True, slots=True)
class Pulse:
    """What waits, and who works on it.

    Parameters
    ----------
    backlog
        Batches taken and not counted yet.
    pending
        Those of them that a worker has in hand.
    lag
        Seconds for which any of them may have waited: since the workers last had all in hand, or since the first was handed
        out. None if no worker ever came. It is 0 where nothing waits, and else tells little below `BEAT_SECONDS`.
    dead
        Batches put aside because they could not be counted.
    workers
        Workers that gave a sign of life within `LIFE_SECONDS`.
    """

    backlog: int
    pending: int
    lag: float | None
    dead: int
    workers: int


def beat(store: Store, worker: str, now: float, caught: float) -> None:
    """Tell that a worker lives.

    Parameters
    ----------
    store
        An app that it counts for.
    worker
        Its name.
    now
        Unix time in seconds.
    caught
        When it last had read all that there was; 0 for never.
    """
    pipeline = store.redis.pipeline(transaction=False)
    pipeline.zadd(store.workers, {worker: now})
    pipeline.zremrangebyscore(store.workers, "-inf", now - LIFE_SECONDS)
    pipeline.expire(store.workers, LIFE_SECONDS)
    if caught:
        pipeline.set(store.caught, f"{caught:.3f}")
    pipeline.execute()


def stop(store: Store, worker: str) -> None:
    """Tell that a worker has gone."""
    store.redis.zrem(store.workers, worker)


def feel(store: Store) -> Pulse:
    """Look at an app, in one go and without reading any report."""
    backlog, pending, lag, dead, workers = store.look(LIFE_SECONDS)
    return Pulse(backlog, pending, lag / 1000 if lag >= 0 else None, dead, workers)
