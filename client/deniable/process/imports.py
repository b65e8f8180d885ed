"""Imports in the sending threads: a fork waits until they are done.

A child that is forked during an import inherits the lock of a half-imported module, and nobody releases it. The child would wait
for ever, even if the host app imports the same module.
"""

from __future__ import annotations

from contextlib import contextmanager
from threading import RLock
from typing import TYPE_CHECKING

from deniable.process.forks import over_forks

if TYPE_CHECKING:
    from collections.abc import Iterator

_gates = [RLock()]


def _reset() -> None:
    _gates[0] = RLock()


@contextmanager
def undisturbed() -> Iterator[None]:
    """Import inside this block; a fork waits for its end."""
    with _gates[0]:
        yield


over_forks(lambda: _gates, _reset)
