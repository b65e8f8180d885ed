"""Scripts of the store, called with little overhead: most of what an upload costs is such a call."""

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
    from collections.abc import Callable, Sequence

    from redis.connection import ConnectionPool

    from deniable_aggregator.store.server.replicas import Replicas, Watched


class Call(NamedTuple):
    """What a script is called with."""

    keys: Sequence[str]  # all of one app
    args: Sequence[Any]


class _Idle:
    """Unused connections of a pool, shared by all scripts of a client, for each process."""

    def __init__(self) -> None:
        self._by_process: dict[int, list[Any]] = {}

    def here(self) -> list[Any]:
        """Return those of this process; a forked process has its own."""
        # No lock is needed: this is one step for all threads, and so are taking from and adding to the end of the list.
        return self._by_process.setdefault(os.getpid(), [])


_Command = tuple[Any, ...]
_idle: WeakKeyDictionary[Any, _Idle] = WeakKeyDictionary()  # by pool
_lock = Lock()
_LOST = (redis.ConnectionError, redis.exceptions.AskError, redis.ReadOnlyError, redis.exceptions.ClusterDownError)
"""The server is away, or another one has the keys now."""
_WAIT_MS = 500  # a replica that lags for longer is as good as away
_WAIT_AGAIN_MS = 50  # for one that was away just now: other uploads need the thread


class Script:
    """A script in the store, of which each call is one command."""

    def __init__(
        self,
        client: redis.Redis,
        *names: str,  # Its parts, files in `lua` without their suffix. All but the last are functions that the last one calls.
        check: Callable[[], None] | None = None,  # made before a server is given the text: it is new, or was started again
    ) -> None:
        self._text, self._sha = _read(names)
        self._client = client
        self._check = check

    def __call__(self, keys: Sequence[str], args: Sequence[Any], *, replicas: Replicas | None = None) -> Any:
        """Run the script with keys of one app: see `ask`."""
        try:
            return ask(self._client, keys[0], "EVALSHA", self._sha, len(keys), *keys, *args, replicas=replicas)
        except redis.exceptions.NoScriptError:  # the server does not know its text yet
            if self._check:
                self._check()
            return ask(self._client, keys[0], "EVAL", self._text, len(keys), *keys, *args, replicas=replicas)

    def together(
        self,
        calls: Sequence[Call],  # keys and arguments of each
        *,
        replicas: Replicas | None = None,  # those that must have what the server had when the last one ended
    ) -> list[Any]:
        """Run the script several times, on one server in one round trip; return for each call its answer or error."""
        if isinstance(self._client, Cluster):
            raise ValueError("calls that run together are of one server")  # noqa: TRY004 - the calls are wrong, not the type
        pool, idle = _connections(self._client, "")
        commands = [("EVALSHA", self._sha, len(keys), *keys, *args) for keys, args in calls]
        try:
            return _give(pool, idle, _taken(pool, idle), commands, replicas)
        except redis.RedisError as error:  # of all together; the caller tries some of them again, each by itself
            return [error] * len(calls)


def ask(
    client: redis.Redis,
    key: str,
    *command: Any,
    replicas: Replicas | None = None,  # those that must have what the server has after the command, even if it changed nothing
) -> Any:
    """Give a command to the server that has a key; after a `StoreError` it may have been done, even twice."""
    # Connections of the pool are kept for the next command. To take them and put them back, and other work of the client around
    # a command, costs twice as much as the command itself.
    try:
        pool, idle = _connections(client, key)
        return _good(_give(pool, idle, _taken(pool, idle), [command], replicas))[0]
    except (*_LOST, redis.TimeoutError) as error:
        # Another try helps if the connection was lost, or if another server of a cluster has the key now.
        again: Any = redis.ConnectionError
        if isinstance(client, Cluster):
            client.refresh(error)
            again = _LOST
        if not isinstance(error, again):
            raise
    pool, idle = _connections(client, key)
    # One of those that are kept may be closed, too; the pool gives one that is open.
    return _good(_give(pool, idle, pool.get_connection(), [command], replicas))[0]


def _connections(client: redis.Redis, key: str) -> tuple[ConnectionPool, list[Any]]:
    """Return the pool of the server that has a key, and its connections that are not in use."""
    pool = primary(client, key).connection_pool
    idle = _idle.get(pool)
    if idle is None:
        with _lock:
            idle = _idle.setdefault(pool, _Idle())
    return pool, idle.here()


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
    have, *state = waited
    if have >= needed and not fewer:  # the usual case: all replicas are there, and have it
        return answers
    needed = replicas.look(*state or _good(_ask(connection, [LOOK])))
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


@cache
def _read(names: tuple[str, ...]) -> tuple[str, str]:
    """Read the parts of a script: its text, and its digest in the store."""
    folder = files(__package__).joinpath("lua")
    text = "".join(folder.joinpath(f"{name}.lua").read_text("utf-8") for name in names)
    return text, sha1(text.encode(), usedforsecurity=False).hexdigest()
