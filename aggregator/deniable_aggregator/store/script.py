"""Scripts of the store, called with as little ado as possible: an upload is one such call, and most of what it costs."""

from __future__ import annotations

import os
from functools import cache
from hashlib import sha1
from importlib.resources import files
from threading import Lock
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import redis

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Script"]


class _Idle:
    """Connections of a pool that no call is using: of all scripts of a client, for each process."""

    def __init__(self) -> None:
        self._by_process: dict[int, list[Any]] = {}

    def here(self) -> list[Any]:
        """Return those of this process; one that was forked is still another process's."""
        return self._by_process.setdefault(os.getpid(), [])  # one step for all threads, and so is taking or adding the last


_idle: WeakKeyDictionary[Any, _Idle] = WeakKeyDictionary()  # by pool
_lock = Lock()


class Script:
    """A script that the store runs.

    A call asks on a connection of the client's pool that is kept for the next call of any script: taking connections out and
    putting them back, and what else the client does around a command, costs twice what the call itself does. A store that does
    not know the script is sent all of it. Where the connection is lost, the client asks in its own way, once more.

    Parameters
    ----------
    client
        A redis client.
    names
        Its parts, files in ``lua`` without their ending; all but the last are functions that the last one calls.
    """

    def __init__(self, client: redis.Redis, *names: str) -> None:
        self._text, self._sha = _read(names)
        self._client, self._pool = client, client.connection_pool
        with _lock:
            self._idle = _idle.setdefault(self._pool, _Idle())

    def __call__(self, keys: Sequence[str], args: Sequence[Any]) -> Any:
        """Run the script.

        Parameters
        ----------
        keys, args
            As it finds them.

        Raises
        ------
        StoreError
            If the store cannot be used. The script may have run all the same, also twice.
        """
        idle = self._idle.here()
        try:
            connection = idle.pop() if idle else self._pool.get_connection()
        except IndexError:  # another thread was quicker
            connection = self._pool.get_connection()
        try:
            connection.send_command("EVALSHA", self._sha, len(keys), *keys, *args, check_health=False)
            try:
                return connection.read_response()
            except redis.exceptions.NoScriptError:
                connection.send_command("EVAL", self._text, len(keys), *keys, *args, check_health=False)
                return connection.read_response()
        except redis.ConnectionError:
            return self._client.eval(self._text, len(keys), *keys, *args)
        finally:
            idle.append(connection)


@cache
def _read(names: tuple[str, ...]) -> tuple[str, str]:
    """Read the parts of a script: its text, and the digest by which the store knows it."""
    folder = files(__package__).joinpath("lua")
    text = "".join(folder.joinpath(f"{name}.lua").read_text("utf-8") for name in names)
    return text, sha1(text.encode(), usedforsecurity=False).hexdigest()
