"""Threads for functions that would block an event loop."""

from __future__ import annotations

from threading import Thread
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


async def in_own_thread(
    function: Callable[[], T],
    name: str,  # name of the thread
) -> T:
    """Run a function in its own thread and return its result. If the caller stops waiting, the function goes on."""
    import asyncio  # noqa: PLC0415 - the caller has imported it
    from concurrent.futures import Future  # noqa: PLC0415 - imported with `asyncio`

    done: Future[T] = Future()
    done.set_running_or_notify_cancel()  # now the caller cannot cancel it

    def run() -> None:
        try:
            done.set_result(function())
        except Exception as error:  # noqa: BLE001 - raised in the caller
            done.set_exception(error)

    # The event loop's own threads are not used, because they may all be busy.
    Thread(target=run, name=name, daemon=True).start()
    return await asyncio.wrap_future(done)
