"""Chores: what a worker does beside counting, each of them from time to time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from deniable_aggregator.counting.faults import Faults

__all__ = ["Chore"]

_AGAIN_SECONDS = 60.0  # until the next try, where the store was away or full


class Chore:
    """Something to be done at once, and from time to time after.

    Parameters
    ----------
    name
        What it is called in the log, among the faults and at ``/metrics``.
    every
        Seconds between one time and the next.
    run
        What is done; true where it was a part, and there is more to do at once.
    faults
        Where its failures are noted.
    """

    def __init__(self, name: str, every: float, run: Callable[[], bool | None], faults: Faults) -> None:
        self.name = name
        self._every, self._run, self._faults = every, run, faults
        self._next = 0.0

    def do(self) -> bool:
        """Do it, if it is time to. What fails is noted, and is tried again when it is time.

        Returns
        -------
        bool
            Whether there is more to do at once.

        Raises
        ------
        StoreError
            If the store cannot be used.
        """
        now, more = time.monotonic(), False
        if now < self._next:
            return False
        self._next = now + min(self._every, _AGAIN_SECONDS)
        with self._faults.alone(self.name):
            more = bool(self._run())
        self._next = now if more else now + self._every
        return more
