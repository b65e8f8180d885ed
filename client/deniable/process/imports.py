"""Imports in the sending threads: a fork waits until they are done.

A child that is forked during an import inherits a half-imported module with its lock, and nobody releases it. The child would
wait for ever, even if the host app imports the same module. Or, if its new thread has the id of the one that imported, the lock
counts as its own: the import gives half a module, and the child loses its reports.
"""

from __future__ import annotations

from contextlib import contextmanager
from threading import RLock
from typing import TYPE_CHECKING

from deniable.process.forks import over_forks

if TYPE_CHECKING:
    from collections.abc import Iterator

# A child can replace a lock of ours, but not a half-imported module. So a fork waits longer than for other locks: on a busy
# machine an import takes many seconds. It does not wait for ever, since a signal handler may fork amid an import of the host app
# for which ours waits.
_PATIENCE = 30.0

_gates = [RLock()]


def _reset() -> None:
    _gates[0] = RLock()


@contextmanager
def undisturbed() -> Iterator[None]:
    """Import inside this block; a fork waits for its end."""
    with _gates[0]:
        yield


over_forks(lambda: _gates, _reset, _PATIENCE)
