"""Registries in use: each process says which one it has loaded, so that others can compare it with the file.

A process that ends by itself takes back what it said. One that was killed is forgotten after a minute. Times are the store's.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Literal, NamedTuple

from deniable_aggregator.store.errors import AWAY, CommandForbidden, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping

    from deniable_aggregator.store import Store

Role = Literal["server", "ingest-server", "query-server", "worker", "serve"]
"""What a process does. A server takes uploads and answers questions, or does one of both, as its name says. `deniable serve` has
the others read the file when it is edited, and its digest is that of the file."""

OFF = "off"
"""In place of a digest: the process has loaded no registry of the app, because its file cannot be used."""

EVERY_SECONDS = 15.0
"""Seconds between two signs of life."""
AGAIN_SECONDS = 3.0
"""Seconds until the next try, if the store did not take one."""
LIFE_SECONDS = 60
"""Seconds for which a sign of life is believed."""

_SLOW = 5.0  # seconds by which a sign of life may be late
_PATIENCE = 2.0  # seconds for a store that is slow, when the process ends


class Loaded(NamedTuple):
    """The registry that a process has loaded."""

    role: Role
    digest: str  # `deniable.registry.published.identity`
    process: str  # name of its machine, and its number there
    fault: str = ""  # why it did not take the file when it was edited last; empty if it did

    @classmethod
    def here(cls, role: Role, digest: str, fault: str = "") -> Loaded:
        """Return what this process says."""
        return cls(role, digest, f"{socket.gethostname()}:{os.getpid()}", fault)

    @property
    def is_server(self) -> bool:
        """Whether it is a server, of any kind."""
        return self.role.endswith("server")

    @property
    def serves(self) -> bool:
        """Whether it is a server for which the app is on."""
        return self.is_server and self.digest != OFF

    @property
    def takes_uploads(self) -> bool:
        """Whether devices can send to it."""
        return self.serves and self.role in ("server", "ingest-server")

    @property
    def answers(self) -> bool:
        """Whether people see results there."""
        return self.serves and self.role in ("server", "query-server")

    @property
    def written(self) -> str:
        """As it is stored."""
        return " ".join(self).rstrip()


def say(store: Store, loaded: Loaded) -> None:
    """Say which registry of an app this process has loaded."""
    store.script("always", "loaded")([store.registries], [loaded.written, LIFE_SECONDS])


def take_back(store: Store, loaded: Loaded) -> None:
    """Take back what was said."""
    store._client.zrem(store.registries, loaded.written)


def running(store: Store) -> list[Loaded]:
    """Return what living processes say of an app's registry, in order."""
    members: list[bytes] = store.script("believed", "running")([store.registries], [LIFE_SECONDS])
    return sorted(Loaded(*each.decode().split(" ", 3)) for each in members)  # type: ignore[arg-type] # the role is one of ours


def heard(store: Store) -> bool:
    """Return whether the store runs for so long that each living process has said something since it started."""
    up = store.script("up")([store.registries], [])
    return not 0 <= up < EVERY_SECONDS + _SLOW


def served(stores: Iterable[Store]) -> list[str]:
    """Return the names of apps that a living server serves, of those whose server of the store answers."""
    names = []
    for store in stores:
        with suppress(*AWAY):
            if any(each.serves for each in running(store)):
                names.append(store.app)
    return names


class Signs:
    """A thread that says, for each app, which registry this process has loaded, for as long as the process lives."""

    def __init__(
        self,
        role: Role,
        digests: Mapping[Store, str],  # of the registry of each app
        faults: Mapping[str, str] | None = None,  # by app, as of `Loaded`
        heard: Callable[[StoreError | None], None] = lambda _: None,  # hears after each round why a server took no sign, or None
    ) -> None:
        self._role: Role = role
        self._heard = heard
        self._loaded = self._of(digests, faults or {})
        self._past: list[tuple[Store, Loaded]] = []  # to be taken back
        self._lock, self._news, self._over = Lock(), Event(), Event()
        self._thread = Thread(target=self._run, name="signs", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def change(
        self,
        # digests, faults: as at the start
        digests: Mapping[Store, str],
        faults: Mapping[str, str] | None = None,
    ) -> None:
        """Say something else from now on."""
        with self._lock:
            self._past += self._loaded.items()
            self._loaded = self._of(digests, faults or {})
        self._news.set()

    def _of(self, digests: Mapping[Store, str], faults: Mapping[str, str]) -> dict[Store, Loaded]:
        return {store: Loaded.here(self._role, digest, faults.get(store.app, "")) for store, digest in digests.items()}

    def stop(self) -> None:
        """End, and take back what was said, as far as the store can be used."""
        self._over.set()
        self._news.set()
        self._thread.join(_PATIENCE)
        with self._lock:
            past, self._loaded = [*self._past, *self._loaded.items()], {}
        self._tell([], past)

    def _run(self) -> None:
        while not self._over.is_set():
            self._news.clear()
            with self._lock:
                past, loaded, self._past = self._past, list(self._loaded.items()), []
            error = self._tell(loaded, [each for each in past if each not in loaded])
            if self._over.is_set():
                return
            self._heard(error)
            self._news.wait(AGAIN_SECONDS if error else EVERY_SECONDS)

    def _tell(self, loaded: list[tuple[Store, Loaded]], past: list[tuple[Store, Loaded]]) -> StoreError | None:
        """Say what is loaded, and take back what was; return the last error, if a server of the store took nothing."""
        failed: StoreError | None = None
        away: set[Hashable] = set()  # servers that did not answer: none is waited for twice
        for tell, signs in ((say, loaded), (take_back, past)):
            for store, sign in signs:
                if store.place in away or (self._over.is_set() and tell is say):
                    continue
                try:
                    tell(store, sign)
                except AWAY as error:
                    away.add(store.place)
                    failed = error
                except CommandForbidden:  # `deniable doctor` says so: nothing else is wrong with the store
                    continue
                except StoreError as error:
                    failed = error
        return failed
