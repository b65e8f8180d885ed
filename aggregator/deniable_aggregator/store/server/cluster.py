"""A Redis or Valkey cluster, used like one server.

The keys of an app, or of a partition, share a hash tag, so they are on one primary, and every script uses one. `RedisCluster` of
redis-py knows which primary has what, and follows a failover or a moved slot. Scripts use the primary's own connections
(`script`), because the work of `RedisCluster` around a command costs more than the command.
"""

from __future__ import annotations

import time
from functools import wraps
from threading import Lock
from typing import TYPE_CHECKING, Any

import redis
from redis.cluster import ClusterNode, RedisCluster
from redis.crc import key_slot
from redis.exceptions import MovedError, RedisClusterException

from deniable_aggregator.store.errors import transient

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from redis.connection import ConnectionPool

_EVERY = 1.0  # seconds


class Cluster:
    """A client of a cluster, with the commands of `redis.Redis`. It connects when it is first used."""

    def __init__(
        self,
        places: Sequence[tuple[str, int]],  # host and port of some nodes, one of which must be reached
        **options: Any,  # of each connection, as `redis.Redis` takes them
    ) -> None:
        self._places, self._options = places, options
        self._lock = Lock()
        self._reached: RedisCluster | None = None
        self._refreshing = Lock()
        self._refreshed = -_EVERY
        self._primaries: dict[str, _Primary] = {}

    def __getattr__(self, name: str) -> Any:
        """Return a command of the cluster."""
        if name.startswith("_"):
            raise AttributeError(name)
        return _with_store_errors(getattr(self._client(), name))

    def primary(self, key: str) -> redis.Redis:
        """Return a client of the primary that has a key; raise `StoreError` if none is known."""
        client = self._client()
        try:
            node = client.nodes_manager.slots_cache[key_slot(key.encode())][0]
        except (KeyError, IndexError):
            raise redis.ConnectionError("no primary of the cluster has this key") from None
        return self._at(node)

    def primaries(self) -> list[redis.Redis]:
        """Return a client of each primary."""
        client = self._client()
        return [self._at(node) for node in client.get_primaries()]  # type: ignore[no-untyped-call]

    def refresh(
        self,
        error: Exception | None = None,  # of the call that failed
    ) -> None:
        """Ask the cluster again which primary has what, once a second at most."""
        nodes = self._client().nodes_manager
        # After a failover many calls fail at once. One thread asks, and the others wait here for its answer. Those that fail
        # within a second use the same answer; and if an error says where a slot is now, that is believed.
        with self._refreshing:
            if time.monotonic() >= self._refreshed + _EVERY:
                try:
                    _with_store_errors(nodes.initialize)()
                finally:
                    self._refreshed = time.monotonic()
            elif isinstance(error, MovedError) and error.slot_id in nodes.slots_cache:
                nodes.move_slot(error)

    def pipeline(self, transaction: bool = False) -> Any:  # noqa: FBT001, FBT002 - as in redis-py
        """Return a pipeline. Its commands may go to several primaries."""
        pipeline = self._client().pipeline(transaction=transaction)  # type: ignore[no-untyped-call]
        pipeline.execute = _with_store_errors(pipeline.execute)
        return pipeline

    def close(self) -> None:
        """Close all connections."""
        if self._reached is not None:
            self._reached.close()

    def _client(self) -> RedisCluster:
        reached = self._reached
        if reached is None:
            with self._lock:
                reached = self._reached = self._reached or _with_store_errors(self._reach)()
        return reached

    def _at(self, node: ClusterNode) -> redis.Redis:
        pool = (node.redis_connection or self._client().get_redis_connection(node)).connection_pool
        known = self._primaries.get(node.name)
        if known is None or known.connection_pool is not pool:  # redis-py has made another pool for the node
            known = self._primaries[node.name] = _Primary(self, pool)
        return known

    def _reach(self) -> RedisCluster:
        # Without a primary for some slots, the apps on the others go on.
        nodes = [ClusterNode(*place) for place in self._places]  # type: ignore[no-untyped-call]
        return RedisCluster(startup_nodes=nodes, require_full_coverage=False, **self._options)


class _Primary(redis.Redis):
    """A client of one primary. If it fails, another server may have its keys, so the cluster is asked."""

    def __init__(self, cluster: Cluster, pool: ConnectionPool) -> None:
        super().__init__(connection_pool=pool)
        self._cluster = cluster

    def execute_command(self, *args: Any, **options: Any) -> Any:
        try:
            return super().execute_command(*args, **options)  # type: ignore[no-untyped-call]
        except redis.RedisError as error:
            if transient(error):
                self._cluster.refresh(error)
            raise


def _with_store_errors(call: Callable[..., Any]) -> Callable[..., Any]:
    """Return a call that raises errors of `RedisCluster` as errors of a connection, which are kinds of `StoreError`."""

    @wraps(call)
    def wrapped(*args: Any, **options: Any) -> Any:
        try:
            return call(*args, **options)
        except RedisClusterException as error:
            raise redis.ConnectionError(f"the cluster cannot be used: {error}") from None

    return wrapped
