"""The pulse of an app: which workers live, how much waits and for how long.

Times are the store's, so the clocks of machines may say what they like. A worker lives while it goes on giving signs of life, so
the store's clock may be set, too.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from deniable_aggregator.store import GROUP

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deniable_aggregator.store import Store

__all__ = ["BEAT_SECONDS", "LIFE_SECONDS", "Pulse", "Signs", "beat", "feel", "stop"]

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
        Seconds for which any of them may have waited, whether it is in a worker's hands or not. Where the store's clock was set
        back, at least those since then. None if no worker ever came, or none since the clock was set back. It is 0 where nothing
        waits, and else tells little below twice `BEAT_SECONDS`.
    dead
        Batches put aside because they could not be counted.
    workers
        Workers that gave a sign of life within `LIFE_SECONDS`.
    known
        Whether all that was taken before is counted, and the lag so no less than any batch has waited.
    """

    backlog: int
    pending: int
    lag: float | None
    dead: int
    workers: int
    known: bool = True


class Signs:
    """Signs of life of the workers of an app, by the clock of this process, which nobody sets.

    Parameters
    ----------
    store
        The app's.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._seen: dict[str, tuple[float | None, float]] = {}

    def silent(self, workers: Sequence[str], seconds: float) -> list[str]:
        """Return those of some workers that have given no sign of life for some seconds.

        Parameters
        ----------
        workers
            Their names. Of one that was not among those of the last call the time begins now.
        seconds
            Longer than `BEAT_SECONDS`.
        """
        beats = self._store._client.zmscore(self._store.workers, list(workers)) if workers else []
        now, before = time.monotonic(), self._seen
        self._seen = {}
        for worker, beaten in zip(workers, beats, strict=True):
            last, since = before.get(worker, (beaten, now))
            self._seen[worker] = (beaten, since if beaten == last else now)
        return [worker for worker, (_, since) in self._seen.items() if now - since >= seconds]


def beat(store: Store, worker: str) -> None:
    """Tell that a worker lives, and have the store note up to when everything is counted.

    Parameters
    ----------
    store
        An app that it counts for.
    worker
        Its name.
    """
    store.script("beat")([store.stream, store.workers, store.caught], [worker, LIFE_SECONDS])


def stop(store: Store, worker: str) -> None:
    """Tell that a worker has gone."""
    store._client.zrem(store.workers, worker)


def feel(store: Store) -> Pulse:
    """Look at an app, in one go and without reading any report."""
    keys = [store.stream, store.dead, store.workers, store.caught]
    backlog, pending, lag, dead, workers, known = store.script("look")(keys, [GROUP, LIFE_SECONDS])
    return Pulse(backlog, pending, lag / 1000 if lag >= 0 else None, dead, workers, bool(known))
