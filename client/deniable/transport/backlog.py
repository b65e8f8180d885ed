"""What was not delivered: kept in the spool, tried again when the server is back, purged when consent is."""

from __future__ import annotations

import logging
import time
from threading import Thread
from typing import TYPE_CHECKING

from deniable.source import jitter

if TYPE_CHECKING:
    from collections import Counter

    from deniable.transport.network import Orders
    from deniable.transport.spool import Spool
    from deniable.wire.batch import Batch

__all__ = ["Backlog"]

log = logging.getLogger("deniable")

_NEVER = float("inf")
_FIRST_PAUSE, _LAST_PAUSE = 60.0, 3600.0  # between tries while the server is away
_PURE_FOR = 60.0


class Backlog:
    """When the spool is to be looked at; a sender without a spool has one as well, that keeps nothing.

    Parameters
    ----------
    spool
        Where batches wait, or None.
    orders
        What the app wants; what is kept here is read and written under its lock.
    """

    def __init__(self, spool: Spool | None, orders: Orders) -> None:
        self._spool = spool
        self._orders = orders
        self._at = _NEVER
        self._pause = _FIRST_PAUSE
        self._purging = 0
        self._pure_until = 0.0

    @property
    def due(self) -> bool:
        """Whether a batch of the spool is to be sent now."""
        return self.left <= 0

    @property
    def left(self) -> float:
        """Seconds until one is; infinite if that depends on something else."""
        return _NEVER if self._orders.paused or self._purging or self._spool is None else self._at - time.monotonic()

    @property
    def purging(self) -> bool:
        """Whether batches are being purged."""
        return self._purging > 0

    @property
    def counts(self) -> Counter[str] | dict[str, int]:
        """What the spool lost."""
        return self._spool.counts if self._spool is not None else {}

    def touch(self) -> None:
        """Note that there may be something to purge again."""
        self._pure_until = 0.0

    def schedule(self, seconds: float) -> None:
        """Read the spool in so many seconds; immediately after a delivery, when the server is known to answer."""
        self._at = time.monotonic() + seconds
        if seconds <= 0:
            self._pause = _FIRST_PAUSE

    def stop(self) -> None:
        """Read the spool no more: the server refuses this app."""
        self._at = _NEVER

    def put_off(self) -> None:
        """Read the spool later: each time after twice as long, up to an hour."""
        seconds = 0.8 * self._pause + jitter(0.4 * self._pause)
        with self._orders.changed:
            self._at = time.monotonic() + seconds
            self._pause = min(2 * self._pause, _LAST_PAUSE)
            self._orders.changed.notify_all()

    def keep(self, batch: Batch) -> str:
        """Keep a batch that nobody took, unless nobody wants it any more; return what became of it."""
        if self._orders.purged:
            return "purged"
        if self._spool is None:
            return "undelivered"
        if not self._spool.put(batch):
            return "spool_failed"
        if self._orders.purged:  # meanwhile, and maybe before the file was there
            self._spool.purge()
        with self._orders.changed:
            self._at = min(self._at, time.monotonic() + self._pause)
        return "spooled"

    def take(self) -> Batch | None:
        """Take the oldest batch that no other process has taken, if one is due."""
        with self._orders.changed:
            self._orders.seen = self._orders.purges
            if self._spool is None or not self.due:
                return None
        batch = self._spool.take()
        if batch is None:
            with self._orders.changed:
                self._at = _NEVER
                self._orders.changed.notify_all()
        return batch

    def release(self, batch: Batch) -> None:
        """Leave a taken batch for later."""
        if self._spool is not None:
            self._spool.release(batch)

    def done(self, batch: Batch) -> None:
        """Be done with a taken batch."""
        if self._spool is not None:
            self._spool.done(batch)

    def split(self, batch: Batch) -> bool:
        """Replace a taken batch by its halves; False if the disk would not have it."""
        kept = [self._spool is not None and self._spool.put(half) for half in batch.halves()]
        self.done(batch)
        return all(kept)

    def purge(self, timeout: float) -> None:
        """Remove what is spooled; wait for that no longer than `timeout` seconds, however slow the disk."""
        with self._orders.changed:
            if self._spool is None or time.monotonic() < self._pure_until:
                return
            self._pure_until = time.monotonic() + _PURE_FOR
            self._purging += 1
        # Not in the sending thread: an app without consent may have none, and needs none.
        thread = Thread(target=self._purge, name="deniable-purge", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the interpreter ends
            self._purge()
        else:
            thread.join(timeout)

    def _purge(self) -> None:
        try:
            if self._spool is not None:
                self._spool.purge()
        except Exception as error:  # noqa: BLE001 - the host app must never notice
            log.warning("deniable: the spool was not purged: %s", type(error).__name__)
        with self._orders.changed:
            self._purging -= 1
            self._orders.changed.notify_all()
