"""Rate limits of keys and sources, and limits on stored bytes: counters in the store, with one call for all of them.

They hold across all processes. A window begins with its first request and ends after its length. So a limit of 600 in a minute
allows at most 600 in a window, and at most twice that in any minute. Without the store, no limited request is accepted; each of
them needs the store anyway.

An upload is counted in the call that appends it. A limit that is used up is remembered until its window ends. A source above a
limit is refused without asking the store. If a key's limit was used up, its uploads are counted before they are read.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from deniable_aggregator.store import schema
from deniable_aggregator.store.values.limit import Excess, Limit, Limiter
from deniable_server.access.addresses import Sources
from deniable_server.http.problem import Problem
from deniable_server.rates import parse, parse_volume

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deniable_aggregator.store import Client, Partition
    from deniable_aggregator.store.schema import Key
    from deniable_server.http.visit import Visit
    from deniable_server.settings import Settings

log = logging.getLogger("deniable.limits")

_MOST_USED_UP = 10_000  # that are remembered; for more, the store is asked again


class Limits:
    """The limits of a server."""

    def __init__(
        self,
        client: Client,  # a client of the store
        settings: Settings,  # the settings with the rates
    ) -> None:
        self._key = parse("DENIABLE_RATE_LIMIT_KEY", settings.rate_limit_key)
        self._source = parse("DENIABLE_RATE_LIMIT_SOURCE", settings.rate_limit_source)
        self._login = parse("DENIABLE_RATE_LIMIT_LOGIN", settings.rate_limit_login)
        self._stored = parse_volume("DENIABLE_STORED_LIMIT_SOURCE", settings.stored_limit_source)
        self._sources = Sources(client)
        self._limiter = Limiter(client)
        self._used_up: dict[str, float] = {}
        self._warned = bool(settings.trusted_proxies)

    def of(
        self,
        visit: Visit,  # the request
        app: str,  # the key's app
        key: str,  # the key's id
        partition: Partition | None = None,  # of an upload: where it counts, for the partition's part of the limits
    ) -> list[Limit]:
        """Return the limits that a request with a valid key counts for: its source, then the key."""
        name = partition.name if partition else app
        limits = [*self._of_source(visit, schema.RATE_SOURCE, name), *self.of_key(name, key)]
        return [_part(limit, partition) for limit in limits]

    def of_key(
        self,
        app: str,  # the key's app, or a partition of it
        key: str,  # the key's id
    ) -> list[Limit]:
        """Return the limit of a key alone: a relay brings from one address what thousands of devices have sent."""
        return [Limit(schema.RATE_KEY.of(app, key), *self._key)] if self._key else []

    def due(self, limits: list[Limit]) -> list[Limit]:
        """Return the limits that a request is still to be counted for; refuse it with 429 if one is known to be used up."""
        for limit in limits:
            if ms := self._ms(limit):
                if not schema.RATE_KEY.names(limit.key):
                    raise self._refusal(limit, ms)
                # All devices share the key, and its window may have ended in the store. So the store is asked, which counts.
                self.take(limits)
                return []
        return limits

    def know_source(self, visit: Visit) -> bool:
        """Return whether the source of a request is numbered without asking the store, or is not asked for."""
        return not (self._source or self._stored) or self._sources.know(visit.environ.get("REMOTE_ADDR"))

    def any_used_up(self, limits: Sequence[Limit]) -> bool:
        """Return whether a limit is known to be used up."""
        return any(map(self._ms, limits))

    def storing(
        self,
        visit: Visit,  # the upload
        partition: Partition,  # where it is stored
        size: int,  # Bytes that the upload takes in the store. One that takes more than all that is allowed counts for that much.
    ) -> list[Limit]:
        """Return the limits on the bytes of an upload: of its source only, because few sources could use up a limit of an app."""
        number = self._number(visit) if self._stored else None
        if not self._stored or not number:
            return []
        return [
            _part(Limit(schema.RATE_BYTES.of(partition.name, number), *self._stored, min(size, self._stored.amount)), partition)
        ]

    def stranger(self, visit: Visit) -> None:
        """Count a request with an unknown key for its source; refuse it with 429 if the limit is used up."""
        limits = self._of_source(visit, schema.RATE_STRANGER)
        self._recall(limits)
        self.take(limits)

    def login(self, visit: Visit) -> None:
        """Count an attempt to sign in for its source; all attempts from this machine are one. Refuse too many with 429."""
        if self._login:
            number = self._number(visit) or "local"
            limits = [Limit(schema.RATE_LOGIN.of(number), *self._login)]
            self._recall(limits)
            self.take(limits)

    def take(self, limits: Sequence[Limit]) -> None:
        """Count a request that does nothing else in the store; refuse it with 429 if a limit is used up."""
        if limits and (excess := self._limiter.take(limits)):
            raise self.problem(limits, excess)

    def problem(self, limits: Sequence[Limit], excess: Excess) -> Problem:
        """Return the error for a limit that is used up, and remember it."""
        limit = limits[excess.place]
        if len(self._used_up) >= _MOST_USED_UP:
            self._used_up.clear()  # this costs questions to the store, and lets nobody through
        self._used_up[limit.key] = time.monotonic() + excess.ms / 1000
        return self._refusal(limit, excess.ms)

    def _refusal(self, limit: Limit, ms: int) -> Problem:
        """Name the limit of the app, also where a partition counts for its part of it."""
        if schema.RATE_BYTES.names(limit.key):
            rule = f"uploads of this address may take {self._stored} of the store"
        elif schema.RATE_KEY.names(limit.key):
            rule = f"this key may make {self._key}"
        else:
            rule = f"this address may make {self._login if schema.RATE_LOGIN.names(limit.key) else self._source}"
        return Problem(429, "rate_limited", f"{rule}; try again later", retry_after=-(-ms // 1000))

    def _recall(self, limits: Sequence[Limit]) -> None:
        for limit in limits:
            if ms := self._ms(limit):
                raise self._refusal(limit, ms)

    def _ms(self, limit: Limit) -> int:
        """Return the milliseconds until the end of the window of a limit that is used up, or 0."""
        until = self._used_up.get(limit.key)
        if until is None:
            return 0
        ms = max(0, int(1000 * (until - time.monotonic())))
        if not ms:
            self._used_up.pop(limit.key, None)
        return ms

    def _of_source(self, visit: Visit, kind: Key, *app: str) -> list[Limit]:
        if self._source is None:
            return []
        if not self._warned and "HTTP_X_FORWARDED_FOR" in visit.environ:
            self._warned = True
            log.warning("a request names a proxy, but DENIABLE_TRUSTED_PROXIES is 0: all that it forwards is one source")
        number = self._number(visit)
        return [Limit(kind.of(*app, number), *self._source)] if number else []

    def _number(self, visit: Visit) -> str | None:
        """Return the number of the request's source, or None if there is none."""
        if visit.source == "":
            visit.source = self._sources.number(visit.environ.get("REMOTE_ADDR"))
        return visit.source


def _part(limit: Limit, partition: Partition | None) -> Limit:
    return limit._replace(amount=partition.part(limit.amount, limit.cost)) if partition else limit
