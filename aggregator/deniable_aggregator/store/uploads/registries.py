"""Registries in use: each process says which one it has loaded, so that others can compare it with the file.

A process that ends by itself takes back what it said. One that was killed is forgotten after a minute. Times are the store's.
"""

from __future__ import annotations

import os
import socket
from threading import Event, Thread
from typing import TYPE_CHECKING, Literal, NamedTuple

from deniable_aggregator.store.errors import AWAY, StoreError

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from deniable_aggregator.store import Store

Role = Literal["server", "worker", "file"]
"""What a process does. ``file`` is of `deniable serve`: the file as it is now, where that has faults and is not served."""

EVERY_SECONDS = 15.0
"""Seconds between two signs of life."""
LIFE_SECONDS = 60
"""Seconds for which a sign of life is believed."""

_PATIENCE = 2.0  # seconds for a store that is slow, when the process ends


class Loaded(NamedTuple):
    """The registry that a process has loaded."""

    role: Role
    digest: str  # `deniable.registry.published.identity`
    process: str  # name of its machine, and its number there

    @classmethod
    def here(cls, role: Role, digest: str) -> Loaded:
        """Return what this process says."""
        return cls(role, digest, f"{socket.gethostname()}:{os.getpid()}")


def say(store: Store, loaded: Loaded) -> None:
    """Say which registry of an app this process has loaded."""
    store.script("loaded")([store.registries], [" ".join(loaded), LIFE_SECONDS])


def take_back(store: Store, loaded: Loaded) -> None:
    """Take back what was said."""
    store._client.zrem(store.registries, " ".join(loaded))


def running(store: Store) -> list[Loaded]:
    """Return what living processes say of an app's registry, in order."""
    members: list[bytes] = store.script("running")([store.registries], [LIFE_SECONDS])
    return sorted(Loaded(*each.decode().split(" ", 2)) for each in members)  # type: ignore[arg-type] # the role is one of ours


class Signs:
    """A thread that says, for each app, which registry this process has loaded, for as long as the process lives."""

    def __init__(
        self,
        role: Role,
        digests: Mapping[Store, str],  # of the registry of each app
    ) -> None:
        self._loaded = {store: Loaded.here(role, digest) for store, digest in digests.items()}
        self._over = Event()
        self._thread = Thread(target=self._run, name="signs", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End, and take back what was said, as far as the store can be used."""
        self._over.set()
        self._thread.join(_PATIENCE)
        self._of_each(take=True)

    def _run(self) -> None:
        while not self._over.is_set():
            self._of_each()
            self._over.wait(EVERY_SECONDS)

    def _of_each(self, *, take: bool = False) -> None:
        away: set[Hashable] = set()  # servers that did not answer: none is waited for twice
        for store, loaded in self._loaded.items():
            if store.place in away or (self._over.is_set() and not take):
                continue
            try:
                (take_back if take else say)(store, loaded)
            except AWAY:
                away.add(store.place)
            except StoreError:  # a full store, or a user without this right: `deniable doctor` says so
                continue
