"""Chores: the regular tasks of a worker beside counting."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from deniable_aggregator.counting.pauses import Pauses
from deniable_aggregator.store.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from threading import Event

    from deniable_aggregator.counting.events import Events
    from deniable_aggregator.counting.faults import Faults

_LOOK_SECONDS = 0.5  # between looks what is due
_AGAIN_SECONDS = 60.0  # until the next try, if the store could not be used


class Chore:
    """A regular task, done at the start and then at intervals."""

    def __init__(
        self,
        name: str,  # its name in the log, among the faults and at `/metrics`
        every: float,  # seconds between two runs
        run: Callable[[], bool | None],  # the task; it returns True if there is more to do at once
        faults: Faults,  # where its failures are recorded
    ) -> None:
        self.name, self.app = name, faults.app
        self._every, self._run, self._faults = every, run, faults
        self._next = 0.0

    def do(self) -> bool:
        """Run it, if it is due; return whether there is more to do at once. StoreError if the store cannot be used."""
        now, more = time.monotonic(), False
        if now < self._next:
            return False
        # `alone` lets only errors of the store pass. Then the next try is in a minute at the latest.
        self._next = now + min(self._every, _AGAIN_SECONDS)
        with self._faults.alone(self.name):
            more = bool(self._run())
        self._next = now if more else now + self._every
        return more


def run(
    chores: Sequence[Chore],
    events: Events,  # hears of a store that cannot be used
    tell: Callable[[StoreError], None],  # says so
    stop: Event,
    barred: Callable[[], bool],  # whether the store's user may not do what a worker does: then no chore is tried
) -> None:
    """Do chores when they are due, until stopped."""
    pauses = Pauses()
    while not stop.is_set():
        more = False
        for chore in () if barred() else chores:
            if stop.is_set():
                return
            try:
                more |= chore.do()
                pauses.end()
            except StoreError as error:
                tell(error)
                events.failed()
                pauses.take(stop)
        if not more:
            stop.wait(_LOOK_SECONDS)
