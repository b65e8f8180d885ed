"""Whether the store accepts writes, and why not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import redis

from deniable_aggregator.store import schema
from deniable_aggregator.store.servers import primary

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


class PromiseBroken(redis.ResponseError):
    """The store does not keep the promised durability."""


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
