"""Scripts of the store, called with little overhead: an upload is one such call, which is most of its cost."""

from __future__ import annotations

import os
from functools import cache
from hashlib import sha1
from importlib.resources import files
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

import redis

from deniable_aggregator.store.server.cluster import Cluster
from deniable_aggregator.store.server.replicas import LOOK
from deniable_aggregator.store.server.servers import primary

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redis.connection import ConnectionPool

    from deniable_aggregator.store.server.replicas import Replicas, Watched


class Call(NamedTuple):
    """What a script is called with."""

    keys: Sequence[str]
    args: Sequence[Any]


class _Idle:
    """Unused connections of a pool, shared by all scripts of a client, for each process."""

    def __init__(self) -> None:
        self._by_process: dict[int, list[Any]] = {}

    def here(self) -> list[Any]:
        """Return those of this process; a forked process has its own."""
        return self._by_process.setdefault(os.getpid(), [])  # one step for all threads, as are taking and adding the last one


_Command = tuple[Any, ...]
_idle: WeakKeyDictionary[Any, _Idle] = WeakKeyDictionary()  # by pool
_lock = Lock()
_LOST = (redis.ConnectionError, redis.exceptions.AskError, redis.ReadOnlyError, redis.exceptions.ClusterDownError)
"""The server is away, or another one has the keys now."""
_WAIT_MS = 500  # a replica that lags for longer is as good as away
_WAIT_AGAIN_MS = 50  # for one that was away just now: other uploads need the thread


class Script:
    """A script in the store.

    A call uses a connection of the client's pool and keeps it for the next call of any script. Taking connections and putting
    them back, and other work of the client around a command, costs twice as much as the call itself. A server that does not know
    the script gets its whole text. If the connection is lost, or another server of a cluster has the keys now, it is tried once
    more.
    """

    def __init__(
        self,
        client: redis.Redis,
        *names: str,  # Its parts, files in `lua` without their suffix. All but the last are functions that the last one calls.
    ) -> None:
        self._text, self._sha = _read(names)
        self._client = client
        self._one = None if isinstance(client, Cluster) else (client.connection_pool, _idle_of(client.connection_pool))
        self._again = _LOST if isinstance(client, Cluster) else redis.ConnectionError

    def __call__(self, keys: Sequence[str], args: Sequence[Any], *, replicas: Replicas | None = None) -> Any:
        """Run the script.

        Parameters
        ----------
        keys, args
            As the script expects them. All keys are of one app.
        replicas
            Those that must have what the server had when the script ended, also if the script changed nothing.

        Raises
        ------
        StoreError
            If the store cannot be used, or too few replicas have it. The script may have run, even twice.
        """
        try:
            pool, unused = self._one or self._at(keys[0])
            idle = unused.here()
            return self._run(pool, idle, _taken(pool, idle), keys, args, replicas)
        except (*_LOST, redis.TimeoutError) as error:
            if isinstance(self._client, Cluster):
                self._client.refresh(error)
            if not isinstance(error, self._again):
                raise
        pool, unused = self._one or self._at(keys[0])
        # Unlike those that are idle, one of the pool is known to be open.
        return self._run(pool, unused.here(), pool.get_connection(), keys, args, replicas)

    def together(
        self,
        calls: Sequence[Call],  # keys and arguments of each
        *,
        replicas: Replicas | None = None,  # those that must have what the server had when the last one ended
    ) -> list[Any]:
        """Run the script several times, on one server in one round trip.

        Returns
        -------
        list
            For each call its answer, or the error. After some errors, another try by itself may succeed.
        """
        if self._one is None:
            raise ValueError("calls that run together are of one server")
        pool, unused = self._one
        idle, commands = unused.here(), [("EVALSHA", self._sha, len(keys), *keys, *args) for keys, args in calls]
        try:
            return _give(pool, idle, _taken(pool, idle), commands, replicas)
        except redis.RedisError as error:
            return [error] * len(calls)

    def _run(
        self,
        pool: ConnectionPool,
        idle: list[Any],
        connection: Any,
        keys: Sequence[str],
        args: Sequence[Any],
        replicas: Replicas | None,
    ) -> Any:
        (answer,) = _give(pool, idle, connection, [("EVALSHA", self._sha, len(keys), *keys, *args)], replicas)
        if isinstance(answer, redis.exceptions.NoScriptError):
            command = ("EVAL", self._text, len(keys), *keys, *args)
            (answer,) = _give(pool, idle, _taken(pool, idle), [command], replicas)
        if isinstance(answer, redis.ResponseError):
            raise answer
        return answer

    def _at(self, key: str) -> tuple[ConnectionPool, _Idle]:
        pool = primary(self._client, key).connection_pool
        return pool, _idle.get(pool) or _idle_of(pool)


def ask(client: redis.Redis, *command: Any) -> Any:
    """Give a command over a connection that scripts keep, so that it opens none of its own."""
    if isinstance(client, Cluster):
        return client.execute_command(*command)  # type: ignore[no-untyped-call] # redis-py has no types for this
    pool = client.connection_pool
    idle = _idle_of(pool).here()
    try:
        answers = _give(pool, idle, _taken(pool, idle), [command], None)
    except redis.ConnectionError:  # it was closed while nobody used it
        answers = _give(pool, idle, pool.get_connection(), [command], None)
    return _good(answers)[0]


def _taken(pool: ConnectionPool, idle: list[Any]) -> Any:
    try:
        return idle.pop() if idle else pool.get_connection()
    except IndexError:  # another thread was faster
        return pool.get_connection()


def _give(
    pool: ConnectionPool, idle: list[Any], connection: Any, commands: Sequence[_Command], replicas: Replicas | None
) -> list[Any]:
    """Give commands over a connection and put it back; return for each its answer, or the server's error."""
    put_back = idle.append
    try:
        answers = _ask_and_wait(replicas.of(pool), connection, commands) if replicas else _ask(connection, commands)
        if any(isinstance(answer, _LOST) for answer in answers):
            put_back = pool.release
    except _LOST:
        put_back = pool.release  # where the next try finds it
        raise
    finally:
        put_back(connection)
    return answers


def _ask(connection: Any, commands: Sequence[_Command]) -> list[Any]:
    """Give commands in one packet; return for each its answer, or the server's error."""
    connection.send_packed_command(connection.pack_commands(commands), check_health=False)
    answers: list[Any] = []
    for _ in commands:
        try:
            answers.append(connection.read_response())
        except redis.ResponseError as error:  # a server that became a replica refuses to wait, too
            answers.append(error)
    return answers


def _ask_and_wait(replicas: Watched, connection: Any, commands: Sequence[_Command]) -> list[Any]:
    """Give commands, and in the same packet wait until all replicas that must have it have all that the server had after them."""
    needed, patience = replicas.needed, _WAIT_AGAIN_MS if replicas.missed else _WAIT_MS
    fewer = needed < replicas.all or replicas.missed
    every = _ask(connection, [*commands, ("WAIT", needed, patience), *([LOOK] if fewer else [])])
    answers, waited = every[: len(commands)], every[len(commands) :]
    if any(isinstance(answer, redis.ResponseError) for answer in waited):
        _good([*(answer for answer in answers if isinstance(answer, _LOST)), *waited])
    have, *told = waited
    if have >= needed and not fewer:
        return answers
    needed = replicas.look(*told or _good(_ask(connection, [LOOK])))
    if have < needed:  # one came back meanwhile
        (have,) = _good(_ask(connection, [("WAIT", needed, _WAIT_AGAIN_MS)]))
    if have < needed:
        raise redis.ResponseError(f"NOREPLICAS not {needed} of its replicas had this within {patience} ms")
    return answers


def _good(answers: Sequence[Any]) -> Sequence[Any]:
    """Return answers, or raise the first error among them."""
    for answer in answers:
        if isinstance(answer, redis.ResponseError):
            raise answer
    return answers


def _idle_of(pool: ConnectionPool) -> _Idle:
    with _lock:
        return _idle.setdefault(pool, _Idle())


@cache
def _read(names: tuple[str, ...]) -> tuple[str, str]:
    """Read the parts of a script: its text, and its digest in the store."""
    folder = files(__package__).joinpath("lua")
    text = "".join(folder.joinpath(f"{name}.lua").read_text("utf-8") for name in names)
    return text, sha1(text.encode(), usedforsecurity=False).hexdigest()
