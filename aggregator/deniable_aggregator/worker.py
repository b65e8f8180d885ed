"""The worker: reads batches from the stream, counts them, and commits the sums, each report exactly once.

It knows no mechanism: an entry says the layout of its reports, and two kernels count every layout. Whatever dies when, an
entry is either still in the stream or counted, never both: the commit checks that the entries are still this worker's, adds
the sums and deletes the entries, in one script.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast
from uuid import uuid4

import redis

from deniable.errors import PayloadError
from deniable_aggregator import batch, tally
from deniable_aggregator.store import GROUP, Entry, Store

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from threading import Event

    import numpy as np
    from numpy.typing import NDArray

    from deniable.layout import Layout
    from deniable.report import Stratum

__all__ = ["Worker", "WorkerSettings"]

log = logging.getLogger("deniable.worker")

_TRANSIENT = (redis.ConnectionError, redis.TimeoutError, redis.OutOfMemoryError, redis.ReadOnlyError)
"""Away, full, or failing over: the entries in hand are kept until the store takes them."""


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """How a worker reads.

    Parameters
    ----------
    batch
        Entries read, and committed, at once.
    block_ms
        Milliseconds to wait for an entry; shorter than the socket timeout.
    min_idle_ms
        Milliseconds after which another worker's entries are taken over.
    claim_every
        Seconds between looks for such entries.
    max_deliveries
        Deliveries after which an entry that never gets counted is put aside.
    """

    batch: int = 100
    block_ms: int = 2000
    min_idle_ms: int = 60_000
    claim_every: float = 30.0
    max_deliveries: int = 5


class Worker:
    """Counts the reports of some apps.

    Parameters
    ----------
    stores
        One for each app, of one Redis.
    settings
        How to read.
    """

    def __init__(self, stores: Sequence[Store], settings: WorkerSettings | None = None) -> None:
        self._stores = {store.stream: store for store in stores}
        self._redis = stores[0].redis
        self._settings = settings or WorkerSettings()
        self._claim_at = 0.0
        self.consumer = f"{socket.gethostname()}:{os.getpid()}:{uuid4().hex[:8]}"
        self.counted = 0
        self.buried = 0

    def run(self, stop: Event, *, burst: bool = False) -> None:
        """Count until told to stop, then leave.

        Parameters
        ----------
        stop
            When set, the entries in hand are committed and nothing more is read.
        burst
            Return as soon as the stream is empty.
        """
        joined = False
        pause = 0.1
        while not stop.is_set():
            try:
                if not joined:
                    for store in self._stores.values():
                        store.join()
                    joined = True
                entries = self._claim() or self._read(block=not burst)
                for stream, read in entries.items():
                    self._settle(self._stores[stream], read, stop)
                pause = 0.1
                if burst and not entries:
                    break
            except redis.RedisError as error:
                # Redis is away or was emptied: nothing is lost, entries that were handed out are claimed again later.
                log.warning("the store cannot be used (%s); trying again in %.1f s", type(error).__name__, pause)
                joined = False
                stop.wait(pause)
                pause = min(2 * pause, 5.0)
        try:
            for store in self._stores.values():
                store.leave(self.consumer)
        except redis.RedisError as error:
            log.warning("left without telling the store (%s)", type(error).__name__)

    def _read(self, *, block: bool) -> dict[str, list[Entry]]:
        reply = self._redis.xreadgroup(
            GROUP,
            self.consumer,
            dict.fromkeys(self._stores, ">"),
            count=self._settings.batch,
            block=self._settings.block_ms if block else None,
        )
        return {stream.decode(): _entries(read) for stream, read in cast("list[Any]", reply)}

    def _claim(self) -> dict[str, list[Entry]]:
        """Take over entries whose worker has died, now and then; put aside those that were taken over too often."""
        if time.monotonic() < self._claim_at:
            return {}
        claimed: dict[str, list[Entry]] = {}
        for store in self._stores.values():
            _, read, *_ = cast(
                "tuple[bytes, list[Any]]",
                self._redis.xautoclaim(
                    store.stream, GROUP, self.consumer, self._settings.min_idle_ms, "0-0", count=self._settings.batch
                ),
            )
            entries = [entry for entry in _entries(read) if not self._given_up(store, entry)]
            if entries:
                claimed[store.stream] = entries
        if not claimed:  # else there may be more to claim, at once
            self._claim_at = time.monotonic() + self._settings.claim_every
        return claimed

    def _given_up(self, store: Store, entry: Entry) -> bool:
        pending = cast(
            "list[dict[str, Any]]", self._redis.xpending_range(store.stream, GROUP, entry.id, entry.id, 1, self.consumer)
        )
        if pending and pending[0]["times_delivered"] > self._settings.max_deliveries:
            self._bury(store, entry, f"delivered more than {self._settings.max_deliveries} times")
            return True
        return False

    def _settle(self, store: Store, entries: list[Entry], stop: Event) -> None:
        """Count and commit entries; those that another worker has taken over meanwhile are left to it."""
        groups: dict[bytes, list[batch.Group]] = {}
        for entry in entries:
            try:
                groups[entry.id] = _groups(entry)
            except PayloadError as error:
                self._bury(store, entry, f"{error.code}: {error}")
        while groups:
            try:
                deltas = _count(groups.values())
            except PayloadError:  # the ingest lets none through, so look for it only now
                for id_ in [id_ for id_, groups_ in groups.items() if not _countable(groups_)]:
                    del groups[id_]
                    self._bury(store, Entry(id_, None), "payload: none that a device could have sent")
                continue
            stale = self._commit(store, list(groups), deltas, stop)
            if not stale:
                reports = sum(group.reports for groups_ in groups.values() for group in groups_)
                self.counted += reports
                log.debug("counted %d reports of %d batches for %s", reports, len(groups), store.app)
                return
            log.warning("%d batches were taken over by another worker", len(stale))
            for id_ in stale:
                del groups[id_]

    def _commit(self, store: Store, ids: list[bytes], deltas: dict[Stratum, NDArray[np.int64]], stop: Event) -> list[bytes]:
        pause = 0.1
        while True:
            try:
                return store.commit(self.consumer, ids, deltas, int(time.time()))
            except _TRANSIENT as error:
                # Whether it went through may not be known, but it can be sent again: if it did, the entries are stale.
                log.warning("a commit waits for the store (%s)", type(error).__name__)
                if stop.wait(pause):
                    raise
                pause = min(2 * pause, 5.0)

    def _bury(self, store: Store, entry: Entry, reason: str) -> None:
        if store.bury(self.consumer, entry.id, reason):
            self.buried += 1
            log.error("a batch of %s was put aside: %s", store.app, reason)


def _entries(read: Iterable[tuple[bytes, dict[bytes, bytes] | None]]) -> list[Entry]:
    return [Entry(id_, (fields or {}).get(b"d")) for id_, fields in read]


def _groups(entry: Entry) -> list[batch.Group]:
    if entry.body is None:
        raise PayloadError("entry", "the entry was deleted while it was pending")
    return batch.decode(entry.body)


def _countable(groups: list[batch.Group]) -> bool:
    try:
        _count([groups])
    except PayloadError:
        return False
    return True


def _count(batches: Iterable[list[batch.Group]]) -> dict[Stratum, NDArray[np.int64]]:
    payloads: dict[tuple[Stratum, Layout], list[bytes]] = defaultdict(list)
    for groups in batches:
        for group in groups:
            payloads[group.stratum, group.layout].append(group.payloads)
    return {stratum: tally.count(layout, b"".join(parts)).cells for (stratum, layout), parts in payloads.items()}
