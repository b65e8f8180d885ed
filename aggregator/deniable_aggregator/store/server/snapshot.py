"""A snapshot of a running server: the file that it would send to a new replica, which is its content at one moment."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import redis

from deniable_aggregator.store import schema
from deniable_aggregator.store.errors import BrokenSnapshot, CommandRefused

if TYPE_CHECKING:
    from collections.abc import Iterator

_CHUNK = 1 << 16
_MARK = 40  # bytes that end a file whose length the server did not know
_BEGINNINGS = (b"REDIS", b"VALKE")


def copy(
    client: redis.Redis,  # of one server; its user needs `sync` and `replconf`
    sink: BinaryIO,
) -> int:
    """Write a snapshot into a file; return its length in bytes. The server goes on meanwhile."""
    with _socket(client) as socket, socket.makefile("rb") as stream:
        length = _announced(stream)
        return _until(stream, sink, length) if isinstance(length, bytes) else _bytes(stream, sink, length)


class Copies(NamedTuple):
    """Unix times of copies, as the store has them noted."""

    last: float | None  # of the last copy that is whole; None if none is known
    begun: float | None  # when a later copy was begun; None if no later copy is known


def begin(client: redis.Redis, at: float) -> None:
    """Record the Unix time at which a copy is begun. The copy has this note, and so has a store that is restored from it."""
    # The user `backup` may only SET this key: NX GET returns its value.
    earlier: Any = client.set(schema.BACKUP.of(), 0, nx=True, get=True)
    client.set(schema.BACKUP.of(), f"{int((earlier or b'0').split()[0])} {int(at)}")


def note(client: redis.Redis, at: float) -> None:
    """Record the Unix time of a copy that is whole and on the disk."""
    client.set(schema.BACKUP.of(), int(at))


def copies(client: redis.Redis) -> Copies:
    """Return the times of the last copy, and of a copy that was begun later."""
    last, begun, *_ = [*map(float, (client.get(schema.BACKUP.of()) or b"").split()), 0.0, 0.0]
    return Copies(last or None, begun or None)


@contextmanager
def _socket(client: redis.Redis) -> Iterator[Any]:
    """Ask for the file, on a connection of its own that is closed afterwards: the server takes it for a replica's."""
    pool: Any = client.connection_pool
    connection = pool.get_connection()
    try:
        # Otherwise changes would follow the file, and the server would have to write it to its disk first.
        for words in (("capa", "eof"), ("rdb-only", "1")):
            connection.send_command("REPLCONF", *words)
            try:
                connection.read_response()
            except CommandRefused as error:
                if isinstance(error, redis.exceptions.NoPermissionError):
                    raise  # older servers do not know each of them
        connection.send_packed_command([b"SYNC\r\n"])
        yield connection._sock
    except OSError as error:
        raise BrokenSnapshot(type(error).__name__) from None
    finally:
        connection.disconnect()
        pool.release(connection)


def _announced(stream: BinaryIO) -> int | bytes:
    """Return the length of the file, or the mark that ends it. Until the file is ready the server sends empty lines."""
    while True:
        line = stream.readline(256)
        if line == b"\n":
            continue
        if line.startswith(b"$EOF:"):
            return line[5:].strip()
        if line.startswith(b"$") and line[1:].strip().isdigit():
            return int(line[1:])
        if line.startswith(b"-NOPERM"):
            raise redis.exceptions.NoPermissionError("its user may not copy it")
        raise BrokenSnapshot("it sent no file")


def _bytes(stream: BinaryIO, sink: BinaryIO, length: int) -> int:
    left = length
    while left:
        chunk = stream.read(min(left, _CHUNK))
        _check(chunk, first=left == length)
        sink.write(chunk)
        left -= len(chunk)
    return length


def _until(stream: BinaryIO, sink: BinaryIO, mark: bytes) -> int:
    written, buffered = 0, b""
    while not buffered.endswith(mark):
        chunk: bytes = stream.read1(_CHUNK)  # type: ignore[attr-defined] # a buffered stream has it
        _check(buffered + chunk if chunk else chunk, first=not written)
        # The end of what has come may be a part of the mark.
        buffered += chunk
        ready = buffered[: max(len(buffered) - _MARK, 0)]
        sink.write(ready)
        written, buffered = written + len(ready), buffered[len(ready) :]
    return written


def _check(chunk: bytes, *, first: bool) -> None:
    if not chunk:
        raise BrokenSnapshot("it ended before the file did")
    if first and len(chunk) >= len(_BEGINNINGS[0]) and not chunk.startswith(_BEGINNINGS):
        raise BrokenSnapshot("it sent something else")
