"""Durability: what an answered upload survives, and whether the store's settings keep this promise.

``memory``
    The store may lose everything when it ends.
``everysec``
    The store writes at once, and syncs within a second or two. Its process may be killed; its machine may lose that much.
``always``
    An answered upload is on disk. It is lost only with the disk.
``replicated``
    As ``everysec``, and each replica that could become the primary has it, too. Any of their machines may be lost.
"""

from __future__ import annotations

import logging
import time
from functools import cache
from typing import TYPE_CHECKING, Final, Literal, get_args

import redis

from deniable.errors import ConfigurationError
from deniable_aggregator.process.logs import OF_PROCESS
from deniable_aggregator.store.errors import PromiseBroken, StoreLoading
from deniable_aggregator.store.server import about
from deniable_aggregator.store.server.replicas import NUMBER, TIMEOUT, Replicas
from deniable_aggregator.store.server.servers import primaries

if TYPE_CHECKING:
    from collections.abc import Mapping

Name = Literal["memory", "everysec", "always", "replicated"]
NAMES: Final[tuple[Name, ...]] = get_args(Name)

log = logging.getLogger("deniable.store")

_ASKED = ("maxmemory-policy", "appendonly", "appendfsync")
_FSYNC = {"everysec": ("everysec", "always"), "always": ("always",), "replicated": ("everysec", "always")}
_SECONDS = 60.0  # for which a check is valid: somebody may change the settings while the store runs


class Durability:
    """A promise, and the settings of the store that must keep it."""

    def __init__(
        self,
        name: Name = "everysec",  # the level
        replicas: int = NUMBER,  # how many replicas each primary has, if the level is `replicated`
        timeout: float = TIMEOUT,  # seconds after which one of them that was away cannot be elected
    ) -> None:
        if name not in NAMES:
            raise ConfigurationError(f"durability = {name!r}: write {', '.join(NAMES[:-1])} or {NAMES[-1]}")
        self.name = name
        self.replicas = Replicas(replicas, timeout) if name == "replicated" else None
        """Those that must have an upload before it is answered."""
        self._good_until: dict[redis.Redis, float] = {}  # by server

    def ensure(
        self,
        client: redis.Redis,  # the server
        *,
        anew: bool = False,  # whether the server was started since the last check
    ) -> None:
        """Check a server of the store, at most once a minute; raise an error if it does not keep the promise."""
        if not anew and time.monotonic() < self._good_until.get(client, 0.0):
            return
        try:
            self.check(client)
        except ConfigurationError as error:
            raise PromiseBroken(str(error)) from None

    def check(
        self,
        client: redis.Redis,  # the store
    ) -> None:
        """Check each server of the store; raise `ConfigurationError` if one does not, or may not, keep the promise."""
        for server in primaries(client):
            self._check(server)

    def _check(self, server: redis.Redis) -> None:
        seen = read(server)
        wrong = evicts(seen) or self.broken(seen)
        if wrong:
            raise ConfigurationError(wrong)
        unknown = unseen(seen)
        if unknown:
            _warn(", ".join(unknown), self.name)
        self._good_until[server] = time.monotonic() + _SECONDS

    def broken(self, seen: Mapping[str, str]) -> str | None:
        """Return why the settings from `read` do not keep the promise; None if nothing shows that."""
        if self.name == "memory":
            return None
        if seen.get("appendonly", "yes") != "yes":
            return f"durability {self.name} needs a store that writes: set appendonly yes"
        fsync = seen.get("appendfsync")
        if fsync not in (None, *_FSYNC[self.name]):
            return f"durability {self.name} needs appendfsync {_FSYNC[self.name][0]}; the store has {fsync}"
        # WAITAOF would confirm each upload, but Valkey 9.1 answers it before a store that writes every second has synced.
        if self.name == "always" and unseen(seen):
            return "durability always cannot be seen in this store: allow its user CONFIG GET, or promise everysec"
        return None


@cache
def _warn(unknown: str, promised: Name) -> None:
    """Warn once in gunicorn's first process, or else in this one."""
    log.warning("the store does not show %s: check yourself that it keeps durability %s", unknown, promised, extra=OF_PROCESS)


def evicts(seen: Mapping[str, str]) -> str | None:
    """Return why a store loses data when it is full; None if it refuses writes, as it must at any level."""
    policy = seen.get("maxmemory-policy", "noeviction")
    if policy == "noeviction":
        return None
    return f"a store that is full must refuse and not forget: set maxmemory-policy noeviction; it has {policy}"


def unseen(seen: Mapping[str, str]) -> list[str]:
    """Return the settings that the store does not show."""
    return [name for name in _ASKED if name not in seen]


def read(
    client: redis.Redis,  # a server of the store
) -> dict[str, str]:
    """Read a server's settings: by CONFIG, or most of them by INFO; none if neither is allowed.

    StoreLoading as long as it reads its file.
    """
    try:
        return about.settings(client, *_ASKED)
    except redis.ResponseError:  # not allowed, or renamed
        pass
    settings: dict[str, str] = {}
    try:
        info = client.info("memory") | client.info("persistence")
    except redis.ResponseError:
        return settings
    if info.get("loading"):  # it says meanwhile that it has no append-only file
        raise StoreLoading("LOADING")
    if "maxmemory_policy" in info:
        settings["maxmemory-policy"] = str(info["maxmemory_policy"])
    if "aof_enabled" in info:
        settings["appendonly"] = "yes" if info["aof_enabled"] else "no"
    return settings
