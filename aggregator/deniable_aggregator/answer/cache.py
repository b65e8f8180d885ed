"""What was computed about a tally before. It serves what is slow and asked for again."""

from __future__ import annotations

from hashlib import sha256
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from deniable_aggregator.tally import Tally

T = TypeVar("T")

_MOST_REMEMBERED = 32
_remembered: dict[tuple[object, ...], Any] = {}
_lock = Lock()


def once(about: tuple[object, ...], counted: Tally, compute: Callable[[], T]) -> T:
    """Return what was computed about this tally before, or compute it."""
    key = (*about, sha256(counted.cells.tobytes()).digest())
    with _lock:
        found: T | None = _remembered.get(key)
    if found is None:
        found = compute()
        with _lock:
            _remembered[key] = found
            while len(_remembered) > _MOST_REMEMBERED:
                del _remembered[next(iter(_remembered))]
    return found
