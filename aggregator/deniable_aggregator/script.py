"""Scripts of the store, called with as little ado as possible: an upload is one such call, and most of what it costs."""

from __future__ import annotations

import os
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import redis

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Script"]


class Script:
    """A script that the store runs.

    A call asks on a connection of the client's pool that is kept for the next one: taking connections out and putting them back,
    and what else the client does around a command, costs twice what the call itself does. Where that fails, because the
    connection is lost or the store does not know the script, the client asks in its own way, once more.

    Parameters
    ----------
    client
        A redis client.
    names
        Its parts, files in ``scripts`` without their ending; all but the last are functions that the last one calls.
    """

    def __init__(self, client: redis.Redis, *names: str) -> None:
        folder = files(__package__).joinpath("scripts")
        self._script = client.register_script("".join(folder.joinpath(f"{name}.lua").read_text("utf-8") for name in names))
        self._pool = client.connection_pool
        self._idle: list[Any] = []  # of which taking and adding the last is one step for all threads
        self._process = 0

    def __call__(self, keys: Sequence[str], args: Sequence[Any]) -> Any:
        """Run the script.

        Parameters
        ----------
        keys, args
            As it finds them.

        Raises
        ------
        redis.RedisError
            If the store cannot be used. The script may have run all the same, also twice.
        """
        if self._process != os.getpid():  # a connection that was forked is still another process's
            self._idle, self._process = [], os.getpid()
        idle = self._idle
        try:
            connection = idle.pop() if idle else self._pool.get_connection()
        except IndexError:  # another thread was quicker
            connection = self._pool.get_connection()
        try:
            connection.send_command("EVALSHA", self._script.sha, len(keys), *keys, *args, check_health=False)
            return connection.read_response()
        except (redis.ConnectionError, redis.exceptions.NoScriptError):
            return self._script(keys=keys, args=args)
        finally:
            idle.append(connection)
