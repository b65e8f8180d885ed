"""The state of an app's pipeline: its workers, how much waits for how long, and what holds counting up.

Times are the store's, so clocks of other machines do not matter. A worker counts as alive as long as it sends signs of life, so
the store's clock may be set.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from deniable_aggregator.store.uploads.partition import GROUP

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deniable_aggregator.store import Store
    from deniable_aggregator.store.uploads.partition import Partition

BEAT_SECONDS = 5.0
LIFE_SECONDS = 60
"""Seconds without a beat for which a worker counts as alive."""
ARCHIVE, MEMORY = "archive", "memory"
HOLD_UP = (ARCHIVE, MEMORY)
"""Faults that hold counting up: the archive cannot be written; the store has no room."""


@dataclass(frozen=True, slots=True)
class Health:
    """What waits to be counted, and which workers live."""

    backlog: int  # batches accepted and not counted yet
    pending: int  # those of them that a worker has in hand
    # Upper bound on the seconds that any batch has waited, pending or not. If the store's clock was set back, seconds since then
    # at least. None before the first worker, or before the first one after the clock was set back. It is 0 if nothing waits.
    # Otherwise values below about twice `BEAT_SECONDS` are not exact.
    lag: float | None
    dead: int  # batches put aside because they could not be counted
    workers: int  # workers that gave a sign of life within `LIFE_SECONDS`
    known: bool = True  # whether everything accepted before is counted, so that the lag is no less than the wait of any batch
    # What holds counting up, in some worker: `ARCHIVE`, `MEMORY`, or both, each with the kind of error. Empty if no worker
    # lives: what a dead one noted may have passed.
    held_up: dict[str, str] = field(default_factory=dict)


class Signs:
    """Signs of life of a partition's workers, timed by a monotonic clock of this process."""

    def __init__(
        self,
        partition: Partition,  # of an app
    ) -> None:
        self._partition = partition
        self._seen: dict[str, tuple[float | None, float]] = {}

    def silent(
        self,
        workers: Sequence[str],  # Their names. For a name that was not in the last call, the time begins now.
        seconds: float,  # longer than `BEAT_SECONDS`
    ) -> list[str]:
        """Return the workers that gave no sign of life for some seconds."""
        partition = self._partition
        # A worker is silent if its sign of life has not changed for so long by this process's monotonic clock. The sign itself is
        # a time of the store's clock, which may be set.
        beats = partition._client.zmscore(partition.workers, list(workers)) if workers else []
        now, before = time.monotonic(), self._seen
        self._seen = {}
        for worker, beaten in zip(workers, beats, strict=True):
            last, since = before.get(worker, (beaten, now))
            self._seen[worker] = (beaten, since if beaten == last else now)
        return [worker for worker, (_, since) in self._seen.items() if now - since >= seconds]


def beat(
    partition: Partition,  # one that it counts for
    worker: str,  # its name
) -> None:
    """Record that a worker lives, and up to when everything is counted."""
    partition.script("always", "beat")([partition.stream, partition.workers, partition.caught], [worker, LIFE_SECONDS])


def stop(partition: Partition, worker: str) -> None:
    """Record that a worker of a partition has ended."""
    partition._client.zrem(partition.workers, worker)


def read(store: Store) -> Health:
    """Read the state of an app: one call for each partition and one for the faults, without reading any report."""
    parts = [_of(partition) for partition in store.partitions]
    workers = min(part.workers for part in parts)  # each of them counts for all partitions
    kinds = store.faults.glance(HOLD_UP) if workers else [None] * len(HOLD_UP)
    lags = [part.lag for part in parts]
    return Health(
        backlog=sum(part.backlog for part in parts),
        pending=sum(part.pending for part in parts),
        lag=None if None in lags else max(cast("list[float]", lags)),
        dead=sum(part.dead for part in parts),
        workers=workers,
        known=all(part.known for part in parts),
        held_up={name: kind.decode() for name, kind in zip(HOLD_UP, kinds, strict=True) if kind},
    )


def _of(partition: Partition) -> Health:
    keys = [partition.stream, partition.dead, partition.workers, partition.caught]
    backlog, pending, lag, dead, workers, known = partition.script("believed", "look")(keys, [GROUP, LIFE_SECONDS])
    return Health(backlog, pending, lag / 1000 if lag >= 0 else None, dead, workers, bool(known))
