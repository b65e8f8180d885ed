"""What a fork must not copy amid: locks. Whoever forks takes them first, and the child begins with new ones.

A child has one thread. What another one held when it was copied, nobody would ever release.
"""

from __future__ import annotations

import os
from threading import local
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["over_forks"]

_PATIENCE = 2.0  # seconds to wait for each: better a child that may hang than a host app that surely does


class _Lock(Protocol):
    def acquire(self, blocking: bool = ..., timeout: float = ...) -> bool: ...  # noqa: FBT001 - as threading has it

    def release(self) -> None: ...


def over_forks(locks: Callable[[], Iterable[_Lock]], reset: Callable[[], None]) -> None:
    """Have locks held while this process forks, and something done in the child.

    Parameters
    ----------
    locks
        Returns those of the moment, in the order in which they are taken everywhere. Each may be taken again by the thread
        that has it: a signal handler that forks may have interrupted just that one.
    reset
        Replaces them in the child, where they were released: what the handler interrupted may wait for one of the old.
    """
    if not hasattr(os, "register_at_fork"):  # Windows has no fork
        return
    held = local()

    def hold() -> None:
        for lock in tuple(locks()):
            if lock.acquire(timeout=_PATIENCE):
                held.taken = [*getattr(held, "taken", ()), lock]

    def release() -> None:
        while getattr(held, "taken", None):
            held.taken.pop().release()

    def reset_child() -> None:
        release()
        reset()

    os.register_at_fork(before=hold, after_in_parent=release, after_in_child=reset_child)
