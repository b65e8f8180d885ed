"""Parts of pages that are slow to make, kept until something is published or deleted."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from deniable_aggregator.store import Store

T = TypeVar("T")

_MOST = 64  # of each store
_parts: WeakKeyDictionary[Store, dict[Hashable, Any]] = WeakKeyDictionary()
_lock = Lock()


def once(
    store: Store,
    about: Hashable,  # all that the part depends on: the state of what is published, and what was asked for
    make: Callable[[], T],
) -> T:
    """Return a part that was made before, or make it."""
    with _lock:
        known = _parts.setdefault(store, {})
        if about in known:
            part: T = known[about]
            return part
    part = make()  # outside the lock: nobody waits while somebody makes another part
    with _lock:
        known[about] = part
        while len(known) > _MOST:
            del known[next(iter(known))]
    return part
