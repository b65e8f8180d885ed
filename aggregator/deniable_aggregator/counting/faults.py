"""Faults: a failure of a chore, or of one metric in it, stops no other one, and is recorded until it passes.

Only an unavailable, full or switching store stops everything, because nothing works without it. Other processes read the record:
the present faults, such as ``publisher of ui.theme@1``, with the kind of error.
"""

from __future__ import annotations

import logging
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from deniable_aggregator.archive.errors import ArchiveError
from deniable_aggregator.counting.events import Events
from deniable_aggregator.store.errors import CommandRefused, NoRoom, transient
from deniable_aggregator.store.outage import Outage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deniable_aggregator.store import Store

log = logging.getLogger("deniable.worker")

_LIFE = 7200  # seconds after the last failure of an app for which faults are noted: chores come round within an hour
_FRESH = 60.0  # seconds after which the record is read again, since other workers write it, too


class Faults:
    """Isolates failures in chores of an app, and records them in its store until they pass, in any worker."""

    def __init__(
        self,
        store: Store,  # the app's
        events: Events | None = None,  # hears of each failure
        outage: Outage | None = None,  # says seldom that the store has no room
    ) -> None:
        self.app = store.app
        self._store, self._events, self._outage = store, events or Events(), outage or Outage()
        self._noted: set[str] = set()
        self._until = 0.0

    @contextmanager
    def alone(
        self,
        chore: str,  # name of the chore
        about: str = "",  # what it works on, such as a metric
    ) -> Iterator[None]:
        """Log and record a failure in this block, so that it does not end the caller. StoreError if the store cannot be used."""
        name = f"{chore} of {about}" if about else chore
        try:
            yield
        except Exception as error:
            if transient(error):
                raise
            self._events.faulted(chore)
            self._note(name, error)
        else:
            self._passed(name)

    def _note(self, name: str, error: Exception) -> None:
        """Record a failure."""
        kind = _kind(error)
        if isinstance(error, NoRoom):  # it fails with every other one, and again and again
            self._outage.failed(self._store.place, error, self.app)
        else:
            log.error("%s failed (%s) for %s", name, kind, self.app, extra={"app": self.app})
        with suppress(CommandRefused):  # a record that the store refuses must not stop the next metric
            self._store.faults.put({name: kind})
            self._store.faults.expire(_LIFE)
        self._noted.add(name)

    def _passed(self, name: str) -> None:
        """Remove a fault from the record, if it stands there."""
        with suppress(CommandRefused):
            if time.monotonic() >= self._until:
                self._noted = set(present(self._store))
                self._until = time.monotonic() + _FRESH
            if name in self._noted:
                self._store.faults.drop(name)
                self._noted.discard(name)


def _kind(error: Exception) -> str:
    """Return the type of an error, as its text may contain counts; of an error of the archive the text, which contains none."""
    return (isinstance(error, ArchiveError) and str(error)) or type(error).__name__


def present(store: Store) -> dict[str, str]:
    """Return the present faults of an app: the kind of error, by chore and what it works on."""
    return {name.decode(): error.decode() for name, error in sorted(store.faults.all().items())}
