"""Imports in the sending threads, which no fork may happen amid.

A child would inherit the lock of a module that is half imported, with nobody to release it; and wait for ever, not only in these
threads, but where the host app imports the same module.
"""

from __future__ import annotations

from contextlib import contextmanager
from threading import RLock
from typing import TYPE_CHECKING

from deniable.process.forks import over_forks

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["undisturbed"]

_gates = [RLock()]


def _reset() -> None:
    _gates[0] = RLock()


@contextmanager
def undisturbed() -> Iterator[None]:
    """Import amid this; a fork waits for it."""
    with _gates[0]:
        yield


over_forks(lambda: _gates, _reset)
