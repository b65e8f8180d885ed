"""A cache of slow computations about tallies, which are often asked for again."""

from __future__ import annotations

from hashlib import sha256
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from deniable_aggregator.tally import Tally

T = TypeVar("T")

_MOST_CACHED = 32
_results: dict[tuple[object, ...], Any] = {}
_lock = Lock()


def once(about: tuple[object, ...], counted: Tally, compute: Callable[[], T]) -> T:
    """Return what was computed about this tally before, or compute it."""
    key = (*about, sha256(counted.cells.tobytes()).digest())
    with _lock:
        computed: T | None = _results.get(key)
    if computed is None:
        # Outside the lock: two threads may compute the same, but none waits while another computes something else.
        computed = compute()
        with _lock:
            _results[key] = computed
            # The oldest go first.
            while len(_results) > _MOST_CACHED:
                del _results[next(iter(_results))]
    return computed
