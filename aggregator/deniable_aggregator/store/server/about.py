"""What is known about the servers of the store: state, settings, clock and address, and whether they accept writes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import redis
from redis.connection import SSLConnection
from redis.sentinel import SentinelConnectionPool

from deniable_aggregator.store import schema
from deniable_aggregator.store.errors import AWAY, CommandForbidden, CommandRefused
from deniable_aggregator.store.server.servers import primaries, primary

if TYPE_CHECKING:
    from collections.abc import Iterable

_PROBED = schema.SOURCE.of("probe")  # this key never exists; every user of the store may write keys of this kind


def ping(client: redis.Redis) -> None:
    """Check that one of the servers answers; raise the last one's error if none does."""
    servers = primaries(client)
    for server in servers:
        try:
            server.ping()
        except AWAY:
            if server is servers[-1]:
                raise
        else:
            return


def state(client: redis.Redis, section: str) -> dict[str, Any]:
    """Read a section of a server's state, by ``INFO``."""
    return dict(client.info(section))


def settings(client: redis.Redis, *names: str) -> dict[str, str]:
    """Read some settings of a server, by ``CONFIG GET``."""
    answer = cast("dict[Any, Any]", client.config_get(*names))
    return {_text(name): _text(value) for name, value in answer.items()}


def clock(client: redis.Redis) -> float:
    """Return the Unix time by the clock of a server."""
    seconds, micros = client.time()
    return seconds + micros / 1_000_000


def connection(client: redis.Redis) -> dict[str, Any]:
    """Return how a client reaches a server: ``host`` and ``port`` or ``path``, and the ``password``."""
    pool = client.connection_pool
    options = dict(pool.connection_kwargs)
    if isinstance(pool, SentinelConnectionPool):
        options["host"], options["port"] = pool.get_master_address()  # type: ignore[no-untyped-call]
    return options


def encrypted(client: redis.Redis) -> bool:
    """Return whether a client speaks TLS with its server."""
    return issubclass(client.connection_pool.connection_class, SSLConnection)


def name(client: redis.Redis) -> str:
    """Return the address of a server, by which people know it."""
    options = connection(client)
    return options.get("path") or f"{options['host']}:{options['port']}"


def may(client: redis.Redis, *command: Any) -> bool:
    """Return whether the client's user may give a command, which may fail for another reason."""
    try:
        client.execute_command(*command)  # type: ignore[no-untyped-call]
    except CommandForbidden:
        return False
    except CommandRefused as error:
        return not str(error).startswith("NOPERM")
    return True


def refusals(
    client: redis.Redis,  # the store
    apps: Iterable[str] = (),  # Names of apps. Each server that has data of one of them is tried.
) -> dict[redis.Redis, redis.RedisError]:
    """Return the errors of the servers that refuse writes."""
    # Each gets a write that changes nothing: before it, the server checks its memory, disk and role.
    probed = {primary(client, key): key for key in (*(schema.RATE_KEY.of(app, "probe") for app in apps), _PROBED)}
    errors: dict[redis.Redis, redis.RedisError] = {}
    for server, key in probed.items():
        try:
            server.set(key, b"", xx=True, ex=1)
        except redis.RedisError as error:
            errors[server] = error
    return errors


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
