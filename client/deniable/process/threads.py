"""Threads for what an event loop must not wait for."""

from __future__ import annotations

from threading import Thread
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["in_own_thread"]

T = TypeVar("T")


async def in_own_thread(function: Callable[[], T], name: str) -> T:
    """Run a function in a thread of its own and return its result. If the caller stops waiting, the function goes on.

    The threads of the event loop itself may all be busy.

    Parameters
    ----------
    function
        What to run.
    name
        Of the thread.
    """
    import asyncio  # noqa: PLC0415 - whoever calls this has it
    from concurrent.futures import Future  # noqa: PLC0415 - and this with it

    done: Future[T] = Future()
    done.set_running_or_notify_cancel()  # from here on the caller cannot cancel it

    def run() -> None:
        try:
            done.set_result(function())
        except Exception as error:  # noqa: BLE001 - raised where it is waited for
            done.set_exception(error)

    Thread(target=run, name=name, daemon=True).start()
    return await asyncio.wrap_future(done)
