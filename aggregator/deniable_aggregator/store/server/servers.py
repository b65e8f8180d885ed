"""The servers of a store: one, the primary that Sentinels name, or the primaries of a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote, urlsplit, urlunsplit

import redis
from redis.backoff import NoBackoff
from redis.connection import SSLConnection, parse_url
from redis.retry import Retry
from redis.sentinel import Sentinel, SentinelManagedConnection, SentinelManagedSSLConnection

from deniable_aggregator.store.errors import StoreError
from deniable_aggregator.store.server.cluster import Cluster

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

Place = tuple[str, int]
"""A host and a port; 0 for the usual one."""


def connect(url: str, *, timeout: float = 10.0) -> redis.Redis:
    """Open a connection pool.

    Parameters
    ----------
    url
        ``redis://``, ``rediss://`` or ``unix://`` for one server. ``redis+cluster://HOST:PORT,HOST:PORT`` for a cluster, of which
        some nodes are named. ``redis+sentinel://HOST:PORT,HOST:PORT/NAME`` for the primary that Sentinels know by this name;
        their own password is ``?sentinel_password=``. Both have a form with TLS, ``rediss+``.
    timeout
        Seconds to wait for an answer; longer than the longest blocking read.

    Raises
    ------
    ValueError
        If the URL is invalid.
    """
    # By default redis-py tries ten times, with pauses, which is longer than clients wait. One more try is enough to reach a store
    # that was restarted: the first try finds the old connection closed. So every script may be sent twice.
    retry = Retry(NoBackoff(), 1, (redis.ConnectionError,))
    options: dict[str, Any] = {"socket_timeout": timeout, "socket_connect_timeout": min(timeout, 2.0), "retry": retry}
    kind = urlsplit(url).scheme.partition("+")[2]
    if not kind:
        return redis.Redis.from_url(url, **options)
    if kind not in _KINDS:
        raise ValueError("a store of several servers has a URL with redis+cluster:// or redis+sentinel://")
    return _KINDS[kind](*_read(url.replace(f"+{kind}", "", 1)), options)


def _read(url: str) -> tuple[list[Place], dict[str, Any], str]:
    """Read a URL that names several servers: their places, what redis-py reads of the rest of it, and its path."""
    given = urlsplit(url)
    user, at, hosts = given.netloc.rpartition("@")
    each = [urlsplit(f"//{host}") for host in hosts.split(",")]
    places = [(place.hostname or "localhost", place.port or 0) for place in each]
    one = urlunsplit((given.scheme, f"{user}{at}{places[0][0]}", "", given.query, ""))
    told = parse_url(one)  # type: ignore[no-untyped-call]
    del told["host"]
    if told.pop("connection_class", None) is SSLConnection:
        told["ssl"] = True
    return places, told, unquote(given.path.strip("/"))


def _cluster(places: list[Place], told: dict[str, Any], path: str, options: dict[str, Any]) -> redis.Redis:
    if path not in {"", "0"}:
        raise ValueError("a cluster has one database, 0")
    nodes = [(host, port or 6379) for host, port in places]
    return cast("redis.Redis", Cluster(nodes, **options, **told))


def _sentinel(places: list[Place], told: dict[str, Any], path: str, options: dict[str, Any]) -> redis.Redis:
    name, _, database = path.partition("/")
    if not name:
        raise ValueError("the URL of Sentinels ends with the name that they have for the primary")
    password = told.pop("sentinel_password", None)
    asking = {key: value for key, value in (options | told | {"password": password}).items() if key in _ASKING and value}
    asked = [(host, port or 26379) for host, port in places]
    sentinels = Sentinel(asked, sentinel_kwargs=asking)  # type: ignore[no-untyped-call]
    made = _WatchedTLS if told.pop("ssl", False) else _Watched
    own = {"db": int(database or 0), "connection_class": made} | options | told
    return cast("redis.Redis", sentinels.master_for(name, **own))  # type: ignore[no-untyped-call]


class _Watched(SentinelManagedConnection):
    """A connection to a primary that Sentinels name.

    As redis-py has it, it stays open when an answer is late, and the next command gets that answer.
    """

    def read_response(self, *args: Any, disconnect_on_error: bool | None = True, **options: Any) -> Any:
        return super().read_response(*args, disconnect_on_error=disconnect_on_error, **options)


class _WatchedTLS(_Watched, SentinelManagedSSLConnection):
    """The same with TLS."""


_KINDS = {"cluster": _cluster, "sentinel": _sentinel}
_ASKING = ("socket_timeout", "socket_connect_timeout", "ssl", "ssl_ca_certs", "password")  # what Sentinels are asked with


def primaries(client: redis.Redis) -> Sequence[redis.Redis]:
    """Return a client of each server that takes writes.

    Raises
    ------
    StoreError
        If it is a cluster that cannot be reached.
    """
    return client.primaries() if isinstance(client, Cluster) else [client]


def is_one(client: redis.Redis) -> bool:
    """Return whether all keys are on one server, which may have replicas."""
    return not isinstance(client, Cluster)


def primary(client: redis.Redis, key: str) -> redis.Redis:
    """Return a client of the server that takes writes to a key.

    Raises
    ------
    StoreError
        If it is a cluster that cannot be reached.
    """
    return client.primary(key) if isinstance(client, Cluster) else client


def place(client: redis.Redis, key: str) -> Hashable:
    """Return what is equal for keys of one server, and None for those of which nobody knows where they are."""
    try:
        return primary(client, key)
    except StoreError:
        return None
