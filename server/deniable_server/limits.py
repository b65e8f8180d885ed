"""Limits of how often a key and a source may ask, held across all processes: counters in the store, one call for all of them.

A window begins with its first request and is over some seconds later, whatever comes meanwhile. So a limit of 600 in a minute
lets through at most 600 in a window, and at most twice that in any minute. The store away means that limits cannot be held;
then nothing is let in, and nothing could be: every request that is limited needs the store.
"""

from __future__ import annotations

import logging
from importlib.resources import files
from typing import TYPE_CHECKING, cast

from flask import request

from deniable_server.problem import Problem
from deniable_server.rate import parse
from deniable_server.source import Sources

if TYPE_CHECKING:
    import redis

    from deniable_server.rate import Rate
    from deniable_server.settings import Settings

__all__ = ["Limits"]

log = logging.getLogger("deniable.limits")


class Limits:
    """The limits of a server.

    Parameters
    ----------
    client
        A redis client.
    settings
        With the rates.
    """

    def __init__(self, client: redis.Redis, settings: Settings) -> None:
        self._key = parse("DENIABLE_RATE_LIMIT_KEY", settings.rate_limit_key)
        self._source = parse("DENIABLE_RATE_LIMIT_SOURCE", settings.rate_limit_source)
        self._login = parse("DENIABLE_RATE_LIMIT_LOGIN", settings.rate_limit_login)
        self._sources = Sources(client)
        self._count = client.register_script(files(__package__).joinpath("scripts", "limit.lua").read_text("utf-8"))
        self._told = bool(settings.trusted_proxies)

    def request(self, app: str, key: str) -> None:
        """Count a request with a good key, first for its source, then for the key.

        Parameters
        ----------
        app
            The key's app.
        key
            The key's id.

        Raises
        ------
        Problem
            429, where a limit is used up.
        """
        counters = self._of_source(app, self._source)
        if self._key:
            counters.append((f"{{{app}}}:rate:key:{key}", self._key, "this key"))
        self._take(counters)

    def stranger(self) -> None:
        """Count a request with an unknown key for its source.

        Raises
        ------
        Problem
            429, where the limit is used up.
        """
        self._take(self._of_source("deniable", self._source))

    def login(self) -> None:
        """Count an attempt to sign in for its source; those from this machine are one source.

        Raises
        ------
        Problem
            429, where the limit is used up.
        """
        if self._login:
            number = self._sources.number(request.remote_addr) or "local"
            self._take([(f"{{deniable}}:rate:login:{number}", self._login, "this address")])

    def _of_source(self, app: str, rate: Rate | None) -> list[tuple[str, Rate, str]]:
        if rate is None:
            return []
        if not self._told and "X-Forwarded-For" in request.headers:
            self._told = True
            log.warning("a request names a proxy, but DENIABLE_TRUSTED_PROXIES is 0: all that it forwards is one source")
        number = self._sources.number(request.remote_addr)
        return [(f"{{{app}}}:rate:source:{number}", rate, "this address")] if number else []

    def _take(self, counters: list[tuple[str, Rate, str]]) -> None:
        if not counters:
            return
        keys = [key for key, _, _ in counters]
        args = [number for _, rate, _ in counters for number in (rate.amount, rate.seconds)]
        place, seconds = cast("tuple[int, int]", self._count(keys=keys, args=args))
        if place:
            _, rate, who = counters[place - 1]
            raise Problem(429, "rate_limited", f"{who} may make {rate}; try again later", retry_after=seconds)
