"""What a server of the store tells of itself: its state, settings and clock, how it is reached, and what its user may do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from redis.sentinel import SentinelConnectionPool

from deniable_aggregator.store.errors import AWAY, CommandForbidden, CommandRefused
from deniable_aggregator.store.servers import primaries

if TYPE_CHECKING:
    import redis


def ping(client: redis.Redis) -> None:
    """See that one of its servers answers.

    Raises
    ------
    StoreError
        If none does, or one answers with an error.
    """
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
    """Read a section of its state, as ``INFO`` tells it."""
    return dict(client.info(section))


def settings(client: redis.Redis, *names: str) -> dict[str, str]:
    """Read some of its settings, as ``CONFIG GET`` tells them."""
    told = cast("dict[Any, Any]", client.config_get(*names))
    return {_text(name): _text(value) for name, value in told.items()}


def clock(client: redis.Redis) -> float:
    """Return the Unix time by its clock."""
    seconds, micros = client.time()
    return seconds + micros / 1_000_000


def connection(client: redis.Redis) -> dict[str, Any]:
    """Tell how a client reaches it: ``host`` or ``path``, and with what ``password``."""
    pool = client.connection_pool
    given = dict(pool.connection_kwargs)
    if isinstance(pool, SentinelConnectionPool):
        given["host"], given["port"] = pool.get_master_address()  # type: ignore[no-untyped-call]
    return given


def name(client: redis.Redis) -> str:
    """Return the address of a server, by which people know it."""
    given = connection(client)
    return given.get("path") or f"{given['host']}:{given['port']}"


def may(client: redis.Redis, *command: Any) -> bool:
    """Tell whether its user may give a command, whatever else becomes of it."""
    try:
        client.execute_command(*command)  # type: ignore[no-untyped-call]
    except CommandForbidden:
        return False
    except CommandRefused as error:
        return not str(error).startswith("NOPERM")
    return True


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
