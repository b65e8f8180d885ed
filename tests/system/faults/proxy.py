"""A proxy on loopback that drops, delays and cuts off connections when it is told to."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress


class Proxy:
    """Passes bytes on to a port of this machine.

    Parameters
    ----------
    upstream
        The port.
    """

    def __init__(self, upstream: int) -> None:
        self.upstream = upstream
        self.port = 0
        self.delay = 0.0
        """Seconds for which each piece is held back."""
        self.deaf = False
        """Whether answers are thrown away, and the connection with them: what was asked for is done all the same."""
        self._writers: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self):
        self._thread.start()
        assert self._ready.wait(60)
        return self

    def __exit__(self, *_):
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(60)

    def drop(self) -> None:
        """Close every connection, whatever is under way on it."""
        self._loop.call_soon_threadsafe(self._drop)

    def _drop(self) -> None:
        for writer in list(self._writers):
            writer.transport.abort()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stop.wait()
        server.close()
        self._drop()
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        away = None
        try:
            behind, away = await asyncio.open_connection("127.0.0.1", self.upstream)
            self._writers.add(away)
            there, back = self._pump(reader, away), self._pump(behind, writer, answers=True)
            pumps = [asyncio.ensure_future(there), asyncio.ensure_future(back)]
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            for end in filter(None, (writer, away)):
                self._writers.discard(end)
                end.close()
                with suppress(OSError):
                    await end.wait_closed()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, answers: bool = False) -> None:
        with suppress(OSError):
            while piece := await reader.read(65536):
                if self.delay:
                    await asyncio.sleep(self.delay)
                if answers and self.deaf:
                    return
                writer.write(piece)
                await writer.drain()
