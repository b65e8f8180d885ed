"""A Redis or Valkey cluster, behind the interface of one server.

Each app's keys share a hash tag, so each app is on one primary, and every script uses one. `redis.RedisCluster` knows which
primary has what, and follows a failover or a moved slot. Scripts go to the primary's own connections (`script`), because the
cluster client around a command costs more than the command.
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
    """A client of a cluster. It connects when it is first used, and raises nothing but `StoreError`.

    It has the commands of `redis.Redis`. Commands that change or read keys are sent to the primary that has them.
    """

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
        return _telling(getattr(self._client(), name))

    def primary(self, key: str) -> redis.Redis:
        """Return a client of the primary that has a key.

        Raises
        ------
        StoreError
            If no primary is known to have it.
        """
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

    def refresh(self, error: Exception | None = None) -> None:
        """Ask the cluster again which primary has what, once a second at most.

        Calls that fail while one thread asks wait for what it hears. Those that fail soon after go by that, too.

        Parameters
        ----------
        error
            Of the call that failed. If it says that a slot was moved, and where to, this is believed without asking.

        Raises
        ------
        StoreError
            If no node answers.
        """
        nodes = self._client().nodes_manager
        with self._refreshing:
            if time.monotonic() >= self._refreshed + _EVERY:
                try:
                    _telling(nodes.initialize)()
                finally:
                    self._refreshed = time.monotonic()
            elif isinstance(error, MovedError) and error.slot_id in nodes.slots_cache:
                nodes.move_slot(error)

    def pipeline(self, transaction: bool = False) -> Any:  # noqa: FBT001, FBT002 - as in redis-py
        """Return a pipeline. Its commands may go to several primaries."""
        pipeline = self._client().pipeline(transaction=transaction)  # type: ignore[no-untyped-call]
        pipeline.execute = _telling(pipeline.execute)
        return pipeline

    def close(self) -> None:
        """Close all connections."""
        if self._reached is not None:
            self._reached.close()

    def _client(self) -> RedisCluster:
        reached = self._reached
        if reached is None:
            with self._lock:
                reached = self._reached = self._reached or _telling(self._reach)()
        return reached

    def _at(self, node: ClusterNode) -> redis.Redis:
        pool = (node.redis_connection or self._client().get_redis_connection(node)).connection_pool
        known = self._primaries.get(node.name)
        if known is None or known.connection_pool is not pool:
            known = self._primaries[node.name] = _Primary(self, pool)
        return known

    def _reach(self) -> RedisCluster:
        # Without a primary for some slots, the apps on the others go on.
        nodes = [ClusterNode(*place) for place in self._places]  # type: ignore[no-untyped-call]
        return RedisCluster(startup_nodes=nodes, require_full_coverage=False, **self._options)


class _Primary(redis.Redis):
    """A client of one primary. When that fails, another server may have its keys, so the cluster is asked."""

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


def _telling(call: Callable[..., Any]) -> Callable[..., Any]:
    """Let a call raise what the cluster client calls errors of the cluster as errors of a connection."""

    @wraps(call)
    def telling(*args: Any, **options: Any) -> Any:
        try:
            return call(*args, **options)
        except RedisClusterException as error:
            raise redis.ConnectionError(f"the cluster cannot be used: {error}") from None

    return telling
