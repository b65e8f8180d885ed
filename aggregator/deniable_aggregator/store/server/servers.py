"""The servers of a store: one, the primary that Sentinels name, or the primaries of a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote, urlunsplit

import redis
from redis.backoff import NoBackoff
from redis.connection import SSLConnection, parse_url
from redis.retry import Retry
from redis.sentinel import Sentinel, SentinelManagedConnection, SentinelManagedSSLConnection

from deniable.errors import ConfigurationError
from deniable_aggregator.store import url as urls
from deniable_aggregator.store.errors import StoreError
from deniable_aggregator.store.server.cluster import Cluster

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence


def connect(
    # ``redis://``, ``rediss://`` or ``unix://`` for one server. ``redis+cluster://HOST:PORT,HOST:PORT`` for a cluster, of which
    # some nodes are named. ``redis+sentinel://HOST:PORT,HOST:PORT/NAME`` for the primary that Sentinels know by this name; their
    # own password is ``?sentinel_password=``. Both have a form with TLS, ``rediss+``.
    url: str,
    *,
    timeout: float = 10.0,  # seconds to wait for an answer; longer than the longest blocking read
) -> redis.Redis:
    """Open a connection pool; ConfigurationError if the URL is invalid."""
    # By default redis-py tries ten times, with pauses, which is longer than clients wait. One more try is enough to reach a store
    # that was restarted: the first try finds the old connection closed. So every script may be sent twice.
    retry = Retry(NoBackoff(), 1, (redis.ConnectionError,))
    options: dict[str, Any] = {"socket_timeout": timeout, "socket_connect_timeout": min(timeout, 2.0), "retry": retry}
    options |= urls.options(url)
    kind, bare = urls.kind(url), url.partition("?")[0]
    if not kind:
        return redis.Redis.from_url(bare, **options)
    places, login, path = _read(bare.replace(f"+{kind}", "", 1))
    return _KINDS[kind](places, options | login, path)


def _read(url: str) -> tuple[list[urls.Place], dict[str, Any], str]:
    """Read a URL that names several servers: their places, how to log in to them, and its path."""
    parts = urls.parts(url)
    login = parse_url(urlunsplit((parts.scheme, parts.netloc, "", "", "")))  # type: ignore[no-untyped-call]
    for name in ("host", "port"):
        login.pop(name, None)
    if login.pop("connection_class", None) is SSLConnection:
        login["ssl"] = True
    return urls.places(url), login, unquote(parts.path.strip("/"))


def _cluster(places: list[urls.Place], options: dict[str, Any], path: str) -> redis.Redis:
    if path not in {"", "0"}:
        raise ConfigurationError("a cluster has one database, 0")
    nodes = [(host, port or 6379) for host, port in places]
    return cast("redis.Redis", Cluster(nodes, **options))


def _sentinel(places: list[urls.Place], options: dict[str, Any], path: str) -> redis.Redis:
    name, _, database = path.partition("/")
    if not name:
        raise ConfigurationError("the URL of Sentinels ends with the name that they have for the primary")
    password = options.pop("sentinel_password", None)
    # Sentinels have a login of their own.
    sentinel_options = {key: value for key, value in options.items() if key not in ("username", "password", "retry")}
    sentinel_options |= {"password": password} if password else {}
    addresses = [(host, port or 26379) for host, port in places]
    sentinels = Sentinel(addresses, sentinel_kwargs=sentinel_options)  # type: ignore[no-untyped-call]
    connection_class = _ManagedTLS if options.pop("ssl", False) else _Managed
    own = {"db": urls.database(database or "0"), "connection_class": connection_class} | options
    return cast("redis.Redis", sentinels.master_for(name, **own))  # type: ignore[no-untyped-call]


class _Managed(SentinelManagedConnection):
    """A connection to a primary that Sentinels name. It is closed when an answer is late."""

    # In redis-py's class it stays open, and the next command gets the late answer.

    def read_response(self, *args: Any, disconnect_on_error: bool | None = True, **options: Any) -> Any:
        return super().read_response(*args, disconnect_on_error=disconnect_on_error, **options)


class _ManagedTLS(_Managed, SentinelManagedSSLConnection):
    """The same with TLS."""


_KINDS = {"cluster": _cluster, "sentinel": _sentinel}


def primaries(client: redis.Redis) -> Sequence[redis.Redis]:
    """Return a client of each server that takes writes."""
    return client.primaries() if isinstance(client, Cluster) else [client]


def is_one(client: redis.Redis) -> bool:
    """Return whether all keys are on one server, which may have replicas."""
    return not isinstance(client, Cluster)


def primary(client: redis.Redis, key: str) -> redis.Redis:
    """Return a client of the server that takes writes to a key."""
    return client.primary(key) if isinstance(client, Cluster) else client


def place(client: redis.Redis, key: str) -> Hashable:
    """Return the server that has a key, which can only be compared; None if it is not known."""
    try:
        return primary(client, key)
    except StoreError:
        return None
