"""Forks and locks: a fork waits until our locks are free, and the child has new ones.

A forked child has one thread. A lock that another thread held at the fork would stay locked in the child for ever.
"""

from __future__ import annotations

from threading import local
from typing import TYPE_CHECKING, Protocol

from deniable.platform.forks import at_fork

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_PATIENCE = 2.0


class _Lock(Protocol):
    def acquire(self, blocking: bool = ..., timeout: float = ...) -> bool: ...  # noqa: FBT001 - as in `threading`

    def release(self) -> None: ...


def over_forks(
    # Returns the present locks, in the order in which all code takes them. They must be re-entrant: a signal handler that forks
    # may interrupt the thread that holds one.
    locks: Callable[[], Iterable[_Lock]],
    reset: Callable[[], None],  # replaces them; called in the child after its locks were released
    patience: float = _PATIENCE,  # seconds to wait for each lock; then the fork goes on, and the child gets what was half done
) -> None:
    """Hold locks while this process forks, and replace them in the child."""
    held = local()

    def hold() -> None:
        for lock in tuple(locks()):
            if lock.acquire(timeout=patience):
                held.taken = [*getattr(held, "taken", ()), lock]

    def release() -> None:
        while getattr(held, "taken", None):
            held.taken.pop().release()

    def reset_child() -> None:
        release()
        reset()

    at_fork(before=hold, in_parent=release, in_child=reset_child)
