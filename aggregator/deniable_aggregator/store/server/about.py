"""What a server of the store tells of itself: its state, settings and clock, its address, and what its user may do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

import redis
from redis.sentinel import SentinelConnectionPool

from deniable_aggregator.store import schema
from deniable_aggregator.store.errors import AWAY, CommandForbidden, CommandRefused, PromiseBroken
from deniable_aggregator.store.server.servers import primaries, primary

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

REASONS: Final[Mapping[str, str]] = {
    "away": "it does not answer",
    "full": "it has no memory left",
    "disk": "what it writes does not get to its disk",
    "replica": "it is a replica",
    "replicas": "too few of its replicas keep up",
    "durability": "it does not keep the promised durability",
    "refused": "it answers with an error",
}

_PROBED = schema.SOURCE.of("probe")  # this key never exists; every user of the store may write keys of this kind
_WORDS = {"MISCONF": "disk", "NOREPLICAS": "replicas"}


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


def refusals(
    client: redis.Redis,  # the store
    apps: Iterable[str] = (),  # Names of apps. Each server that has data of one of them is tried.
) -> dict[redis.Redis, redis.RedisError]:
    """Try a write that changes nothing at each server. It checks its memory, disk and role first.

    Returns
    -------
    dict
        The errors of the servers that would refuse a write.

    Raises
    ------
    StoreError
        If nobody knows which server has an app.
    """
    probed = {primary(client, key): key for key in (*(schema.RATE_KEY.of(app, "probe") for app in apps), _PROBED)}
    errors: dict[redis.Redis, redis.RedisError] = {}
    for server, key in probed.items():
        try:
            server.set(key, b"", xx=True, ex=1)
        except redis.RedisError as error:
            errors[server] = error
    return errors


def reason(error: redis.RedisError) -> str:
    """Return the key of `REASONS` for an error of the store."""
    if isinstance(error, redis.ConnectionError | redis.TimeoutError):
        return "away"
    if isinstance(error, redis.OutOfMemoryError):
        return "full"
    if isinstance(error, redis.ReadOnlyError):
        return "replica"
    if isinstance(error, PromiseBroken):
        return "durability"
    return _WORDS.get(str(error).partition(" ")[0], "refused")


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
