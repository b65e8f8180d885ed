"""The address of a local server, which is taken before anything else starts."""

from __future__ import annotations

import errno
import re
import socket

from deniable.errors import ConfigurationError

_BIND = re.compile(r"(?P<host>[^\[\]:/\s]+|\[[0-9a-fA-F:.]+\]):(?P<port>[0-9]{1,9})")
_HIGHEST_PORT = 65535
_BACKLOG = 2048  # as gunicorn has it


def listen(
    bind: str,  # `HOST:PORT`; port 0 stands for any free port
) -> socket.socket:
    """Listen on an address. Clients that connect from now on wait for their answer."""
    match = _BIND.fullmatch(bind)
    if not match or int(match["port"]) > _HIGHEST_PORT:
        raise ConfigurationError(
            f"{bind!r} is no address: write HOST:PORT, such as 127.0.0.1:8080, with a port up to {_HIGHEST_PORT}"
        )
    host, port = match["host"].strip("[]"), int(match["port"])
    try:
        places = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        family, _, _, _, place = min(places, key=lambda info: info[0] != socket.AF_INET)  # localhost is 127.0.0.1 first
        both = place[0] == "::" and socket.has_dualstack_ipv6()  # all addresses, of both kinds
        return socket.create_server(place[:2], family=family, backlog=_BACKLOG, dualstack_ipv6=both)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise ConfigurationError(
                f"{bind} is in use by another program: stop that, or choose another port (serve --bind, demo --port)"
            ) from None
        reason = error.strerror or str(error)
        raise ConfigurationError(f"{bind} cannot be listened on ({reason}): choose an address of this machine") from None


def written(bind: str, taken: socket.socket) -> str:
    """Write an address with the port that was taken."""
    return f"{bind.rpartition(':')[0]}:{taken.getsockname()[1]}"
