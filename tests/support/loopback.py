"""A server on the loopback that answers with whatever bytes a test wants."""

from __future__ import annotations

import socket
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl

ACCEPTED = b'HTTP/1.1 202 Accepted\r\nSet-Cookie: who=you; Path=/\r\nContent-Length: 15\r\n\r\n{"accepted": 1}'


@contextmanager
def server(behave, context: ssl.SSLContext | None = None):
    """Accept connections on the loopback, read a request from each, and let `behave` answer it.

    `behave` gets the connection and an event that is set when the test is over.
    """
    requests: list[bytes] = []
    over = threading.Event()
    listener = socket.create_server(("127.0.0.1", 0))
    threads: list[threading.Thread] = []

    def read(connection: socket.socket) -> None:
        data = b""
        while b"\r\n\r\n" not in data:
            data += connection.recv(65536) or b"\r\n\r\n"
        head, _, body = data.partition(b"\r\n\r\n")
        length = next((int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")), 0)
        while len(body) < length:
            body += connection.recv(65536)
        requests.append(head + b"\r\n\r\n" + body)

    def serve(connection: socket.socket) -> None:
        try:
            with context.wrap_socket(connection, server_side=True) if context else connection as wrapped:
                read(wrapped)
                behave(wrapped, over)
        except OSError:
            pass  # the other end is gone

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threads.append(threading.Thread(target=serve, args=(connection,)))
            threads[-1].start()

    acceptor = threading.Thread(target=accept)
    acceptor.start()
    try:
        yield f"http{'s' if context else ''}://127.0.0.1:{listener.getsockname()[1]}", requests
    finally:
        over.set()
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for thread in [acceptor, *threads]:
            thread.join(60)
            assert not thread.is_alive()


def say(text: bytes):
    def behave(connection, _over) -> None:
        connection.sendall(text)

    return behave
