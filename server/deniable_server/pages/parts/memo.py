"""Parts of pages that are slow to make, kept until something is published or deleted."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

    from deniable_aggregator.store import Store

K = TypeVar("K", bound="Hashable")
T = TypeVar("T")

_MOST = 256  # of each store
_parts: WeakKeyDictionary[Store, dict[Hashable, Any]] = WeakKeyDictionary()
_lock = Lock()


def once(
    store: Store,
    about: Hashable,  # all that the part depends on: the state of what is published, and what was asked for
    make: Callable[[], T],
) -> T:
    """Return a part that was made before, or make it."""
    return parts(store, {about: about}, lambda _: {about: make()})[about]


def parts(
    store: Store,
    about: Mapping[K, Hashable],  # of each part all that it depends on
    make: Callable[[Sequence[K]], Mapping[K, T]],  # makes several together
) -> dict[K, T]:
    """Return parts that were made before, and make the others."""
    with _lock:
        known = _parts.setdefault(store, {})
        ready: dict[K, T] = {name: known[on] for name, on in about.items() if on in known}
    missing = [name for name in about if name not in ready]
    if not missing:
        return ready
    new = make(missing)  # outside the lock: nobody waits while somebody makes other parts
    with _lock:
        known.update({about[name]: part for name, part in new.items()})
        while len(known) > _MOST:
            del known[next(iter(known))]
    return {**ready, **new}
