"""Scripts of the store, called with little overhead: an upload is one such call, which is most of its cost."""

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
    """Unused connections of a pool, shared by all scripts of a client, for each process."""

    def __init__(self) -> None:
        self._by_process: dict[int, list[Any]] = {}

    def here(self) -> list[Any]:
        """Return those of this process; a forked process has its own."""
        return self._by_process.setdefault(os.getpid(), [])  # one step for all threads, as are taking and adding the last one


_idle: WeakKeyDictionary[Any, _Idle] = WeakKeyDictionary()  # by pool
_lock = Lock()


class Script:
    """A script in the store.

    A call uses a connection of the client's pool and keeps it for the next call of any script. Taking connections and putting
    them back, and other work of the client around a command, costs twice as much as the call itself. A store that does not know
    the script gets its whole text. If the connection is lost, the client tries once more in its usual way.

    Parameters
    ----------
    client
        A redis client.
    names
        Its parts, files in ``lua`` without their suffix. All but the last are functions that the last one calls.
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
            As the script expects them.

        Raises
        ------
        StoreError
            If the store cannot be used. The script may have run, even twice.
        """
        idle = self._idle.here()
        try:
            connection = idle.pop() if idle else self._pool.get_connection()
        except IndexError:  # another thread was faster
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
    """Read the parts of a script: its text, and its digest in the store."""
    folder = files(__package__).joinpath("lua")
    text = "".join(folder.joinpath(f"{name}.lua").read_text("utf-8") for name in names)
    return text, sha1(text.encode(), usedforsecurity=False).hexdigest()
